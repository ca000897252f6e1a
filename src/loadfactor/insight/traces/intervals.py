"""Arithmetic of intervals in whole nanoseconds: unions, their lengths, the gaps between them, and parts of them in windows.

Starts are in ascending order everywhere; ends are in any.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Disjoint intervals in ascending order. `first` is the row of the event that each begins with."""

    start_ns: Int64s
    end_ns: Int64s
    first: Int64s

    @property
    def length_ns(self) -> int:
        """Their lengths together."""
        return int((self.end_ns - self.start_ns).sum())

    def length_until(self, at_ns: Int64s) -> Int64s:
        """How much of them lies before each of these times."""
        if not len(self.start_ns):
            return np.zeros(len(at_ns), np.int64)
        before = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))
        place = np.searchsorted(self.start_ns, at_ns, side="right")
        last = np.maximum(place - 1, 0)
        beyond = np.where(place > 0, np.maximum(self.end_ns[last] - at_ns, 0), 0)
        return np.asarray(before[place] - beyond, np.int64)


def unite(start_ns: Int64s, end_ns: Int64s) -> Spans:
    """The union of intervals.

    >>> united = unite(np.array([0, 2, 9]), np.array([5, 3, 12]))
    >>> united.start_ns.tolist(), united.end_ns.tolist(), united.length_ns
    ([0, 9], [5, 12], 8)
    >>> united.length_until(np.array([4, 10])).tolist()
    [4, 6]
    """
    if not len(start_ns):
        nothing = np.empty(0, np.int64)
        return Spans(nothing, nothing, nothing)
    reach = np.maximum.accumulate(end_ns)
    first = np.concatenate(([0], np.nonzero(start_ns[1:] > reach[:-1])[0] + 1))
    last = np.concatenate((first[1:], [len(start_ns)])) - 1
    return Spans(start_ns[first], reach[last], first)
