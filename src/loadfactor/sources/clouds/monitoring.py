"""Cloud Monitoring: saved answers of ListTimeSeries."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_MIN
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import (
    NAME,
    CloudSeries,
    as_list,
    as_object,
    decode_series,
    name_gpu,
    split_documents,
)
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.prometheus.families import GKE_TYPES, OPS_AGENT_TYPE

PROMETHEUS_TYPE: Final = "prometheus.googleapis.com/"
DCGM_TYPE: Final = f"{PROMETHEUS_TYPE}DCGM_FI_"
ASKED: Final = (OPS_AGENT_TYPE, *GKE_TYPES, DCGM_TYPE)
"""How the types of metrics begin that are requested."""
_SHARES: Final = ("utilization", "duty_cycle")
_NUMBERED: Final = re.compile(r"(?:nvidia)?\d{1,2}")
_MEMORY: Final = "memory/bytes_used"


def is_kept(metric_type: str) -> bool:
    """Whether series of this type are kept.

    >>> is_kept("agent.googleapis.com/gpu/utilization"), is_kept("kubernetes.io/container/accelerator/request")
    (True, False)
    """
    if metric_type.startswith(DCGM_TYPE):
        return True
    begin = next((one for one in ASKED if metric_type.startswith(one)), None)
    return begin is not None and metric_type.removeprefix(begin) in (*_SHARES, _MEMORY, "memory_used", "memory_total")


def read_time_series(
    found: Iterable[Any], job: str, label: str, leave_out: Callable[[str], None]
) -> Iterator[CloudSeries]:
    """The series of GPUs among these; `job`: what to call where they come from. Raises SourceError for what is no time series."""
    for one in found:
        entry = as_object(one, label)
        metric, resource = as_object(entry.get("metric"), label), as_object(entry.get("resource"), label)
        metric_type = str(metric.get("type", ""))
        if not is_kept(metric_type):
            leave_out("time series that are not of GPUs")
            continue
        places = {str(k): str(v) for k, v in as_object(resource.get("labels") or {}, label).items()}
        metric_labels = {str(k): str(v) for k, v in as_object(metric.get("labels") or {}, label).items()}
        system = as_object(as_object(entry.get("metadata") or {}, label).get("systemLabels") or {}, label)
        labels = _read_labels(metric_type, metric_labels, places, system, job)
        if labels is None:
            leave_out("time series that do not say which GPU it is")
            continue
        points = [_read_point(as_object(point, label), label) for point in as_list(entry.get("points"), label)]
        yield CloudSeries(
            labels, points
        )  # shares are percentages, whatever their unit says: the Ops Agent writes 100 times NVML's


def _read_labels(
    metric_type: str, metric_labels: Mapping[str, str], places: Mapping[str, str], system: Mapping[str, Any], job: str
) -> dict[str, str] | None:
    if metric_type.startswith(PROMETHEUS_TYPE):
        name = metric_type.removeprefix(PROMETHEUS_TYPE).partition("/")[0]
        return {**metric_labels, NAME: name, "job": job}
    labels = {NAME: metric_type, "job": job}
    if metric_type.endswith(_MEMORY):
        labels[NAME] += f"/{metric_labels.get('memory_state', '')}"
    if metric_labels.get("model"):
        labels["modelname"] = metric_labels["model"]
    if places.get("pod_name"):
        labels |= {"pod": places["pod_name"], "namespace": places.get("namespace_name", "")}
    node = str(
        system.get("node_name") or places.get("node_name") or system.get("name") or places.get("instance_id") or ""
    )
    uuid, number = (
        metric_labels.get("uuid") or metric_labels.get("accelerator_id", ""),
        metric_labels.get("gpu_number", ""),
    )
    if _NUMBERED.fullmatch(uuid):
        uuid, number = "", uuid
    if uuid:
        return {**labels, "uuid": uuid, **({"hostname": node} if node else {})}
    return name_gpu(node, number, labels) if node and number else None


def _read_point(point: Mapping[str, Any], label: str) -> tuple[int, float]:
    try:
        value = point["value"]
        number = next(float(value[kind]) for kind in ("doubleValue", "int64Value") if value.get(kind) is not None)
        at = datetime.fromisoformat(str(point["interval"]["endTime"]))
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        raise SourceError(f"{label}: a point without its time or a number; is it of ListTimeSeries?") from None
    return round(at.timestamp() * MS_PER_S), number


LARGEST_ANSWER_BYTES: Final = 256 * BYTES_PER_MIB


def decode_saved_monitoring(inputs: Sequence[Input], _options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of saved answers. Raises SourceError for what is none."""
    yield from decode_series(inputs, _read)


def _read(source: Input, leave_out: Callable[[str], None]) -> Iterator[CloudSeries]:
    content = join_pieces(source.label, source.chunks, LARGEST_ANSWER_BYTES, "save shorter times")
    try:
        pages = list(split_documents(content.decode()))
    except (ValueError, RecursionError):
        raise SourceError(f"{source.label} is no JSON of ListTimeSeries; is it whole?") from None
    for page in pages:
        found = (
            page if isinstance(page, list) else as_list(as_object(page, source.label).get("timeSeries"), source.label)
        )
        yield from read_time_series(found, "", source.label, leave_out)


SOURCE = Source(
    "gcp-monitoring",
    find_with((".json",), "JSON of ListTimeSeries"),
    read_with(decode_saved_monitoring),
    S_PER_MIN,
    watches=True,
    uses=("step", "job"),
)
