"""A panel of lines, steps, points or histograms in a picture, and its labels, none over another."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from textwrap import fill, wrap
from typing import Any

from loadfactor.interfaces.charts import Chart, Series, running
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, Box, color_of, place, spots_around, spread
from loadfactor.interfaces.formats import UNKNOWN, number, short

NAME_CHARACTERS, NAME_LINES = 30, 2
ROW_IN, TALL_ROW_IN = 0.33, 0.42
CHARACTER_IN, KEY_IN = 0.09, 0.5


def draw_named(axes: Any, chart: Chart) -> None:
    """Draw the chart into matplotlib axes; the legend is the caller's."""
    names = [str(x) for x in chart.x]
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    axes.xaxis.set_visible(False)
    axes.tick_params(axis="y", length=0)
    if chart.kind == "waterfall":
        names = _draw_waterfall(axes, chart, names)
    elif chart.kind == "stacked bar":
        _draw_stacked(axes, chart)
    else:
        height = 0.8 / len(chart.series)
        for index, series in enumerate(chart.series):
            places = [i + (index - (len(chart.series) - 1) / 2) * height for i in range(len(names))]
            lengths = [y or 0.0 for y in series.y]
            axes.barh(places, lengths, color=color_of(index), height=height * 0.92)
            _write_numbers(axes, places, lengths, list(series.y))
    axes.set_yticks(range(len(names)), [fold_name(name) for name in names])
    axes.invert_yaxis()
    axes.margins(x=0.12)


def fold_name(name: str) -> str:
    """A name in at most two lines."""
    lines = wrap(name, NAME_CHARACTERS) or [""]
    if len(lines) > NAME_LINES:
        lines = [*lines[: NAME_LINES - 1], lines[NAME_LINES - 1][: NAME_CHARACTERS - 1] + "…"]
    return "\n".join(lines)


def row_height_in(chart: Chart) -> float:
    """The height of a row in inches: more where a name takes two lines."""
    return TALL_ROW_IN if any("\n" in fold_name(str(name)) for name in chart.x) else ROW_IN


def names_width_in(chart: Chart) -> float:
    """How much of the width the names take, in inches."""
    lines = [line for name in (*chart.x, chart.total) for line in fold_name(str(name)).split("\n")]
    return max(map(len, lines)) * CHARACTER_IN + 0.2


def legend_columns(names: Sequence[str], width_in: float) -> int:
    """How many keys of a legend stand side by side."""
    widest = max(len(name) for name in names) * CHARACTER_IN + KEY_IN
    return max(1, min(len(names), int((width_in - 0.2) / widest)))


def _draw_stacked(axes: Any, chart: Chart) -> None:
    lefts = [0.0] * len(chart.x)
    for index, series in enumerate(chart.series):
        widths = [y or 0.0 for y in series.y]
        axes.barh(range(len(widths)), widths, left=lefts, color=color_of(index), height=0.7, ec=CARD, lw=0.5)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    known = [any(s.y[i] is not None for s in chart.series) for i in range(len(chart.x))]
    _write_numbers(axes, range(len(lefts)), lefts, [v if k else None for v, k in zip(lefts, known, strict=True)])


def _draw_waterfall(axes: Any, chart: Chart, names: list[str]) -> list[str]:
    changes = list(chart.series[0].y)
    spans = running(changes)
    if chart.total:
        names, spans = [*names, chart.total], [*spans, (0.0, spans[-1][1])]
        changes.append(spans[-1][1])
    for index, (start, end) in enumerate(spans):
        axes.barh(index, end - start, left=start, color=color_of(1 if end < start else 0), height=0.7)
    _write_numbers(axes, range(len(spans)), [max(span) for span in spans], changes)
    return names


def _write_numbers(axes: Any, places: Sequence[float], ends: Sequence[float], values: Sequence[float | None]) -> None:
    for at, end, value in zip(places, ends, values, strict=True):
        text = UNKNOWN if value is None else number(value)
        axes.annotate(text, (max(end, 0.0), at), (4, 0), textcoords="offset points", va="center", fontsize=9)


END_CHARACTERS, LABEL_CHARACTERS = 24, 30
MOST_ENDS = 8
"""Names of more lines than this go into a legend."""
NAME_AT = 1.035
"""Where names at line ends begin: right of the axes, in parts of their width."""
LEAST_BESIDE = timedelta(hours=12)
"""Of one moment alone, so much is drawn before and after it."""
FEW_POINTS = 12
"""A line of at most this many points shows each."""
GAP_PX, NEAR_PX = 6.0, 24.0
"""Between a point and its label; a label farther away is tied to its point by a thin line."""
END = "end"
"""Marks the names at line ends among the texts of the axes."""
DATE_FORMATS = ("%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%S.%f")
DATE_STARTS = ("", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M")
"""How matplotlib writes a tick of a year, month, day, hour, minute and second, and the first tick of each."""


def are_named_at_ends(chart: Chart) -> bool:
    """True where each line's name stands beside its end."""
    kinds = {chart.kind_of(series) for series in chart.series}
    return 1 < len(chart.series) <= MOST_ENDS and kinds <= {"line", "step"}


def draw_numeric(axes: Any, chart: Chart) -> None:
    """Draw everything but the labels inside the axes; the names at line ends wait for `place_labels`."""
    if chart.x_log:
        axes.set_xscale("log")
    if chart.y_log:
        axes.set_yscale("log")
    for index, series in enumerate(chart.series):
        _draw_series(axes, chart, series, index)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    _format_ticks(axes, chart)
    if not chart.y_log and all(y is None or y >= 0 for s in chart.series for y in s.y):
        axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    _fit_moments(axes, chart)
    for mark in chart.marks:
        axes.plot([mark.x], [mark.y], "o", color=INK, markersize=6, zorder=5)
    for reference in chart.references:
        draw_line = axes.axvline if reference.axis == "x" else axes.axhline
        draw_line(reference.value, color=FAINT, linestyle=":", linewidth=1.4)
    for index, series in enumerate(chart.series if are_named_at_ends(chart) else ()):
        line = {"arrowstyle": "-", "color": color_of(index), "lw": 2, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 0}
        name, at = fill(series.name, END_CHARACTERS), "axes fraction"
        axes.annotate(name, (1, 0.5), (NAME_AT, 0.5), at, at, line, va="center", fontsize=9.5, label=END)


def _fit_moments(axes: Any, chart: Chart) -> None:
    """Let an axis of time span its moments; matplotlib looks at known values alone, and around one of them draws four years."""
    moments = [x for series in chart.series for x in chart.x_of(series) if isinstance(x, datetime)]
    if moments:
        first, last = min(moments), max(moments)
        beside = (last - first) * 0.02 or LEAST_BESIDE
        axes.set_xlim(first - beside, last + beside)


def place_labels(axes: Any, chart: Chart) -> None:
    """Put names, marks and references where none covers another. The figure must have been drawn once."""
    area = _box(axes.get_window_extent())
    _place_ends(axes, chart, area)
    points = [_pixel(axes, mark.x, mark.y) for mark in chart.marks]
    taken = [Box(x - GAP_PX / 2, y - GAP_PX / 2, x + GAP_PX / 2, y + GAP_PX / 2) for x, y in points]
    for reference in chart.references:
        low = (axes.get_xlim()[0], axes.get_ylim()[0])
        across = reference.axis == "y"
        at = _pixel(axes, low[0] if across else reference.value, reference.value if across else low[1])
        taken.append(_write(axes, reference.label, at, taken, area, "across" if across else "up"))
    for mark, at in zip(chart.marks, points, strict=True):
        if mark.label:
            taken.append(_write(axes, mark.label, at, taken, area, "around"))


def _draw_series(axes: Any, chart: Chart, series: Series, index: int) -> None:
    xs = list(chart.x_of(series))
    ys = [float("nan") if y is None or (chart.y_log and y <= 0) else y for y in series.y]
    color, dash = color_of(index), "--" if series.dashed else "-"
    match chart.kind_of(series):
        case "line":
            axes.plot(xs, ys, dash, color=color, marker="o" if len(xs) <= FEW_POINTS else "", markersize=3.5)
        case "step":
            axes.step(xs, ys, where="post", color=color, linestyle=dash)
        case "scatter":
            axes.plot(xs, ys, "o", color=color, markersize=5, alpha=0.75, markeredgewidth=0)
        case "histogram":
            several = len(chart.series) > 1
            axes.stairs(ys, xs, color=color, fill=not several, lw=2)


def _format_ticks(axes: Any, chart: Chart) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, log in ((axes.xaxis, chart.x_log), (axes.yaxis, chart.y_log)):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_formatter(NullFormatter())
        low, high = sorted(axis.get_view_interval())
        if log and high / low < 1000:  # decades alone would be too few ticks
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    moments = [x for x in chart.x_of(chart.series[0]) if isinstance(x, datetime)]
    if moments:
        zone = moments[0].tzinfo
        locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(
            ConciseDateFormatter(
                locator, tz=zone, formats=[*DATE_FORMATS], zero_formats=[*DATE_STARTS], show_offset=False
            )
        )


def _place_ends(axes: Any, chart: Chart, area: Box) -> None:
    """Names beside where the lines end, moved apart where they would meet."""
    names = [text for text in axes.texts if text.get_label() == END]
    if not names:
        return
    lasts = [_last(chart, series) for series in chart.series]
    preferred = [area.bottom if last is None else _pixel(axes, axes.get_xlim()[1], last)[1] for last in lasts]
    preferred = [min(max(at, area.bottom), area.top) for at in preferred]
    sizes = [_text_box(name).top - _text_box(name).bottom + 2 for name in names]
    for name, end, centre in zip(names, preferred, spread(preferred, sizes, area.bottom, area.top), strict=True):
        name.xy = (1, (end - area.bottom) / (area.top - area.bottom))
        name.set_position((NAME_AT, (centre - area.bottom) / (area.top - area.bottom)))


def _last(chart: Chart, series: Series) -> float | None:
    return next((y for y in reversed(series.y) if y is not None and not (chart.y_log and y <= 0)), None)


def _write(axes: Any, label: str, at: tuple[float, float], taken: list[Box], area: Box, how: str) -> Box:
    """Write a label of the point or line at these pixels where it covers no other; where it came to stand."""
    width, height = area.right - area.left, area.top - area.bottom
    text = axes.annotate(
        fill(label, LABEL_CHARACTERS), (0, 0), (0, 0), "axes fraction", "axes fraction", fontsize=9, zorder=6
    )
    text.set_bbox({"facecolor": CARD, "edgecolor": "none", "alpha": 0.75, "pad": 1})
    size = _text_box(text)
    across, up = size.right - size.left + 4, size.top - size.bottom + 4
    spots = (
        spots_around(*at, across, up, (GAP_PX, GAP_PX), area) if how == "around" else _along(how, at, across, up, area)
    )
    box = place(across, up, spots, taken, area)
    text.set_position(((box.left + 2 - area.left) / width, (box.bottom + 2 - area.bottom) / height))
    text.set_verticalalignment("bottom")
    away = max(box.left - at[0], at[0] - box.right, box.bottom - at[1], at[1] - box.top)
    if how == "around" and away > NEAR_PX:
        target = (at[0] - area.left) / width, (at[1] - area.bottom) / height
        line = {"arrowstyle": "-", "color": FAINT, "lw": 0.8, "shrinkA": 1, "shrinkB": 3}
        axes.annotate("", target, text.get_position(), "axes fraction", "axes fraction", line)
    return box


def _along(how: str, at: tuple[float, float], width: float, height: float, area: Box) -> Iterable[tuple[float, float]]:
    """Places along a line: of an upright one beside it from the top down, of a level one over and under it."""
    if how == "up":
        rows = int((area.top - area.bottom) / height)
        for row in range(1, rows + 1):
            yield at[0] + 2, area.top - row * height
            yield at[0] - 2 - width, area.top - row * height
    else:
        steps = max(int((area.right - area.left) / (width / 2)), 1)
        for bottom in (at[1] + 1, at[1] - 1 - height):
            for step in range(steps + 1):
                yield area.left + (area.right - area.left - width) * step / steps, bottom
    yield from spots_around(*at, width, height, (GAP_PX, GAP_PX), area)


def _pixel(axes: Any, x: Any, y: Any) -> tuple[float, float]:
    from matplotlib.dates import date2num

    across, up = axes.transData.transform((date2num(x) if isinstance(x, datetime) else x, y))
    return float(across), float(up)


def _text_box(text: Any) -> Box:
    from matplotlib.text import Text

    return _box(Text.get_window_extent(text))


def _box(extent: Any) -> Box:
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)
