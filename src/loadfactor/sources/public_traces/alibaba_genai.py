"""How busy were the GPUs of Alibaba's image-generation fleet? (cluster-trace-v2026-GenAI)

Every pod holds one GPU, known by the pod's name, from one step before its first duty-cycle sample to its last. Duty cycle is
GPU_UTIL: a kernel was resident. Requests are served as progress where the trace says by which pod: a rate (scaled requests a
second) times the step, over the step that ends at the timestamp. The step is the median distance of a pod's samples, over all pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.parsing.csv_text import BATCH_ROWS
from loadfactor.sources.public_traces.trace_csv import trace_files, whole
from loadfactor.tables import Kind
from loadfactor.units import MS_PER_S, PERCENT

POOL: Final = "genai"
_DUTY, _MEMORY, _QPS = "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes", "qps"
_KINDS: Final[dict[str, Kind]] = {"container_ip": "text", "timestamp_anon": "amount", "value": "amount"}
_FEW: Final = 3  # a pod with fewer samples does not show the step itself, so its intervals are stated


@dataclass(frozen=True)
class _Series:
    """One kind of measurement of all pods, sorted by pod and time, one value an instant."""

    pods: tuple[str, ...]
    pod: NDArray[np.int64]  # index into pods
    at_ms: NDArray[np.int64]
    value: NDArray[np.float64]  # NaN where the trace has an empty cell


def _files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return trace_files(paths, {_DUTY: True, _MEMORY: False, _QPS: False}, "Alibaba's GenAI trace")


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    def of(part: str) -> list[Path]:
        return [p for p in paths if part in p.name]

    where = str(of(_DUTY)[0])
    pool = options.pool or POOL
    duty = _series(of(_DUTY), ())
    step_ms = _step_ms(duty, options, where)
    yield from _holders(duty, step_ms, pool, where)
    memory = _series(of(_MEMORY), duty.pods) if of(_MEMORY) else None
    if memory is None:
        yield Gap(where, f"no *{_MEMORY}* beside it: memory in use is not known")
    yield from _samples(duty, memory, step_ms, where)
    if memory is not None:
        unmatched = int((~np.isin(*_keys(memory, duty))).sum())
        if unmatched:
            yield Gap(str(of(_MEMORY)[0]), "memory in use at times without a duty cycle of the pod", unmatched)
    for path in of(_QPS):
        yield from _requests(path, step_ms)


def _series(paths: list[Path], pods: tuple[str, ...]) -> _Series:
    """All files of one kind; `pods` come first in the numbering. Of two values at one instant the later row counts."""
    rows = pa.concat_tables([_timed(path, ("container_ip", "timestamp_anon")) for path in paths])
    names = tuple(dict.fromkeys([*pods, *pc.unique(rows["container_ip"]).to_pylist()]))
    pod = pc.index_in(rows["container_ip"], pa.array(names)).to_numpy().astype(np.int64)
    at_ms = rows["at_ms"].to_numpy()
    value = rows["value"].to_numpy().astype(np.float64)
    order = np.lexsort((at_ms, pod))  # stable: rows of one instant keep their order
    pod, at_ms, value = pod[order], at_ms[order], value[order]
    last = np.append((pod[1:] != pod[:-1]) | (at_ms[1:] != at_ms[:-1]), True)
    return _Series(names, pod[last], at_ms[last], value[last])


def _timed(path: Path, needed: tuple[str, ...]) -> pa.Table:
    """The columns of one file, with the time in milliseconds."""
    rows = whole(path, _KINDS, needed)
    try:
        at_ms = pc.cast(pc.round(pc.multiply(rows["timestamp_anon"], float(MS_PER_S))), pa.int64())
    except pa.ArrowInvalid:
        raise SourceError(f"{path}: timestamp_anon holds a number that is no time; is the file damaged?") from None
    return rows.drop_columns("timestamp_anon").append_column("at_ms", at_ms)


def _keys(one: _Series, two: _Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pod and time of each sample as one number, the same in both series."""
    times = np.unique(np.concatenate([one.at_ms, two.at_ms]))
    keys = [s.pod * len(times) + np.searchsorted(times, s.at_ms) for s in (one, two)]
    return keys[0], keys[1]


def _step_ms(duty: _Series, options: ReadOptions, where: str) -> int:
    """The trace's nominal step: as told, else the median distance between neighbouring samples of a pod."""
    if options.step_s is not None:
        return round(options.step_s * MS_PER_S)
    gaps = np.diff(duty.at_ms)[duty.pod[1:] == duty.pod[:-1]]
    if not len(gaps):
        raise SourceError(f"{where}: no pod has two samples, so the step is not known; give it with --step")
    return int(np.median(gaps))


def _holders(duty: _Series, step_ms: int, pool: str, where: str) -> Iterator[Rows]:
    """Each pod is its GPU and holds it as long as it is seen."""
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


def _samples(duty: _Series, memory: _Series | None, step_ms: int, where: str) -> Iterator[Rows | Gap]:
    """Duty cycle and, where it was taken at the same instant, memory in use."""
    used = np.full(len(duty.at_ms), np.nan)
    if memory is not None and len(memory.at_ms):
        keys, wanted = _keys(memory, duty)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        used = np.where(keys[at] == wanted, memory.value[at], np.nan)
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


def _requests(path: Path, step_ms: int) -> Iterator[Rows | Gap]:
    """Requests served by a pod in the step that ends at the timestamp, all types of request together."""
    rows = _timed(path, ("timestamp_anon",))
    named = pc.is_valid(rows["container_ip"])
    whose = rows.filter(pc.and_(named, pc.is_valid(rows["value"])))
    nobody = rows.num_rows - (pc.sum(named).as_py() or 0)
    if nobody:
        yield Gap(str(path), "rates of requests that name no pod", nobody)
    if rows.num_rows - nobody > whose.num_rows:
        yield Gap(str(path), "rates of requests without a value", rows.num_rows - nobody - whose.num_rows)
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
        yield Rows("progress", data.slice(i, BATCH_ROWS), str(path))


SOURCE = Source(
    "alibaba-genai", "folder of Alibaba's cluster-trace-v2026-GenAI: duty cycle, memory, requests", _files, _read
)
