"""What happens when a later job may pass only if it does not delay the first in line? EASY backfill, compiled.

When the first waiting job does not fit, it gets a reservation: the moment, by the time limits of what runs, at which it will, and
the nodes it will take. Up to `depth` jobs behind it may start if they end by then, or use only GPUs the reservation leaves over.
Reservations are by node, as the placement is.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loadfactor.planner.sizing.cluster.heap import pop, push
from loadfactor.planner.sizing.cluster.jobs import MILLI
from loadfactor.planner.sizing.cluster.placement import change, fits, give_back, give_back_share, room, take, take_share
from loadfactor.planner.sizing.cluster.queued import (
    ALL_BUSY_GPU_S,
    BLOCKED_GPU_S,
    BLOCKED_S,
    BUSY_GPU_S,
    FRAGMENTED_GPU_S,
    FRAGMENTED_S,
    GANG_S,
    ORDER_S,
    PENDING_S,
    TALLIES,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True)  # type: ignore[untyped-decorator]
def run(
    submit: Floats,
    need: Ints,
    milli: Ints,
    duration: Floats,
    limit: Floats,
    rank: Ints,
    node_gpus: Ints,
    spread: bool,
    depth: int,
    start: Floats,
) -> Floats:
    """Simulate; `start` receives each job's start. Returns the tallies of `queued`."""
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
    spare_chunk = np.zeros(1, np.int64)
    shared_free, shared_node, shared_id = (
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
    )
    opened = np.zeros(2, np.int64)
    where = np.full(jobs, -1, np.int64)
    end_keys, end_items, running = np.empty(jobs, np.float64), np.empty(jobs, np.int64), 0
    after, before = np.full(jobs, -1, np.int64), np.full(jobs, -1, np.int64)
    head, tail, waiting = -1, -1, 0
    left_over = np.zeros(len(node_gpus), np.int64)  # GPUs of each node the reservation does not need
    reserved_for, reserved_at = -1, np.inf
    idle_milli = total * MILLI
    tally = np.zeros(TALLIES, np.float64)
    horizon = submit[-1]
    arrived = 0
    now = submit[0]

    while arrived < jobs or running > 0:
        soon = np.inf if running == 0 else end_keys[0]
        if arrived < jobs and submit[arrived] < soon:
            soon = submit[arrived]
        busy = (total * MILLI - idle_milli) / MILLI
        tally[ALL_BUSY_GPU_S] += busy * (soon - now)
        counted = min(soon, horizon) - now
        if counted > 0:
            tally[BUSY_GPU_S] += busy * counted
            if waiting > 0:
                tally[PENDING_S] += counted
                if idle_milli > 0:
                    tally[BLOCKED_S] += counted
                    tally[BLOCKED_GPU_S] += counted * idle_milli / MILLI
                    reason = _reason(head, after, need, milli, idle_milli, level, shared_free, opened, depth)
                    tally[reason] += counted
                    if reason == FRAGMENTED_S:
                        tally[FRAGMENTED_GPU_S] += counted * idle_milli / MILLI
        now = soon
        while running > 0 and end_keys[0] <= now:
            job = pop(end_keys, end_items, 0, running)
            running -= 1
            if milli[job] > 0:
                give_back_share(where[job], milli[job], free, level, shared_free, shared_node, shared_id, opened)
                idle_milli += milli[job]
            else:
                give_back(where[job], free, level, chunk_node, chunk_gpus, chunk_next, spare_chunk)
                idle_milli += need[job] * MILLI
        while arrived < jobs and submit[arrived] <= now:
            place = tail
            while place >= 0 and rank[place] > rank[arrived]:
                place = before[place]
            following = head if place < 0 else after[place]
            before[arrived], after[arrived] = place, following
            if place < 0:
                head = arrived
            else:
                after[place] = arrived
            if following < 0:
                tail = arrived
            else:
                before[following] = arrived
            waiting += 1
            arrived += 1
        # the first in line starts as long as it fits; then those behind it, within its reservation
        job = head
        looked = 0
        smallest_short, smallest_long = np.int64(1) << 62, np.int64(1) << 62
        while job >= 0 and idle_milli > 0 and looked <= depth:
            following = after[job]
            whole = max(need[job], 1)
            started = -1
            if job == head:
                if room(need[job], milli[job], level, shared_free, opened):
                    started = 0
                elif reserved_for != job:
                    reserved_for = job
                    reserved_at = _reserve(
                        whole, now, end_keys, end_items, running, duration, limit, where, milli, free, level,
                        chunk_node, chunk_gpus, chunk_next, shared_free, shared_node, shared_id, opened, left_over, spread,
                    )  # fmt: skip
            elif now + limit[job] <= reserved_at:
                if whole < smallest_short and room(need[job], milli[job], level, shared_free, opened):
                    started = 0
                elif milli[job] == 0:
                    smallest_short = min(smallest_short, whole)
            elif whole < smallest_long:
                started = 1
            if started == 1:  # outlasts the reservation: only where GPUs are left over
                first = _take_left_over(whole, free, level, left_over, chunk_node, chunk_gpus, chunk_next, spare_chunk)
                if first < 0:
                    smallest_long = min(smallest_long, whole)
                    started = -1
                elif milli[job] > 0:
                    node = chunk_node[first]
                    give_back(first, free, level, chunk_node, chunk_gpus, chunk_next, spare_chunk)
                    change(node, -1, free, level)
                    place = opened[0]
                    shared_free[place], shared_node[place], shared_id[place] = MILLI - milli[job], node, opened[1]
                    where[job] = opened[1]
                    opened[0] += 1
                    opened[1] += 1
                else:
                    where[job] = first
            elif started == 0 and milli[job] > 0:
                where[job] = take_share(milli[job], free, level, spread, shared_free, shared_node, shared_id, opened)
            elif started == 0:
                where[job] = take(need[job], free, level, spread, chunk_node, chunk_gpus, chunk_next, spare_chunk)
            if started >= 0:
                idle_milli -= milli[job] if milli[job] > 0 else need[job] * MILLI
                start[job] = now
                push(end_keys, end_items, 0, running, now + duration[job], job)
                running += 1
                if before[job] < 0:
                    head = following
                else:
                    after[before[job]] = following
                if following < 0:
                    tail = before[job]
                else:
                    before[following] = before[job]
                waiting -= 1
                if job == reserved_for:
                    reserved_for, reserved_at = -1, np.inf
            looked += 1
            job = following
    return tally


@njit(cache=True)  # type: ignore[untyped-decorator]
def _reason(
    head: int,
    after: Ints,
    need: Ints,
    milli: Ints,
    idle_milli: int,
    level: Ints,
    shared_free: Ints,
    opened: Ints,
    depth: int,
) -> int:
    """Why jobs wait beside idle GPUs: the order holds one that would fit, or the gang is too large, or its GPUs are scattered."""
    smallest = np.int64(1) << 62
    job = head
    for _ in range(depth):
        if job < 0:
            break
        wanted = milli[job] if milli[job] > 0 else need[job] * MILLI
        if wanted < smallest:
            smallest = wanted
            if room(need[job], milli[job], level, shared_free, opened):
                return ORDER_S
        job = after[job]
    return GANG_S if idle_milli < smallest else FRAGMENTED_S


@njit(cache=True)  # type: ignore[untyped-decorator]
def _reserve(
    whole: int,
    now: float,
    end_keys: Floats,
    end_items: Ints,
    running: int,
    duration: Floats,
    limit: Floats,
    where: Ints,
    milli: Ints,
    free: Ints,
    level: Ints,
    chunk_node: Ints,
    chunk_gpus: Ints,
    chunk_next: Ints,
    shared_free: Ints,
    shared_node: Ints,
    shared_id: Ints,
    opened: Ints,
    left_over: Ints,
    spread: bool,
) -> float:
    """When the gang will fit if everything runs to its limit; `left_over` becomes what it will not need then."""
    keys, items = np.empty(running, np.float64), np.empty(running, np.int64)
    for place in range(running):
        job = end_items[place]
        push(keys, items, 0, place, end_keys[place] - duration[job] + limit[job], job)
    later, later_level, later_shared = free.copy(), level.copy(), shared_free[: opened[0]].copy()
    at = now
    count = running
    while count > 0 and not fits(whole, later_level):
        at = keys[0]
        while count > 0 and keys[0] <= at:
            job = pop(keys, items, 0, count)
            count -= 1
            if milli[job] > 0:
                for place in range(opened[0]):
                    if shared_id[place] == where[job]:
                        later_shared[place] += milli[job]
                        if later_shared[place] == MILLI:
                            change(shared_node[place], 1, later, later_level)
                continue
            chunk = where[job]
            while chunk >= 0:
                change(chunk_node[chunk], chunk_gpus[chunk], later, later_level)
                chunk = chunk_next[chunk]
    pool = len(later) + 1
    node, gpus, following, first = (
        np.zeros(pool, np.int64),
        np.zeros(pool, np.int64),
        np.arange(1, pool + 1),
        np.zeros(1, np.int64),
    )
    take(whole, later, later_level, spread, node, gpus, following, first)  # an empty cluster holds every job
    left_over[:] = later
    return at


@njit(cache=True)  # type: ignore[untyped-decorator]
def _take_left_over(
    need: int,
    free: Ints,
    level: Ints,
    left_over: Ints,
    chunk_node: Ints,
    chunk_gpus: Ints,
    chunk_next: Ints,
    spare_chunk: Ints,
) -> int:
    """Place a gang on free GPUs that the reservation leaves over, and take them off `left_over`; −1 where there are too few."""
    largest = len(level) - 1
    whole_nodes = need // largest if need > largest else 0
    rest = need - whole_nodes * largest
    found = 0
    rest_node = -1
    for node in range(len(free)):
        room = min(free[node], left_over[node])
        if found < whole_nodes and room == largest:
            found += 1
        elif rest > 0 and room >= rest and (rest_node < 0 or room < min(free[rest_node], left_over[rest_node])):
            rest_node = node
    if found < whole_nodes or (rest > 0 and rest_node < 0):
        return -1
    first = -1
    found = 0
    for node in range(len(free)):
        gpus = 0
        if found < whole_nodes and min(free[node], left_over[node]) == largest:
            gpus = largest
            found += 1
        elif node == rest_node:
            gpus = rest
        if gpus == 0:
            continue
        chunk = spare_chunk[0]
        spare_chunk[0] = chunk_next[chunk]
        chunk_node[chunk], chunk_gpus[chunk], chunk_next[chunk] = node, gpus, first
        first = chunk
        change(node, -gpus, free, level)
        left_over[node] -= gpus
    return first
