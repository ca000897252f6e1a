"""What happens when running jobs may be stopped for others? Compiled: at every step the GPUs are dealt out anew.

At each step all jobs that are not done are sorted by the rule's key and take GPUs from an empty cluster in that order; whoever
gets none waits, or is stopped and keeps its progress, paying `restart_s` of extra work when it starts again. A step is every
arrival and completion, or every `interval_s` where the scheduler wakes by the clock: then freed GPUs stay idle until it does.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loadfactor.planner.sizing.cluster.jobs import MILLI
from loadfactor.planner.sizing.cluster.queued import (
    ALL_BUSY_GPU_S,
    BLOCKED_GPU_S,
    BLOCKED_S,
    BUSY_GPU_S,
    FRAGMENTED_GPU_S,
    FRAGMENTED_S,
    GANG_S,
    PENDING_S,
    TALLIES,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

REMAINING, REMAINING_GPU_TIME, ATTAINED, PRIORITY = 0, 1, 2, 3


@njit(cache=True)  # type: ignore[untyped-decorator]
def run(
    submit: Floats,
    need: Ints,
    milli: Ints,
    duration: Floats,
    priority: Ints,
    node_gpus: Ints,
    rule: int,
    interval_s: float,
    restart_s: float,
    queue_edges_gpu_s: Floats,
    start: Floats,
    end: Floats,
    executed: Floats,
    starts: Ints,
) -> Floats:
    """Simulate; the last four arrays receive each job's first start, end, seconds held, and number of starts."""
    jobs = len(submit)
    total = node_gpus.sum()
    largest = node_gpus.max()
    tally = np.zeros(TALLIES, np.float64)
    remaining = duration.copy()
    held = np.zeros(jobs, np.bool_)
    active = np.empty(jobs, np.int64)
    count, arrived = 0, 0
    horizon = submit[-1]
    now = submit[0]
    gpus = np.where(milli > 0, milli / MILLI, need.astype(np.float64))
    smallest_milli = np.where(milli > 0, milli, need * MILLI)
    keys = np.empty(jobs, np.float64)
    level = np.zeros(largest + 1, np.int64)
    shared_room = np.zeros(total, np.int64)

    while arrived < jobs or count > 0:
        if count == 0 and arrived < jobs and submit[arrived] > now:
            now = submit[arrived]
            if interval_s > 0:
                now = np.ceil((now - submit[0]) / interval_s) * interval_s + submit[0]
        while arrived < jobs and submit[arrived] <= now:
            active[count] = arrived
            count += 1
            arrived += 1
        # deal the GPUs out anew
        for place in range(count):
            job = active[place]
            keys[job] = _key(rule, job, remaining, gpus, executed, priority, held, queue_edges_gpu_s)
        _sort(active, count, keys)
        level[:] = 0
        for node in range(len(node_gpus)):
            level[node_gpus[node]] += 1
        shared = 0
        busy_milli = 0
        waiting = 0
        smallest = np.int64(1) << 62
        for place in range(count):
            job = active[place]
            granted = False
            if milli[job] > 0:
                best = -1
                for gpu in range(shared):
                    if shared_room[gpu] >= milli[job] and (best < 0 or shared_room[gpu] < shared_room[best]):
                        best = gpu
                if best < 0 and _deal(1, level, largest):
                    best = shared
                    shared_room[shared] = MILLI
                    shared += 1
                if best >= 0:
                    shared_room[best] -= milli[job]
                    granted = True
            else:
                granted = _deal(need[job], level, largest)
            if granted:
                if not held[job]:
                    if starts[job] == 0:
                        start[job] = now
                    else:
                        remaining[job] += restart_s
                    starts[job] += 1
                busy_milli += smallest_milli[job]
            else:
                waiting += 1
                smallest = min(smallest, smallest_milli[job])
            held[job] = granted
        # until when does this hold?
        until = np.inf
        if interval_s > 0:
            until = now + interval_s
        else:
            if arrived < jobs:
                until = submit[arrived]
            for place in range(count):
                job = active[place]
                if held[job]:
                    until = min(until, now + remaining[job])
                    if rule == ATTAINED:
                        until = min(
                            until, now + _to_next_queue(executed[job] * gpus[job], queue_edges_gpu_s) / gpus[job]
                        )
        # work until then
        kept = 0
        for place in range(count):
            job = active[place]
            if held[job]:
                worked = min(remaining[job], until - now)
                remaining[job] -= worked
                executed[job] += worked
                tally[ALL_BUSY_GPU_S] += worked * gpus[job]
                tally[BUSY_GPU_S] += max(0.0, min(now + worked, horizon) - now) * gpus[job]
                if remaining[job] <= 1e-9:
                    end[job] = now + worked
                    held[job] = False
                    continue
            active[kept] = job
            kept += 1
        counted = min(until, horizon) - now
        idle_milli = total * MILLI - busy_milli
        if counted > 0 and waiting > 0:
            tally[PENDING_S] += counted
            if idle_milli > 0:
                tally[BLOCKED_S] += counted
                tally[BLOCKED_GPU_S] += counted * idle_milli / MILLI
                if idle_milli < smallest:
                    tally[GANG_S] += counted
                else:
                    tally[FRAGMENTED_S] += counted
                    tally[FRAGMENTED_GPU_S] += counted * idle_milli / MILLI
        count = kept
        now = until
    return tally


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sort(active: Ints, count: int, keys: Floats) -> None:
    """By key, then by arrival. Insertion: the order hardly changes from one step to the next."""
    for place in range(1, count):
        job = active[place]
        at = place
        while at > 0 and (
            keys[active[at - 1]] > keys[job] or (keys[active[at - 1]] == keys[job] and active[at - 1] > job)
        ):
            active[at] = active[at - 1]
            at -= 1
        active[at] = job


@njit(cache=True)  # type: ignore[untyped-decorator]
def _key(
    rule: int,
    job: int,
    remaining: Floats,
    gpus: Floats,
    executed: Floats,
    priority: Ints,
    held: NDArray[np.bool_],
    queue_edges_gpu_s: Floats,
) -> float:
    """Smaller goes first; within a queue or a priority a running job keeps its GPUs against its equals."""
    if rule == REMAINING:
        return float(remaining[job])
    if rule == REMAINING_GPU_TIME:
        return float(remaining[job] * gpus[job])
    level = -priority[job]
    if rule == ATTAINED:
        level = _queue(executed[job] * gpus[job], queue_edges_gpu_s)
    return float(2 * level - (1 if held[job] else 0))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _to_next_queue(attained_gpu_s: float, queue_edges_gpu_s: Floats) -> float:
    """GPU-seconds until the job falls into the next queue."""
    place = _queue(attained_gpu_s, queue_edges_gpu_s)
    return np.inf if place == len(queue_edges_gpu_s) else float(queue_edges_gpu_s[place] - attained_gpu_s)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _queue(attained_gpu_s: float, queue_edges_gpu_s: Floats) -> int:
    """How many edges the job has passed, forgiving the rounding of many short steps."""
    place = 0
    while place < len(queue_edges_gpu_s) and attained_gpu_s + 1e-6 >= queue_edges_gpu_s[place]:
        place += 1
    return place


@njit(cache=True)  # type: ignore[untyped-decorator]
def _deal(need: int, level: Ints, largest: int) -> bool:
    """Give a gang its GPUs by the nodes' free counts; False where there are too few. Any node will do: all is dealt anew."""
    if need <= largest:
        for f in range(need, largest + 1):
            if level[f] > 0:
                level[f] -= 1
                level[f - need] += 1
                return True
        return False
    whole = need // largest
    rest = need - whole * largest
    if level[largest] < whole:
        return False
    if rest > 0:
        level[largest] -= whole
        for f in range(rest, largest + 1):
            if level[f] > 0:
                level[f] -= 1
                level[f - rest] += 1
                level[0] += whole
                return True
        level[largest] += whole
        return False
    level[largest] -= whole
    level[0] += whole
    return True
