"""Rolling sums of the books that rules read: over windows and since each job began, for all steps of a read at once."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import repeat
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S
from loadfactor.books.step_totals import CutRows
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.rule import (
    SINCE_START,
    Evidence,
    Flags,
    Floats,
    Group,
    Ints,
    Names,
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
SPARE: Final = 8
"""Room for an eighth more steps and groups than are needed is made at once: that costs as much memory."""
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
        self._starts: dict[str, int] = {}
        windows = [need.window_s + need.ago_s for need in needs if need.window_s != SINCE_START]
        self.longest_ms = round(max(windows, default=0.0) * MS_PER_S)
        """How long before the first step that is judged steps have to be added."""
        self._longest = max(1, self._count_steps(self.longest_ms / MS_PER_S))
        self._splits = {by: self._make(by, of) for by, of in splits.items()}

    def begin(self, watched: Watched, start_ms: int) -> None:
        """Take in what the jobs that hold GPUs at an instant did before it, where rules read since they began."""
        first, last = watched.span
        self._starts = watched.find_job_starts(start_ms, self._step_ms)
        until = min(start_ms, last)
        since = max(first, min(self._starts.values(), default=until))
        for split in self._splits.values():
            if split.since_start and since < until:
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

    def forget(self, at_ms: int) -> None:
        """Forget groups that are no more."""
        for split in self._splits.values():
            split.forget(at_ms)
        for name, names in self._names.items():
            having = [(split, by.index(name)) for by, split in self._splits.items() if name in by]
            used = [split.numbers[at] for split, at in having]
            numbers = names.keep(np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *used])))
            for (split, at), before in zip(having, used, strict=True):
                split.numbers[at] = numbers[before]
        for split in self._splits.values():
            split.pair_anew()
        jobs = {job for by, split in self._splits.items() if "job" in by for job in split.jobs}
        self._starts = {job: at for job, at in self._starts.items() if job in jobs}

    def add(self, rows: CutRows, begun: Sequence[tuple[int, str]]) -> dict[str, Ints]:
        """Add the rows of the next steps: the number of each one's name, by dimension. `begun`: when which jobs begin."""
        first, of = _find_first(rows.holding)
        own_step = rows.step[first]
        own = {
            name: self._names[name].number(rows.codes[name][first], names, own_step)
            for name, names in rows.names.items()
        }
        steps = [(at - rows.start_ms) // rows.step_ms for at, _ in begun]
        begins = [(step, job, at) for step, (at, job) in zip(steps, begun, strict=True) if 0 <= step < rows.steps]
        for split in self._splits.values():
            split.add(split.number(own, own_step)[of], rows, begins, self._starts)
        self._starts.update((job, at) for _, job, at in begins)
        return {name: numbers[of] for name, numbers in own.items()}

    def show(self, rows: CutRows, begun: Sequence[tuple[int, str]], records: Records) -> Evidence:
        """Add the rows of the next steps: the evidence at their ends."""
        numbers = self.add(rows, begun)
        ends = rows.start_ms + rows.step_ms * np.arange(1, rows.steps + 1)
        limits = np.searchsorted(rows.step, np.arange(rows.steps + 1))
        groups = {by: split.named for by, split in self._splits.items()}

        def name(by: tuple[str, ...], dimension: str) -> Names:
            codes = self._splits[by].spread(rows.step, numbers[dimension])
            return Names(codes, self._names[dimension].names)

        def find_parents(by: tuple[str, ...], of: tuple[str, ...]) -> Ints:
            return self._splits[by].spread(rows.step, self._splits[of].places)

        def name_holder(step: int, by: tuple[str, ...], group: Group) -> dict[str, str]:
            if not {*by} <= {*self._names}:  # a budget, a price, a queue
                return {}
            own = slice(limits[step], limits[step + 1])
            mask = np.ones(limits[step + 1] - limits[step], dtype=bool)
            for dimension, value in zip(by, group, strict=True):
                number = self._names[dimension].find(value)
                mask &= numbers[dimension][own] == number if number != NONE else False
            found = {}
            for dimension in HOLDER:
                held = numbers[dimension][own][mask]
                found[dimension] = np.unique(held[held != NONE])
            return {n: self._names[n].names[of[0]] for n, of in found.items() if len(of) == 1 and n not in by}

        return Evidence(
            ends,
            rows.step_ms,
            records,
            cache(partial(self._read, cache(self._work_out))),
            groups.__getitem__,
            lambda by: self._splits[by].starts,
            cache(name),
            cache(find_parents),
            name_holder,
        )

    def _make(self, by: tuple[str, ...], needs: Sequence[Need]) -> "_Split":
        parts = dict.fromkeys(part for need in needs for part in metric(need.metric).parts)
        since_start = {part for n in needs if n.window_s == SINCE_START for part in metric(n.metric).parts}
        windows = [n.window_s + n.ago_s for n in needs if n.window_s != SINCE_START]
        kept = self._count_steps(max(windows, default=0.0))
        names = [self._names[name] for name in by]
        return _Split(by, names, list(parts), since_start, kept, self._longest, self._step_ms)

    def _count_steps(self, seconds: float) -> int:
        return round(seconds * MS_PER_S / self._step_ms)

    def _read(self, work_out_rows: Callable[..., tuple[Floats, Floats]], need: Need) -> RolledMetric:
        split, ago = self._splits[need.by], self._count_steps(need.ago_s)
        window = None if need.window_s == SINCE_START else self._count_steps(need.window_s)
        steps = len(split.is_there)
        first = 0 if window is None else split.kept - ago
        if window is None or steps < split.kept:
            value, coverage = work_out_rows(need.metric, need.by, window, first, steps)
        else:  # what was a while ago is often read, too: all at once
            every = work_out_rows(need.metric, need.by, window, 0, split.kept + steps)
            value, coverage = (of[first : first + steps] for of in every)
        return RolledMetric(value, coverage, split.is_there)

    def _work_out(
        self, name: str, by: tuple[str, ...], window: int | None, first: int, steps: int
    ) -> tuple[Floats, Floats]:
        """The value and the coverage of a metric, steps × groups: of so many steps of those that are kept."""
        split, kind = self._splits[by], self._kinds[name]
        sums = {part: split.sum(part, window, first, steps) for part in dict.fromkeys(metric(name).parts)}
        flat = {part: of.reshape(len(of), -1).T for part, of in sums.items()}
        values, is_known, coverage = work_out(kind, flat)
        shape = steps, len(split.named)
        return np.where(is_known, values[:, 0], np.nan).reshape(shape), coverage.reshape(shape)


class _Split:
    """The parts that rules read of one split by dimensions, by group: of the last steps, and since each job began.

    `numbers`: the names of each group. Of the steps that were added last: `places`, the group of each row; and steps × groups
    `is_there` and since when it has been there, in milliseconds (`starts`).
    """

    def __init__(
        self,
        by: tuple[str, ...],
        names: Sequence["_Names"],
        parts: Sequence[Part],
        since_start: set[Part],
        kept: int,
        longest: int,
        step_ms: int,
    ) -> None:
        self.by = by
        self.since_start = [part for part in parts if part in since_start]
        self.named: list[Group] = []
        self._names = names
        self._parts = parts
        self._step_ms = step_ms
        self.kept = kept
        self._longest = longest
        self.numbers = np.zeros((len(by), 0), dtype=np.int64)
        self._pairs = [_Pairs() for _ in by[1:]]
        self._place_of = np.zeros(0, dtype=np.int64)  # the group of each number, or of each pair
        # columns × steps × groups: those added last, after as many as windows need
        self._tables = {part: np.zeros((len(part.columns), kept, 0)) for part in parts}
        self._rooms: dict[Part, tuple[Floats, int]] = {}  # in which these lie, and where they end
        self._wholes = {part: np.zeros((len(part.columns), 1, 0)) for part in self.since_start}
        self._was_there = np.zeros((longest, 0), dtype=np.bool_)
        self.starts = np.zeros((1, 0))
        self._since = np.zeros(0)

    @property
    def jobs(self) -> Iterator[str]:
        """The jobs of its groups."""
        at = self.by.index("job")
        return (group[at] for group in self.named)

    def begin(
        self, numbers: Mapping[str, Ints], sums: Mapping[Part, Floats], since_ms: int, job_starts: Mapping[str, int]
    ) -> None:
        """Take in what was summed from an instant to the first step; `sums`: groups × columns."""
        rows = len(next(iter(sums.values())))
        found = self.number(numbers, np.zeros(rows, dtype=np.int64))
        self._since[:] = since_ms
        if "job" in self.by:
            self._since[:] = [job_starts.get(job, since_ms) for job in self.jobs]
        inside = found != NONE
        for part, whole in self._wholes.items():
            for column, amounts in enumerate(sums[part].T):
                np.add.at(whole[column, 0], found[inside], amounts[inside])

    def add(
        self, places: Ints, rows: CutRows, begins: Sequence[tuple[int, str, int]], job_starts: Mapping[str, int]
    ) -> None:
        """Add steps: of each row its group, as `number` has it; `begins`: step, job and instant of runs that begin."""
        before = int(np.count_nonzero(~np.isnan(self._since)))  # groups that are new have no beginning yet
        self.places = places
        steps, groups = rows.steps, len(self.named)
        size = steps * groups
        cells = np.where(self.places == NONE, size, rows.step * groups + self.places)  # the last cell is nobody's

        def count(amounts: Floats | None) -> Floats:
            total = np.bincount(cells, amounts, size + 1)[:size].reshape(steps, groups)
            return total.astype(np.float64, copy=False)

        self.is_there: Flags = count(None) > 0
        self._was_there = np.concatenate([self._was_there[-self._longest :], self.is_there])
        for part in self._tables:
            added = self._extend(part, steps, groups)
            for column, amounts in enumerate(rows.sums[part]):
                added[column] = count(amounts)
        self._advance(rows, before, begins, job_starts)

    def _extend(self, part: Part, steps: int, groups: int) -> Floats:
        """Put so many steps, in which nothing was done yet, behind those that windows need; these steps, to be filled in.

        In the room that is left, so that a minute does not copy an hour; new groups did nothing before.
        """
        table = self._tables[part]
        room, end = self._rooms.get(part, (table, table.shape[1]))
        if end + steps > room.shape[1] or groups > room.shape[2]:
            room = np.zeros((len(table), self.kept + max(steps, self.kept // SPARE), groups + groups // SPARE))
            room[:, : self.kept, : table.shape[2]] = table[:, table.shape[1] - self.kept :]
            end = self.kept
        self._rooms[part] = room, end + steps
        self._tables[part] = room[:, end - self.kept : end + steps, :groups]
        return self._tables[part][:, self.kept :]

    def _advance(
        self, rows: CutRows, before: int, begins: Sequence[tuple[int, str, int]], job_starts: Mapping[str, int]
    ) -> None:
        """Find since when each group is there, and add up what it did since its job began."""
        first = np.argmax(self.is_there[:, before:], axis=0)  # steps in which new groups came
        began = defaultdict[str, list[tuple[int, int]]](list)
        if "job" in self.by:
            for step, job, at in begins:
                began[job].append((step, at))
        for group, step in enumerate(first.tolist(), before):
            since = [rows.start_ms + step * rows.step_ms]
            if "job" in self.by:
                job = self.named[group][self.by.index("job")]
                since += [job_starts[job]] if job in job_starts else []
                since += [at for begun, at in began.get(job, ()) if begun <= step]
            self._since[group] = since[-1]
        self.starts = np.repeat(self._since[np.newaxis], rows.steps, axis=0)
        for part, whole in self._wholes.items():
            added = self._tables[part][:, self.kept :]
            self._wholes[part] = np.cumsum(np.concatenate([whole[:, -1:], added], axis=1), axis=1)
        groups_of = self._find_groups(began)
        for step, job, at in begins:
            groups = groups_of.get(job)
            if not groups:
                continue
            old = [group for group in groups if group < before or first[group - before] < step]
            self.starts[step:, old] = at
            for part, whole in self._wholes.items():
                whole[:, step + 1 :, groups] = np.cumsum(self._tables[part][:, self.kept + step :, groups], axis=1)
        self._since = self.starts[-1].copy()
        for group, step in enumerate(first.tolist(), before):
            self.starts[:step, group] = np.nan

    def _find_groups(self, jobs: Collection[str]) -> dict[str, list[int]]:
        """The groups of some jobs, in order."""
        if not jobs:
            return {}
        at = self.by.index("job")
        numbers = self.numbers[at]
        order = np.argsort(numbers, kind="stable")
        own = [self._names[at].find(job) for job in jobs]
        first, after = (np.searchsorted(numbers, own, side, order).tolist() for side in ("left", "right"))
        return {job: order[i:k].tolist() for job, i, k in zip(jobs, first, after, strict=True)}

    def sum(self, part: Part, window: int | None, first: int, steps: int) -> Floats:
        """A part over as many steps as a window has, columns × steps × groups, of so many steps of those that are kept.

        Without a window since jobs began, of the steps that were added last.
        """
        if window is None:
            return self._wholes[part][:, 1:]
        table = self._tables[part]
        if window == 1:
            return table[:, first : first + steps]
        total = np.zeros((len(table), steps, table.shape[2]))
        for back in range(window - 1, -1, -1):  # oldest first: the same digits wherever reading began
            missing = max(0, back - first)
            total[:, missing:] += table[:, first + missing - back : first + steps - back]
        return total

    def spread(self, step_of: Ints, codes: Ints) -> Ints:
        """Codes of rows by step and group, NONE where there is none; of several the last one."""
        found = np.full(self.is_there.shape, NONE, dtype=np.int64)
        inside = (self.places != NONE) & (codes != NONE)
        found[step_of[inside], self.places[inside]] = codes[inside]
        return found

    def forget(self, at_ms: int) -> None:
        """Forget groups that have not been there for as long as the longest window; those of a job stay as long as it is there."""
        recent = self._was_there[-self._longest :]
        stays = recent.any(axis=0)
        if "job" in self.by:
            jobs = list(self.jobs)
            last = {jobs[group] for group in np.flatnonzero(stays).tolist()}
            stays = np.array([job in last for job in jobs], dtype=np.bool_)
        else:  # what was away begins anew
            came = at_ms - (len(recent) - np.argmax(recent, axis=0)) * self._step_ms
            self._since = np.maximum(self._since, came)
        kept = np.flatnonzero(stays)
        self.named = [self.named[group] for group in kept.tolist()]
        self._since, self._was_there = self._since[kept], self._was_there[:, kept]
        self._tables, self._rooms = {part: of[:, :, kept] for part, of in self._tables.items()}, {}
        self._wholes = {part: of[:, :, kept] for part, of in self._wholes.items()}
        self.numbers = self.numbers[:, kept]

    def pair_anew(self) -> None:
        """Number pairs of names anew, and forget those of no group."""
        self._pairs = [_Pairs() for _ in self._pairs]
        numbers = self._pair([*self.numbers], np.zeros(len(self.named), dtype=np.int64))
        self._place_of = np.full(int(numbers.max(initial=NONE)) + 1, NONE, dtype=np.int64)
        self._place_of[numbers] = np.arange(len(self.named))

    def number(self, numbers: Mapping[str, Ints], step_of: Ints) -> Ints:
        """The groups of rows, which are made where they are new: in the order of steps, then of names."""
        if not self.by:
            pairs = np.zeros(len(step_of), dtype=np.int64)
        else:
            pairs = self._pair([numbers[name] for name in self.by], step_of)
        most = int(pairs.max(initial=NONE)) + 1
        missing = np.full(max(0, most - len(self._place_of)), NONE, dtype=np.int64)
        self._place_of = np.concatenate([self._place_of, missing])
        if not len(self._place_of):
            return pairs
        found = np.where(pairs == NONE, NONE, self._place_of[pairs])
        rows = np.flatnonzero((pairs != NONE) & (found == NONE))
        if len(rows):
            new, first = np.unique(pairs[rows], return_index=True)
            order = np.lexsort((new, step_of[rows[first]]))
            self._place_of[new[order]] = np.arange(len(self.named), len(self.named) + len(new))
            self._widen([[int(numbers[name][row]) for name in self.by] for row in rows[first[order]].tolist()])
            found = np.where(pairs == NONE, NONE, self._place_of[pairs])
        return found

    def _pair(self, numbers: Sequence[Ints], step_of: Ints) -> Ints:
        if not self.by:
            return np.zeros(len(step_of), dtype=np.int64)
        found = numbers[0]
        for pairs, name in zip(self._pairs, numbers[1:], strict=True):
            found = pairs.number(found, name, step_of)
        return found

    def _widen(self, numbers: Sequence[Sequence[int]]) -> None:
        """Make room for groups of these names; in the tables `_extend` makes it."""
        more = len(numbers)
        self.named = self.named + [
            tuple(names.names[n] for names, n in zip(self._names, of, strict=True)) for of in numbers
        ]
        self.numbers = np.concatenate(
            [self.numbers, np.array(numbers, dtype=np.int64).reshape(more, len(self.by)).T], axis=1
        )
        room = ((0, 0), (0, 0), (0, more))
        self._wholes = {part: np.pad(of[:, -1:], room) for part, of in self._wholes.items()}
        self._was_there = np.pad(self._was_there[-self._longest :], room[1:])
        self._since = np.append(self._since, np.full(more, np.nan))


class _Names:
    """Names of one dimension, numbered from 0: by the step in which they came first, then by name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, codes: Ints, names: Sequence[str], step_of: Ints) -> Ints:
        """The numbers of rows in the order of steps, of which codes say which of `names` they have.

        NONE where they have none. An unknown holder has none either: it is no job, user or team that could be notified.
        """
        own = np.full(len(names) + 1, NONE, dtype=np.int64)  # a code of NONE is that of the last one
        own[:-1] = np.fromiter(map(self._numbers.get, names, repeat(NONE)), np.int64, len(names))
        rows = np.flatnonzero((own[codes] == NONE) & (codes != NONE))
        new, first = np.unique(codes[rows], return_index=True)
        came = [
            (step, names[code], code) for step, code in zip(step_of[rows[first]].tolist(), new.tolist(), strict=True)
        ]
        for _, name, code in sorted(came):
            if name != UNKNOWN_HOLDER:
                own[code] = self._numbers[name] = len(self.names)
                self.names.append(name)
        return own[codes]

    def keep(self, numbers: Ints) -> Ints:
        """Keep names of these numbers alone, and forget the others: the new number of each."""
        anew = np.full(len(self.names), NONE, dtype=np.int64)
        anew[numbers] = np.arange(len(numbers))
        self.names = [self.names[number] for number in numbers.tolist()]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        return anew

    def find(self, name: str) -> int:
        """The number of a name; NONE where it never came."""
        return self._numbers.get(name, NONE)


class _Pairs:
    """Pairs of numbers, numbered from 0: by the step in which they came first, then by the pair."""

    def __init__(self) -> None:
        self._sorted = np.empty(0, dtype=np.int64)
        self._numbers = np.empty(0, dtype=np.int64)

    def number(self, firsts: Ints, seconds: Ints, step_of: Ints) -> Ints:
        """The numbers of pairs; NONE where one of both is NONE."""
        keys = (firsts << _BITS) | (seconds & (2**_BITS - 1))
        is_none = (firsts == NONE) | (seconds == NONE)
        keys[is_none] = NONE
        at = np.searchsorted(self._sorted, keys)
        new = ~is_none
        if len(self._sorted):
            new &= self._sorted[np.minimum(at, len(self._sorted) - 1)] != keys
        if new.any():
            self._add(keys[new], step_of[new])
            at = np.searchsorted(self._sorted, keys)
        if not len(self._sorted):
            return np.full(len(keys), NONE, dtype=np.int64)
        return np.where(is_none, NONE, self._numbers[np.minimum(at, len(self._sorted) - 1)])

    def _add(self, keys: Ints, step_of: Ints) -> None:
        keys, first = np.unique(keys, return_index=True)
        order = np.lexsort((keys, step_of[first]))
        numbers = np.empty(len(keys), dtype=np.int64)
        numbers[order] = np.arange(len(self._sorted), len(self._sorted) + len(keys))
        at = np.searchsorted(self._sorted, keys)
        self._sorted, self._numbers = np.insert(self._sorted, at, keys), np.insert(self._numbers, at, numbers)


def _find_first(codes: Ints) -> tuple[Ints, Ints]:
    """The first row of each code, in order; and of each row which of these has its code."""
    row_of = np.full(int(codes.max(initial=NONE)) + 1, len(codes), dtype=np.int64)
    row_of[codes[::-1]] = np.arange(len(codes))[::-1]
    first = np.sort(row_of[row_of < len(codes)])
    place_of = np.zeros(len(row_of), dtype=np.int64)
    place_of[codes[first]] = np.arange(len(first))
    return first, place_of[codes]


def _summable(of: Metric) -> Sum | Ratio:
    if not isinstance(of.kind, Sum | Ratio):
        raise TypeError(f"{of.name} is no sum and no ratio over the ledger")  # settings refuse it before
    return of.kind
