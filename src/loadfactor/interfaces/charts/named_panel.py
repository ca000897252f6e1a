"""A panel of named amounts in a picture: bars, stacked bars and waterfalls, drawn horizontally, the number at the end."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from loadfactor.interfaces.charts import Chart, running
from loadfactor.interfaces.charts.palette import CARD, color_of
from loadfactor.interfaces.formats import UNKNOWN, number

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
    for place, (start, end) in enumerate(spans):
        axes.barh(place, end - start, left=start, color=color_of(1 if end < start else 0), height=0.7)
    _write_numbers(axes, range(len(spans)), [max(span) for span in spans], changes)
    return names


def _write_numbers(axes: Any, places: Sequence[float], ends: Sequence[float], values: Sequence[float | None]) -> None:
    for place, end, value in zip(places, ends, values, strict=True):
        text = UNKNOWN if value is None else number(value)
        axes.annotate(text, (max(end, 0.0), place), (4, 0), textcoords="offset points", va="center", fontsize=9)
