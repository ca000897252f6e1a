"""Which scrape a line without a time is of, and which lines are totals: what follows from the order of lines and titles.

`follow_lines` is written for both: Python calls it as it stands for a few lines, compiled for many.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.dcgm.known_series import (
    ALWAYS,
    AS_TITLED,
    BASE,
    COUNTER,
    COUNTS,
    FOREIGN,
    GPU,
    KIND,
    NAME,
    TITLE,
    VALUE,
    WHAT,
    KnownSeries,
)
from loadfactor.sources.parsing.steps import grow

Ints = NDArray[np.int64]
SCRAPE, ABOVE, TEXT, BEGAN = range(4)


class OrderState(NamedTuple):
    """Memory from line to line. `cursor`: number of the scrape, name above, text and its first scrape.

    A scrape has each line once (`seen`, by series), the lines of a field in a row (`read`, by name, GPU and instance) and one
    title a field (`titled`, by name): they hold the scrape in which they were last met. `counter` says of a name whether it is a
    counter; `last` and `text` in which scrape of which text a GPU was last met, `before` in how many before.
    """

    cursor: Ints
    seen: Ints
    read: Ints
    titled: Ints
    counter: Ints
    last: Ints
    text: Ints
    before: Ints


def follow_lines(
    series: NDArray[np.int32],
    at_ms: Ints,
    values: NDArray[np.float64],
    facts: NDArray[np.int32],
    state: OrderState,
    counts: NDArray[np.bool_],
    before: Ints,
) -> None:
    """Fills `counts` (is it a total) and `before` (how many scrapes of its GPU stood before; -1 with a time) for each line.

    `at_ms` is -1 where a line has no time, `values` NaN where it has none.
    """
    scrape, above, text = state.cursor[SCRAPE], state.cursor[ABOVE], state.cursor[TEXT]
    for k in range(len(series)):
        s = series[k]
        kind, name = facts[s, KIND], facts[s, NAME]
        before[k] = -1
        if kind == TITLE:
            if name >= 0:
                if state.titled[name] == scrape:
                    scrape += 1
                if facts[s, COUNTS] > 0:
                    state.counter[name] = facts[s, COUNTS] == COUNTER
            continue
        if kind == FOREIGN:
            continue
        if at_ms[k] < 0:
            what = facts[s, WHAT]
            if state.seen[s] == scrape or (name != above and what >= 0 and state.read[what] == scrape):
                scrape += 1
            state.seen[s] = scrape
            above = name
            if kind == VALUE:
                state.read[what] = scrape
                state.titled[facts[s, BASE]] = scrape
        if kind != VALUE or values[k] != values[k]:
            continue
        counts[k] = facts[s, COUNTS] == ALWAYS or (facts[s, COUNTS] == AS_TITLED and state.counter[name] == 1)
        if at_ms[k] < 0:
            gpu, number = facts[s, GPU], scrape - state.cursor[BEGAN]
            if state.last[gpu] >= 0 and (state.last[gpu] != number or state.text[gpu] != text):
                state.before[gpu] += 1
            state.last[gpu], state.text[gpu], before[k] = number, text, state.before[gpu]
    state.cursor[SCRAPE], state.cursor[ABOVE] = scrape, above


class ScrapeOrder:
    """The state of `follow_lines` over the texts of one decoding."""

    def __init__(self) -> None:
        self._state = OrderState(np.zeros(4, np.int64), *(np.empty(0, np.int64) for _ in OrderState._fields[1:]))

    def begin(self, text: int) -> None:
        """Another text begins: another scrape, and nothing has a title yet."""
        cursor = self._state.cursor
        cursor[SCRAPE] += 1
        cursor[ABOVE], cursor[TEXT], cursor[BEGAN] = -1, text, cursor[SCRAPE]
        self._state.counter[:] = 0

    def grow(self, known: KnownSeries) -> OrderState:
        """The state, as long as what is known by now."""
        sizes = (len(known), len(known.whats), len(known.names), len(known.names)) + (len(known.gpus),) * 3
        new = (-1, -1, -1, 0, -1, -1, 0)
        for name, size, fill in zip(OrderState._fields[1:], sizes, new, strict=True):
            self._state = self._state._replace(**{name: grow(getattr(self._state, name), size, fill)})
        return self._state

    def forget_series(self, known: KnownSeries) -> None:
        """Lets the known series forget all but the lines of this scrape."""
        state, scrape = self.grow(known), self._state.cursor[SCRAPE]
        known.keep([known.heads[i] for i in np.flatnonzero(state.seen[: len(known)] == scrape)])
        self._state = state._replace(seen=_EMPTY, read=_EMPTY)
        state = self.grow(known)
        state.seen[: len(known)] = scrape
        whats = known.facts[: len(known), WHAT]
        state.read[whats[whats >= 0]] = scrape


_EMPTY: Final = np.empty(0, np.int64)
