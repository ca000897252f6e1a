"""Which GPUs does a gang get? Compiled steps shared by the simulators; the state is arrays so that numba can keep it in registers.

`free[node]` counts wholly free GPUs, `level[f]` the nodes with f free, so whether a gang fits is known without looking at nodes.
A gang within a node's size goes on one node (the fullest that fits, or the emptiest with `spread`); a larger one takes whole
nodes and puts its remainder on one more. A share of a GPU joins the fullest shared GPU that has room, else opens a new one.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from loadfactor.planner.sizing.cluster.jobs import MILLI

Ints = NDArray[np.int64]


@njit(cache=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True)  # type: ignore[untyped-decorator]
def change(node: int, gpus: int, free: Ints, level: Ints) -> None:
    """Take (negative) or give back (positive) GPUs of a node."""
    level[free[node]] -= 1
    free[node] += gpus
    level[free[node]] += 1


@njit(cache=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True)  # type: ignore[untyped-decorator]
def take(
    need: int, free: Ints, level: Ints, spread: bool, chunk_node: Ints, chunk_gpus: Ints, chunk_next: Ints, spare: Ints
) -> int:
    """Place a gang that fits; returns the first of its chunks (a linked list through the pool; spare[0] heads the free ones)."""
    largest = len(level) - 1
    first = -1
    left = need
    node = 0
    while left > 0:
        if left >= largest and need > largest:
            while free[node] < largest:
                node += 1
            gpus = largest
        else:
            node = find_node(left, free, spread)
            gpus = left
        chunk = spare[0]
        spare[0] = chunk_next[chunk]
        chunk_node[chunk] = node
        chunk_gpus[chunk] = gpus
        chunk_next[chunk] = first
        first = chunk
        change(node, -gpus, free, level)
        left -= gpus
    return first


@njit(cache=True)  # type: ignore[untyped-decorator]
def give_back(
    first: int, free: Ints, level: Ints, chunk_node: Ints, chunk_gpus: Ints, chunk_next: Ints, spare: Ints
) -> None:
    """Free every chunk of a gang."""
    chunk = first
    while chunk >= 0:
        change(chunk_node[chunk], chunk_gpus[chunk], free, level)
        following = chunk_next[chunk]
        chunk_next[chunk] = spare[0]
        spare[0] = chunk
        chunk = following


@njit(cache=True)  # type: ignore[untyped-decorator]
def find_shared(milli: int, shared_free: Ints, opened: Ints) -> int:
    """The shared GPU with the least room that still holds the share, −1 where none does; opened[0] GPUs are in the list."""
    best = -1
    for place in range(opened[0]):
        room = shared_free[place]
        if room >= milli and (best < 0 or room < shared_free[best]):
            best = place
            if room == milli:
                break
    return best


@njit(cache=True)  # type: ignore[untyped-decorator]
def take_share(
    milli: int,
    free: Ints,
    level: Ints,
    spread: bool,
    shared_free: Ints,
    shared_node: Ints,
    shared_id: Ints,
    opened: Ints,
) -> int:
    """Place a share of one GPU; returns the shared GPU's id, −1 where nothing has room. opened = [count, next id]."""
    place = find_shared(milli, shared_free, opened)
    if place < 0:
        if not fits(1, level):
            return -1
        node = find_node(1, free, spread)
        change(node, -1, free, level)
        place = opened[0]
        opened[0] += 1
        shared_free[place] = MILLI
        shared_node[place] = node
        shared_id[place] = opened[1]
        opened[1] += 1
    shared_free[place] -= milli
    return int(shared_id[place])


@njit(cache=True)  # type: ignore[untyped-decorator]
def give_back_share(
    gpu_id: int,
    milli: int,
    free: Ints,
    level: Ints,
    shared_free: Ints,
    shared_node: Ints,
    shared_id: Ints,
    opened: Ints,
) -> None:
    """Leave a shared GPU; the last to leave makes it whole again."""
    for place in range(opened[0]):
        if shared_id[place] == gpu_id:
            shared_free[place] += milli
            if shared_free[place] == MILLI:
                change(shared_node[place], 1, free, level)
                last = opened[0] - 1
                shared_free[place] = shared_free[last]
                shared_node[place] = shared_node[last]
                shared_id[place] = shared_id[last]
                opened[0] = last
            return


@njit(cache=True)  # type: ignore[untyped-decorator]
def room(need: int, milli: int, level: Ints, shared_free: Ints, opened: Ints) -> bool:
    """Whether a job of this size, a gang or a share of one GPU, can start now."""
    if milli > 0 and find_shared(milli, shared_free, opened) >= 0:
        return True
    return bool(fits(max(need, 1), level))
