"""What rules read of the books, kept up step by step: rolling sums of every split that a rule asks for, and records."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S
from loadfactor.books.step_totals import StepRows
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.evidence import SINCE_START, Evidence, Floats, Group, Need, RolledMetric
from loadfactor.insight.alerts.numbering import NONE, Ints, Names
from loadfactor.insight.alerts.records import Records
from loadfactor.insight.alerts.rolling import NOBODY, Split
from loadfactor.metrics import Metric, metric
from loadfactor.metrics.metric import Part, Ratio, Sum
from loadfactor.metrics.query.answer import work_out
from loadfactor.tables.schema import DIMENSIONS, Span

TOLD: Final = ("node", "job", "user", "team")
"""What is told of every group, whatever it is split by."""


class Observed:
    """Rolling sums of what these needs read, over steps of one length."""

    def __init__(self, needs: Sequence[Need], step_ms: int) -> None:
        self._step_ms = step_ms
        self._kinds = {need.metric: _summable(metric(need.metric)) for need in needs}
        self.metrics = tuple(metric(name) for name in self._kinds)
        splits = {need.by: [n for n in needs if n.by == need.by] for need in needs}
        used = {name for by in splits for name in by}.union(TOLD)
        self.by = tuple(name for name in DIMENSIONS if name in used)
        self._splits = {by: self._make(by, of) for by, of in splits.items()}
        self._names = {name: Names() for name in self.by}
        self._dated: dict[tuple[str, ...], int] = {}
        self._starts: dict[str, int] = {}
        self._step = 0
        windows = [need.window_s + need.ago_s for need in needs if need.window_s != SINCE_START]
        self.longest_ms = round(max(windows, default=0.0) * MS_PER_S)
        """How long before the first step that is judged steps have to be added."""

    def begin(self, watched: Watched, start_ms: int) -> None:
        """Take in what the jobs that hold GPUs at an instant did before it, where rules ask since they began."""
        first, last = watched.span
        self._starts = watched.find_job_starts(start_ms, self._step_ms)
        until = min(start_ms, last)
        since = max(first, min(self._starts.values(), default=until))
        for split in self._splits.values():
            if split.keeps_whole and since < until:
                self._begin(split, watched, (since, until))

    def _begin(self, split: Split, watched: Watched, span: Span) -> None:
        floors = {job: at - at % self._step_ms for job, at in self._starts.items()}
        totals = watched.add_up(self.metrics, split.by, span, floors)
        codes = {}
        for place, name in enumerate(split.by):
            own = [key[place] for key in totals.keys]
            names = list(dict.fromkeys(n for n in own if n is not None))
            number = {n: k for k, n in enumerate(names)}
            encoded = np.array([NONE if n is None else number[n] for n in own], dtype=np.int64)
            codes[name] = self._names[name].number(encoded, names, NOBODY)
        split.begin(codes, totals.sums, span[0], self._names)
        self._date(split)

    def _date(self, split: Split) -> None:
        """Say since when new groups of jobs are there: since their jobs are."""
        if "job" in split.by:
            place, dated = split.by.index("job"), self._dated.get(split.by, 0)
            for group in range(dated, split.groups):
                split.starts[group] = self._starts.get(split.named[group][place], split.starts[group])
            self._dated[split.by] = split.groups

    def _restart(self, begun: Mapping[str, int]) -> None:
        """Forget what earlier runs did of jobs that begin again."""
        for by, split in self._splits.items():
            if "job" in by:
                place = by.index("job")
                for job, at in begun.items():
                    number = self._names["job"].find(job)
                    if number != NONE:
                        split.restart(place, number, at)

    def add(self, rows: StepRows, begun: Mapping[str, int]) -> None:
        """Add the rows of the next step; `begun`: jobs that begin in it, and when."""
        self._step += 1
        self._restart(begun)
        self._starts.update(begun)
        self._numbers: dict[str, Ints] = {
            name: self._names[name].number(codes, rows.names[name], NOBODY) for name, codes in rows.codes.items()
        }
        for split in self._splits.values():
            split.add(rows, self._numbers, self._step, self._names)
            self._date(split)
        self._rows = rows

    def show(self, records: Records) -> Evidence:
        """What rules read after the last step."""
        return Evidence(
            self._rows.end_ms,
            self._step_ms,
            records,
            cache(self._read),
            lambda by: self._splits[by].named,
            lambda by: self._splits[by].starts,
            cache(self._say),
            cache(self._find_parents),
        )

    def _make(self, by: tuple[str, ...], needs: Sequence[Need]) -> Split:
        parts = [part for need in needs for part in metric(need.metric).parts]
        windows = [n.window_s + n.ago_s for n in needs if n.window_s != SINCE_START]
        steps = self._steps(max(windows, default=0.0))
        return Split(by, list(dict.fromkeys(parts)), max(steps, 1), len(windows) < len(needs))

    def _steps(self, seconds: float) -> int:
        return round(seconds * MS_PER_S / self._step_ms)

    def _read(self, need: Need) -> RolledMetric:
        split, kind = self._splits[need.by], self._kinds[need.metric]
        if need.window_s == SINCE_START:
            sums: dict[Part, Floats] = split.sum_whole()
        else:
            sums = split.sum(self._steps(need.window_s), self._steps(need.ago_s))
        values, is_known, coverage = work_out(kind, sums)
        value = np.where(is_known, values[:, 0], np.nan)
        return RolledMetric(value, coverage, split.seen == self._step)

    def _say(self, by: tuple[str, ...], dimension: str) -> Sequence[str | None]:
        split, names = self._splits[by], self._names[dimension].names
        latest = np.full(split.groups, NONE, dtype=np.int64)
        inside = (split.numbers != NONE) & (self._numbers[dimension] != NONE)
        latest[split.numbers[inside]] = self._numbers[dimension][inside]
        return [names[n] if n != NONE else None for n in latest.tolist()]

    def _find_parents(self, by: tuple[str, ...], of: tuple[str, ...]) -> Ints:
        parts, whole = self._splits[by], self._splits[of].numbers
        found = np.full(parts.groups, NONE, dtype=np.int64)
        inside = parts.numbers != NONE
        found[parts.numbers[inside]] = whole[inside]
        return found

    def name_holder(self, by: tuple[str, ...], group: Group) -> dict[str, str]:
        """The node, job, user and team of a group in the last step, each where there is one alone and it is not its own name."""
        if not {*by} <= {*self._names}:  # a budget, a price, a queue
            return {}
        mask = np.ones(self._rows.count, dtype=bool)
        for name, value in zip(by, group, strict=True):
            number = self._names[name].find(value)
            mask &= self._numbers[name] == number if number != NONE else False
        found = {name: np.unique(self._numbers[name][mask & (self._numbers[name] != NONE)]) for name in TOLD}
        return {name: self._names[name].names[of[0]] for name, of in found.items() if len(of) == 1 and name not in by}


def _summable(of: Metric) -> Sum | Ratio:
    if not isinstance(of.kind, Sum | Ratio):
        raise TypeError(f"{of.name} is no sum and no ratio over the ledger")  # settings refuse it before
    return of.kind
