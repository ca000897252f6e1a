"""State of a simulated cluster as arrays that the compiled loops share: the jobs, the GPUs, and what was counted."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.planner.sizing.cluster.jobs import MILLI, Floats, Ints

NEVER = np.inf
NO_SIZE = 1 << 62  # larger than any gang
COUNTERS = np.dtype(
    [
        ("now_s", np.float64),
        ("horizon_s", np.float64),  # the last submission: statistics end there
        ("arrived", np.int64),
        ("running", np.int64),
        ("waiting", np.int64),
        ("total_milli", np.int64),
        ("idle_milli", np.int64),
        ("spare_chunk", np.int64),  # head of the list of unused chunks
        ("shared_gpus", np.int64),
        ("next_shared_id", np.int64),
    ]
)


class ClusterStatistics(NamedTuple):
    """Sums of a simulation, seconds and GPU-seconds until the last submission; `all_busy_gpu_s` until the last end.

    `blocked_s` is the time with jobs waiting beside idle GPUs: the sum of `gang_s`, `fragmented_s` and `order_s`.
    """

    busy_gpu_s: float
    all_busy_gpu_s: float
    pending_s: float
    blocked_s: float
    gang_s: float
    fragmented_s: float
    order_s: float
    fragmented_gpu_s: float


class JobArrays(NamedTuple):
    """The jobs, one entry each: whole GPUs in `need`, or a share of one GPU in thousandths in `milli`; `rank` orders the queue."""

    submit_s: Floats
    need: Ints
    milli: Ints
    duration_s: Floats
    limit_s: Floats
    rank: Ints
    priority: Ints


class State(NamedTuple):
    """Where everything stands. `counters` and `statistics` are one record each, so that compiled code can change them.

    `free[node]` counts wholly free GPUs, `level[f]` the nodes with f free. A gang is a linked list of chunks (GPUs of one node);
    `where[job]` is its first chunk, or the id of the shared GPU. `end_s` and `end_job` are the heap of running jobs.
    """

    free: Ints
    level: Ints
    chunk_node: Ints
    chunk_gpus: Ints
    chunk_next: Ints
    shared_free: Ints
    shared_node: Ints
    shared_id: Ints
    where: Ints
    end_s: Floats
    end_job: Ints
    start_s: Floats
    counters: NDArray[np.void]
    statistics: NDArray[np.void]


def start_state(jobs: JobArrays, node_gpus: tuple[int, ...]) -> State:
    free = np.array(node_gpus, dtype=np.int64)
    total, count = int(free.sum()), len(jobs.submit_s)
    chunks = total + len(free)
    counters: NDArray[Any] = np.zeros(1, COUNTERS)
    counters["now_s"], counters["horizon_s"] = jobs.submit_s[0], jobs.submit_s[-1]
    counters["total_milli"] = counters["idle_milli"] = total * MILLI
    return State(
        free=free,
        level=np.bincount(free).astype(np.int64),
        chunk_node=np.zeros(chunks, np.int64),
        chunk_gpus=np.zeros(chunks, np.int64),
        chunk_next=np.arange(1, chunks + 1),
        shared_free=np.zeros(total, np.int64),
        shared_node=np.zeros(total, np.int64),
        shared_id=np.zeros(total, np.int64),
        where=np.full(count, -1, np.int64),
        end_s=np.empty(count),
        end_job=np.empty(count, np.int64),
        start_s=np.full(count, np.nan),
        counters=counters,
        statistics=np.zeros(1, np.dtype([(name, np.float64) for name in ClusterStatistics._fields])),
    )
