"""What does one report ask, of which window and which part of the fleet? The options of the command, kept in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from shlex import quote

from loadfactor.books.books import Books
from loadfactor.metrics.query.reading import Reading, Readings

HOLDERS = ("team", "project", "user", "purpose", "pool")
NOBODY = "nobody"
UNTAGGED = "not tagged"


@dataclass(frozen=True)
class Inquiry:
    """The books and what of them the report is about. `split` are the dimensions of its table, `job` the job looked into."""

    books: Books
    split: Sequence[str] = ()  # by default the first of `HOLDERS` that anybody is tagged with
    start: datetime | None = None
    end: datetime | None = None
    timezone: tzinfo = UTC
    basis: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    @cached_property
    def window(self) -> tuple[datetime, datetime]:
        """First and last instant of the report."""
        first, last = self.books.span
        return self.local(self.start or first), self.local(self.end or last)

    def local(self, at: datetime) -> datetime:
        """An instant as clocks show it in the zone of the report."""
        return at.astimezone(self.timezone)

    @property
    def of_whom(self) -> str:
        """Which part of the fleet this is about; empty for all of it."""
        return ", ".join(f"{name}={value}" for name, value in self.where.items())

    @property
    def options(self) -> str:
        """What to type behind a command for it to speak of the same books, window, zone, money and part of the fleet."""
        given: list[tuple[str, str]] = [("--store", str(self.folder))]
        given += [(option, at.isoformat()) for option, at in (("--from", self.start), ("--to", self.end)) if at]
        given += (
            [("--timezone", str(self.timezone))] if self.timezone is not UTC and str(self.timezone) != "UTC" else []
        )
        given += [("--basis", self.basis)] if self.basis else []
        given += [("--where", f"{name}={value}") for name, value in self.where.items()]
        return " ".join(f"{option} {quote(value)}" for option, value in given)

    @cached_property
    def parts(self) -> Sequence[str]:
        """The dimensions of the report's table: those asked for, else who pays as far as the books know it."""
        if self.split:
            return self.split
        for holder in HOLDERS:
            if any(r.by[holder] is not None for r in self.ask("allocated_gpu_hours", by=(holder,))):
                return (holder,)
        return HOLDERS[:1]

    @cached_property
    def whole(self) -> "Row":
        """Every metric of the whole window, asked once; a job that is looked into must be one the books know."""
        if self.job is not None:
            self.ask("paid_gpu_hours", job=self.job)
        return row(self.ask())

    @property
    def folder(self) -> Path:
        """Where the books are, for commands to type."""
        return self.books.store.folder

    def ask(self, *metrics: str, by: Sequence[str] = (), **where: str) -> Readings:
        """Readings of metrics, split by dimensions, for the part of the fleet the report is about."""
        return self.books.show(
            metrics,
            by,
            self.start,
            self.end,
            timezone=self.timezone,
            basis=self.basis,
            where={**self.where, **where} or None,
        )

    def groups(self, *metrics: str, by: Sequence[str], **where: str) -> list[tuple[tuple[str | None, ...], "Row"]]:
        """The same as rows: each group's key with its readings by name."""
        rows: dict[tuple[str | None, ...], Row] = {}
        for reading in self.ask(*metrics, by=by, **where):
            rows.setdefault(tuple(reading.by.values()), Row({})).readings[reading.metric] = reading
        return list(rows.items())


@dataclass(frozen=True)
class Row:
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

    @property
    def all(self) -> list[Reading]:
        """Every reading of the row."""
        return list(self.readings.values())

    def some(self, *metrics: str) -> list[Reading]:
        """The readings of these metrics."""
        return [self.readings[name] for name in metrics]


def row(readings: Sequence[Reading]) -> Row:
    """Readings of one group as a row."""
    return Row({r.metric: r for r in readings})


def spoken(key: Sequence[str | None], row: Row) -> str:
    """A group's name: who holds nothing is nobody, who holds something without a name is not tagged.

    Where both are, they are one group: the books know no name for either.
    """
    if all(part is None for part in key):
        if not row.value("allocated_gpu_hours"):
            return NOBODY
        return f"{UNTAGGED}, or {NOBODY}" if row.value("unallocated_gpu_hours") else UNTAGGED
    return " · ".join(UNTAGGED if part is None else part for part in key)
