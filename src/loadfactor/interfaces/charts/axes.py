"""The axes of a chart in a terminal: ranges in drawing units (log10 where logarithmic), ticks, points and runs without a gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from math import floor, isfinite, log10

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.interfaces.charts import Chart, Series, X
from loadfactor.interfaces.formats import short

CHARACTERS_A_TICK, ROWS_A_TICK, MOST_DATES = 10, 4, 7
DATE_STEPS_S = (
    *(minutes * S_PER_MIN for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * S_PER_HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * S_PER_DAY for days in (1, 2, 4, 7, 14)),
)


@dataclass(frozen=True)
class Axis:
    """The range of an axis in drawing units and its ticks."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
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
        """The stretches without a gap."""
        runs: list[tuple[list[float], list[float]]] = [([], [])]
        for x, y in zip(self.xs, self.ys, strict=True):
            if y is None or not isfinite(y):
                runs.append(([], []))
            else:
                runs[-1][0].append(x)
                runs[-1][1].append(y)
        return [run for run in runs if run[0]]

    @property
    def last(self) -> float | None:
        """The last value known."""
        return next((y for y in reversed(self.ys) if y is not None), None)


def trace(chart: Chart, series: Series) -> Outline:
    """The outline of a series."""
    log_y = chart.y_log
    xs = [to_drawing(x, chart.x_log) for x in chart.x_of(series)]
    ys = [None if y is None or (log_y and y <= 0) else to_drawing(y, log_y) for y in series.y]
    kind = chart.kind_of(series)
    if kind == "histogram":
        ground = min((y for y in ys if y is not None), default=0.0) if log_y else 0.0
        return Outline(series, [x for x in xs for _ in (0, 1)], [ground, *(y for y in ys for _ in (0, 1)), ground])
    if kind == "step":
        return Outline(series, [xs[0], *(x for x in xs[1:] for _ in (0, 1))], [y for y in ys for _ in (0, 1)][:-1])
    return Outline(series, xs, ys)


def make_axes(chart: Chart, outlines: Sequence[Outline], width: int, height: int) -> tuple[Axis, Axis]:
    """The two axes of a drawing of that many characters, wide enough for its marks and references."""
    zone = next((x.tzinfo for s in chart.series for x in chart.x_of(s) if isinstance(x, datetime)), None)
    moments = any(isinstance(x, datetime) for s in chart.series for x in chart.x_of(s))
    also_x = [to_drawing(r.value, chart.x_log) for r in chart.references if r.axis == "x"]
    also_x += [to_drawing(mark.x, chart.x_log) for mark in chart.marks]
    also_y = [to_drawing(r.value, chart.y_log) for r in chart.references if r.axis == "y"]
    also_y += [to_drawing(mark.y, chart.y_log) for mark in chart.marks]
    xs = [x for outline in outlines for x in outline.xs]
    ys = [y for outline in outlines for y in outline.ys if y is not None]
    low, high = _range([*xs, *also_x])
    x_ticks = max(width // CHARACTERS_A_TICK, 2)
    if moments:
        high = high if high > low else low + 1
        x_axis = Axis(low, high, _date_ticks(low, high, x_ticks, zone or UTC))
    else:
        x_axis = _axis(low, high, chart.x_log, x_ticks)
    return x_axis, _axis(*_range([*ys, *also_y]), chart.y_log, max(height // ROWS_A_TICK, 2))


def to_drawing(x: X, log: bool) -> float:
    """A value in drawing units: seconds since 1970 for an instant, log10 on a logarithmic axis."""
    if isinstance(x, datetime):
        return x.timestamp()
    if isinstance(x, str):
        raise ValueError(f"a name ({x!r}) cannot stand on a numeric axis; use a bar chart")
    return log10(x) if log else float(x)


def _range(values: Sequence[float]) -> tuple[float, float]:
    known = [v for v in values if isfinite(v)] or [0.0, 1.0]
    return min(known), max(known)


def _axis(low: float, high: float, log: bool, count: int) -> Axis:
    if log:
        low = floor(low * 3) / 3
        high = max(high, low + 1 / 3)
        return Axis(low, high, [(t, short(10**t)) for t in _log_ticks(low, high, count)])
    if 0 < low < 0.5 * high:
        low = 0.0
    if high == low:
        low, high = min(0.0, low), max(high, low + 1)
    step = _nice_step(high - low, count)
    first = -(-low // step) * step
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
    """Ticks at round times of the zone; in a span of many months, evenly spread."""
    most = max(2, min(count, MOST_DATES))
    step = next((step for step in DATE_STEPS_S if (high - low) / step < most), None)
    if step is None:
        marks = [low + (high - low) * i / (most - 1) for i in range(most)]
        form = "%d %b" if high - low < 300 * S_PER_DAY else "%b %Y"
    else:
        offset = datetime.fromtimestamp(low, zone).utcoffset() or timedelta()
        local = low + offset.total_seconds()
        first = low + (-local) % step
        marks = [first + i * step for i in range(int((high - first) / step) + 1)]
        form = "%d %b" if step >= S_PER_DAY else "%H:%M"
    return [(m, datetime.fromtimestamp(m, zone).strftime(form)) for m in marks]


def _nice_step(span: float, count: int) -> float:
    """The 1, 2 or 5 times a power of ten that gives about `count` ticks."""
    rough = span / count
    power = 10.0 ** floor(log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
