"""What happens when jobs, once started, run to their end? The compiled event loop without preemption.

Waiting jobs of one size stand in one heap by rank, so a step looks at sizes, not at jobs. `STRICT` stops at the first job that
does not fit; `SKIP` starts whichever fits, in order, and may starve the large ones; `LOSS` turns away what cannot start at once.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loadfactor.planner.sizing.cluster.heap import pop, push
from loadfactor.planner.sizing.cluster.jobs import MILLI
from loadfactor.planner.sizing.cluster.placement import give_back, give_back_share, room, take, take_share

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

STRICT, SKIP, LOSS = 0, 1, 2
# Places in the tally of the state between events, seconds and GPU-seconds up to the last submission.
BUSY_GPU_S, PENDING_S, BLOCKED_S, GANG_S, FRAGMENTED_S, ORDER_S, BLOCKED_GPU_S, FRAGMENTED_GPU_S, ALL_BUSY_GPU_S = (
    range(9)
)
TALLIES = 9


@njit(cache=True)  # type: ignore[untyped-decorator]
def run(
    submit: Floats,
    need: Ints,
    milli: Ints,
    duration: Floats,
    rank: Ints,
    size_of: Ints,
    size_need: Ints,
    size_milli: Ints,
    size_offset: Ints,
    node_gpus: Ints,
    mode: int,
    spread: bool,
    start: Floats,
) -> Floats:
    """Simulate; `start` receives each job's start (NaN: turned away). Returns the tallies."""
    jobs = len(submit)
    total = node_gpus.sum()
    largest = node_gpus.max()
    free = node_gpus.copy()
    level = np.zeros(largest + 1, np.int64)
    for node in range(len(free)):
        level[free[node]] += 1
    pool = len(node_gpus) + total
    chunk_node, chunk_gpus = np.zeros(pool, np.int64), np.zeros(pool, np.int64)
    chunk_next = np.arange(1, pool + 1)
    spare = np.zeros(1, np.int64)
    shared_free, shared_node, shared_id = (
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
    )
    opened = np.zeros(2, np.int64)
    where = np.full(jobs, -1, np.int64)
    end_keys, end_items, running = np.empty(jobs, np.float64), np.empty(jobs, np.int64), 0
    wait_keys, wait_items = np.empty(jobs, np.float64), np.empty(jobs, np.int64)
    waiting_of = np.zeros(len(size_need), np.int64)
    waiting = 0
    idle_milli = total * MILLI
    tally = np.zeros(TALLIES, np.float64)
    horizon = submit[-1]
    arrived = 0
    now = submit[0]

    while arrived < jobs or running > 0:
        # 1. the next moment at which anything happens
        soon = np.inf if running == 0 else end_keys[0]
        if arrived < jobs and submit[arrived] < soon:
            soon = submit[arrived]
        _tally(tally, soon - now, min(soon, horizon) - now, total, idle_milli, waiting, waiting_of, size_need, size_milli,
               level, shared_free, opened)  # fmt: skip
        now = soon
        # 2. what ends gives its GPUs back, what arrives joins the line of its size
        while running > 0 and end_keys[0] <= now:
            job = pop(end_keys, end_items, 0, running)
            running -= 1
            if milli[job] > 0:
                give_back_share(where[job], milli[job], free, level, shared_free, shared_node, shared_id, opened)
                idle_milli += milli[job]
            else:
                give_back(where[job], free, level, chunk_node, chunk_gpus, chunk_next, spare)
                idle_milli += need[job] * MILLI
        while arrived < jobs and submit[arrived] <= now:
            size = size_of[arrived]
            push(wait_keys, wait_items, size_offset[size], waiting_of[size], float(rank[arrived]), arrived)
            waiting_of[size] += 1
            waiting += 1
            arrived += 1
        # 3. start what can start, in order of rank
        while waiting > 0 and idle_milli > 0:
            chosen = -1
            chosen_rank = np.inf
            for size in range(len(size_need)):
                if waiting_of[size] == 0 or wait_keys[size_offset[size]] >= chosen_rank:
                    continue
                if mode != STRICT and not room(size_need[size], size_milli[size], level, shared_free, opened):
                    continue
                chosen = size
                chosen_rank = wait_keys[size_offset[size]]
            if chosen < 0:
                break
            if mode == STRICT and not room(size_need[chosen], size_milli[chosen], level, shared_free, opened):
                break
            job = pop(wait_keys, wait_items, size_offset[chosen], waiting_of[chosen])
            waiting_of[chosen] -= 1
            waiting -= 1
            if milli[job] > 0:
                where[job] = take_share(milli[job], free, level, spread, shared_free, shared_node, shared_id, opened)
                idle_milli -= milli[job]
            else:
                where[job] = take(need[job], free, level, spread, chunk_node, chunk_gpus, chunk_next, spare)
                idle_milli -= need[job] * MILLI
            start[job] = now
            push(end_keys, end_items, 0, running, now + duration[job], job)
            running += 1
        if mode == LOSS and waiting > 0:
            waiting = 0
            waiting_of[:] = 0
    return tally


@njit(cache=True)  # type: ignore[untyped-decorator]
def _tally(
    tally: Floats,
    seconds: float,
    counted: float,
    total: int,
    idle_milli: int,
    waiting: int,
    waiting_of: Ints,
    size_need: Ints,
    size_milli: Ints,
    level: Ints,
    shared_free: Ints,
    opened: Ints,
) -> None:
    """Book an interval; of the time with jobs pending beside idle GPUs, say why: gang size, fragmentation, or the queue's order."""
    busy = (total * MILLI - idle_milli) / MILLI
    tally[ALL_BUSY_GPU_S] += busy * seconds
    if counted <= 0:
        return
    tally[BUSY_GPU_S] += busy * counted
    if waiting == 0:
        return
    tally[PENDING_S] += counted
    if idle_milli == 0:
        return
    tally[BLOCKED_S] += counted
    tally[BLOCKED_GPU_S] += counted * idle_milli / MILLI
    smallest = np.int64(1) << 62
    fitting = False
    for size in range(len(size_need)):
        if waiting_of[size] > 0:
            wanted = size_milli[size] if size_milli[size] > 0 else size_need[size] * MILLI
            smallest = min(smallest, wanted)
            fitting = fitting or room(size_need[size], size_milli[size], level, shared_free, opened)
    if fitting:
        tally[ORDER_S] += counted
    elif idle_milli < smallest:
        tally[GANG_S] += counted
    else:
        tally[FRAGMENTED_S] += counted
        tally[FRAGMENTED_GPU_S] += counted * idle_milli / MILLI
