"""Windows and their local days, weeks (ISO, from Monday) and months, in instants; a day of daylight saving's end has 25 hours.

Ledger rows lie inside UTC hours. A window or a local midnight that cuts an hour makes that hour be booked afresh, cut there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S

PERIODS = ("day", "week", "month")
"""Dimensions of the local calendar."""


@dataclass(frozen=True)
class Window:
    """[start_ms, end_ms) seen from a time zone."""

    start_ms: int
    end_ms: int
    zone: tzinfo = UTC

    @property
    def limits(self) -> tuple[int, int]:
        """Its first instant, and the first after it."""
        return self.start_ms, self.end_ms

    def days(self) -> Iterator[tuple[str, int, int]]:
        """Every local day that touches the window: its name YYYY-MM-DD, its first instant, and the first after it."""
        day = instant(self.start_ms).astimezone(self.zone).date()
        while (first := _midnight(day, self.zone)) < self.end_ms:
            following = day + timedelta(days=1)
            yield day.isoformat(), first, _midnight(following, self.zone)
            day = following

    def periods(self, unit: str) -> dict[str, tuple[int, int]]:
        """Every local day, week (2026-W47) or month (2026-11) of the window: its first instant in it, and the first after it."""
        found: dict[str, tuple[int, int]] = {}
        for day, first, after in self.days():
            name = name_period(day, unit)
            found[name] = (found[name][0] if name in found else first, after)
        return found

    def cut_hours(self, by_day: bool) -> dict[int, list[int]]:
        """The UTC hours that a limit of the window (or, with `by_day`, a local midnight) cuts, and where."""
        points = {self.start_ms, self.end_ms}
        if by_day:
            points |= {first for _, first, _ in self.days() if self.start_ms < first < self.end_ms}
        cuts: dict[int, list[int]] = {}
        for point in sorted(points):
            if point % MS_PER_HOUR:
                cuts.setdefault(point - point % MS_PER_HOUR, []).append(point)
        return cuts


def write_local_day(column: str, window: Window) -> str:
    """SQL: days from 1970-01-01 to the local day of an instant (ms), for instants within a day of the window.

    >>> write_local_day("at_ms", Window(0, 86_400_000))
    '(at_ms // 86400000)'
    """
    offsets = list(_list_offsets(window))
    shifts = "".join(f"WHEN {column} < {until} THEN {offset} " for until, offset in offsets[:-1])
    last = offsets[-1][1]
    shift = f"CASE {shifts}ELSE {last} END" if shifts else str(last)
    return f"({column} // {MS_PER_DAY})" if shift == "0" else f"(({column} + {shift}) // {MS_PER_DAY})"


def _list_offsets(window: Window) -> Iterator[tuple[int, int]]:
    """What a zone adds to UTC (ms), one stretch after another, each with the first instant after it."""

    def offset(at_ms: int) -> int:
        shift = instant(at_ms).astimezone(window.zone).utcoffset() or timedelta()
        return round(shift / timedelta(milliseconds=1))

    at, end = window.start_ms - MS_PER_DAY, window.end_ms + MS_PER_DAY
    before = offset(at)
    while at < end:
        after = at + MS_PER_DAY
        if offset(after) != before:
            low, high = at, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            yield high, before
            before = offset(after)
        at = after
    yield at, before


def name_period(day: str, unit: str) -> str:
    """The day, week or month that a local day lies in.

    >>> [name_period("2027-01-01", unit) for unit in PERIODS]
    ['2027-01-01', '2026-W53', '2027-01']
    """
    if unit == "week":
        year, week, _ = date.fromisoformat(day).isocalendar()
        return f"{year}-W{week:02d}"
    return day[: len("2026-11")] if unit == "month" else day


def instant(ms: int) -> datetime:
    """Milliseconds since 1970 as an aware UTC datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def milliseconds(at: datetime) -> int:
    """An aware datetime as milliseconds since 1970.

    >>> milliseconds(datetime(1970, 1, 2, tzinfo=UTC))
    86400000
    """
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def _midnight(day: object, zone: tzinfo) -> int:
    """The first instant of a local day (where midnight is skipped, the instant the clocks jump)."""
    local = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=zone)
    return round(local.timestamp() * MS_PER_S)
