"""Steps that every compiled loop takes: place and release jobs, count time, start and end them.

A gang within a node's size goes on one node (the fullest that fits, or the emptiest with `spread`); a larger one takes whole
nodes and puts its remainder on one more. A share of a GPU joins the fullest shared GPU that has room, else opens a new one.
Whether a gang fits is read from counts, not from nodes.
"""

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import inner
from loadfactor.planner.sizing.cluster.jobs import MILLI, Ints
from loadfactor.planner.sizing.cluster.state import NEVER, JobArrays, State

GANG, FRAGMENTED, ORDER = 0, 1, 2  # why jobs wait beside idle GPUs


@inner
def push(keys: NDArray[np.float64], items: NDArray[np.int64], offset: int, size: int, key: float, item: int) -> None:
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[offset + parent] <= key:
            break
        keys[offset + place] = keys[offset + parent]
        items[offset + place] = items[offset + parent]
        place = parent
    keys[offset + place] = key
    items[offset + place] = item


@inner
def pop(keys: NDArray[np.float64], items: NDArray[np.int64], offset: int, size: int) -> int:
    smallest = items[offset]
    last = size - 1
    key, item = keys[offset + last], items[offset + last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and keys[offset + child + 1] < keys[offset + child]:
            child += 1
        if keys[offset + child] >= key:
            break
        keys[offset + place] = keys[offset + child]
        items[offset + place] = items[offset + child]
        place = child
    keys[offset + place] = key
    items[offset + place] = item
    return int(smallest)


@inner
def fits(need: int, level: Ints) -> bool:
    """Whether a gang of `need` whole GPUs can start now."""
    largest = len(level) - 1
    if need <= largest:
        for f in range(need, largest + 1):  # noqa: SIM110
            if level[f] > 0:
                return True
        return False
    whole_nodes = need // largest
    rest = need - whole_nodes * largest
    if level[largest] < whole_nodes:
        return False
    if rest == 0 or level[largest] > whole_nodes:
        return True
    for f in range(rest, largest):  # noqa: SIM110  a loop compiles and runs faster than a slice
        if level[f] > 0:
            return True
    return False


@inner
def has_room(need: int, milli: int, state: State) -> bool:
    if milli > 0 and find_shared(milli, state) >= 0:
        return True
    return bool(fits(max(need, 1), state.level))


@inner
def place_job(job: int, jobs: JobArrays, state: State, spread: bool) -> None:
    if jobs.milli[job] > 0:
        state.where[job] = take_share(jobs.milli[job], state, spread)
    else:
        state.where[job] = take(jobs.need[job], state, spread)


@inner
def release_job(job: int, jobs: JobArrays, state: State) -> None:
    if jobs.milli[job] > 0:
        give_back_share(state.where[job], jobs.milli[job], state)
    else:
        give_back(state.where[job], state)


@inner
def change(node: int, gpus: int, free: Ints, level: Ints) -> None:
    """Take (negative) or give back (positive) GPUs of a node."""
    level[free[node]] -= 1
    free[node] += gpus
    level[free[node]] += 1


@inner
def copy_counts(source: Ints, target: Ints, count: int) -> None:
    """Copy the first `count` entries; a slice would allocate, which compiled code here cannot."""
    for place in range(count):
        target[place] = source[place]


@inner
def find_node(need: int, free: Ints, spread: bool) -> int:
    """The fullest node with room (or the emptiest, to spread), −1 where there is none."""
    best = -1
    best_free = 0
    for node in range(len(free)):
        f = free[node]
        if f < need:
            continue
        if best < 0 or (f > best_free if spread else f < best_free):
            best = node
            best_free = f
            if f == need and not spread:
                break
    return best


@inner
def find_chunk(need: int, left: int, node: int, free: Ints, level: Ints, spread: bool) -> tuple[int, int]:
    """(node, GPUs) where the next part of a gang goes: whole nodes from `node` on while it needs them, then the remainder."""
    largest = len(level) - 1
    if left >= largest and need > largest:
        while free[node] < largest:
            node += 1
        return node, largest
    return find_node(left, free, spread), left


@inner
def add_chunk(node: int, gpus: int, following: int, state: State) -> int:
    counters = state.counters[0]
    chunk = counters.spare_chunk
    counters.spare_chunk = state.chunk_next[chunk]
    state.chunk_node[chunk] = node
    state.chunk_gpus[chunk] = gpus
    state.chunk_next[chunk] = following
    change(node, -gpus, state.free, state.level)
    return int(chunk)


@inner
def take(need: int, state: State, spread: bool) -> int:
    first = -1
    left = need
    node = 0
    while left > 0:
        node, gpus = find_chunk(need, left, node, state.free, state.level, spread)
        first = add_chunk(node, gpus, first, state)
        left -= gpus
    return first


@inner
def give_back(first: int, state: State) -> None:
    counters = state.counters[0]
    chunk = first
    while chunk >= 0:
        change(state.chunk_node[chunk], state.chunk_gpus[chunk], state.free, state.level)
        following = state.chunk_next[chunk]
        state.chunk_next[chunk] = counters.spare_chunk
        counters.spare_chunk = chunk
        chunk = following


@inner
def find_shared(milli: int, state: State) -> int:
    """The shared GPU with the least room that still holds the share, −1 where none does."""
    best = -1
    for place in range(state.counters[0].shared_gpus):
        room = state.shared_free[place]
        if room >= milli and (best < 0 or room < state.shared_free[best]):
            best = place
            if room == milli:
                break
    return best


@inner
def open_shared(node: int, state: State) -> int:
    counters = state.counters[0]
    change(node, -1, state.free, state.level)
    place = counters.shared_gpus
    state.shared_free[place] = MILLI
    state.shared_node[place] = node
    state.shared_id[place] = counters.next_shared_id
    counters.shared_gpus += 1
    counters.next_shared_id += 1
    return int(place)


@inner
def take_share(milli: int, state: State, spread: bool) -> int:
    place = find_shared(milli, state)
    if place < 0:
        place = open_shared(find_node(1, state.free, spread), state)
    state.shared_free[place] -= milli
    return int(state.shared_id[place])


@inner
def give_back_share(gpu_id: int, milli: int, state: State) -> None:
    """Leave a shared GPU; the last to leave makes it whole again."""
    counters = state.counters[0]
    for place in range(counters.shared_gpus):
        if state.shared_id[place] == gpu_id:
            state.shared_free[place] += milli
            if state.shared_free[place] == MILLI:
                change(state.shared_node[place], 1, state.free, state.level)
                last = counters.shared_gpus - 1
                state.shared_free[place] = state.shared_free[last]
                state.shared_node[place] = state.shared_node[last]
                state.shared_id[place] = state.shared_id[last]
                counters.shared_gpus = last
            return


@inner
def next_event_s(jobs: JobArrays, state: State) -> float:
    counters = state.counters[0]
    soon = NEVER if counters.running == 0 else state.end_s[0]
    if counters.arrived < len(jobs.submit_s) and jobs.submit_s[counters.arrived] < soon:
        soon = jobs.submit_s[counters.arrived]
    return float(soon)


@inner
def book_busy(until_s: float, state: State) -> float:
    """Book held GPUs until an event; returns the seconds of it that lie before the last submission."""
    counters, statistics = state.counters[0], state.statistics[0]
    busy = (counters.total_milli - counters.idle_milli) / MILLI
    statistics.all_busy_gpu_s += busy * (until_s - counters.now_s)
    counted_s = min(until_s, counters.horizon_s) - counters.now_s
    if counted_s > 0:
        statistics.busy_gpu_s += busy * counted_s
    return float(counted_s)


@inner
def book_waiting(counted_s: float, reason: int, state: State) -> None:
    """Book seconds with jobs waiting, and where GPUs were idle, the reason."""
    counters, statistics = state.counters[0], state.statistics[0]
    statistics.pending_s += counted_s
    if counters.idle_milli == 0:
        return
    statistics.blocked_s += counted_s
    if reason == ORDER:
        statistics.order_s += counted_s
    elif reason == GANG:
        statistics.gang_s += counted_s
    else:
        statistics.fragmented_s += counted_s
        statistics.fragmented_gpu_s += counted_s * counters.idle_milli / MILLI


@inner
def requested_milli(job: int, jobs: JobArrays) -> int:
    return int(jobs.milli[job] if jobs.milli[job] > 0 else jobs.need[job] * MILLI)


@inner
def end_jobs(jobs: JobArrays, state: State) -> None:
    """Take back the GPUs of every job that has ended by now."""
    counters = state.counters[0]
    while counters.running > 0 and state.end_s[0] <= counters.now_s:
        job = pop(state.end_s, state.end_job, 0, counters.running)
        counters.running -= 1
        release_job(job, jobs, state)
        counters.idle_milli += requested_milli(job, jobs)


@inner
def begin_job(job: int, jobs: JobArrays, state: State) -> None:
    """Book a job that has just been placed as running until its end."""
    counters = state.counters[0]
    counters.idle_milli -= requested_milli(job, jobs)
    counters.waiting -= 1
    state.start_s[job] = counters.now_s
    push(state.end_s, state.end_job, 0, counters.running, counters.now_s + jobs.duration_s[job], job)
    counters.running += 1


@inner
def start_job(job: int, jobs: JobArrays, state: State, spread: bool) -> None:
    place_job(job, jobs, state, spread)
    begin_job(job, jobs, state)
