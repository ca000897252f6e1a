"""The gauges of `/metrics` as they would have been, for a Prometheus that comes later: its dashboards start filled."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from shlex import quote
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.gauges.exposition import SPLITS, GaugeSplit, MetricFamily, write_openmetrics
from loadfactor.interfaces.gauges.measured import list_families
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.reach import is_empty
from loadfactor.interfaces.render.present import replacing
from loadfactor.interfaces.requests import ExportRequest
from loadfactor.metrics.query.calendar import instant, milliseconds

HOURS_A_DAY: Final = S_PER_DAY // S_PER_HOUR
EVERY_S: Final = 5 * S_PER_MIN
"""Prometheus forgets a series that has had no sample for so long."""
DATED_SPLITS: Final = tuple(split for split in SPLITS if not (split.window_s == S_PER_DAY and "job" in split.by))
"""What dashboards show over time; days of jobs and of their GPUs are shown of now."""

Dated = tuple[MetricFamily, int]
"""A family and the time that it is of, s since 1970."""


@dataclass(frozen=True)
class History:
    """What was written."""

    output: str
    start: datetime
    end: datetime
    series: int
    samples: int
    bytes: int


def build_history_page(request: ExportRequest) -> Document:
    """Write the gauges of all full hours into a file, as OpenMetrics. Raises InputError where there is no full hour."""
    path = read_path(request.output)
    if path.is_dir():
        raise InputError(f"--output {path} is a folder; name the file to write, {path / 'loadfactor.om'}")
    books = request.books
    names: set[str] = set()
    samples = 0
    with ProgressBar() as bar, books.snapshot() as snapshot:
        if is_empty(snapshot):
            raise InputError("the books are empty: there is no history to write")
        start, end = _find_full_hours(snapshot, request.last)
        with replacing(path) as beside, beside.open("w", encoding="utf-8", errors="replace") as file:
            for text in list_texts(snapshot, start, end, books.store.currency, bar):
                series = [line.rpartition(" ")[0].rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
                samples, names = samples + len(series), names | set(series)
                file.write(text)
    found = History(str(path), start, end, len(names), samples, path.stat().st_size)
    steps = (
        Suggestion(
            f"promtool tsdb create-blocks-from openmetrics {quote(str(path))} data", "blocks that Prometheus reads"
        ),
        Suggestion("mv data/* /var/lib/prometheus/metrics2/", "while it is stopped; its `--storage.tsdb.path`"),
    )
    return Document(
        f"{samples:,} samples of {len(names):,} series are in {path}, from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC.",
        (Section(lead="On the machine of Prometheus:", suggestions=steps),),
        data=found,
    )


def _find_full_hours(snapshot: Snapshot, last: str | None) -> tuple[datetime, datetime]:
    """The first and the last full hour of the books, or of their last part. Raises InputError where there is none between."""
    first, end = (milliseconds(at) for at in snapshot.span)
    if last is not None:
        first = max(first, end - int(parse_duration_s(last) * MS_PER_S))
    first, end = -(-first // MS_PER_HOUR) * MS_PER_HOUR, end // MS_PER_HOUR * MS_PER_HOUR
    if end <= first:
        raise InputError("there is no full hour in the books, or in that part of them; a gauge speaks of one")
    return instant(first), instant(end)


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
