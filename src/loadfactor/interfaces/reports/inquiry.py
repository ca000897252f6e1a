"""The questions of one report to the books: which window, which part of the fleet, split by what."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from loadfactor.books.snapshot import KeptT, Snapshot
from loadfactor.books.waterfall import ASKED, FleetWaterfall
from loadfactor.interfaces import formats
from loadfactor.interfaces.pages.readings import currency_of
from loadfactor.metrics import Metric
from loadfactor.metrics.query.answer import Floats
from loadfactor.metrics.query.reading import Reading, Readings

if TYPE_CHECKING:  # which most reports do without
    from loadfactor.books.books import Books
    from loadfactor.insight.diagnosis.diagnose import Progress

HOLDER_DIMENSIONS = ("team", "project", "user", "purpose", "pool")
OF_JOBS = ("cost", "allocated_gpu_hours", "utilization", "idle_cost")
"""Metrics of every job in the report."""
BY_JOB = ("job", "team", "purpose")
"""The dimensions by which it does."""
NOBODY = "nobody"
UNTAGGED = "not tagged"
Key = tuple[str | None, ...]
"""The values of the dimensions that a group has."""


@dataclass(frozen=True)
class WhyQuestion:
    """A request for causes and levers, too: of these books, with traces of the job, and a receiver of progress."""

    books: "Books"
    traces: Sequence[Path] = ()
    progress: "Progress" = lambda _what, _share: None


@dataclass(frozen=True)
class Inquiry:
    """The books at one moment, and what of them the report is about.

    `split` are the dimensions of its table, `job` the one job it is about. `why`: whether it also says why GPUs were not fuller.
    """

    books: Snapshot
    split: Sequence[str] = ()  # by default the first of `HOLDER_DIMENSIONS` that anybody is tagged with
    start: datetime | None = None
    end: datetime | None = None
    timezone: tzinfo = UTC
    basis: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None
    why: WhyQuestion | None = None

    @cached_property
    def window(self) -> tuple[datetime, datetime]:
        """First and last instant of the report."""
        first, last = self.books.bill_span if self.books.has_only_bills else self.books.span
        return self.local(self.start or first), self.local(self.end or last)

    @property
    def last_month(self) -> str:
        """The month of its last instant, in the zone of the report."""
        return f"{(self.window[1].astimezone(UTC) - timedelta(microseconds=1)).astimezone(self.timezone):%Y-%m}"

    def local(self, at: datetime) -> datetime:
        """An instant as clocks show it in the zone of the report."""
        return at.astimezone(self.timezone)

    @property
    def filter_text(self) -> str:
        """The filters in words; empty for the whole fleet."""
        return ", ".join(f"{name}={value}" for name, value in self.where.items())

    @property
    def options(self) -> str:
        """Options to type behind a command for it to speak of the same books, window, zone, money and part of the fleet."""
        given = [("--basis", self.basis)] if self.basis else []
        given += [("--where", f"{name}={value}") for name, value in self.where.items()]
        return " ".join((self.span_options, *(f"{option} {quote(value)}" for option, value in given)))

    @property
    def span_options(self) -> str:
        """The same of books, window and zone alone."""
        given: list[tuple[str, str]] = [("--store", self.store)]
        given += [(option, at.isoformat()) for option, at in (("--from", self.start), ("--to", self.end)) if at]
        given += (
            [("--timezone", str(self.timezone))] if self.timezone is not UTC and str(self.timezone) != "UTC" else []
        )
        return " ".join(f"{option} {quote(value)}" for option, value in given)

    @cached_property
    def dimensions(self) -> Sequence[str]:
        """The dimensions of the report's table: those requested, else who pays as far as the books know it."""
        if self.split:
            return self.split
        if self.books.has_only_bills:
            return HOLDER_DIMENSIONS[:1]
        for holder in HOLDER_DIMENSIONS:
            if any(r.by[holder] is not None for r in self.ask("allocated_gpu_hours", by=(holder,))):
                return (holder,)
        return HOLDER_DIMENSIONS[:1]

    @cached_property
    def totals(self) -> "Group":
        """Every metric of the whole window, read once."""
        return Group({r.metric: r for r in self.ask()})

    def read_whole(self, *metrics: str) -> "Group":
        """Metrics of the whole window: out of `totals` where these were read."""
        return self.totals if "totals" in vars(self) else Group({r.metric: r for r in self.ask(*metrics)})

    @property
    def store(self) -> str:
        """Where the books are, for commands to type."""
        return self.books.name

    def ask(self, *metrics: str | Metric, by: Sequence[str] = (), most: int | None = None, **where: str) -> Readings:
        """Readings of metrics, split by dimensions, for the part of the fleet the report is about; `most` as of `Snapshot.show`."""
        return self.books.show(
            metrics,
            by,
            self.start,
            self.end,
            timezone=self.timezone,
            basis=self.basis,
            where={**self.where, **where} or None,
            most=most,
        )

    def keep(self, what: Hashable, find: Callable[[], KeptT], measure: Callable[[KeptT], int]) -> KeptT:
        """What follows from answers to these questions, as `Snapshot.keep`."""
        of = (self.start, self.end, str(self.timezone), self.basis, tuple(self.where.items()))
        return self.books.keep((what, of), find, measure)

    def tabulate(self, *metrics: str, by: Sequence[str]) -> tuple[list[Any], dict[str, Floats]]:
        """The same as columns, as `Snapshot.tabulate`."""
        return self.books.tabulate(metrics, by, self.start, self.end, self.where or None)

    @cached_property
    def jobs(self) -> Readings:
        """Costs and use of jobs, and the parts of the waterfall, by job, team and purpose; read once."""
        return self.ask(*OF_JOBS, *ASKED, by=BY_JOB)

    @cached_property
    def waterfall(self) -> FleetWaterfall:
        """The way from paid to useful."""
        return self.books.read_waterfall(self.jobs, self.basis)

    def groups(self, *metrics: str, by: Sequence[str], **where: str) -> list[tuple[Key, "Group"]]:
        """The same by group: each group's key with its readings by name."""
        return group_readings(self.ask(*metrics, by=by, most=None, **where))


@dataclass(frozen=True)
class Group:
    """The readings of one group, by name of the metric."""

    readings: dict[str, Reading]

    def value(self, metric: str) -> float | None:
        """The value of a metric that is one number; None where it is not known."""
        reading = self.readings.get(metric)
        return reading.value if reading is not None and not isinstance(reading.value, list) else None

    def bins(self, metric: str) -> list[float]:
        """The values of a metric that is a list; none where it is not known."""
        reading = self.readings.get(metric)
        return reading.value if reading is not None and isinstance(reading.value, list) else []

    def money(self, metric: str) -> str:
        """An amount of money as a person reads it, in the currency of its reading."""
        return formats.money(self.value(metric), self.currency)

    @property
    def currency(self) -> str:
        """The currency of its amounts."""
        return currency_of(self.all)

    @property
    def all(self) -> list[Reading]:
        """Every reading of the group."""
        return list(self.readings.values())

    def some(self, *metrics: str) -> list[Reading]:
        """The readings of these metrics, as far as they were read."""
        return [self.readings[name] for name in metrics if name in self.readings]


def group_readings(readings: Readings) -> list[tuple[Key, Group]]:
    """Readings by group: each group's key with its readings by name."""
    groups: dict[Key, Group] = {}
    for reading in readings:
        groups.setdefault(tuple(reading.by.values()), Group({})).readings[reading.metric] = reading
    return list(groups.items())


def group_name(key: Key, group: Group) -> str:
    """A group's name: who holds nothing is nobody, a holder without a name is not tagged.

    Where a split puts both into one group, the name says so.
    """
    if all(part is None for part in key):
        if not group.value("allocated_gpu_hours"):
            return NOBODY
        return f"{UNTAGGED}, or {NOBODY}" if group.value("unallocated_gpu_hours") else UNTAGGED
    return " · ".join(UNTAGGED if part is None else part for part in key)
