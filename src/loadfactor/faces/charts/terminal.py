"""How does a chart look in a terminal? Braille lines with their names at their ends, in colour or without, within the width.

plotext keeps one figure for the whole process; it is cleared before every drawing, so drawing is not for several threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from math import floor, isfinite, log10
from textwrap import wrap

from loadfactor.faces.charts import NAMED_KINDS, Chart, Series, X
from loadfactor.faces.charts.bars import draw_bars
from loadfactor.faces.charts.palette import paint, rgb
from loadfactor.faces.formats import short

PLAIN_GLYPHS = ("braille", "•", "x", "+", "o", "%", "#", "=")  # without colour the glyph tells the series apart
MIN_WIDTH = 40


def draw(chart: Chart, width: int = 80, height: int = 16, color: bool = False) -> str:
    """The chart as text of at most `width` columns; with `color` it holds terminal escape codes."""
    width = max(width, MIN_WIDTH)
    head = wrap(chart.title, width)
    if chart.kind in NAMED_KINDS:
        body = draw_bars(chart, width, color)
    else:
        body = _draw_axes(chart, width, height, color)
    return "\n".join([*head, *body, *wrap(chart.note, width)])


@dataclass(frozen=True)
class Axis:
    """The range of an axis in drawing units (log10 where logarithmic) and its ticks."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


def _draw_axes(chart: Chart, width: int, height: int, color: bool) -> list[str]:
    import plotext  # imported here: it costs a third of a second

    points = [(series, *_points(chart, series)) for series in chart.series]
    moments = any(isinstance(x, datetime) for series in chart.series for x in chart.x_of(series))
    placed = [x for _, xs, _ in points for x in xs]
    zone = next((x.tzinfo for s in chart.series for x in chart.x_of(s) if isinstance(x, datetime)), None)
    x_axis = _axis(placed, chart.x_log, [*_reference_values(chart, "x")], width // 10, moments, zone)
    tops = [*_reference_values(chart, "y"), *(_place(m.y, chart.y_log) for m in chart.marks)]
    y_axis = _axis([y for _, _, ys in points for y in ys], chart.y_log, tops, height // 4)
    several = len(points) > 1
    ends = _end_labels(points, y_axis, height - 2) if several else {}
    margin = min(max((len(text) for text, _ in ends.values()), default=-1) + 1, width // 3)

    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width - margin, height)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    for name, side, axis in (("x", "lower", x_axis), ("y", "left", y_axis)):
        ruler = figure.ruler(name, side)
        ruler.lim(axis.low, axis.high)
        ruler.ticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
    for reference in chart.references:
        log = chart.x_log if reference.axis == "x" else chart.y_log
        at = _place(_number(reference.value), log)
        figure.line(
            at, "v" if reference.axis == "x" else "h", style="dotted", pixel=plotext.pixel("default", "default")
        )
    for index, (series, xs, ys) in enumerate(points):
        kind = chart.kind_of(series)
        glyph = ("•" if kind == "scatter" else "braille") if color else PLAIN_GLYPHS[index % len(PLAIN_GLYPHS)]
        if kind == "scatter" and glyph == "braille":
            glyph = "*"
        pixel = rgb(index) if color else "default"
        for run_x, run_y in _unbroken(xs, ys):
            signal = figure.signal(run_x, run_y, marker=plotext.marker(glyph, pixel))
            if kind != "scatter" and len(run_x) > 1:
                signal.lines()
            figure.draw(signal)
    row = (y_axis.high - y_axis.low) / max(height - 3, 1)
    for mark in chart.marks:
        at_x, at_y = _place(_number(mark.x), chart.x_log), _place(mark.y, chart.y_log)
        side = "left" if at_x < (x_axis.low + x_axis.high) / 2 else "right"
        above = at_y + row if at_y + row <= y_axis.high else at_y - row  # words stand a row off the line they speak of
        if mark.label:
            figure.draw(figure.text(at_x, above, mark.label, alignment=side))
        figure.draw(figure.signal([at_x], [at_y], marker=plotext.marker("◆", "default")))
    for reference in chart.references:
        _label_reference(figure, chart, reference.label, reference.axis, _number(reference.value), x_axis, y_axis)
    lines = figure.build().string(colorless=not color).rstrip("\n").split("\n")
    for row, (text, index) in ends.items():
        lines[row] = f"{lines[row]} {paint(text[: margin - 1], index, color)}"
    y_label = [chart.y_label] if chart.y_label else []
    x_label = [chart.x_label.rjust(width - margin)] if chart.x_label else []
    return [*y_label, *(line if color else line.rstrip() for line in lines), *x_label]


def _label_reference(
    figure: object, chart: Chart, label: str, axis: str, value: float, x_axis: Axis, y_axis: Axis
) -> None:
    """Words on a reference line: at the top of a vertical one, at the left end of a horizontal one."""
    if axis == "x":
        x, y = _place(value, chart.x_log), y_axis.high
        alignment = "left" if x < (x_axis.low + x_axis.high) / 2 else "right"
    else:
        x, y, alignment = x_axis.low, _place(value, chart.y_log), "left"
    figure.draw(figure.text(x, y, f" {label} ", alignment=alignment))  # type: ignore[attr-defined]


def _points(chart: Chart, series: Series) -> tuple[list[float], list[float | None]]:
    """The series in drawing units; steps and histograms become the corners of their outline."""
    log_x, log_y = chart.x_log, chart.y_log
    xs = [_place(_number(x), log_x) for x in chart.x_of(series)]
    ys = [None if y is None or (log_y and y <= 0) else _place(y, log_y) for y in series.y]
    kind = chart.kind_of(series)
    if kind == "histogram":
        floor_y = min((y for y in ys if y is not None), default=0.0) if log_y else 0.0
        corners_x = [x for x in xs for _ in (0, 1)]
        return corners_x, [floor_y, *(y for y in ys for _ in (0, 1)), floor_y]
    if kind == "step":
        corners_x = [xs[0], *(x for x in xs[1:] for _ in (0, 1))]
        return corners_x, [y for y in ys for _ in (0, 1)][:-1]
    return xs, ys


def _axis(
    values: Sequence[float | None],
    log: bool,
    also: Sequence[float],
    count: int,
    moments: bool = False,
    zone: tzinfo | None = None,
) -> Axis:
    known = [v for v in (*values, *also) if v is not None and isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if log:
        low = floor(low * 3) / 3
        high = max(high, low + 1 / 3)
        return Axis(low, high, [(t, short(10**t)) for t in _log_ticks(low, high, count)])
    if moments:  # seconds since 1970
        return Axis(low, high if high > low else low + 1, _date_ticks(low, high, count, zone or UTC))
    if 0 < low < 0.5 * high:
        low = 0.0
    if high == low:
        low, high = min(0.0, low), max(high, low + 1)
    step = _nice_step(high - low, max(count, 2))
    first = -(-low // step) * step
    ticks = [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]
    return Axis(low, high, [(t, short(round(t, 12))) for t in ticks])


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    decades = [float(d) for d in range(floor(low), int(high) + 1) if low <= d <= high]
    if len(decades) >= 3 or count < 3:
        every = max(1, -(-len(decades) // max(count, 2)))
        return decades[::every] or [low, high]
    fine = [d + log10(m) for d in range(floor(low), int(high) + 1) for m in (1, 2, 5)]
    return [t for t in fine if low <= t <= high] or [low, high]


def _date_ticks(low: float, high: float, count: int, zone: tzinfo) -> list[tuple[float, str]]:
    form = "%H:%M" if high - low < 2 * 86_400 else "%d %b" if high - low < 300 * 86_400 else "%b %Y"
    steps = max(2, min(count, 6))
    marks = [low + (high - low) * i / (steps - 1) for i in range(steps)]
    return [(m, datetime.fromtimestamp(m, zone).strftime(form)) for m in marks]


def _nice_step(span: float, count: int) -> float:
    """The 1, 2 or 5 times a power of ten that gives about `count` ticks."""
    rough = span / count
    power = 10.0 ** floor(log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)


def _end_labels(
    points: Sequence[tuple[Series, list[float], list[float | None]]], y_axis: Axis, rows: int
) -> dict[int, tuple[str, int]]:
    """Row → (name, index): each name beside its series' last value, moved apart where two would meet."""
    wanted = []
    for index, (series, _, ys) in enumerate(points):
        last = next((y for y in reversed(ys) if y is not None), y_axis.low)
        share = (last - y_axis.low) / (y_axis.high - y_axis.low)
        wanted.append(((1 - share) * (rows - 1), index, series.name))
    placed: dict[int, tuple[str, int]] = {}
    lowest = rows - len(wanted)  # leave a row for each name still to come
    row = -1
    for place, (exact, index, name) in enumerate(sorted(wanted)[:rows]):
        row = max(row + 1, min(round(exact), max(lowest, 0) + place))
        placed[row] = (name, index)
    return placed


def _unbroken(xs: list[float], ys: list[float | None]) -> list[tuple[list[float], list[float]]]:
    """The stretches without a gap."""
    runs: list[tuple[list[float], list[float]]] = [([], [])]
    for x, y in zip(xs, ys, strict=True):
        if y is None or not isfinite(y):
            runs.append(([], []))
        else:
            runs[-1][0].append(x)
            runs[-1][1].append(y)
    return [run for run in runs if run[0]]


def _reference_values(chart: Chart, axis: str) -> list[float]:
    log = chart.x_log if axis == "x" else chart.y_log
    return [_place(_number(r.value), log) for r in chart.references if r.axis == axis]


def _number(x: X) -> float:
    if isinstance(x, datetime):
        return x.timestamp()
    if isinstance(x, str):
        raise ValueError(f"a name ({x!r}) cannot stand on a numeric axis; use a bar chart")
    return float(x)


def _place(value: float, log: bool) -> float:
    return log10(value) if log else float(value)
