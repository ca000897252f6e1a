"""The gauges of `/metrics` as they would have been, for a Prometheus that comes later: its dashboards start filled."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Final

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.gauges.exposition import SPLITS, GaugeSplit, MetricFamily, write_openmetrics
from loadfactor.interfaces.gauges.measured import list_families

HOURS_A_DAY: Final = S_PER_DAY // S_PER_HOUR
EVERY_S: Final = 5 * S_PER_MIN
"""Prometheus forgets a series that has had no sample for so long."""
DATED_SPLITS: Final = tuple(split for split in SPLITS if not (split.window_s == S_PER_DAY and "job" in split.by))
"""What dashboards show over time; days of jobs and of their GPUs are shown of now."""

Dated = tuple[MetricFamily, int]
"""A family and the time that it is of, s since 1970."""


def list_texts(
    snapshot: Snapshot, start: datetime, end: datetime, currency: str, bar: Callable[[str, float], None]
) -> Iterator[str]:
    """The gauges of all hours and days that end on a full hour of [start, end), as pieces of OpenMetrics."""

    def list_all() -> Iterator[Dated]:
        for number, split in enumerate(DATED_SPLITS):
            bar(f"writing the gauges by {', '.join(split.by) or 'fleet'}", number / len(DATED_SPLITS))
            yield from _list_dated(snapshot, split, start, end, currency)

    return write_openmetrics(list_all())


def _list_dated(
    snapshot: Snapshot, split: GaugeSplit, start: datetime, end: datetime, currency: str
) -> Iterator[Dated]:
    """The gauges of a split, of each window of its length that ends on a full hour; again until the next one ends."""
    is_daily = split.window_s == S_PER_DAY
    unit, end_s = "day" if is_daily else "hour", int(end.timestamp())
    for offset in range(HOURS_A_DAY if is_daily else 1):
        # A window of 24 hours that ends at 5 is a day of a zone where midnight is at 5.
        first = start + timedelta(hours=offset)
        last = first + (end - first) // timedelta(seconds=split.window_s) * timedelta(seconds=split.window_s)
        if last <= first:
            continue
        east = -first.hour if first.hour < HOURS_A_DAY // 2 else HOURS_A_DAY - first.hour
        zone = timezone(timedelta(hours=east if is_daily else 0))
        found = snapshot.show(list(split.metrics), (unit, *split.by), first, last, zone)
        ends = dict(
            zip((key[0] for key in found.keys), (reading.end for reading in found[:: len(split.metrics)]), strict=True)
        )
        for when, part in found.divide(unit).items():
            at_s = int(ends[when].timestamp())
            for family in list_families(part, split, currency):
                yield from ((family, s) for s in range(at_s, min(at_s + S_PER_HOUR, end_s + 1), EVERY_S))
