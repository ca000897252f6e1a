"""Sums over the last steps, by group: kept for as many steps as the longest window asks for, and since each job began."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from loadfactor.books.step_totals import StepRows
from loadfactor.insight.alerts.evidence import Group
from loadfactor.insight.alerts.numbering import NONE, Ints, Names, Pairs
from loadfactor.metrics.metric import Part
from loadfactor.metrics.query.question import UNKNOWN_HOLDER

Floats = NDArray[np.float64]
NOBODY = frozenset({UNKNOWN_HOLDER})
"""Time of an unknown holder belongs to no job, user or team that could be told anything."""


class Split:
    """The parts that rules read of one split by dimensions, added up by group, step by step."""

    def __init__(self, by: tuple[str, ...], parts: Sequence[Part], steps: int, since_start: bool) -> None:
        self.by = by
        self.parts = tuple(parts)
        self._pairs = [Pairs() for _ in by[1:]]
        self._kept: deque[Floats] = deque(maxlen=steps)
        self._rows = np.cumsum([0, *(len(part.columns) for part in parts)])
        self.keeps_whole = since_start
        self.whole = np.zeros((self._rows[-1], 0))
        self.numbers: Ints = np.empty(0, dtype=np.int64)
        """The group of each row of the last step, NONE where it is in none."""
        self.groups = 0
        self.seen = np.zeros(0, dtype=np.int64)
        """The step in which each group was there last."""
        self.starts = np.zeros(0)
        """Since when each group has been there, in milliseconds."""
        self.named: list[Group] = []

    def add(self, rows: StepRows, numbers: Mapping[str, Ints], step: int, names: Mapping[str, Names]) -> None:
        """Add a step; `numbers`: by dimension the number of each row's name."""
        found = self._number(numbers, rows.count)
        self.numbers = found
        self._widen(int(found.max(initial=NONE)) + 1, rows.start_ms, names)
        inside = found != NONE
        is_all = bool(inside.all())
        of = found if is_all else found[inside]
        table = np.empty((self._rows[-1], self.groups))
        for part, at in zip(self.parts, self._rows, strict=False):
            for place, amounts in enumerate(rows.sums[part]):
                weights = amounts if is_all else amounts[inside]
                table[at + place] = np.bincount(of, weights, minlength=self.groups)
        self._kept.append(table)
        if self.keeps_whole:
            self.whole += table
        self.seen[of] = step

    def sum(self, steps: int, ago: int = 0) -> dict[Part, Floats]:
        """The sums over so many steps that ended so many steps ago, an array of groups × columns for each part."""
        kept = list(self._kept)
        kept = kept[max(len(kept) - ago - steps, 0) : max(len(kept) - ago, 0)]
        total = np.zeros((self._rows[-1], self.groups))
        for table in kept:  # oldest first: the same digits wherever the evaluation began
            total[:, : table.shape[1]] += table
        return self._divide(total)

    def sum_whole(self) -> dict[Part, Floats]:
        """The sums since ever, as far as they are known."""
        return self._divide(self.whole)

    def begin(
        self, numbers: Mapping[str, Ints], sums: Mapping[Part, Floats], since_ms: int, names: Mapping[str, Names]
    ) -> None:
        """Take in what was summed from an instant to the first step; `sums`: groups × columns."""
        found = self._number(numbers, 0)
        self._widen(int(found.max(initial=NONE)) + 1, since_ms, names)
        inside = found != NONE
        for part, at in zip(self.parts, self._rows, strict=False):
            for place, amounts in enumerate(sums[part].T):
                np.add.at(self.whole[at + place], found[inside], amounts[inside])

    def restart(self, place: int, number: int, at_ms: int) -> None:
        """Forget what was added up of the groups whose name at a place of `by` has a number: they begin anew."""
        own = self._find(place, number)
        self.whole[:, own] = 0.0
        self.starts[own] = at_ms

    def _find(self, place: int, number: int) -> Ints:
        """The groups whose name at a place of `by` has a number."""
        groups = np.arange(self.groups)
        firsts = groups
        for pairs in reversed(self._pairs[place:]):
            firsts = pairs.firsts[firsts]
        own = self._pairs[place - 1].seconds[firsts] if place else firsts
        found: Ints = groups[own == number]
        return found

    def _widen(self, groups: int, since_ms: int, names: Mapping[str, Names]) -> None:
        """Make place for groups that are there since an instant."""
        more = groups - self.groups
        if more <= 0:
            return
        self.named += [self._name(group, names) for group in range(self.groups, groups)]
        self.groups = groups
        self.whole = np.pad(self.whole, ((0, 0), (0, more)))
        self.seen = np.append(self.seen, np.full(more, NONE))
        self.starts = np.append(self.starts, np.full(more, float(since_ms)))

    def _name(self, group: int, names: Mapping[str, Names]) -> Group:
        """The names of the group with a number."""
        if not self.by:
            return ()
        numbers = []
        for pairs in reversed(self._pairs):
            numbers.append(int(pairs.seconds[group]))
            group = int(pairs.firsts[group])
        numbers.append(group)
        return tuple(names[of].names[n] for of, n in zip(self.by, reversed(numbers), strict=True))

    def _number(self, numbers: Mapping[str, Ints], rows: int) -> Ints:
        """The group of each row."""
        if not self.by:
            return np.zeros(rows, dtype=np.int64)
        first, *others = self.by
        found = numbers[first]
        for pairs, name in zip(self._pairs, others, strict=True):
            found = pairs.number(found, numbers[name])
        return found

    def _divide(self, table: Floats) -> dict[Part, Floats]:
        return {part: table[at : at + len(part.columns)].T for part, at in zip(self.parts, self._rows, strict=False)}
