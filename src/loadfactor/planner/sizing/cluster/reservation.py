"""Reservation of GPUs for the first job in line: when it will fit, and what of each node it leaves over; compiled."""

from typing import NamedTuple

import numpy as np

from loadfactor.base.compiled import inner
from loadfactor.planner.sizing.cluster.heap import pop, push
from loadfactor.planner.sizing.cluster.jobs import MILLI, Floats, Ints
from loadfactor.planner.sizing.cluster.placement import add_chunk, change, copy_counts, find_chunk, fits
from loadfactor.planner.sizing.cluster.state import NEVER, JobArrays, State


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
    """Nothing is reserved."""
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
