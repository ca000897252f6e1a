"""Pages of one replica, in the order of time, into amounts: what its counters grew by, or unknown.

A counter that grew within one process tells what was made, exactly. A process that began while its replica was watched made all
that it counts. Where pages do not say when their process began, one whose counters fell began again, and what grew over a gap is
unknown; a counter that falls and comes back on the next page is of several processes behind one name: all of it is unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from loadfactor.sources.serving_engines.engines import COUNTED
from loadfactor.sources.serving_engines.pages import EnginePage, Labels
from loadfactor.units import MS_PER_S

REACH_STEPS: Final = 1.5
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
class _Process:
    """What a process told last: when, and by counter and labels how much. `declared`: counters that had a title at least."""

    at_ms: int
    counters: dict[str, tuple[int, dict[Labels, float]]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()


class ReplicaCounts:
    """Counts for one replica. `step_ms` is the usual time between its pages."""

    def __init__(self, step_ms: float) -> None:
        self.unknown: dict[str, int] = {}
        """Why something is unknown, and how often."""
        self.is_mixed = False
        self._reach_ms = REACH_STEPS * step_ms
        self._processes: dict[int | None, _Process] = {}
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._fell_from: dict[str, dict[Labels, float]] = {}

    def put(self, page: EnginePage) -> Iterator[Amount]:
        """Add the next page, which has a time; what was made since those before."""
        at_ms, last_ms = page.at_ms, self._last_ms
        assert at_ms is not None
        process = self._processes.get(page.start_ms)
        if process is not None and at_ms <= process.at_ms:
            if at_ms < process.at_ms or self._differs(process, page):
                self.is_mixed = self.is_mixed or page.start_ms is None
            return
        if last_ms is not None and 0 < at_ms - last_ms <= self._reach_ms:
            span_s = (at_ms - last_ms) / MS_PER_S
            yield from (Amount(unit, last_ms, at_ms, value * span_s) for unit, value in page.gauges.items())
        if process is None:
            process = self._processes[page.start_ms] = _Process(at_ms)
            if page.start_ms is not None and self._first_ms is not None and page.start_ms >= self._first_ms:
                self._say(AGAIN)
                yield from self._count_all(page, page.start_ms)
        elif page.start_ms is None and self._has_fallen(process, page):
            self._say(AGAIN)
            self._fell_from = {name: dict(values) for name, (_, values) in process.counters.items()}
            process.counters.clear()
            yield from self._count_all(page, process.at_ms)
        else:
            if page.start_ms is None and self._came_back(page):
                self.is_mixed = True
            self._fell_from = {}
            if page.start_ms is None and at_ms - process.at_ms > self._reach_ms:
                self._say(GAP)
                process.counters.clear()
                process.declared = frozenset()
            yield from self._count_growth(process, page)
        for name, values in page.counters.items():
            process.counters[name] = (at_ms, values)
        if page.start_ms is None:  # of a counter that is gone, nobody knows what it does meanwhile
            process.counters = {name: of for name, of in process.counters.items() if name in page.counters}
        process.at_ms, process.declared = at_ms, page.declared
        self._first_ms = at_ms if self._first_ms is None else self._first_ms
        self._last_ms = at_ms

    def _count_all(self, page: EnginePage, from_ms: int) -> Iterator[Amount]:
        """All that a page counts, of a process that began at `from_ms` or after it."""
        assert page.at_ms is not None
        for unit, names in COUNTED.items():
            known = next((page.counters[name] for name in names if name in page.counters), None)
            if known is None and any(name in page.declared for name in names):
                known = {}
            if known is not None and from_ms < page.at_ms:
                yield Amount(unit, from_ms, page.at_ms, sum(known.values()))

    def _count_growth(self, process: _Process, page: EnginePage) -> Iterator[Amount]:
        """What each unit grew by, by the best of its counters that tells it."""
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

    def _has_fallen(self, process: _Process, page: EnginePage) -> bool:
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
            for name, values in self._fell_from.items()
            for labels, value in values.items()
            if labels in page.counters.get(name, {})
        ]
        return bool(both) and all(now >= before for now, before in both)

    def _differs(self, process: _Process, page: EnginePage) -> bool:
        return any(process.counters.get(name, (0, {}))[1] != values for name, values in page.counters.items())

    def _say(self, what: str) -> None:
        self.unknown[what] = self.unknown.get(what, 0) + 1


def find_step_ms(pages: Sequence[EnginePage]) -> float:
    """The usual time between the pages of a replica, the median; 0 of a single one."""
    times = sorted({page.at_ms for page in pages if page.at_ms is not None})
    between = sorted(later - earlier for earlier, later in pairwise(times))
    return float(between[len(between) // 2]) if between else 0.0
