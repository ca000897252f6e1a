"""Which call of the host launched which work of the GPU: both carry one correlation number."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
NO_CORRELATION: Final = 0


def find_launches(
    wanted: Int64s, given: Int64s, given_start_ns: Int64s, given_process: NDArray[np.int32]
) -> tuple[NDArray[np.int32], int]:
    """For each GPU event the place of its call among the given ones, the earliest of several; -1 where there is none.

    A number that several processes use says nothing about which call it was: those are -1, too, and counted.
    """
    found = np.full(len(wanted), -1, np.int32)
    if not len(given) or not len(wanted):
        return found, 0
    order = np.lexsort((given_start_ns, given))
    numbers = given[order]
    places = np.searchsorted(numbers, wanted)
    inside = np.minimum(places, len(numbers) - 1)
    known = (wanted > NO_CORRELATION) & (numbers[inside] == wanted)
    found[known] = order[inside[known]]
    processes = given_process[order]
    if len(processes) == 0 or (processes == processes[0]).all():
        return found, 0
    same = numbers[1:] == numbers[:-1]
    doubtful = np.unique(numbers[1:][same & (processes[1:] != processes[:-1])])
    unclear = known & np.isin(wanted, doubtful)
    found[unclear] = -1
    return found, int(unclear.sum())
