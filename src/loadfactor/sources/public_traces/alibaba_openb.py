"""The pods of Alibaba's GPU-sharing cluster: what they requested, waited for and held (cluster-trace-gpu-v2023, "openb").

Nodes become devices, pods with GPUs become allocations of a share of GPUs somewhere in the pool, because the trace does not say
on which GPU or node a pod ran. Second 0 of the trace is booked as 2023-01-01T00:00Z, because the trace gives no date. The fleet is
installed from second 0 to the last time in the pod list (12,902,960 s); pods that end there were still running.

Of the 897 pods that were never scheduled (all of phase Pending) 861 ask for GPUs: they are submitted and never started, so their
wait is censored. The other 36 are among the 1,088 pods that ask for no GPU at all, which are counted as a gap. `pod_phase` is a
snapshot taken once; it is kept as the end state although Running pods have an end.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MILLIGPUS_PER_GPU, MS_PER_S
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.files import find_csvs_with, read_with
from loadfactor.sources.parsing.csv_text import BATCH_ROWS
from loadfactor.sources.public_traces import convert_seconds, read_columns
from loadfactor.tables.columns import Kind

POOL: Final = "openb"
START_MS: Final = int(datetime(2023, 1, 1, tzinfo=UTC).timestamp()) * MS_PER_S
"""The instant that stands for second 0."""
MOST_GPUS: Final = 1000  # of one node: more is damage
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


def decode_openb(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of the list of nodes and the list of pods; each is known by its name, and there must be one of each."""
    nodes_file, pods_file = (_find_one(inputs, part) for part in (_NODES, _PODS))
    pool = options.pool or POOL
    pods = read_columns(pods_file, _POD, ("name", "num_gpu", "gpu_milli", "creation_time"))
    times = ("creation_time", "deletion_time", "scheduled_time")
    for name in times:
        at_ms = pc.add(convert_seconds(pods[name], pods_file.label, name), START_MS)
        pods = pods.set_column(pods.column_names.index(name), name, at_ms)
    ends = [pc.max(pods[name]).as_py() for name in times]
    yield from _make_devices(nodes_file, pool, max(e for e in ends if e is not None))
    with_gpus = pods.filter(pc.greater_equal(pods["num_gpu"], 1))
    if with_gpus.num_rows < pods.num_rows:
        yield Gap(pods_file.label, "pods ask for no GPU: not booked", pods.num_rows - with_gpus.num_rows)
    for i in range(0, with_gpus.num_rows, BATCH_ROWS):
        batch = with_gpus.slice(i, BATCH_ROWS)
        scheduled = batch.filter(pc.is_valid(batch["scheduled_time"]))
        yield Rows("allocations", _make_allocations(scheduled, pool), pods_file.label)
        yield Rows("queue_events", _make_queue_events(batch, pool), pods_file.label)


def _find_one(inputs: Sequence[Input], part: str) -> Input:
    found = [i for i in inputs if part in i.name]
    if len(found) > 1:
        names = ", ".join(i.name for i in found)
        raise SourceError(f"{names}: the trace has one list of each kind; name the two files to read")
    return found[0]


def _make_devices(source: Input, pool: str, end_ms: int) -> Iterator[Rows]:
    nodes = read_columns(source, _NODE, ("sn", "gpu"))
    gpus = nodes["gpu"].to_numpy()
    if not np.isfinite(gpus).all() or (gpus < 0).any() or (gpus > MOST_GPUS).any() or (gpus % 1).any():
        raise SourceError(f"{source.label}: gpu holds something else than a number of GPUs; is the file damaged?")
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
            "from_utc": pa.array(np.full(len(each), START_MS, dtype=np.int64)),
            "to_utc": pa.array(np.full(len(each), end_ms, dtype=np.int64)),
        }
    )
    for i in range(0, data.num_rows, BATCH_ROWS):
        yield Rows("devices", data.slice(i, BATCH_ROWS), source.label)


def _make_allocations(pods: pa.Table, pool: str) -> pa.Table:
    return pa.table(
        {
            "job_id": pods["name"],
            "pool": pa.array([pool] * pods.num_rows, pa.string()),
            "gpus": pods["num_gpu"],
            "share": pc.divide(pods["gpu_milli"], float(MILLIGPUS_PER_GPU)),
            "from_utc": pods["scheduled_time"],
            "to_utc": pods["deletion_time"],
            "end_state": pods["pod_phase"],
        }
    )


def _make_queue_events(pods: pa.Table, pool: str) -> pa.Table:
    gpus = pc.divide(pc.multiply(pods["num_gpu"], pods["gpu_milli"]), float(MILLIGPUS_PER_GPU))
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


SOURCE = Source(
    "alibaba-openb",
    find_csvs_with({_NODES: True, _PODS: True}, "Alibaba's openb trace"),
    read_with(decode_openb),
    uses=("pool",),
)
