"""Pages of one replica, in the order of time, into amounts: what its counters grew by, or unknown.

A counter that grew within one process tells what was made, exactly. A process that began while its replica was watched made all
that it counts. Where pages do not say when their process began, one whose counters fell began again, and what grew over a gap is
unknown; counters that fall and come back on the next page, or fall again and again, are of several processes behind one name: all
of it is unknown while that lasts. So what such pages tell is held for some pages, until nothing can speak against it any more.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.base import Rows
from loadfactor.sources.serving_engines.engines import COUNTED, PREEMPTION, Labels
from loadfactor.sources.serving_engines.pages import EnginePage
from loadfactor.tables.schema import table

REACH_STEPS: Final = 1.5
HELD_PAGES: Final = 40
"""Amounts of a process that does not say when it began are emitted so many pages later: until then it may prove to be several."""
MOST_FALLS: Final = 2
"""A process may begin again so often within `HELD_PAGES`; with more falls it is several."""
MOST_PROCESSES: Final = 50
"""So many processes of a replica are remembered; who crashes again and again has more."""
SEVERAL: Final = "several processes behind one name, and nothing to tell them apart: unknown what they made"
AGAIN: Final = "counters began again: unknown what was made between the last page and the restart"
GAP: Final = "no page for longer than usual, and nothing says that the process stayed the same: unknown what it made"


@dataclass(frozen=True)
class Amount:
    """How much of a unit a replica made from one page to another, ms UTC."""

    unit: str
    from_ms: int
    to_ms: int
    amount: float


@dataclass
class EngineProcess:
    """Last page of a process: when, and its counters by name and labels. `declared`: counters that had a title at least."""

    at_ms: int
    counters: dict[str, tuple[int, dict[Labels, float]]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()


@dataclass
class ReplicaCounts:
    """Counts for one replica; its fields are all that it knows. `step_ms` is the usual time between its pages."""

    step_ms: float
    pages: int = 0
    first_ms: int | None = None  # what began since was watched from its beginning
    last_ms: int | None = None
    processes: dict[int | None, EngineProcess] = field(default_factory=dict)  # by when they began
    fell_from: dict[str, dict[Labels, float]] = field(default_factory=dict)
    falls: list[int] = field(default_factory=list)  # the last ones, by number of page
    mixed_until: int = 0  # the page from which on counters count again
    held: list[tuple[int, Amount]] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """Why something is unknown, and how often."""

    def add_page(self, page: EnginePage) -> Iterator[Amount]:
        """Add the next page, which has a time; what is known now to have been made."""
        at_ms, process = page.at_ms, self.processes.get(page.start_ms)
        assert at_ms is not None
        if process is not None and at_ms <= process.at_ms:
            counted = process.counters
            differs = any(counted.get(name, (0, {}))[1] != values for name, values in page.counters.items())
            if page.start_ms is None and (at_ms < process.at_ms or differs):
                self._find_several()
            return
        self.pages += 1
        amounts = [*self._measure(page), *self._count(process, page)]
        self.first_ms = at_ms if self.first_ms is None else self.first_ms
        self.last_ms = at_ms
        if page.start_ms is not None:
            yield from amounts
        elif self.pages >= self.mixed_until:
            self.held += [(self.pages, amount) for amount in amounts]
        known = [amount for number, amount in self.held if self.pages - number >= HELD_PAGES]
        self.held = self.held[len(known) :]
        yield from known

    def end(self) -> Iterator[Amount]:
        """Amounts that are held, where no further page comes to speak against it."""
        yield from (amount for _, amount in self.held)
        self.held = []

    def _measure(self, page: EnginePage) -> Iterator[Amount]:
        at_ms, last_ms = page.at_ms or 0, self.last_ms
        if last_ms is not None and 0 < at_ms - last_ms <= REACH_STEPS * self.step_ms:
            span_s = (at_ms - last_ms) / MS_PER_S
            yield from (Amount(unit, last_ms, at_ms, value * span_s) for unit, value in page.gauges.items())

    def _count(self, process: EngineProcess | None, page: EnginePage) -> list[Amount]:
        """Amounts by which counters grew since the last page of their process, which has this page now."""
        at_ms = page.at_ms or 0
        amounts: list[Amount] = []
        if process is None:
            process = self.processes[page.start_ms] = EngineProcess(at_ms)
            if page.start_ms is not None and self.first_ms is not None and page.start_ms >= self.first_ms:
                self._say(AGAIN)
                amounts = list(self._count_all(page, page.start_ms))
            self._forget_processes()
        elif page.start_ms is None and self._has_fallen(process, page):
            self._note_fall(process)
            amounts = list(self._count_all(page, process.at_ms))
            process.counters.clear()
        else:
            if page.start_ms is None and self._came_back(page):
                self._find_several()
            self.fell_from = {}
            if page.start_ms is None and at_ms - process.at_ms > REACH_STEPS * self.step_ms:
                self._say(GAP)
                process.counters.clear()
                process.declared = frozenset()
            amounts = list(self._count_growth(process, page))
        for name, values in page.counters.items():
            process.counters[name] = (at_ms, values)
        if page.start_ms is None:  # of a counter that is gone, nobody knows what it does meanwhile
            process.counters = {name: of for name, of in process.counters.items() if name in page.counters}
        process.at_ms, process.declared = at_ms, page.declared
        return amounts

    def _note_fall(self, process: EngineProcess) -> None:
        """The counters of a process that does not say when it began are lower than they were."""
        self.fell_from = {name: dict(values) for name, (_, values) in process.counters.items()}
        self.falls = [*(number for number in self.falls if self.pages - number < HELD_PAGES), self.pages]
        if len(self.falls) > MOST_FALLS or self.pages < self.mixed_until:
            self._find_several()
        else:
            self._say(AGAIN)

    def _find_several(self) -> None:
        """Drop what is held: it is of several processes, and so are later counts until they fall no more."""
        if self.pages >= self.mixed_until:
            self._say(SEVERAL)
        self.held, self.mixed_until = [], self.pages + HELD_PAGES

    def _forget_processes(self) -> None:
        """Forget those that were not heard of for longest. Who comes back, or began before them, is counted from then on."""
        dated = [start for start in self.processes if start is not None]
        for start in sorted(dated, key=lambda start: self.processes[start].at_ms)[:-MOST_PROCESSES]:
            del self.processes[start]
            self.first_ms = max(self.first_ms or 0, start + 1)

    def _count_all(self, page: EnginePage, from_ms: int) -> Iterator[Amount]:
        """All that a page counts, of a process that began at `from_ms` or after it."""
        assert page.at_ms is not None
        for unit, names in COUNTED.items():
            known = next((page.counters[name] for name in names if name in page.counters), None)
            if known is None and any(name in page.declared for name in names):
                known = {}
            if known is not None and from_ms < page.at_ms:
                yield Amount(unit, from_ms, page.at_ms, sum(known.values()))

    def _count_growth(self, process: EngineProcess, page: EnginePage) -> Iterator[Amount]:
        assert page.at_ms is not None
        for unit, names in COUNTED.items():
            for name in names:
                before = process.counters.get(name)
                if before is None and name in process.declared:
                    before = (process.at_ms, {})
                now = page.counters.get(name)
                if now is None and name in page.declared:
                    now = {}
                if before is None or now is None or not before[1].keys() <= now.keys():
                    continue
                grown = [value - before[1].get(labels, 0.0) for labels, value in now.items()]
                if min(grown, default=0.0) >= 0:
                    yield Amount(unit, before[0], page.at_ms, sum(grown))
                    break

    def _has_fallen(self, process: EngineProcess, page: EnginePage) -> bool:
        return any(
            page.counters[name][labels] < value
            for name, (_, values) in process.counters.items()
            for labels, value in values.items()
            if labels in page.counters.get(name, {})
        )

    def _came_back(self, page: EnginePage) -> bool:
        """True where every counter stands where it stood before it fell, or higher."""
        both = [
            (page.counters[name][labels], value)
            for name, values in self.fell_from.items()
            for labels, value in values.items()
            if labels in page.counters.get(name, {})
        ]
        return bool(both) and all(now >= before for now, before in both)

    def _say(self, what: str) -> None:
        self.unknown[what] = self.unknown.get(what, 0) + 1


def find_step_ms(pages: Sequence[EnginePage]) -> float:
    """The usual time between the pages of a replica, the median; 0 of a single one."""
    times = sorted({page.at_ms for page in pages if page.at_ms is not None})
    between = sorted(later - earlier for earlier, later in pairwise(times))
    return float(between[len(between) // 2]) if between else 0.0


Stored = dict[str, Any]


def store_page(page: EnginePage) -> Stored:
    """A page that was read."""
    counters = {name: _store_values(values) for name, values in page.counters.items()}
    return {
        "place": page.place,
        "at_ms": page.at_ms,
        "start_ms": page.start_ms,
        "counters": counters,
        "gauges": page.gauges,
        "declared": sorted(page.declared),
    }


def restore_page(stored: Stored) -> EnginePage:
    """The page that was stored. Raises KeyError, TypeError or ValueError where it is none."""
    job, replica = stored["place"]
    return EnginePage(
        (job, replica),
        stored["at_ms"],
        stored["start_ms"],
        {name: _restore_values(values) for name, values in stored["counters"].items()},
        stored["gauges"],
        frozenset(stored["declared"]),
    )


def store_counts(counts: ReplicaCounts) -> Stored:
    """All that later amounts depend on."""
    return {
        "step_ms": counts.step_ms,
        "pages": counts.pages,
        "first_ms": counts.first_ms,
        "last_ms": counts.last_ms,
        "processes": [[start, _store_process(process)] for start, process in counts.processes.items()],
        "fell_from": {name: _store_values(values) for name, values in counts.fell_from.items()},
        "falls": counts.falls,
        "mixed_until": counts.mixed_until,
        "held": _store_held(counts.held),
    }


def restore_counts(stored: Stored) -> ReplicaCounts:
    """The counts that were stored. Raises as `restore_page`."""
    return ReplicaCounts(
        **{
            **stored,
            "processes": {start: _restore_process(process) for start, process in stored["processes"]},
            "fell_from": {name: _restore_values(values) for name, values in stored["fell_from"].items()},
            "held": [
                (number, Amount(unit, from_ms, to_ms, amount))
                for number, from_ms, to_ms, amounts in stored["held"]
                for unit, amount in amounts.items()
            ],
        }
    )


def store_amount(of: Amount) -> tuple[str, int, int, float]:
    """The fields of an amount in their order."""
    return of.unit, of.from_ms, of.to_ms, of.amount


def _store_held(held: list[tuple[int, Amount]]) -> list[Any]:
    """Amounts that are held, those of one page and interval together: it is most of the state."""
    found = []
    for (number, from_ms, to_ms), amounts in groupby(held, lambda one: (one[0], one[1].from_ms, one[1].to_ms)):
        found.append([number, from_ms, to_ms, {amount.unit: amount.amount for _, amount in amounts}])
    return found


def _store_process(process: EngineProcess) -> list[Any]:
    counters = {name: [at_ms, _store_values(values)] for name, (at_ms, values) in process.counters.items()}
    return [process.at_ms, counters, sorted(process.declared)]


def _restore_process(stored: list[Any]) -> EngineProcess:
    at_ms, counters, declared = stored
    found = {name: (last_ms, _restore_values(values)) for name, (last_ms, values) in counters.items()}
    return EngineProcess(at_ms, found, frozenset(declared))


def _store_values(values: dict[Labels, float]) -> list[Any]:
    return [[labels, value] for labels, value in values.items()]


def _restore_values(stored: list[Any]) -> dict[Labels, float]:
    return {tuple((name, value) for name, value in labels): amount for labels, amount in stored}


ROW_MS: Final = 5 * S_PER_MIN * MS_PER_S
"""A row of progress has the pages of one such part of the day, so that the same pages make the same rows, whoever reads them."""
MOST_ROWS: Final = 50_000
ProgressRow = dict[str, object]


def join_amounts(amounts: Iterable[Amount], open_: dict[str, Amount]) -> list[Amount]:
    """Amounts of one replica with those that follow each other put together, those of five minutes of the clock; in order.

    `open_` has the last one of each unit, which may go on; it is brought up to date, and one that went on is given again.
    """
    joined: dict[tuple[int, str], Amount] = {}
    for new in amounts:
        before = open_.get(new.unit)
        if before is not None and before.to_ms == new.from_ms and find_part(before.to_ms) == find_part(new.to_ms):
            new = Amount(new.unit, before.from_ms, new.to_ms, before.amount + new.amount)
        open_[new.unit] = joined[new.from_ms, new.unit] = new
    return [joined[key] for key in sorted(joined)]


def find_part(to_ms: int) -> int:
    """The part of the day in which a row ends that ends then; numbered since 1970."""
    return (to_ms - 1) // ROW_MS


def make_row(job: str, replica: str, of: Amount) -> ProgressRow:
    """The row of an amount."""
    is_lost = of.unit == PREEMPTION
    row = {"job_id": job, "replica": replica, "from_utc": of.from_ms, "to_utc": of.to_ms, "unit": of.unit}
    return {**row, "amount": of.amount, "kept": not is_lost, "cause": "preemption" if is_lost else None}


def make_rows(rows: Sequence[ProgressRow], where: str) -> Rows:
    """Rows as a batch."""
    return Rows("progress", pa.Table.from_pylist(list(rows), schema=table("progress").schema), where)
