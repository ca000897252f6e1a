"""Rolling sums of the books that rules read: over windows and since each job began, for all steps of a read at once."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S
from loadfactor.books.step_totals import StepRows
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.rule import (
    SINCE_START,
    Evidence,
    Flags,
    Floats,
    Group,
    Ints,
    Need,
    Records,
    RolledMetric,
)
from loadfactor.metrics import Metric, metric
from loadfactor.metrics.metric import Part, Ratio, Sum
from loadfactor.metrics.query.answer import work_out
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.tables.schema import DIMENSIONS, Span

HOLDER: Final = ("node", "job", "user", "team")
"""Dimensions that alerts name of every group, whatever it is split by."""
NONE: Final = -1
"""The number of no name and of no group."""
_BITS: Final = 32


class Observed:
    """Rolling sums of what these needs read, over steps of one length."""

    def __init__(self, needs: Sequence[Need], step_ms: int) -> None:
        self._step_ms = step_ms
        self._kinds = {need.metric: _summable(metric(need.metric)) for need in needs}
        self.metrics = tuple(metric(name) for name in self._kinds)
        splits = {need.by: [n for n in needs if n.by == need.by] for need in needs}
        used = {name for by in splits for name in by}.union(HOLDER)
        self.by = tuple(name for name in DIMENSIONS if name in used)
        self._names = {name: _Names() for name in self.by}
        self._splits = {by: self._make(by, of) for by, of in splits.items()}
        self._starts: dict[str, int] = {}
        windows = [need.window_s + need.ago_s for need in needs if need.window_s != SINCE_START]
        self.longest_ms = round(max(windows, default=0.0) * MS_PER_S)
        """How long before the first step that is judged steps have to be added."""

    def begin(self, watched: Watched, start_ms: int) -> None:
        """Take in what the jobs that hold GPUs at an instant did before it, where rules read since they began."""
        first, last = watched.span
        self._starts = watched.find_job_starts(start_ms, self._step_ms)
        until = min(start_ms, last)
        since = max(first, min(self._starts.values(), default=until))
        for split in self._splits.values():
            if split.keeps_whole and since < until:
                self._begin(split, watched, (since, until))

    def _begin(self, split: "_Split", watched: Watched, span: Span) -> None:
        floors = {job: at - at % self._step_ms for job, at in self._starts.items()}
        totals = watched.add_up(self.metrics, split.by, span, floors)
        at_once = np.zeros(len(totals.keys), dtype=np.int64)
        numbers = {}
        for position, name in enumerate(split.by):
            own = [key[position] for key in totals.keys]
            names = list(dict.fromkeys(n for n in own if n is not None))
            code = {n: k for k, n in enumerate(names)}
            codes = np.array([NONE if n is None else code[n] for n in own], dtype=np.int64)
            numbers[name] = self._names[name].number(codes, names, at_once)
        split.begin(numbers, totals.sums, span[0], self._starts)

    def add(self, steps: Sequence[StepRows], begun: Sequence[tuple[int, str]]) -> None:
        """Add the rows of the next steps, which were read together; `begun`: when which jobs begin in them."""
        self._steps = steps
        counts = [rows.count for rows in steps]
        step_of = np.repeat(np.arange(len(steps)), counts)
        self._limits = np.cumsum([0, *counts])
        self._numbers: dict[str, Ints] = {
            name: self._names[name].number(np.concatenate([s.codes[name] for s in steps]), names, step_of)
            for name, names in steps[0].names.items()
        }
        sums = {part: np.concatenate([s.sums[part] for s in steps], axis=1) for part in steps[0].sums}
        begins = [[(job, at) for at, job in begun if rows.start_ms <= at < rows.end_ms] for rows in steps]
        for split in self._splits.values():
            split.add(self._numbers, sums, step_of, [rows.start_ms for rows in steps], begins, self._starts)
        self._starts.update((job, at) for of_step in begins for job, at in of_step)
        self._read_at_once = cache(self._read)

    def show(self, records: Records) -> Iterator[Evidence]:
        """The evidence at the end of each of the steps that were added last."""
        for n, rows in enumerate(self._steps):
            yield Evidence(
                rows.end_ms,
                self._step_ms,
                records,
                cache(partial(self._show, n)),
                cache(partial(self._list_groups, n)),
                cache(partial(self._show_starts, n)),
                cache(partial(self._name, n)),
                cache(partial(self._find_parents, n)),
                partial(self._name_holder, n),
            )

    def _make(self, by: tuple[str, ...], needs: Sequence[Need]) -> "_Split":
        parts = [part for need in needs for part in metric(need.metric).parts]
        windows = [n.window_s + n.ago_s for n in needs if n.window_s != SINCE_START]
        steps = self._count_steps(max(windows, default=0.0))
        names = [self._names[name] for name in by]
        return _Split(by, names, list(dict.fromkeys(parts)), max(steps, 1), len(windows) < len(needs))

    def _count_steps(self, seconds: float) -> int:
        return round(seconds * MS_PER_S / self._step_ms)

    def _read(self, need: Need) -> tuple[Floats, Floats]:
        """The value and the coverage of a metric, steps × groups."""
        split, kind = self._splits[need.by], self._kinds[need.metric]
        window = None if need.window_s == SINCE_START else self._count_steps(need.window_s)
        sums = split.sum(metric(need.metric).parts, window, self._count_steps(need.ago_s))
        values, is_known, coverage = work_out(kind, sums)
        shape = len(self._steps), split.groups
        return np.where(is_known, values[:, 0], np.nan).reshape(shape), coverage.reshape(shape)

    def _show(self, n: int, need: Need) -> RolledMetric:
        split = self._splits[need.by]
        groups = split.groups_at[n]
        value, coverage = self._read_at_once(need)
        return RolledMetric(value[n, :groups], coverage[n, :groups], split.is_there[n, :groups])

    def _list_groups(self, n: int, by: tuple[str, ...]) -> Sequence[Group]:
        split = self._splits[by]
        groups = split.groups_at[n]
        return split.named if groups == len(split.named) else split.named[:groups]

    def _show_starts(self, n: int, by: tuple[str, ...]) -> Floats:
        split = self._splits[by]
        return split.starts_at[n][: split.groups_at[n]]

    def _name(self, n: int, by: tuple[str, ...], dimension: str) -> Sequence[str | None]:
        split, names = self._splits[by], self._names[dimension].names
        latest = np.full(split.groups_at[n], NONE, dtype=np.int64)
        groups, numbers = self._rows(n, split.numbers), self._rows(n, self._numbers[dimension])
        inside = (groups != NONE) & (numbers != NONE)
        latest[groups[inside]] = numbers[inside]
        return [names[number] if number != NONE else None for number in latest.tolist()]

    def _find_parents(self, n: int, by: tuple[str, ...], of: tuple[str, ...]) -> Ints:
        parts, whole = self._splits[by], self._splits[of]
        found = np.full(parts.groups_at[n], NONE, dtype=np.int64)
        groups = self._rows(n, parts.numbers)
        inside = groups != NONE
        found[groups[inside]] = self._rows(n, whole.numbers)[inside]
        return found

    def _name_holder(self, n: int, by: tuple[str, ...], group: Group) -> dict[str, str]:
        if not {*by} <= {*self._names}:  # a budget, a price, a queue
            return {}
        mask = np.ones(self._steps[n].count, dtype=bool)
        for name, value in zip(by, group, strict=True):
            number = self._names[name].find(value)
            mask &= self._rows(n, self._numbers[name]) == number if number != NONE else False
        found = {}
        for name in HOLDER:
            numbers = self._rows(n, self._numbers[name])[mask]
            found[name] = np.unique(numbers[numbers != NONE])
        return {name: self._names[name].names[of[0]] for name, of in found.items() if len(of) == 1 and name not in by}

    def _rows(self, n: int, of: Ints) -> Ints:
        """Those of the step with this position."""
        return of[self._limits[n] : self._limits[n + 1]]


class _Split:
    """The parts that rules read of one split by dimensions, by group: of the last steps, and since each job began.

    Of the steps that were added last: `numbers`, the group of each row; `is_there`, steps × groups; by step, how many groups there
    were (`groups_at`) and since when each has been there, in milliseconds (`starts_at`).
    """

    def __init__(
        self, by: tuple[str, ...], names: Sequence["_Names"], parts: Sequence[Part], kept: int, keeps_whole: bool
    ) -> None:
        self.by = by
        self.keeps_whole = keeps_whole
        self.groups = 0
        self.named: list[Group] = []
        self._of_job = defaultdict[str, list[int]](list)
        self._names = names
        self._pairs = [_Pairs() for _ in by[1:]]
        self._at = dict(zip(parts, np.cumsum([0, *(len(part.columns) for part in parts)]).tolist(), strict=False))
        self._most_kept = kept
        columns = sum(len(part.columns) for part in parts)
        self._table = np.zeros(
            (0, columns, 0)
        )  # steps × columns × groups: those added last, after as many as windows need
        self._whole = np.zeros((columns, 0))
        self._starts = np.zeros(0)

    def begin(
        self, numbers: Mapping[str, Ints], sums: Mapping[Part, Floats], since_ms: int, job_starts: Mapping[str, int]
    ) -> None:
        """Take in what was summed from an instant to the first step; `sums`: groups × columns."""
        rows = len(next(iter(sums.values())))
        found = self._number(numbers, np.zeros(rows, dtype=np.int64))
        self._widen(int(found.max(initial=NONE)) + 1)
        self._date(0, self.groups, since_ms, job_starts)
        inside = found != NONE
        for part, at in self._at.items():
            for column, amounts in enumerate(sums[part].T):
                np.add.at(self._whole[at + column], found[inside], amounts[inside])

    def add(
        self,
        numbers: Mapping[str, Ints],
        sums: Mapping[Part, Floats],
        step_of: Ints,
        starts_ms: Sequence[int],
        begins: Sequence[Sequence[tuple[str, int]]],
        job_starts: Mapping[str, int],
    ) -> None:
        """Add steps: of each row the numbers of its names by dimension, its amounts and its step; by step, jobs that begin."""
        steps, before = len(starts_ms), self.groups
        self.numbers = self._number(numbers, step_of)
        most = np.full(steps, before - 1)
        np.maximum.at(most, step_of, self.numbers)
        self.groups_at = (np.maximum.accumulate(most) + 1).tolist()
        self._widen(self.groups_at[-1])
        inside = self.numbers != NONE
        cells = (step_of * self.groups + self.numbers)[inside]
        size = steps * self.groups
        table = np.empty((steps, len(self._whole), self.groups))
        for part, at in self._at.items():
            for column, amounts in enumerate(sums[part]):
                table[:, at + column] = np.bincount(cells, amounts[inside], size).reshape(steps, self.groups)
        self.is_there: Flags = np.bincount(cells, minlength=size).reshape(steps, self.groups) > 0
        self._table = np.concatenate([self._table[max(0, len(self._table) - self._most_kept) :], table])
        self._advance(table, before, starts_ms, begins, job_starts)

    def _advance(
        self,
        table: Floats,
        before: int,
        starts_ms: Sequence[int],
        begins: Sequence[Sequence[tuple[str, int]]],
        job_starts: Mapping[str, int],
    ) -> None:
        self.starts_at = []
        self._wholes = np.empty(table.shape if self.keeps_whole else 0)
        known = dict(job_starts)
        for n, start_ms in enumerate(starts_ms):
            if "job" in self.by:
                for job, at in begins[n]:
                    self._whole[:, self._of_job[job]] = 0.0
                    self._starts = self._starts.copy()
                    self._starts[self._of_job[job]] = at
                known.update(begins[n])
            if self.groups_at[n] > before:
                self._starts = self._starts.copy()
                self._date(before, self.groups_at[n], start_ms, known)
                before = self.groups_at[n]
            self.starts_at.append(self._starts)
            if self.keeps_whole:
                self._whole += table[n]
                self._wholes[n] = self._whole

    def sum(self, parts: Sequence[Part], steps: int | None, ago: int) -> dict[Part, Floats]:
        """For each part (steps · groups) × columns: the sums over so many steps that ended so many before, or since jobs began."""
        added = len(self.groups_at)
        found = {}
        for part in dict.fromkeys(parts):
            columns = slice(self._at[part], self._at[part] + len(part.columns))
            if steps is None:
                total = self._wholes[:, columns]
            else:
                total = np.zeros((added, len(part.columns), self.groups))
                for back in range(ago + steps - 1, ago - 1, -1):  # oldest first: the same digits wherever reading began
                    first = len(self._table) - added - back
                    missing = max(0, -first)
                    if missing < added:
                        total[missing:] += self._table[first + missing : first + added, columns]
            found[part] = total.transpose(0, 2, 1).reshape(added * self.groups, len(part.columns))
        return found

    def _date(self, first: int, after: int, since_ms: int, job_starts: Mapping[str, int]) -> None:
        """Keep since when some groups are there: those of a job since it began."""
        self._starts[first:after] = since_ms
        if "job" in self.by:
            position = self.by.index("job")
            for group in range(first, after):
                self._starts[group] = job_starts.get(self.named[group][position], since_ms)

    def _widen(self, groups: int) -> None:
        """Make room for groups."""
        more = max(0, groups - self.groups)
        for group in range(self.groups, groups):
            self.named.append(self._name(group))
            if "job" in self.by:
                self._of_job[self.named[group][self.by.index("job")]].append(group)
        self.groups += more
        self._whole = np.pad(self._whole, ((0, 0), (0, more)))
        self._table = np.pad(self._table, ((0, 0), (0, 0), (0, more)))
        self._starts = np.append(self._starts, np.full(more, np.nan))

    def _name(self, group: int) -> Group:
        numbers = []
        for pairs in reversed(self._pairs):
            numbers.append(int(pairs.seconds[group]))
            group = int(pairs.firsts[group])
        numbers.append(group)
        return tuple(names.names[n] for names, n in zip(self._names, reversed(numbers), strict=False))

    def _number(self, numbers: Mapping[str, Ints], step_of: Ints) -> Ints:
        if not self.by:
            return np.zeros(len(step_of), dtype=np.int64)
        first, *others = self.by
        found = numbers[first]
        for pairs, name in zip(self._pairs, others, strict=True):
            found = pairs.number(found, numbers[name], step_of)
        return found


class _Names:
    """Names of one dimension, numbered from 0: by the step in which they came first, then by name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, codes: Ints, names: Sequence[str], step_of: Ints) -> Ints:
        """The numbers of rows in the order of steps, of which codes say which of `names` they have.

        NONE where they have none. An unknown holder has none either: it is no job, user or team that could be notified.
        """
        used, first = np.unique(codes, return_index=True)
        came = {
            names[code]: step for code, step in zip(used.tolist(), step_of[first].tolist(), strict=True) if code >= 0
        }
        new = [name for name in came if name not in self._numbers and name != UNKNOWN_HOLDER]
        for name in sorted(new, key=lambda name: (came[name], name)):
            self._numbers[name] = len(self.names)
            self.names.append(name)
        own = np.array([*(self._numbers.get(name, NONE) for name in names), NONE], dtype=np.int64)
        return own[codes]  # a code of NONE is that of the last one

    def find(self, name: str) -> int:
        """The number of a name; NONE where it never came."""
        return self._numbers.get(name, NONE)


class _Pairs:
    """Pairs of numbers, numbered from 0: by the step in which they came first, then by the pair."""

    def __init__(self) -> None:
        self.firsts = np.empty(0, dtype=np.int64)
        self.seconds = np.empty(0, dtype=np.int64)
        self._sorted = np.empty(0, dtype=np.int64)
        self._numbers = np.empty(0, dtype=np.int64)

    def number(self, firsts: Ints, seconds: Ints, step_of: Ints) -> Ints:
        """The numbers of pairs; NONE where one of both is NONE."""
        keys = (firsts << _BITS) | (seconds & (2**_BITS - 1))
        is_none = (firsts == NONE) | (seconds == NONE)
        keys[is_none] = NONE
        new = ~is_none & ~np.isin(keys, self._sorted)
        if new.any():
            self._add(keys[new], step_of[new])
        if not len(self._sorted):
            return np.full(len(keys), NONE, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(is_none, NONE, self._numbers[at])

    def _add(self, keys: Ints, step_of: Ints) -> None:
        keys, first = np.unique(keys, return_index=True)
        order = np.lexsort((keys, step_of[first]))
        numbers = np.empty(len(keys), dtype=np.int64)
        numbers[order] = np.arange(len(self.firsts), len(self.firsts) + len(keys))
        self.firsts = np.append(self.firsts, keys[order] >> _BITS)
        self.seconds = np.append(self.seconds, keys[order] & (2**_BITS - 1))
        at = np.searchsorted(self._sorted, keys)
        self._sorted, self._numbers = np.insert(self._sorted, at, keys), np.insert(self._numbers, at, numbers)


def _summable(of: Metric) -> Sum | Ratio:
    if not isinstance(of.kind, Sum | Ratio):
        raise TypeError(f"{of.name} is no sum and no ratio over the ledger")  # settings refuse it before
    return of.kind
