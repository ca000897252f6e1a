"""The identity of a series: its field, its GPU or MIG instance, and who held that."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from loadfactor.sources.dcgm.fields import BY_NAME, LABELS, PREFIX, SLICES, SLICES_ELSE, Field

_HEAD: Final = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(?P<labels>.*)\})?\s*")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_UUID: Final = re.compile(r"(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(?:::|-)\d+")
_INSTANCE: Final = re.compile(r"(?:^|\.)(\d+)g\.")
TOTAL: Final = "_total"  # OpenMetrics puts it behind the name of whatever only grows
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_EXPORTER: Final = "dcgm-exporter"
_LABELS_MAX: Final = 10_000
_Labels = tuple[
    str | None, str | None, str | None, str | None, int | None, str | None
]  # of SeriesIdentity, from gpu to holder


@dataclass(frozen=True)
class SeriesIdentity:
    """What a metric name with its labels says."""

    name: str
    field: Field | None  # None: a field that the tables do not keep
    gpu: str | None  # its UUID, or node/number; None: the line is of no GPU
    node: str | None
    model: str | None
    instance: str | None  # id of the MIG instance
    slices: int | None  # compute slices of that instance; None: the line does not say
    holder: str | None  # the job or pod


def parse_series(head: str, node: str | None, machine: str) -> SeriesIdentity | None:
    """What stands before the value; None when it is no exposition or no DCGM field.

    `node` is what the caller calls the machine, `machine` what to call it where nobody says.

    >>> s = parse_series('DCGM_FI_DEV_FB_USED{UUID="GPU-1",GPU_I_ID="9",GPU_I_PROFILE="1g.5gb",pod="p",namespace="n"}', None, "f")
    >>> s.gpu, s.instance, s.slices, s.holder
    ('GPU-1', '9', 1, 'n/p')
    """
    found = _HEAD.fullmatch(head)
    if found is None or not found["name"].startswith(PREFIX):
        return None
    name = found["name"]
    return SeriesIdentity(
        name, BY_NAME.get(name) or _find_total(name), *_read_labels(found["labels"] or "", node, machine)
    )


@lru_cache(_LABELS_MAX)  # a device has the same ones in all of its fields
def _read_labels(text: str, node: str | None, machine: str) -> _Labels:
    labels = {k.lower(): _unescape(v) for k, v in _LABEL.findall(text)}
    said = {ours: next((labels[n] for n in names if labels.get(n)), None) for ours, names in LABELS.items()}
    places = [labels[n] for n in LABELS["node"] if labels.get(n)]
    node = node or next((p for p in places if _EXPORTER not in p), None)  # Hostname may be the exporter's own pod
    gpu, index = said["uuid"], said["index"]
    if gpu is not None:
        gpu = _UUID.sub(r"\1", gpu)  # replicas of a time-sliced GPU are one GPU
    elif index is not None:
        node = node or said["node"]
        gpu = f"{node or machine}/{index}"
    slices = _INSTANCE.search(said["profile"] or "")
    holder = _find_holder(said["job"], said["pod"], said["namespace"])
    return gpu, node, said["model"], said["instance"], int(slices[1]) if slices else None, holder


def count_slices(model: str | None) -> int:
    """Compute slices that MIG cuts a GPU of this model into.

    >>> count_slices("NVIDIA A30"), count_slices("NVIDIA A100-SXM4-40GB")
    (4, 7)
    """
    words = f" {(model or '').replace('-', ' ')} "
    return next((count for name, count in SLICES.items() if f" {name} " in words), SLICES_ELSE)


def _find_total(name: str) -> Field | None:
    field = BY_NAME.get(name.removesuffix(TOTAL))
    return field if field is not None and (field.counts or field.either) else None


def _find_holder(job: str | None, pod: str | None, namespace: str | None) -> str | None:
    if job:
        return job
    if not pod or _EXPORTER in pod:  # a scraped label of the exporter itself
        return None
    return f"{namespace}/{pod}" if namespace else pod


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
