"""Gauges out of readings: one question of the books as families of samples."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import PERCENT
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.server.exposition import MetricFamily, name_coverage
from loadfactor.interfaces.server.gauge_splits import NO_NAME, ORDER, OTHERS, GaugeSplit, name_window
from loadfactor.ledger.columns import HISTOGRAM
from loadfactor.metrics.metric import Metric, Sum
from loadfactor.metrics.query.reading import Readings, Value
from loadfactor.tables.schema import DIMENSIONS

COVERAGE: Final = "The share that was known of what a metric speaks of."
NAMELESS: Final = frozenset({"job", "device", "node"})
"""Dimensions of which nobody asks what has none."""
Sample = tuple[Mapping[str, str], float]


def measure_split(snapshot: Snapshot, split: GaugeSplit, now: datetime, currency: str) -> list[MetricFamily]:
    """The gauges of a split over its window that ends now; none where the books know nothing of that time."""
    start = now - timedelta(seconds=split.window_s)
    first, last = snapshot.span
    if start >= last or now <= first:
        return []
    try:
        found = snapshot.show(list(split.metrics), split.by, start, now)
    except InputError:  # the books end in this very moment
        return []
    shown, rest = _order(found, split)
    families = [
        MetricFamily(split.name(metric, currency), metric.meaning, "gauge", list(_sample(found, metric, shown, rest)))
        for metric in split.metrics
    ]
    covered = list(_cover(found, split, frozenset(shown)))
    return [*families, MetricFamily(name_coverage(split.by, name_window(split.window_s)), COVERAGE, "gauge", covered)]


def measure_end(snapshot: Snapshot) -> list[MetricFamily]:
    """Through when the books know of anything, as seconds since 1970."""
    about = "Through when the books know of anything."
    return [
        MetricFamily("loadfactor_books_end_timestamp_seconds", about, "gauge", [({}, snapshot.span[1].timestamp())])
    ]


def _order(found: Readings, split: GaugeSplit) -> tuple[list[int], list[int]]:
    """The groups that have lines of their own, the largest first, and the others."""
    paid = [value if isinstance(value, float) else 0.0 for value in found.column(ORDER)]
    order = sorted(range(len(paid)), key=lambda group: -paid[group])
    if NAMELESS & set(split.by):
        order = [group for group in order if all(found.keys[group])]
    if not split.by:
        return order, []
    return order[: split.largest], order[split.largest :]


def _sample(found: Readings, metric: Metric, shown: Sequence[int], rest: Sequence[int]) -> Iterator[Sample]:
    values = found.column(metric.name)
    for group in shown:
        yield from _list_values(label(found, group), values[group])
    others = [_number(values[group]) for group in rest]
    known = [value for value in others if value is not None]
    is_one = isinstance(metric.kind, Sum) and not metric.kind.each and len(found.by) == 1
    if rest and is_one and len(known) == len(others):  # means of means would be wrong
        yield {DIMENSIONS[name]: OTHERS for name in found.by}, sum(known)


def _list_values(labels: Mapping[str, str], value: Value) -> Iterator[Sample]:
    """One line of a number, one a part of the activity scale of a histogram."""
    if isinstance(value, int | float):
        yield labels, float(value)
    elif value is not None:
        width = PERCENT // len(HISTOGRAM)
        for number, part in enumerate(value):
            yield {**labels, "activity": f"{number * width:02}-{(number + 1) * width:02}%"}, float(part)


def _cover(found: Readings, split: GaugeSplit, shown: frozenset[int]) -> Iterator[Sample]:
    """The coverage of the metrics that are told of, of the groups that have lines of their own."""
    for number, reading in enumerate(found):
        group = number // len(split.metrics)
        if reading.metric in split.covered and reading.coverage is not None and group in shown:
            yield {**label(found, group), "metric": reading.metric}, reading.coverage


def label(found: Readings, group: int) -> dict[str, str]:
    """What a group has of the dimensions asked for, under the names that columns of tables have: job_id, never job.

    Prometheus calls what it scrapes `job`, and would rename a label of that name.
    """
    names = (DIMENSIONS[by] for by in found.by)
    return {name: key or NO_NAME for name, key in zip(names, found.keys[group], strict=True)}


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None
