"""Simulation loop of EASY backfill: a later job may pass the first in line only if it does not delay it; compiled.

When the first waiting job does not fit, it gets a reservation: the moment, by the time limits of what runs, at which it will, and
the nodes it will take. Up to `depth` jobs behind it may start if they end by then, or use only GPUs the reservation leaves over.
Reservations are by node, as the placement is.
"""

from typing import NamedTuple

import numpy as np

from loadfactor.base.compiled import entry, inner
from loadfactor.planner.sizing.cluster.events import (
    FRAGMENTED,
    GANG,
    ORDER,
    asked_milli,
    begin_job,
    book_busy,
    book_waiting,
    end_jobs,
    next_event_s,
    start_job,
)
from loadfactor.planner.sizing.cluster.jobs import Ints
from loadfactor.planner.sizing.cluster.placement import give_back, has_room, open_shared
from loadfactor.planner.sizing.cluster.reservation import Reservation, no_reservation, reserve, take_left_over
from loadfactor.planner.sizing.cluster.state import NEVER, NO_SIZE, JobArrays, State

HEAD, TAIL = 0, 1


class Line(NamedTuple):
    """Waiting jobs in order of rank, as a linked list; `ends` holds the first and the last (−1: nobody waits)."""

    after: Ints
    before: Ints
    ends: Ints
    reservation: Reservation


def empty_line(jobs: JobArrays, state: State) -> Line:
    """Nobody waits and nothing is reserved."""
    count = len(jobs.submit_s)
    return Line(
        np.full(count, -1, np.int64),
        np.full(count, -1, np.int64),
        np.full(2, -1, np.int64),
        no_reservation(state),
    )


@entry
def run(jobs: JobArrays, state: State, line: Line, depth: int, spread: bool) -> None:
    """Simulate until every job has ended; `state` receives each job's start and the statistics."""
    counters = state.counters[0]
    while counters.arrived < len(jobs.submit_s) or counters.running > 0:
        soon = next_event_s(jobs, state)
        counted_s = book_busy(soon, state)
        if counted_s > 0 and counters.waiting > 0:
            reason = _find_reason(jobs, state, line, depth) if counters.idle_milli > 0 else GANG
            book_waiting(counted_s, reason, state)
        counters.now_s = soon
        end_jobs(jobs, state)
        while counters.arrived < len(jobs.submit_s) and jobs.submit_s[counters.arrived] <= counters.now_s:
            _join(counters.arrived, jobs, line)
            counters.waiting += 1
            counters.arrived += 1
        _start_what_fits(jobs, state, line, depth, spread)


@inner
def _start_what_fits(jobs: JobArrays, state: State, line: Line, depth: int, spread: bool) -> None:
    """The first in line starts as long as it fits; then those behind it, within its reservation."""
    counters, reservation = state.counters[0], line.reservation
    job = line.ends[HEAD]
    looked = 0
    smallest_short, smallest_long = NO_SIZE, NO_SIZE  # sizes known not to fit: at least as large ones need no look
    while job >= 0 and counters.idle_milli > 0 and looked <= depth:
        following = line.after[job]
        gpus = max(jobs.need[job], 1)
        started = False
        if job == line.ends[HEAD]:
            if has_room(jobs.need[job], jobs.milli[job], state):
                start_job(job, jobs, state, spread)
                started = True
            elif reservation.job[0] != job:
                reserve(job, jobs, state, reservation, spread)
        elif counters.now_s + jobs.limit_s[job] <= reservation.at_s[0]:
            if gpus < smallest_short and has_room(jobs.need[job], jobs.milli[job], state):
                start_job(job, jobs, state, spread)
                started = True
            elif jobs.milli[job] == 0:
                smallest_short = min(smallest_short, gpus)
        elif gpus < smallest_long:  # outlasts the reservation: only where GPUs are left over
            started = _start_on_left_over(job, gpus, jobs, state, reservation.left_over)
            if not started:
                smallest_long = min(smallest_long, gpus)
        if started:
            _leave(job, line)
        looked += 1
        job = following


@inner
def _start_on_left_over(job: int, gpus: int, jobs: JobArrays, state: State, left_over: Ints) -> bool:
    """Start a job on GPUs that the reservation leaves over; False where there are too few."""
    first = take_left_over(gpus, state, left_over)
    if first < 0:
        return False
    state.where[job] = first
    if jobs.milli[job] > 0:
        node = state.chunk_node[first]
        give_back(first, state)
        place = open_shared(node, state)
        state.shared_free[place] -= jobs.milli[job]
        state.where[job] = state.shared_id[place]
    begin_job(job, jobs, state)
    return True


@inner
def _join(job: int, jobs: JobArrays, line: Line) -> None:
    """Put a job in line by its rank."""
    place = line.ends[TAIL]
    while place >= 0 and jobs.rank[place] > jobs.rank[job]:
        place = line.before[place]
    following = line.ends[HEAD] if place < 0 else line.after[place]
    line.before[job], line.after[job] = place, following
    if place < 0:
        line.ends[HEAD] = job
    else:
        line.after[place] = job
    if following < 0:
        line.ends[TAIL] = job
    else:
        line.before[following] = job


@inner
def _leave(job: int, line: Line) -> None:
    """Take a job out of the line, and its reservation with it."""
    place, following = line.before[job], line.after[job]
    if place < 0:
        line.ends[HEAD] = following
    else:
        line.after[place] = following
    if following < 0:
        line.ends[TAIL] = place
    else:
        line.before[following] = place
    if line.reservation.job[0] == job:
        line.reservation.job[0] = -1
        line.reservation.at_s[0] = NEVER


@inner
def _find_reason(jobs: JobArrays, state: State, line: Line, depth: int) -> int:
    """Why jobs wait beside idle GPUs: the order holds one that would fit, or the gang is too large, or its GPUs are scattered."""
    smallest = NO_SIZE
    job = line.ends[HEAD]
    for _ in range(depth):
        if job < 0:
            break
        asked = asked_milli(job, jobs)
        if asked < smallest:
            smallest = asked
            if has_room(jobs.need[job], jobs.milli[job], state):
                return ORDER
        job = line.after[job]
    return GANG if state.counters[0].idle_milli < smallest else FRAGMENTED
