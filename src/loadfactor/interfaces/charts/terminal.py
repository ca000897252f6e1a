"""Charts in a terminal: braille lines with their names at their ends, in colour or without, within the width.

plotext keeps one figure for the whole process; it is cleared before every drawing, so drawing is not for several threads.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from loadfactor.interfaces.charts import NAMED_KINDS, Chart
from loadfactor.interfaces.charts.axes import Axis, Outline, make_axes, to_drawing, trace
from loadfactor.interfaces.charts.bars import draw_bars, draw_legend
from loadfactor.interfaces.charts.canvas import Canvas, to_cells, to_line
from loadfactor.interfaces.charts.palette import paint, rgb
from loadfactor.interfaces.charts.placement import spots_around, spread
from loadfactor.interfaces.visible import make_visible

GLYPHS = ("braille", "•", "x", "+", "=", "%", "#", "&")
"""Without colour the glyph tells the series apart."""
SHOWN_GLYPHS = {"braille": "⠤"}
MIN_WIDTH = 40


def draw(chart: Chart, width: int = 80, height: int = 16, color: bool = False) -> str:
    """The chart as text of at most `width` columns; with `color` it holds terminal escape codes."""
    chart, width = make_visible(chart), max(width, MIN_WIDTH)
    head = wrap(chart.title, width)
    if chart.kind in NAMED_KINDS:
        body = draw_bars(chart, width, color)
    else:
        body = _draw_axes(chart, width, height, color)
    return "\n".join([*head, *body, *wrap(chart.note, width)])


def _draw_axes(chart: Chart, width: int, height: int, color: bool) -> list[str]:
    outlines = [trace(chart, series) for series in chart.series]
    keys = [_glyph(chart, outline, index, color) for index, outline in enumerate(outlines)]
    names = [f"{SHOWN_GLYPHS.get(key, key)} {series.name}" for key, series in zip(keys, chart.series, strict=True)]
    several = len(outlines) > 1
    at_ends = several and len(outlines) <= min(len(GLYPHS), height - 2)
    margin = min(max(map(len, names)) + 1, width // 3) if at_ends else 0
    x_axis, y_axis = make_axes(chart, outlines, width, height)

    drawn = _draw_lines(chart, outlines, keys, (x_axis, y_axis), (width - margin, height), color)
    rows = [to_cells(line) for line in drawn[: height - 2]]
    left = next(i for i, (_, character) in enumerate(rows[0]) if character in "│┤┼├") + 1
    canvas = Canvas(rows, left)
    _write_labels(canvas, chart, x_axis, y_axis)
    lines = [*map(to_line, canvas.rows), *drawn[height - 2 :]]
    if at_ends:
        ends = [y_axis.low if outline.last is None else outline.last for outline in outlines]
        wanted = [(1 - y_axis.share(end)) * (len(rows) - 1) + 0.5 for end in ends]
        centres = spread([float(int(at)) + 0.5 for at in wanted], [1.0] * len(ends), 0, len(rows))
        for index, (name, centre) in enumerate(zip(names, centres, strict=True)):
            fitted = name if len(name) < margin else name[: margin - 2] + "…"
            lines[int(centre)] = f"{lines[int(centre)]} {paint(fitted, index, color)}"
    legend = draw_legend(names, width, color) if several and not at_ends else []
    y_label = [chart.y_label] if chart.y_label else []
    x_label = [chart.x_label.rjust(width - margin)] if chart.x_label else []
    return [*legend, *y_label, *(line if color else line.rstrip() for line in lines), *x_label]


def _glyph(chart: Chart, outline: Outline, index: int, color: bool) -> str:
    glyph = "braille" if color else GLYPHS[index % len(GLYPHS)]
    is_points = chart.kind_of(outline.series) == "scatter"
    return ("•" if color else "*") if is_points and glyph == "braille" else glyph


def _draw_lines(
    chart: Chart,
    outlines: Sequence[Outline],
    keys: Sequence[str],
    axes: tuple[Axis, Axis],
    size: tuple[int, int],
    color: bool,
) -> list[str]:
    """Lines, axes, marks and references by plotext, without the labels."""
    import plotext  # imported here: it costs a third of a second

    figure: Any = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(*size)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    for name, side, axis in (("x", "lower", axes[0]), ("y", "left", axes[1])):
        ruler = figure.ruler(name, side)
        ruler.lim(axis.low, axis.high)
        ruler.ticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
    plain = plotext.pixel("default", "default")
    for reference in chart.references:
        upright = reference.axis == "x"
        at = to_drawing(reference.value, chart.x_log if upright else chart.y_log)
        figure.line(at, "v" if upright else "h", style="dotted", pixel=plain)
    for index, (outline, glyph) in enumerate(zip(outlines, keys, strict=True)):
        for xs, ys in outline.runs:
            signal = figure.signal(xs, ys, marker=plotext.marker(glyph, rgb(index) if color else "default"))
            if chart.kind_of(outline.series) != "scatter" and len(xs) > 1:
                signal.lines()
            figure.draw(signal)
    for mark in chart.marks:
        point = [to_drawing(mark.x, chart.x_log)], [to_drawing(mark.y, chart.y_log)]
        figure.draw(figure.signal(*point, marker=plotext.marker("◆", "default")))
    lines: list[str] = figure.build().string(colorless=not color).rstrip("\n").split("\n")
    return lines


def _write_labels(canvas: Canvas, chart: Chart, x_axis: Axis, y_axis: Axis) -> None:
    """Words on reference lines and marks, none over another."""
    area = canvas.area
    points = [
        canvas.reserve(x_axis.share(to_drawing(m.x, chart.x_log)), y_axis.share(to_drawing(m.y, chart.y_log)))
        for m in chart.marks
    ]
    longest = int(area.right)
    for reference in chart.references:
        label = f" {reference.label} "[:longest]
        if reference.axis == "x":
            column = round(x_axis.share(to_drawing(reference.value, chart.x_log)) * (area.right - 1))
            beside = [
                (left, row) for row in range(int(area.top) - 1, -1, -1) for left in (column + 1, column - len(label))
            ]
            canvas.write(label, beside)
        else:
            row = round(y_axis.share(to_drawing(reference.value, chart.y_log)) * (area.top - 1))
            lefts = range(0, max(longest - len(label), 0) + 1, 4)
            canvas.write(label, [(left, row + level) for level in (0, 1, -1) for left in lefts])
    for mark, at in zip(chart.marks, points, strict=True):
        if mark.label:
            label = f" {mark.label} "[:longest]
            canvas.write(label, spots_around(*at, len(label), 1, (0.5, 0.5), area))
