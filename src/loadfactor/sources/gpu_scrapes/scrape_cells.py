"""Which values are of one scrape: those of one place and time."""

import numpy as np
from numpy.typing import NDArray


def number_cells(place: NDArray[np.int32], at_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers what has one place and time, from 0 in the order first seen: the number of each entry, and the first entry of each.

    >>> number_cells(np.array([7, 8, 7, 7], np.int32), np.array([5, 5, 5, 6]))
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    n = len(place)
    runs = np.flatnonzero(np.append(True, at_ms[1:] != at_ms[:-1])[:n])  # lines of a scrape have one time
    times, time_of_run = np.unique(at_ms[runs], return_inverse=True)
    time = np.repeat(time_of_run, np.diff(np.append(runs, n)))
    code = place.astype(np.int64) * len(times) + time
    if n and int(code.max()) < 8 * n + 1024:  # few enough to look up
        table = np.empty(int(code.max()) + 1, np.int64)
        table[code[::-1]] = np.arange(n)[::-1]
        first = table[code]
    else:
        _, entry, inverse = np.unique(code, return_index=True, return_inverse=True)
        first = entry[inverse]
    is_first = first == np.arange(n)
    return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)
