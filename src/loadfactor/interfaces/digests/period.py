"""Periods of digests: a day, a week from Monday, or a month of the local calendar."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, Literal

from loadfactor.metrics.query.calendar import name_period

Every = Literal["day", "week", "month"]
INSTANT: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Period:
    """The local day, week or month that begins with a day."""

    every: Every
    first: date
    zone: tzinfo

    @property
    def name(self) -> str:
        """2026-10-05, 2026-W41 or 2026-10."""
        return name_period(self.first.isoformat(), self.every)

    @property
    def start(self) -> datetime:
        """Its first instant."""
        return datetime.combine(self.first, time(), self.zone)

    @property
    def end(self) -> datetime:
        """The first instant after it."""
        return datetime.combine(_add(self.first, self.every), time(), self.zone)

    @property
    def before(self) -> "Period":
        """The period before it."""
        return find_period(self.every, self.start - INSTANT, self.zone)


def find_period(every: Every, at: datetime, zone: tzinfo) -> Period:
    """The period that an instant lies in.

    >>> from datetime import UTC
    >>> [find_period(every, datetime(2026, 10, 8, tzinfo=UTC), UTC).name for every in ("day", "week", "month")]
    ['2026-10-08', '2026-W41', '2026-10']
    """
    day = at.astimezone(zone).date()
    if every == "week":
        day -= timedelta(days=day.weekday())
    return Period(every, day.replace(day=1) if every == "month" else day, zone)


def find_last(every: Every, span: tuple[datetime, datetime], now: datetime, zone: tzinfo) -> Period:
    """The last period that is over by the clock and of which books of this span know something; else the one that goes on."""
    period = find_period(every, min(span[1], now) - INSTANT, zone)
    return period.before if period.end > now and period.start > span[0] else period


def _add(day: date, every: Every) -> date:
    if every == "month":
        return (day.replace(day=1) + timedelta(days=31)).replace(day=1)
    return day + timedelta(days=7 if every == "week" else 1)
