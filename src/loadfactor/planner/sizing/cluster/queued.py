"""Simulation loop of a queue whose jobs, once started, run to their end; compiled.

Waiting jobs of one size stand in one heap by rank, so a step looks at sizes, not at jobs. `STRICT` stops at the first job that
does not fit; `SKIP` starts whichever fits, in order, and may starve the large ones; `LOSS` turns away what cannot start at once.
"""

from typing import NamedTuple

import numpy as np

from loadfactor.base.compiled import entry, inner
from loadfactor.planner.sizing.cluster.jobs import MILLI, Floats, Ints
from loadfactor.planner.sizing.cluster.state import NEVER, NO_SIZE, JobArrays, State
from loadfactor.planner.sizing.cluster.steps import (
    FRAGMENTED,
    GANG,
    ORDER,
    book_busy,
    book_waiting,
    end_jobs,
    has_room,
    next_event_s,
    pop,
    push,
    start_job,
)

STRICT, SKIP, LOSS = 0, 1, 2


class SizeQueues(NamedTuple):
    """Waiting jobs: one heap for each size of job, all in two arrays; `of_job` is each job's size."""

    of_job: Ints
    need: Ints
    milli: Ints
    first: Ints
    waiting: Ints
    rank: Floats
    job: Ints


def empty_queues(jobs: JobArrays) -> SizeQueues:
    sizes, of_job, counts = np.unique(jobs.need * MILLI + jobs.milli, return_inverse=True, return_counts=True)
    return SizeQueues(
        of_job.astype(np.int64),
        sizes // MILLI,
        sizes % MILLI,
        np.concatenate(([0], np.cumsum(counts)[:-1])),
        np.zeros(len(sizes), np.int64),
        np.empty(len(of_job)),
        np.empty(len(of_job), np.int64),
    )


@entry
def run(jobs: JobArrays, state: State, queues: SizeQueues, mode: int, spread: bool) -> None:
    """Simulate until every job has ended; `state` receives each job's start (NaN: turned away) and the statistics."""
    counters = state.counters[0]
    while counters.arrived < len(jobs.submit_s) or counters.running > 0:
        soon = next_event_s(jobs, state)
        counted_s = book_busy(soon, state)
        if counted_s > 0 and counters.waiting > 0:
            book_waiting(counted_s, _find_reason(state, queues) if counters.idle_milli > 0 else GANG, state)
        counters.now_s = soon
        end_jobs(jobs, state)
        while counters.arrived < len(jobs.submit_s) and jobs.submit_s[counters.arrived] <= counters.now_s:
            job = counters.arrived
            size = queues.of_job[job]
            push(queues.rank, queues.job, queues.first[size], queues.waiting[size], float(jobs.rank[job]), job)
            queues.waiting[size] += 1
            counters.waiting += 1
            counters.arrived += 1
        while counters.waiting > 0 and counters.idle_milli > 0:
            size = _choose_size(state, queues, mode)
            if size < 0:
                break
            job = pop(queues.rank, queues.job, queues.first[size], queues.waiting[size])
            queues.waiting[size] -= 1
            start_job(job, jobs, state, spread)
        if mode == LOSS and counters.waiting > 0:
            counters.waiting = 0
            for size in range(len(queues.waiting)):
                queues.waiting[size] = 0


@inner
def _choose_size(state: State, queues: SizeQueues, mode: int) -> int:
    chosen = -1
    chosen_rank = NEVER
    for size in range(len(queues.need)):
        if queues.waiting[size] == 0 or queues.rank[queues.first[size]] >= chosen_rank:
            continue
        if mode != STRICT and not has_room(queues.need[size], queues.milli[size], state):
            continue
        chosen = size
        chosen_rank = queues.rank[queues.first[size]]
    if mode == STRICT and chosen >= 0 and not has_room(queues.need[chosen], queues.milli[chosen], state):
        return -1
    return chosen


@inner
def _find_reason(state: State, queues: SizeQueues) -> int:
    """Why jobs wait beside idle GPUs: one would fit (order), all are too large (gang), or GPUs lie scattered (fragmented)."""
    smallest = NO_SIZE
    for size in range(len(queues.need)):
        if queues.waiting[size] > 0:
            requested = queues.milli[size] if queues.milli[size] > 0 else queues.need[size] * MILLI
            smallest = min(smallest, requested)
            if has_room(queues.need[size], queues.milli[size], state):
                return ORDER
    return GANG if state.counters[0].idle_milli < smallest else FRAGMENTED
