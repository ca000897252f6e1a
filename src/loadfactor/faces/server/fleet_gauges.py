"""The fleet's own numbers for `/metrics`: every metric over the last hour, for all of the fleet and for its largest parts.

There are at most metrics × (1 + dimensions × (largest + 1)) of them. They are worked out in a thread at most every 30 seconds;
meanwhile the last ones are shown.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.errors import InputError, LoadfactorError
from loadfactor.faces.server.exposition import MetricFamily, name_gauge
from loadfactor.faces.server.question_pool import QuestionPool
from loadfactor.faces.server.questions import is_empty
from loadfactor.faces.server.request_log import write_line
from loadfactor.metrics import METRICS
from loadfactor.metrics.metric import Sum
from loadfactor.metrics.query.reading import Readings
from loadfactor.units import S_PER_HOUR

OTHERS: Final = "(others)"
NO_NAME: Final = "(none)"
SHOWN: Final = tuple(m for m in METRICS if not (isinstance(m.kind, Sum) and m.kind.each))
"""Metrics that are one number."""


@dataclass(frozen=True)
class GaugeWindow:
    """What the gauges speak of. `largest`: parts of a dimension that have a line of their own, by what was paid for."""

    dimensions: tuple[str, ...] = ("pool", "accelerator", "team")
    largest: int = 20
    window_s: int = S_PER_HOUR
    fresh_s: float = 30
    wait_s: float = 2


class FleetGauges:
    """The gauges, kept for a while. For one event loop; `clock_s` is in seconds since 1970."""

    def __init__(self, books: Books, pool: QuestionPool, window: GaugeWindow, clock_s: Callable[[], float]) -> None:
        self._books, self._pool, self._window, self._clock_s = books, pool, window, clock_s
        self._families: list[MetricFamily] = []
        self._at_s: float | None = None
        self._running: asyncio.Task[None] | None = None

    async def get(self) -> list[MetricFamily]:
        """The gauges as they are known; waits a moment for newer ones, never longer."""
        stale = self._at_s is None or self._clock_s() - self._at_s >= self._window.fresh_s
        if stale and self._running is None:
            self._running = asyncio.create_task(self._renew())
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._window.wait_s)
        return self._families

    async def _renew(self) -> None:
        try:
            now = datetime.fromtimestamp(self._clock_s(), UTC)
            self._families = await self._pool.ask(lambda: measure_fleet(self._books, now, self._window))
        except LoadfactorError as error:  # busy, or damaged: the gauges stay away rather than stay old
            self._families = []
            write_line(warning=f"/metrics has no numbers of the fleet now: {error}")
        finally:
            self._at_s = self._clock_s()
            self._running = None


def measure_fleet(books: Books, now: datetime, window: GaugeWindow) -> list[MetricFamily]:
    """The gauges of a window that ends now; none where the books know nothing of it."""
    start = now - timedelta(seconds=window.window_s)
    with books.snapshot() as snapshot:
        if is_empty(snapshot):
            return []
        first, last = snapshot.span
        if start >= last or now <= first:
            return []
        currency, families = books.store.currency, []
        for by in ("", *window.dimensions):
            families += _measure(snapshot, by, (start, now), window.largest, currency)
    return families


def _measure(
    snapshot: Snapshot, by: str, within: tuple[datetime, datetime], largest: int, currency: str
) -> list[MetricFamily]:
    """The gauges of all of the fleet, or of the parts of a dimension; of all of it, the coverage too."""
    try:
        found = snapshot.show([m.name for m in SHOWN], [by] if by else [], *within)
    except InputError:  # the books end in this very moment
        return []
    paid = [value if isinstance(value, float) else 0.0 for value in found.column("paid_gpu_hours")]
    order = sorted(range(len(paid)), key=lambda group: -paid[group])
    families = []
    for metric in SHOWN:
        values = found.column(metric.name)
        samples = [
            (_label(found, by, group), value)
            for group in order[:largest]
            if (value := _number(values[group])) is not None
        ]
        rest = [_number(values[group]) for group in order[largest:]]
        known = [value for value in rest if value is not None]
        if rest and isinstance(metric.kind, Sum) and len(known) == len(rest):  # means of means would be wrong
            samples.append(({by: OTHERS}, sum(known)))
        families.append(MetricFamily(name_gauge(metric, currency, by), metric.meaning, "gauge", samples))
    if not by:
        covered = [({"metric": r.metric}, r.coverage) for r in found if r.coverage is not None]
        about = "The share that was known of what a metric speaks of."
        families.append(MetricFamily("loadfactor_coverage_ratio", about, "gauge", covered))
    return families


def _label(found: Readings, by: str, group: int) -> dict[str, str]:
    return {by: found.keys[group][0] or NO_NAME} if by else {}


def _number(value: Sequence[float] | float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None
