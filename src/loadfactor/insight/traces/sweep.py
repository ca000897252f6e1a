"""Which event of a thread is the innermost at each instant, and how much of some intervals each of them owns; compiled."""

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner

Int64s = NDArray[np.int64]
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
