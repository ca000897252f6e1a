"""Points that wait until the scrapes they belong to are there whole, and which of them came late."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.sources.dcgm.fields import explain_blank, is_large, may_be_blank
from loadfactor.sources.gpu_scrapes.fields import Field
from loadfactor.sources.parsing.steps import NEVER, grow
from loadfactor.sources.prometheus.remote_write import Points

SOURCE_NUMBER, UNIT, GPU, PLACE, KEY, LABELS, HOLDERS, NAME = range(8)
"""Columns of the facts: the source; the GPU or node among those of all sources; the rest are numbers of the source's own."""
TOTAL, BLANKED, LARGE, MASK = range(4)
"""Columns of the flags: a total that only grows; blanks of DCGM stand in it; it may pass the smaller ones; bits speak."""
_ALIVE_MS: Final = MS_PER_HOUR


class SeriesFacts:
    """Rows of facts. `multiply` and `divide` turn a value into our unit, `last_ms` is the newest point taken (-1 none)."""

    def __init__(self) -> None:
        self.fields: list[Field | None] = []
        self.of = np.zeros((1024, 8), np.int32)
        self.flags = np.zeros((1024, 4), bool)
        self.multiply = np.ones(1024)
        self.divide = np.ones(1024)
        self.last_ms = np.full(1024, -1)

    def __len__(self) -> int:
        return len(self.fields)

    def add(self, facts: tuple[int, ...], field: Field | None, has_blanks: bool) -> int:
        """The number of one more series."""
        number = len(self.fields)
        if number == len(self.of):
            for name in ("of", "flags", "multiply", "divide", "last_ms"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.full_like(old, -1) if name == "last_ms" else old]))
        self.fields.append(field)
        self.of[number] = facts
        if field is not None:
            self.flags[number] = (field.counts, has_blanks, is_large(field), field.mask)
            self.multiply[number], self.divide[number] = field.multiply, field.divide
        return number

    def count_alive(self) -> int:
        """How many series had a point not long before the newest."""
        last_ms = self.last_ms[: len(self)]
        return int((last_ms >= last_ms.max(initial=0) - _ALIVE_MS).sum())

    def find_blanks(self, series: NDArray[np.int32], value: NDArray[np.float64]) -> dict[int, str]:
        """The entries that are no measurement, and why; NaN and infinite ones not among them."""
        flags = self.flags[series]
        at = np.flatnonzero(flags[:, BLANKED] & may_be_blank(value, flags[:, LARGE]))
        found, explained = {}, {}
        for i, number, large in zip(at.tolist(), value[at].tolist(), flags[at, LARGE].tolist(), strict=True):
            if (number, large) not in explained:
                field = self.fields[series[i]]
                assert field is not None
                explained[number, large] = explain_blank("", number, field)
            if why := explained[number, large]:
                found[i] = why
        masks = np.flatnonzero(flags[:, MASK])
        wrong = masks[(value[masks] < 0) | (value[masks] != np.trunc(value[masks]))]
        return {**found, **dict.fromkeys(wrong.tolist(), UNREADABLE)}


UNREADABLE: Final = "an unreadable value"
_STALE: Final = 0x7FF0000000000002
"""The NaN by which Prometheus says that a series has ended."""


class _Part(NamedTuple):
    points: Points
    payload: NDArray[np.int64]
    arrived_s: NDArray[np.float64]


class Drained(NamedTuple):
    """Points in the order they came: those that are complete, and those that came after later ones of their device were taken."""

    complete: Points
    late: Points


class PendingPoints:
    """Points by the payload they came in. `taken_ms` is through when each unit (a GPU or a node) was taken, NEVER before that."""

    def __init__(self, facts: SeriesFacts, through: int) -> None:
        """`through`: of payloads up to this number all was fed once before."""
        self.taken_ms = np.empty(0, np.int64)
        self.through = through
        self._facts = facts
        self._before = through
        self._last: int | None = None
        self._parts: list[_Part] = []

    def grow(self, units: int) -> None:
        """Room for so many units."""
        self.taken_ms = grow(self.taken_ms, units, NEVER)

    def feed(self, points: Points, payload: int, arrived_s: float) -> None:
        """Adds the points of a payload; of one that was fed once before only those that were not taken."""
        kept = np.ascontiguousarray(points.value).view(np.int64) != _STALE
        if payload <= self._before:
            kept &= points.at_ms > self.taken_ms[self._facts.of[points.series, UNIT]]
        if not kept.all():
            points = pick_points(points, kept)
        n = len(points.series)
        if n:
            self._parts.append(_Part(points, np.full(n, payload), np.full(n, arrived_s)))
        self._last = max(payload, self._last or payload)

    def drain(self, complete_s: float | None) -> Drained:
        """All late points, and those of the scrapes that began to arrive before `complete_s` or are older than such a one."""
        self.through = max(self.through, self._last or self.through)
        if not self._parts:
            return Drained(_NOTHING, _NOTHING)
        parts = [part.points for part in self._parts]
        points = Points(*map(np.concatenate, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]
        arrived_s = np.concatenate([part.arrived_s for part in self._parts])
        payload = np.concatenate([part.payload for part in self._parts])
        unit = self._facts.of[points.series, UNIT]
        is_late = points.at_ms <= self.taken_ms[unit]
        late = pick_points(points, is_late & (points.at_ms != self._facts.last_ms[points.series]))
        until_ms = np.full(len(self.taken_ms), NEVER)
        begun = ~is_late if complete_s is None else ~is_late & (arrived_s < complete_s)
        np.maximum.at(until_ms, unit[begun], points.at_ms[begun])
        is_complete = ~is_late & (points.at_ms <= until_ms[unit])
        complete = pick_points(points, is_complete)
        np.maximum(self.taken_ms, until_ms, out=self.taken_ms)
        for some in (complete, late):
            np.maximum.at(self._facts.last_ms, some.series, some.at_ms)
        rest = ~(is_complete | is_late)
        self._parts = [_Part(pick_points(points, rest), payload[rest], arrived_s[rest])] if rest.any() else []
        return Drained(complete, late)

    def done(self) -> int | None:
        """The last payload all of whose points were taken; None where none was fed."""
        if not self._parts:
            return self._last
        return min(int(part.payload.min()) for part in self._parts) - 1


def pick_points(points: Points, which: NDArray[Any]) -> Points:
    """Some of them, by a mask or numbers."""
    return Points(points.series[which], points.at_ms[which], points.value[which])


def drop_repeated(points: Points) -> Points:
    """Without those of the same series and time as an earlier one; order is lost."""
    order = np.lexsort((points.at_ms, points.series))
    points = pick_points(points, order)
    new = (points.series[1:] != points.series[:-1]) | (points.at_ms[1:] != points.at_ms[:-1])
    return pick_points(points, np.append(True, new)[: len(order)])


_NOTHING: Final = Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))
