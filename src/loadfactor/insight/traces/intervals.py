"""Arithmetic of intervals in whole nanoseconds: unions, their lengths, the gaps between them, and parts of them in windows.

Starts are in ascending order everywhere; ends are in any.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner
from loadfactor.base.units import NS_PER_S, S_PER_HOUR
from loadfactor.tables.trace_events import GpuEvents

JUMP_NS: Final = S_PER_HOUR * NS_PER_S
"""No capture has so long a gap: profilers keep seconds."""


def keep_one_clock(gpu: GpuEvents) -> tuple[GpuEvents, str]:
    """The events between two jumps that were busy longest, and a sentence on what is left out; all and nothing where none jump."""
    united = unite(gpu.start_ns, gpu.end_ns)
    jumps = np.nonzero(united.start_ns[1:] - united.end_ns[:-1] > JUMP_NS)[0] + 1
    if not len(jumps):
        return gpu, ""
    edges = np.concatenate(([0], jumps, [len(united.start_ns)]))
    busy = [int((united.end_ns[a:b] - united.start_ns[a:b]).sum()) for a, b in pairwise(edges)]
    best = int(np.argmax(busy))
    begin, end = united.start_ns[edges[best]], united.end_ns[edges[best + 1] - 1]
    kept = (gpu.start_ns >= begin) & (gpu.start_ns <= end)
    left_out = len(gpu) - int(kept.sum())
    note = f"The clock jumps: {left_out:,} of {len(gpu):,} GPU events lie hours away from the others and are left out."
    return gpu.take(kept), note


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


_FOREVER = np.iinfo(np.int64).max


@inner
def _share(begin: int, end: int, starts: Int64s, ends: Int64s, at: int) -> tuple[int, int]:
    """How much of the intervals lies between two times, and the first interval that reaches beyond them."""
    found = 0
    while at < len(starts) and ends[at] <= begin:
        at += 1
    k = at
    while k < len(starts) and starts[k] < end:
        found += min(end, ends[k]) - max(begin, starts[k])
        k += 1
    return found, at


@entry
def own_intervals(
    event_starts: Int64s,
    event_ends: Int64s,
    is_phase: NDArray[np.bool_],
    is_call: NDArray[np.bool_],
    starts: Int64s,
    ends: Int64s,
    open_: Int64s,
    owned: Int64s,
    phase: Int64s,
    holder: Int64s,
) -> None:
    """Adds to `owned` how much of the intervals each event owns, and puts the event that is its phase into `phase`.

    Events are by start and, of one start, the longest first; intervals are disjoint and ascending. Of open events the one that
    began
    last owns an instant. The phase of an event is itself where `is_phase`, else that of the event around it, else -1. Its
    holder is itself, of a call the holder of the event around it, if there is one. `open_` is room for as many numbers as events.
    """
    depth, at, now = 0, 0, -_FOREVER
    count = len(event_starts)
    for k in range(count + 1):
        begins = event_starts[k] if k < count else _FOREVER
        while depth > 0 and event_ends[open_[depth - 1]] <= begins:
            top = open_[depth - 1]
            if event_ends[top] > now:
                part, at = _share(now, event_ends[top], starts, ends, at)
                owned[top] += part
                now = event_ends[top]
            depth -= 1
        if k == count:
            break
        if depth > 0 and begins > now:
            part, at = _share(now, begins, starts, ends, at)
            owned[open_[depth - 1]] += part
        now = begins
        phase[k] = k if is_phase[k] else (phase[open_[depth - 1]] if depth > 0 else -1)
        holder[k] = holder[open_[depth - 1]] if is_call[k] and depth > 0 else k
        open_[depth] = k
        depth += 1
