"""What did the pods of Alibaba's GPU-sharing cluster ask for, wait for and hold? (cluster-trace-gpu-v2023, "openb")

Nodes become devices, pods with GPUs become allocations of a share of GPUs somewhere in the pool, because the trace does not say
on which GPU or node a pod ran. Second 0 of the trace is booked as 1970-01-01T00:00Z, because the trace gives no date. The fleet is
installed from second 0 to the last time in the pod list (12,902,960 s); pods that end there were still running.

Of the 897 pods that were never scheduled (all of phase Pending) 861 ask for GPUs: they are submitted and never started, so their
wait is censored. The other 36 are among the 1,088 pods that ask for no GPU at all, which are counted as a gap. `pod_phase` is a
snapshot taken once; it is kept as the end state although Running pods have an end.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.parsing.csv_text import BATCH_ROWS
from loadfactor.sources.public_traces.trace_csv import trace_files, whole
from loadfactor.tables import Kind
from loadfactor.units import MS_PER_S

POOL: Final = "openb"
GPU_MILLI: Final = 1000  # the trace counts thousandths of a GPU
_NODES, _PODS = "openb_node_list", "openb_pod_list"
_NODE: Final[dict[str, Kind]] = {"sn": "text", "gpu": "count", "model": "text"}
_POD: Final[dict[str, Kind]] = {
    "name": "text",
    "num_gpu": "count",
    "gpu_milli": "count",
    "pod_phase": "text",
    "creation_time": "amount",
    "deletion_time": "amount",
    "scheduled_time": "amount",
}


def _files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    found = trace_files(paths, {_NODES: True, _PODS: True}, "Alibaba's openb trace")
    for part in (_NODES, _PODS):
        several = [f.name for f in found if part in f.name]
        if len(several) > 1:
            raise SourceError(f"{', '.join(several)}: the trace has one list of each kind; name the two files to read")
    return found


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    node_file = next(p for p in paths if _NODES in p.name)
    pod_file = next(p for p in paths if _PODS in p.name)
    pool = options.pool or POOL
    pods = whole(pod_file, _POD, ("name", "num_gpu", "gpu_milli", "creation_time"))
    for name in ("creation_time", "deletion_time", "scheduled_time"):
        pods = pods.set_column(pods.column_names.index(name), name, _instants(pods[name], pod_file, name))
    ends = [pc.max(pods[name]).as_py() for name in ("creation_time", "deletion_time", "scheduled_time")]
    yield from _devices(node_file, pool, max(e for e in ends if e is not None))
    asks = pods.filter(pc.greater_equal(pods["num_gpu"], 1))
    if asks.num_rows < pods.num_rows:
        yield Gap(str(pod_file), "pods ask for no GPU: not booked", pods.num_rows - asks.num_rows)
    for i in range(0, asks.num_rows, BATCH_ROWS):
        batch = asks.slice(i, BATCH_ROWS)
        yield Rows("allocations", _allocations(batch.filter(pc.is_valid(batch["scheduled_time"])), pool), str(pod_file))
        yield Rows("queue_events", _queue_events(batch, pool), str(pod_file))


def _devices(path: Path, pool: str, end_ms: int) -> Iterator[Rows]:
    """One device per GPU of every node."""
    nodes = whole(path, _NODE, ("sn", "gpu"))
    gpus = nodes["gpu"].to_numpy()
    if not np.isfinite(gpus).all() or (gpus < 0).any() or (gpus > GPU_MILLI).any() or (gpus % 1).any():
        raise SourceError(f"{path}: gpu holds something else than a number of GPUs; is the file damaged?")
    counts = gpus.astype(np.int64)
    each = pa.array(np.repeat(np.arange(nodes.num_rows), counts))
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    names = nodes["sn"].take(each)
    data = pa.table(
        {
            "device_id": pc.binary_join_element_wise(names, pa.array(within).cast(pa.string()), "/"),
            "node": names,
            "accelerator": nodes["model"].take(each),
            "pool": pa.array([pool] * len(each), pa.string()),
            "from_utc": pa.array(np.zeros(len(each), dtype=np.int64)),
            "to_utc": pa.array(np.full(len(each), end_ms, dtype=np.int64)),
        }
    )
    for i in range(0, data.num_rows, BATCH_ROWS):
        yield Rows("devices", data.slice(i, BATCH_ROWS), str(path))


def _allocations(pods: pa.Table, pool: str) -> pa.Table:
    """Scheduled pods: so many GPUs, this share of each, somewhere in the pool."""
    return pa.table(
        {
            "job_id": pods["name"],
            "pool": pa.array([pool] * pods.num_rows, pa.string()),
            "gpus": pods["num_gpu"],
            "share": pc.divide(pods["gpu_milli"], float(GPU_MILLI)),
            "from_utc": pods["scheduled_time"],
            "to_utc": pods["deletion_time"],
            "end_state": pods["pod_phase"],
        }
    )


def _queue_events(pods: pa.Table, pool: str) -> pa.Table:
    """Every pod is submitted; those that were scheduled are started too."""
    gpus = pc.divide(pc.multiply(pods["num_gpu"], pods["gpu_milli"]), float(GPU_MILLI))
    started = pc.is_valid(pods["scheduled_time"])

    def events(event: str, kept: pa.Table, at: str, amounts: pa.ChunkedArray) -> pa.Table:
        count = kept.num_rows
        return pa.table(
            {
                "job_id": kept["name"],
                "at_utc": kept[at],
                "event": pa.array([event] * count, pa.string()),
                "gpus": amounts,
                "pool": pa.array([pool] * count, pa.string()),
            }
        )

    return pa.concat_tables(
        [
            events("submitted", pods, "creation_time", gpus),
            events("started", pods.filter(started), "scheduled_time", gpus.filter(started)),
        ]
    )


def _instants(seconds: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    """Seconds of the trace as instants."""
    try:
        return pc.cast(pc.round(pc.multiply(seconds, float(MS_PER_S))), pa.int64())
    except pa.ArrowInvalid:
        raise SourceError(f"{path}: {name} holds a number that is no time; is the file damaged?") from None


SOURCE = Source("alibaba-openb", "folder of Alibaba's cluster-trace-gpu-v2023: nodes and pods", _files, _read)
