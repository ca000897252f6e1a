"""Simulation loop of a preemptive scheduler, which may stop running jobs for others; compiled.

At each step all jobs that are not done are sorted by the rule's key and take GPUs from an empty cluster in that order; whoever
gets none waits, or is stopped and keeps its progress, paying `restart_s` of extra work when it starts again. A step is every
arrival and completion, or every `interval_s` where the scheduler wakes by the clock: then freed GPUs stay idle until it does.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner
from loadfactor.planner.sizing.cluster.jobs import MILLI, Floats, Ints
from loadfactor.planner.sizing.cluster.state import NEVER, NO_SIZE, JobArrays, State
from loadfactor.planner.sizing.cluster.steps import FRAGMENTED, GANG, book_waiting, copy_counts, requested_milli

REMAINING, REMAINING_GPU_TIME, ATTAINED, PRIORITY = 0, 1, 2, 3
DONE_S = 1e-9  # work shorter than this is rounding


class Preemption(NamedTuple):
    """Whom the scheduler prefers (`rule`), when it wakes and what a restart costs; queue edges are for `ATTAINED` alone."""

    rule: int
    interval_s: float
    restart_s: float
    queue_edges_gpu_s: Floats


class Progress(NamedTuple):
    """How far each job is. `active` lists the jobs that have come and are not done; `starts` counts how often each started."""

    gpus: Floats
    remaining_s: Floats
    executed_s: Floats
    end_s: Floats
    starts: Ints
    held: NDArray[np.bool_]
    active: Ints
    key: Floats
    empty_level: Ints


def no_progress(jobs: JobArrays, state: State) -> Progress:
    count = len(jobs.submit_s)
    return Progress(
        gpus=np.where(jobs.milli > 0, jobs.milli / MILLI, jobs.need.astype(np.float64)),
        remaining_s=jobs.duration_s.copy(),
        executed_s=np.zeros(count),
        end_s=np.full(count, np.nan),
        starts=np.zeros(count, np.int64),
        held=np.zeros(count, np.bool_),
        active=np.empty(count, np.int64),
        key=np.empty(count),
        empty_level=state.level.copy(),
    )


@entry
def run(jobs: JobArrays, state: State, progress: Progress, policy: Preemption) -> None:
    """Simulate until every job has ended; `progress` receives starts, ends and seconds held, `state` the statistics."""
    counters = state.counters[0]
    first_s = jobs.submit_s[0]
    active = 0
    while counters.arrived < len(jobs.submit_s) or active > 0:
        if active == 0 and jobs.submit_s[counters.arrived] > counters.now_s:
            counters.now_s = jobs.submit_s[counters.arrived]
            if policy.interval_s > 0:
                counters.now_s = np.ceil((counters.now_s - first_s) / policy.interval_s) * policy.interval_s + first_s
        while counters.arrived < len(jobs.submit_s) and jobs.submit_s[counters.arrived] <= counters.now_s:
            progress.active[active] = counters.arrived
            active += 1
            counters.arrived += 1
        for place in range(active):
            job = progress.active[place]
            progress.key[job] = _key(job, jobs, progress, policy)
        _sort(active, progress)
        copy_counts(progress.empty_level, state.level, len(state.level))
        smallest = _assign(active, jobs, state, progress, policy.restart_s)
        until = _next_step_s(active, jobs, state, progress, policy)
        still_active = _work(until, active, state, progress)
        counted_s = min(until, counters.horizon_s) - counters.now_s
        if counted_s > 0 and counters.waiting > 0:
            book_waiting(counted_s, GANG if counters.idle_milli < smallest else FRAGMENTED, state)
        active = still_active
        counters.now_s = until


@inner
def _assign(active: int, jobs: JobArrays, state: State, progress: Progress, restart_s: float) -> int:
    """Give an empty cluster's GPUs to the active jobs in order; returns the size of the smallest that got none, in thousandths."""
    counters = state.counters[0]
    counters.shared_gpus = 0
    counters.idle_milli = counters.total_milli
    counters.waiting = 0
    smallest = NO_SIZE
    for place in range(active):
        job = progress.active[place]
        granted = _grant_share(jobs.milli[job], state) if jobs.milli[job] > 0 else _grant(jobs.need[job], state.level)
        if granted:
            if not progress.held[job]:
                if progress.starts[job] == 0:
                    state.start_s[job] = counters.now_s
                else:
                    progress.remaining_s[job] += restart_s
                progress.starts[job] += 1
            counters.idle_milli -= requested_milli(job, jobs)
        else:
            counters.waiting += 1
            smallest = min(smallest, requested_milli(job, jobs))
        progress.held[job] = granted
    return int(smallest)


@inner
def _next_step_s(active: int, jobs: JobArrays, state: State, progress: Progress, policy: Preemption) -> float:
    counters = state.counters[0]
    if policy.interval_s > 0:
        return float(counters.now_s + policy.interval_s)
    until = NEVER
    if counters.arrived < len(jobs.submit_s):
        until = jobs.submit_s[counters.arrived]
    for place in range(active):
        job = progress.active[place]
        if progress.held[job]:
            until = min(until, counters.now_s + progress.remaining_s[job])
            if policy.rule == ATTAINED:
                attained_gpu_s = progress.executed_s[job] * progress.gpus[job]
                to_next_gpu_s = _to_next_queue(attained_gpu_s, policy.queue_edges_gpu_s)
                until = min(until, counters.now_s + to_next_gpu_s / progress.gpus[job])
    return float(until)


@inner
def _work(until_s: float, active: int, state: State, progress: Progress) -> int:
    """Let the jobs that hold GPUs work until the next step and drop those that end; returns how many are still active."""
    counters, statistics = state.counters[0], state.statistics[0]
    now = counters.now_s
    kept = 0
    for place in range(active):
        job = progress.active[place]
        if progress.held[job]:
            worked = min(progress.remaining_s[job], until_s - now)
            progress.remaining_s[job] -= worked
            progress.executed_s[job] += worked
            statistics.all_busy_gpu_s += worked * progress.gpus[job]
            statistics.busy_gpu_s += max(0.0, min(now + worked, counters.horizon_s) - now) * progress.gpus[job]
            if progress.remaining_s[job] <= DONE_S:
                progress.end_s[job] = now + worked
                progress.held[job] = False
                continue
        progress.active[kept] = job
        kept += 1
    return kept


@inner
def _sort(active: int, progress: Progress) -> None:
    """By key, then by arrival. Insertion: the order hardly changes from one step to the next."""
    order, key = progress.active, progress.key
    for place in range(1, active):
        job = order[place]
        at = place
        while at > 0 and (key[order[at - 1]] > key[job] or (key[order[at - 1]] == key[job] and order[at - 1] > job)):
            order[at] = order[at - 1]
            at -= 1
        order[at] = job


@inner
def _key(job: int, jobs: JobArrays, progress: Progress, policy: Preemption) -> float:
    """Smaller goes first; within a queue or a priority a running job keeps its GPUs against its equals."""
    if policy.rule == REMAINING:
        return float(progress.remaining_s[job])
    if policy.rule == REMAINING_GPU_TIME:
        return float(progress.remaining_s[job] * progress.gpus[job])
    level = -jobs.priority[job]
    if policy.rule == ATTAINED:
        level = _find_queue(progress.executed_s[job] * progress.gpus[job], policy.queue_edges_gpu_s)
    return float(2 * level - (1 if progress.held[job] else 0))


@inner
def _to_next_queue(attained_gpu_s: float, queue_edges_gpu_s: Floats) -> float:
    """GPU-seconds until the job falls into the next queue."""
    place = _find_queue(attained_gpu_s, queue_edges_gpu_s)
    return NEVER if place == len(queue_edges_gpu_s) else float(queue_edges_gpu_s[place] - attained_gpu_s)


@inner
def _find_queue(attained_gpu_s: float, queue_edges_gpu_s: Floats) -> int:
    """How many edges the job has passed, forgiving the rounding of many short steps."""
    place = 0
    while place < len(queue_edges_gpu_s) and attained_gpu_s + 1e-6 >= queue_edges_gpu_s[place]:
        place += 1
    return place


@inner
def _grant_share(milli: int, state: State) -> bool:
    """Give a job its share of the fullest shared GPU with room, or of a free one; False where there is none."""
    counters = state.counters[0]
    best = -1
    for gpu in range(counters.shared_gpus):
        if state.shared_free[gpu] >= milli and (best < 0 or state.shared_free[gpu] < state.shared_free[best]):
            best = gpu
    if best < 0 and _grant(1, state.level):
        best = counters.shared_gpus
        state.shared_free[best] = MILLI
        counters.shared_gpus += 1
    if best < 0:
        return False
    state.shared_free[best] -= milli
    return True


@inner
def _grant(need: int, level: Ints) -> bool:
    """Give a gang its GPUs by the nodes' free counts; False where there are too few. Nodes need no names."""
    largest = len(level) - 1
    whole = need // largest if need > largest else 0
    rest = need - whole * largest
    if level[largest] < whole:
        return False
    level[largest] -= whole
    if rest > 0:
        for f in range(rest, largest + 1):
            if level[f] > 0:
                level[f] -= 1
                level[f - rest] += 1
                level[0] += whole
                return True
        level[largest] += whole
        return False
    level[0] += whole
    return True
