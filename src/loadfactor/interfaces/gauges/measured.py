"""Gauges out of readings: one question of the books as families of samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from loadfactor.base.errors import InputError, LoadfactorError
from loadfactor.base.units import MS_PER_HOUR, PERCENT, S_PER_HOUR
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.gauges.exposition import (
    NO_NAME,
    OF_WHOLE_JOBS,
    ORDER,
    OTHERS,
    GaugeSplit,
    MetricFamily,
    name_coverage,
    name_gauge,
    name_window,
)
from loadfactor.ledger.columns import HISTOGRAM
from loadfactor.metrics.metric import Metric, Sum
from loadfactor.metrics.query.calendar import instant, milliseconds
from loadfactor.metrics.query.reading import Readings, Value
from loadfactor.settings.config import settings, zone
from loadfactor.tables.schema import DIMENSIONS

if TYPE_CHECKING:
    from loadfactor.money.spending import BudgetStatus

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
    return list_families(found, split, currency)


def list_families(found: Readings, split: GaugeSplit, currency: str) -> list[MetricFamily]:
    """The gauges of a split out of the answer to its question."""
    shown, rest = _order(found, split)
    families = [
        MetricFamily(split.name(metric, currency), metric.meaning, "gauge", list(_sample(found, metric, shown, rest)))
        for metric in split.metrics
    ]
    covered = list(_cover(found, split, frozenset(shown)))
    return [*families, MetricFamily(name_coverage(split.by, name_window(split.window_s)), COVERAGE, "gauge", covered)]


def measure_end(snapshot: Snapshot) -> list[MetricFamily]:
    """Through when the books know of anything, and from when they have samples where some were dropped, as seconds since 1970."""
    ends = [("loadfactor_books_end", "Through when the books know of anything.", snapshot.span[1])]
    if begin := snapshot.samples_begin:
        ends.append(("loadfactor_samples_begin", "From when samples are kept: those of before were dropped.", begin))
    return [
        MetricFamily(f"{name}_timestamp_seconds", about, "gauge", [({}, at.timestamp())]) for name, about, at in ends
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
    """The coverage of the covered metrics, of the groups that have lines of their own."""
    for number, reading in enumerate(found):
        group = number // len(split.metrics)
        if reading.metric in split.covered and reading.coverage is not None and group in shown:
            yield {**label(found, group), "metric": reading.metric}, reading.coverage


def label(found: Readings, group: int) -> dict[str, str]:
    """The values of a group's dimensions, under the names that columns of tables have: job_id, never job.

    Prometheus calls what it scrapes `job`, and would rename a label of that name.
    """
    names = (DIMENSIONS[by] for by in found.by)
    return {name: key or NO_NAME for name, key in zip(names, found.keys[group], strict=True)}


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def measure_budgets(snapshot: Snapshot) -> list[MetricFamily]:
    """Where each configured budget stands; nothing where there is none, or no cost to compare with."""
    if not settings().budget:
        return []
    try:
        review = snapshot.budgets(timezone=zone(settings().timezone))
    except LoadfactorError:
        return []
    return list(_list_budget_families(review.statuses, review.currency.lower()))


def _list_budget_families(statuses: Iterable["BudgetStatus"], currency: str) -> Iterable[MetricFamily]:
    amounts, spent, forecasts, coming, burning = [], [], [], [], []
    for status in statuses:
        labels = {"budget": status.budget.label, "period": status.budget.period}
        amounts.append((labels, float(status.budget.amount)))
        spent.append((labels, float(status.spent)))
        if status.forecast is not None:
            forecasts.append((labels, float(status.forecast.total)))
            coming.append((labels, float(status.forecast.total / status.budget.amount)))
        if status.burn_rate is not None:
            burning.append((labels, float(status.burn_rate)))
    yield MetricFamily(f"loadfactor_budget_{currency}", "What may be spent in the period.", "gauge", amounts)
    yield MetricFamily(f"loadfactor_budget_spent_{currency}", "What was spent of it so far.", "gauge", spent)
    yield MetricFamily(f"loadfactor_budget_forecast_{currency}", "What the period will come to.", "gauge", forecasts)
    about = "What the period will come to ÷ the budget."
    yield MetricFamily("loadfactor_budget_forecast_ratio", about, "gauge", coming)
    about = "The part of the budget that is spent ÷ the part of the period that has passed."
    yield MetricFamily("loadfactor_budget_burn_ratio", about, "gauge", burning)


WHOLE: Final = "whole"
MOST_JOBS: Final = 50
FRESH_S: Final = 600.0
MOST_WORK_S: Final = 3.0
"""So long may be worked on them at once; the other jobs follow the next time."""


class _JobTotals(NamedTuple):
    at: datetime
    values: dict[str, float]


class WholeJobs:
    """The totals of jobs, kept for a while. For one thread at a time."""

    def __init__(self) -> None:
        self._totals: dict[str, _JobTotals] = {}

    def measure(self, snapshot: Snapshot, now: datetime, currency: str) -> list[MetricFamily]:
        """The gauges of the jobs that held most in the last hour, as far as they were worked out."""
        jobs = _find_largest(snapshot, now)
        self._totals = {job: kept for job, kept in self._totals.items() if job in jobs}
        due = [
            job for job in jobs if job not in self._totals or (now - self._totals[job].at).total_seconds() >= FRESH_S
        ]
        due.sort(key=lambda job: job in self._totals)  # what is not known at all comes first
        end = monotonic() + MOST_WORK_S
        begun = _find_starts(snapshot, due)
        for job in due:
            if monotonic() > end:
                break
            if job in begun:
                found = snapshot.show(list(OF_WHOLE_JOBS), (), begun[job], now, where={"job": job})
                self._totals[job] = _JobTotals(now, {r.metric: r.value for r in found if isinstance(r.value, float)})
        return [
            MetricFamily(
                name_gauge(metric, currency, ("job",), WHOLE),
                f"{metric.meaning} Since the job began.",
                "gauge",
                [
                    ({"job_id": job}, t.values[metric.name])
                    for job, t in self._totals.items()
                    if metric.name in t.values
                ],
            )
            for metric in OF_WHOLE_JOBS
        ]


def _find_largest(snapshot: Snapshot, now: datetime) -> list[str]:
    try:
        found = snapshot.show(ORDER, "job", now - timedelta(seconds=S_PER_HOUR), now)
    except InputError:  # the books know nothing of that hour
        return []
    largest = found.arrange(ORDER, descending=True, limit=MOST_JOBS + 1)
    return [job for (job,) in largest.keys if job is not None][:MOST_JOBS]


def _find_starts(snapshot: Snapshot, jobs: list[str]) -> dict[str, datetime]:
    """The hours, no earlier than the books begin, in which these jobs held a GPU first: a window from there cuts no hour."""
    if not jobs:
        return {}
    rows = snapshot.view("allocations")
    rows = rows.filter(rows.job_id.isin(jobs)).group_by("job_id").aggregate(first=rows.from_utc.min())
    first = milliseconds(snapshot.span[0])
    found = snapshot.fetch(rows).to_pylist()
    return {row["job_id"]: instant(max(first, row["first"]) // MS_PER_HOUR * MS_PER_HOUR) for row in found}
