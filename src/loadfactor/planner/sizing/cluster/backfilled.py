"""Simulation loop of EASY backfill: a later job may pass the first in line only if it does not delay it; compiled.

When the first waiting job does not fit, it gets a reservation: the moment, by the time limits of what runs, at which it will, and
the nodes it will take. Up to `depth` jobs behind it may start if they end by then, or use only GPUs the reservation leaves over.
Reservations are by node, as the placement is.
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
    add_chunk,
    begin_job,
    book_busy,
    book_waiting,
    change,
    copy_counts,
    end_jobs,
    find_chunk,
    fits,
    give_back,
    has_room,
    next_event_s,
    open_shared,
    pop,
    push,
    requested_milli,
    start_job,
)


class Reservation(NamedTuple):
    """The job that GPUs are kept for (−1: none) and when it starts, one entry each; `left_over` is what it does not need of a node.

    The other arrays are room to work in: the nodes' counts and the heap of running jobs at the moments looked at.
    """

    job: Ints
    at_s: Floats
    left_over: Ints
    level: Ints
    shared_free: Ints
    end_s: Floats
    end_job: Ints


def no_reservation(state: State) -> Reservation:
    return Reservation(
        job=np.full(1, -1, np.int64),
        at_s=np.full(1, NEVER),
        left_over=np.zeros_like(state.free),
        level=np.zeros_like(state.level),
        shared_free=np.zeros_like(state.shared_free),
        end_s=np.empty_like(state.end_s),
        end_job=np.empty_like(state.end_job),
    )


@inner
def reserve(job: int, jobs: JobArrays, state: State, reservation: Reservation, spread: bool) -> None:
    """Find when the job will fit if everything runs to its limit, and what it will not need of each node then."""
    counters = state.counters[0]
    count = counters.running
    ends, running = reservation.end_s, reservation.end_job
    free, level, shared_free = reservation.left_over, reservation.level, reservation.shared_free
    for place in range(count):
        other = state.end_job[place]
        push(ends, running, 0, place, state.end_s[place] - jobs.duration_s[other] + jobs.limit_s[other], other)
    copy_counts(state.free, free, len(free))
    copy_counts(state.level, level, len(level))
    copy_counts(state.shared_free, shared_free, counters.shared_gpus)
    gpus = max(jobs.need[job], 1)
    at = counters.now_s
    while count > 0 and not fits(gpus, level):
        at = ends[0]
        while count > 0 and ends[0] <= at:
            other = pop(ends, running, 0, count)
            count -= 1
            if jobs.milli[other] > 0:
                for place in range(counters.shared_gpus):
                    if state.shared_id[place] == state.where[other]:
                        shared_free[place] += jobs.milli[other]
                        if shared_free[place] == MILLI:
                            change(state.shared_node[place], 1, free, level)
                continue
            chunk = state.where[other]
            while chunk >= 0:
                change(state.chunk_node[chunk], state.chunk_gpus[chunk], free, level)
                chunk = state.chunk_next[chunk]
    _take_from(gpus, free, level, spread)  # an empty cluster holds every job
    reservation.job[0], reservation.at_s[0] = job, at


@inner
def _take_from(need: int, free: Ints, level: Ints, spread: bool) -> None:
    """Take a gang that fits off copies of the counts, where `take` would put it."""
    left = need
    node = 0
    while left > 0:
        node, gpus = find_chunk(need, left, node, free, level, spread)
        change(node, -gpus, free, level)
        left -= gpus


@inner
def take_left_over(need: int, state: State, left_over: Ints) -> int:
    """Place a gang on free GPUs that the reservation leaves over, and take them off `left_over`; −1 where there are too few."""
    largest = len(state.level) - 1
    whole_nodes = need // largest if need > largest else 0
    rest = need - whole_nodes * largest
    found = 0
    rest_node = -1
    rest_room = 0
    for node in range(len(state.free)):
        room = min(state.free[node], left_over[node])
        if found < whole_nodes and room == largest:
            found += 1
        elif rest > 0 and room >= rest and (rest_node < 0 or room < rest_room):
            rest_node = node
            rest_room = room
    if found < whole_nodes or (rest > 0 and rest_node < 0):
        return -1
    first = -1
    found = 0
    for node in range(len(state.free)):
        gpus = 0
        if found < whole_nodes and min(state.free[node], left_over[node]) == largest:
            gpus = largest
            found += 1
        elif node == rest_node:
            gpus = rest
        if gpus > 0:
            first = add_chunk(node, gpus, first, state)
            left_over[node] -= gpus
    return first


HEAD, TAIL = 0, 1


class Line(NamedTuple):
    """Waiting jobs in order of rank, as a linked list; `ends` holds the first and the last (−1: nobody waits)."""

    after: Ints
    before: Ints
    ends: Ints
    reservation: Reservation


def empty_line(jobs: JobArrays, state: State) -> Line:
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
        requested = requested_milli(job, jobs)
        if requested < smallest:
            smallest = requested
            if has_room(jobs.need[job], jobs.milli[job], state):
                return ORDER
        job = line.after[job]
    return GANG if state.counters[0].idle_milli < smallest else FRAGMENTED
