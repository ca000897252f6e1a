"""Axes of a drawing, in any unit: the range that holds what is drawn, ticks at round values and times, series as outlines."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from math import floor, isfinite, log10
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.interfaces.charts import Chart, Series, X
from loadfactor.interfaces.formats import short

MOST_DATES, ROUNDING = 7, 1e-6
DATE_STEPS_S = (
    *(minutes * S_PER_MIN for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * S_PER_HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * S_PER_DAY for days in (1, 2, 4, 7, 14)),
)
MONTH_STEPS, DAYS_PER_MONTH = (1, 2, 3, 6, *(years * 12 for years in (1, 2, 5, 10, 20, 50, 100, 1000))), 30.4
MONDAY, MIDNIGHT = datetime(1970, 1, 5), time()  # noqa: DTZ001 (of no zone: counted by the clock of any)


Value = TypeVar("Value", float, NDArray[np.float64])


@dataclass(frozen=True)
class Axis:
    """The range of an axis in drawing units and its ticks."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: Value) -> Value:
        """Where a value stands on it, 0 at its start and 1 at its end."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Outline:
    """A series in drawing units; steps and histograms are the corners of their outline, None is a gap."""

    series: Series
    xs: Sequence[float]
    ys: Sequence[float | None]

    @property
    def runs(self) -> list[tuple[list[float], list[float]]]:
        """Parts of the series without a gap."""
        runs: list[tuple[list[float], list[float]]] = [([], [])]
        for x, y in zip(self.xs, self.ys, strict=True):
            if y is None or not isfinite(y):
                runs.append(([], []))
            else:
                runs[-1][0].append(x)
                runs[-1][1].append(y)
        return [run for run in runs if run[0]]

    @property
    def last(self) -> tuple[float, float] | None:
        """The last point known."""
        known = (
            (x, y) for x, y in zip(reversed(self.xs), reversed(self.ys), strict=True) if y is not None and isfinite(y)
        )
        return next(known, None)


def trace(chart: Chart, series: Series) -> Outline:
    """The outline of a series."""
    xs: list[float] = [to_drawing(x, chart.x_log) for x in chart.x_of(series)]
    ys = [None if y is None or y <= 0 else log10(y) for y in series.y] if chart.y_log else list(series.y)
    kind = chart.kind_of(series)
    if kind == "histogram":
        ground = min((y for y in ys if y is not None), default=0.0) if chart.y_log else 0.0
        return Outline(series, [x for x in xs for _ in (0, 1)], [ground, *(y for y in ys for _ in (0, 1)), ground])
    if kind == "step":
        return Outline(series, [xs[0], *(x for x in xs[1:] for _ in (0, 1))], [y for y in ys for _ in (0, 1)][:-1])
    return Outline(series, xs, ys)


def make_axes(
    chart: Chart, outlines: Sequence[Outline], x_ticks: int, y_ticks: int, whole: bool = False
) -> tuple[Axis, Axis]:
    """The two axes with about so many ticks, wide enough for marks and references.

    With `whole` the upright one reaches from zero, or a tick below, to a tick or half way to one, and the other one over
    what is drawn alone; else both begin at zero where that is near.
    """
    zone = next((x.tzinfo for s in chart.series for x in chart.x_of(s) if isinstance(x, datetime)), None)
    moments = any(isinstance(x, datetime) for s in chart.series for x in chart.x_of(s)[:1])
    also_x = [to_drawing(r.value, chart.x_log) for r in chart.references if r.axis == "x"]
    also_x += [to_drawing(mark.x, chart.x_log) for mark in chart.marks]
    also_y = [to_drawing(r.value, chart.y_log) for r in chart.references if r.axis == "y"]
    also_y += [to_drawing(mark.y, chart.y_log) for mark in chart.marks]
    low, high = _range([*(outline.xs for outline in outlines), also_x])
    if moments:
        low, high = (low, high) if high > low else (low - S_PER_DAY / 2, low + S_PER_DAY / 2)
        x_axis = Axis(low, high, _date_ticks(low, high, x_ticks, zone or UTC))
    else:
        x_axis = _axis(low, high, chart.x_log, x_ticks, from_zero=not whole and low < high / 2)
    low, high = _range([*(outline.ys for outline in outlines), also_y])
    return x_axis, _axis(low, high, chart.y_log, y_ticks, from_zero=whole or low < high / 2, whole=whole)


def make_time_axis(low: float, high: float, count: int, zone: tzinfo) -> Axis:
    """An axis of time over just this range, in seconds since 1970."""
    return Axis(low, high, _date_ticks(low, high, count, zone))


def to_drawing(x: X, log: bool) -> float:
    """A value in drawing units: seconds since 1970 for an instant, log10 on a logarithmic axis."""
    if isinstance(x, float):
        return log10(x) if log else x
    if isinstance(x, datetime):
        return x.timestamp()
    if isinstance(x, str):
        raise ValueError(f"a name ({x!r}) cannot stand on a numeric axis; use a bar chart")
    return log10(x) if log else float(x)


def _range(rows: Sequence[Sequence[float | None]]) -> tuple[float, float]:
    """The lowest and highest of all values that are known."""
    values = np.concatenate([np.array(row, dtype=float) for row in rows])
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)


def _axis(low: float, high: float, log: bool, count: int, from_zero: bool, whole: bool = False) -> Axis:
    if log:
        low = floor(low * 3) / 3
        high = max(high, low + 1 / 3)
        return Axis(low, high, [(t, short(10**t)) for t in _log_ticks(low, high, count)])
    if low > 0 and from_zero:
        low = 0.0
    if high == low:
        low, high = min(0.0, low), max(high, low + 1)
    step = _nice_step(high - low, count)
    first = -(-low // step) * step
    if whole:
        first = low = low // step * step
        high = -(-(high / step - ROUNDING) * 2 // 1) * step / 2
    ticks = [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]
    return Axis(low, high, [(t, short(round(t, 12))) for t in ticks])


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    decades = [float(d) for d in range(floor(low), int(high) + 1) if low <= d <= high]
    if len(decades) >= 3 or count < 3:
        every = max(1, -(-len(decades) // count))
        return decades[::every] or [low, high]
    fine = [d + log10(m) for d in range(floor(low), int(high) + 1) for m in (1, 2, 5)]
    return [t for t in fine if low <= t <= high] or [low, high]


def _date_ticks(low: float, high: float, count: int, zone: tzinfo) -> list[tuple[float, str]]:
    """Ticks at round times of the zone, by its clock through the days on which that is set; of many months, at their first days."""
    most = max(2, min(count, MOST_DATES))
    begin = datetime.fromtimestamp(low, zone).replace(tzinfo=None)
    step = next((step for step in DATE_STEPS_S if (high - low) / step < most), None)
    if step is not None:
        first = begin + timedelta(seconds=-(begin - MONDAY).total_seconds() % step)
        ticks = [first + timedelta(seconds=i * step) for i in range(int((high - low) / step) + 2)]
    else:
        months = next(m for m in MONTH_STEPS if (high - low) / (m * DAYS_PER_MONTH * S_PER_DAY) < most)
        first_month = -(-(begin.year * 12 + begin.month) // months) * months
        starts = [divmod(first_month + i * months, 12) for i in range(most + 1)]
        ticks = [MONDAY.replace(year, month + 1, 1) for year, month in starts]
    form = "%b %Y" if step is None else "%d %b" if step >= S_PER_DAY else "%H:%M"
    at = [(tick.replace(tzinfo=zone).timestamp(), tick) for tick in ticks]
    return [
        (moment, tick.strftime(form if tick.time() != MIDNIGHT or step is None else "%d %b"))
        for moment, tick in at
        if low <= moment <= high
    ]


def _nice_step(span: float, count: int) -> float:
    """The 1, 2 or 5 times a power of ten that gives about `count` ticks."""
    rough = span / count
    power = 10.0 ** floor(log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
