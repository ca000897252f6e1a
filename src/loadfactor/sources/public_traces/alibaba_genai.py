"""The GPUs of Alibaba's image-generation fleet (cluster-trace-v2026-GenAI).

Every pod holds one GPU, known by the pod's name, from one step before its first duty-cycle sample to its last. Duty cycle is
GPU_UTIL: a kernel was resident. Requests are served as progress where the trace says by which pod: a rate (scaled requests a
second) times the step, over the step that ends at the timestamp. The step is the median distance of a pod's samples, over all pods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S, PERCENT
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.files import find_csvs_with, read_with
from loadfactor.sources.parsing.csv_text import BATCH_ROWS
from loadfactor.sources.parsing.steps import learn_step
from loadfactor.sources.public_traces import convert_seconds, read_columns
from loadfactor.tables.columns import Kind

POOL: Final = "genai"
_DUTY, _MEMORY, _QPS = "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes", "qps"
_KINDS: Final[dict[str, Kind]] = {"container_ip": "text", "timestamp_anon": "amount", "value": "amount"}
_FEW: Final = 3  # a pod with fewer samples does not show the step itself, so its intervals are stated


@dataclass(frozen=True)
class _PodSeries:
    """One kind of measurement of all pods, sorted by pod and time, one value an instant."""

    pods: tuple[str, ...]
    pod: NDArray[np.int64]  # index into pods
    at_ms: NDArray[np.int64]
    value: NDArray[np.float64]  # NaN where the trace has an empty cell


def decode_genai(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of the trace's files; each is known by its name. There must be one of duty cycles."""
    duty_files, memory_files, rate_files = ([i for i in inputs if part in i.name] for part in (_DUTY, _MEMORY, _QPS))
    where = duty_files[0].label
    pool = options.pool or POOL
    duty = _read_series(duty_files, ())
    # The trace's nominal step: as given, else the median distance between neighbouring samples of a pod.
    step_ms = learn_step(np.diff(duty.at_ms)[duty.pod[1:] == duty.pod[:-1]], options.step_s)
    if step_ms is None:
        raise SourceError(f"{where}: no pod has two samples, so the step is not known; give it with --step")
    yield from _make_holders(duty, step_ms, pool, where)
    memory = _read_series(memory_files, duty.pods) if memory_files else None
    if memory is None:
        yield Gap(where, f"no *{_MEMORY}* beside it: memory in use is not known")
    yield from _make_samples(duty, memory, step_ms, where)
    if memory is not None:
        unmatched = int((~np.isin(*_number_keys(memory, duty))).sum())
        if unmatched:
            yield Gap(memory_files[0].label, "memory in use at times without a duty cycle of the pod", unmatched)
    for source in rate_files:
        yield from _make_progress(source, step_ms)


def _read_series(inputs: list[Input], pods: tuple[str, ...]) -> _PodSeries:
    """All files of one kind; `pods` come first in the numbering. Of two values at one instant the later row counts."""
    rows = pa.concat_tables([_read_timed(source, ("container_ip", "timestamp_anon")) for source in inputs])
    names = tuple(dict.fromkeys([*pods, *pc.unique(rows["container_ip"]).to_pylist()]))
    pod = pc.index_in(rows["container_ip"], pa.array(names)).to_numpy().astype(np.int64)
    at_ms = rows["at_ms"].to_numpy()
    value = rows["value"].to_numpy().astype(np.float64)
    order = np.lexsort((at_ms, pod))  # stable: rows of one instant keep their order
    pod, at_ms, value = pod[order], at_ms[order], value[order]
    last = np.append((pod[1:] != pod[:-1]) | (at_ms[1:] != at_ms[:-1]), True)
    return _PodSeries(names, pod[last], at_ms[last], value[last])


def _read_timed(source: Input, needed: tuple[str, ...]) -> pa.Table:
    rows = read_columns(source, _KINDS, needed)
    at_ms = convert_seconds(rows["timestamp_anon"], source.label, "timestamp_anon")
    return rows.drop_columns("timestamp_anon").append_column("at_ms", at_ms)


def _number_keys(one: _PodSeries, two: _PodSeries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pod and time of each sample as one number, the same in both series."""
    times = np.unique(np.concatenate([one.at_ms, two.at_ms]))
    keys = [s.pod * len(times) + np.searchsorted(times, s.at_ms) for s in (one, two)]
    return keys[0], keys[1]


def _make_holders(duty: _PodSeries, step_ms: int, pool: str, where: str) -> Iterator[Rows]:
    first = np.append(True, duty.pod[1:] != duty.pod[:-1])
    pods = pa.array([duty.pods[i] for i in duty.pod[first]])
    extent = {
        "from_utc": pa.array(duty.at_ms[first] - step_ms),
        "to_utc": pa.array(duty.at_ms[np.append(first[1:], True)]),
    }
    pools = pa.array([pool] * len(pods), pa.string())
    purpose = pa.array(["serving"] * len(pods), pa.string())
    devices = pa.table({"device_id": pods, "pool": pools, **extent})
    allocations = pa.table({"job_id": pods, "device_id": pods, "pool": pools, "purpose": purpose, **extent})
    for i in range(0, len(pods), BATCH_ROWS):
        yield Rows("devices", devices.slice(i, BATCH_ROWS), where)
        yield Rows("allocations", allocations.slice(i, BATCH_ROWS), where)


def _make_samples(duty: _PodSeries, memory: _PodSeries | None, step_ms: int, where: str) -> Iterator[Rows | Gap]:
    used = np.full(len(duty.at_ms), np.nan)
    if memory is not None and len(memory.at_ms):
        keys, keys_of_duty = _number_keys(memory, duty)
        at = np.minimum(np.searchsorted(keys, keys_of_duty), len(keys) - 1)
        used = np.where(keys[at] == keys_of_duty, memory.value[at], np.nan)
    empty = int(np.isnan(duty.value).sum())
    if empty:
        yield Gap(where, "duty cycle without a value", empty)
    few = np.bincount(duty.pod)[duty.pod] < _FEW
    since = np.maximum(duty.at_ms - step_ms, np.append(0, np.where(duty.pod[1:] == duty.pod[:-1], duty.at_ms[:-1], 0)))
    data = pa.table(
        {
            "device_id": pa.array(duty.pods).take(pa.array(duty.pod)),
            "from_utc": pa.array(since, mask=~few),
            "to_utc": pa.array(duty.at_ms),
            "busy_share": pa.array(duty.value / PERCENT, mask=np.isnan(duty.value)),
            "mem_used_bytes": pa.array(used, mask=np.isnan(used)),
        }
    )
    for i in range(0, data.num_rows, BATCH_ROWS):
        yield Rows("samples", data.slice(i, BATCH_ROWS), where)


def _make_progress(source: Input, step_ms: int) -> Iterator[Rows | Gap]:
    """Requests served by a pod in the step that ends at the timestamp, all types of request together."""
    rows = _read_timed(source, ("timestamp_anon",))
    named = pc.is_valid(rows["container_ip"])
    whose = rows.filter(pc.and_(named, pc.is_valid(rows["value"])))
    nobody = rows.num_rows - (pc.sum(named).as_py() or 0)
    if nobody:
        yield Gap(source.label, "rates of requests that name no pod", nobody)
    if rows.num_rows - nobody > whose.num_rows:
        yield Gap(source.label, "rates of requests without a value", rows.num_rows - nobody - whose.num_rows)
    rates = whose.group_by(["container_ip", "at_ms"], use_threads=False).aggregate([("value", "sum")])
    data = pa.table(
        {
            "job_id": rates["container_ip"],
            "from_utc": pc.subtract(rates["at_ms"], step_ms),
            "to_utc": rates["at_ms"],
            "unit": pa.array(["request"] * rates.num_rows, pa.string()),
            "amount": pc.divide(pc.multiply(rates["value_sum"], float(step_ms)), float(MS_PER_S)),
        }
    )
    for i in range(0, data.num_rows, BATCH_ROWS):
        yield Rows("progress", data.slice(i, BATCH_ROWS), source.label)


SOURCE = Source(
    "alibaba-genai",
    find_csvs_with({_DUTY: True, _MEMORY: False, _QPS: False}, "Alibaba's GenAI trace"),
    read_with(decode_genai),
    uses=("pool", "step"),
)
