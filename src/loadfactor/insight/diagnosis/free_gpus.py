"""Free GPUs beside waiting jobs: those that would have fitted, and those that fragmentation kept out, step by step of a pool.

Jobs are placed in the order in which they wait: one no larger than a node on the fullest node that has room, a larger one on
nodes that are wholly free. A GPU is counted once, for the first job that it would have served.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class FreeBesideWaits:
    """GPUs that were free in one step although jobs waited: `fitting` could have been given to them, `stranded` were scattered."""

    fitting: int
    stranded: int


def match_free_gpus(free: Sequence[int], sizes: Sequence[int], waiting: Sequence[int]) -> FreeBesideWaits:
    """Of nodes with these free GPUs and sizes, and waiting jobs of so many GPUs, in their order.

    >>> match_free_gpus([3, 5, 8], [8, 8, 8], [8, 8])  # the second one would fit into 3 + 5
    FreeBesideWaits(fitting=8, stranded=8)
    >>> match_free_gpus([3, 5], [8, 8], [4, 4])  # 5 of 8: one job fits, the other one would fit into 3 + 1
    FreeBesideWaits(fitting=4, stranded=4)
    >>> match_free_gpus([1], [8], [4])  # simply full
    FreeBesideWaits(fitting=0, stranded=0)
    """
    left, size = np.array(free, dtype=np.int64), np.array(sizes, dtype=np.int64)
    largest = int(size.max(initial=0))
    fitting, unplaced = 0, []
    for gpus in waiting:
        if _place(left, size, largest, gpus):
            fitting += gpus
        else:
            unplaced.append(gpus)
    rest, stranded = int(left.sum()), 0
    for gpus in unplaced:
        if gpus <= rest:
            rest -= gpus
            stranded += gpus
    return FreeBesideWaits(fitting, stranded)


def _place(left: Counts, size: Counts, largest: int, gpus: int) -> bool:
    """Take GPUs for a job out of those that are left; False where it does not fit."""
    if gpus <= largest:
        room = np.flatnonzero(left >= gpus)
        if not len(room):
            return False
        left[room[np.argmin(left[room])]] -= gpus
        return True
    whole = np.flatnonzero((left == size) & (size == largest))
    nodes = -(-gpus // largest) if largest else 0
    if not nodes or len(whole) < nodes:
        return False
    left[whole[: nodes - 1]] = 0
    left[whole[nodes - 1]] -= gpus - (nodes - 1) * largest
    return True
