"""A chart on a sheet: its title, the key to its series, and its panel, every label where it covers no other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadfactor.interfaces.charts import NAMED_KINDS, Chart, Series, running
from loadfactor.interfaces.charts.axes import Axis, Outline, Value, make_axes, to_drawing, trace
from loadfactor.interfaces.charts.heat import draw_heat
from loadfactor.interfaces.charts.labels import Box, place, spots_around, spread
from loadfactor.interfaces.charts.picture import (
    FAINT,
    INK,
    LABEL,
    RULE,
    SMALL,
    TITLE,
    Dots,
    Line,
    Point,
    Rectangle,
    Sheet,
    Words,
    color_name,
    fill,
)
from loadfactor.interfaces.charts.words import LINE_HEIGHT, fold, measure
from loadfactor.interfaces.formats import UNKNOWN, make_visible, number

WIDE_PX, NARROW_PX = 600.0, 340.0
"""Widths a chart is laid out for: beside a table or alone on a screen, and on a phone."""
TITLE_LINES, NOTE_LINES, NAME_LINES = 3, 12, 2
HEADING, HEADING_LINES, BETWEEN_PX = 14.0, 4, 14.0
GAP_PX, KEY_PX = 8.0, 12.0
MOST_ENDS = 8
"""Names of more lines than this go into a key above the panel."""


def draw_sheet(charts: Sequence[Chart], heading: str = "") -> Sheet:
    """The charts one above another under a heading."""
    sheet = Sheet(WIDE_PX)
    if heading:
        sheet.write(make_visible(heading), HEADING, HEADING_LINES, bold=True)
        sheet.bottom += BETWEEN_PX
    for index, chart in enumerate(charts):
        sheet.bottom += BETWEEN_PX * bool(index)
        draw_chart(sheet, make_visible(chart))
    return sheet


def draw_chart(sheet: Sheet, chart: Chart) -> "Area | None":
    """Draw a chart below what is on the sheet; where its panel lies, if it has axes of numbers or times."""
    sheet.write(chart.title, TITLE, TITLE_LINES, bold=True)
    sheet.write(chart.note, SMALL, NOTE_LINES, FAINT)
    sheet.bottom += 3
    if len(chart.series) > 1 and not are_named_at_ends(chart) and chart.kind != "heat map":
        _draw_key(sheet, chart)
    if chart.kind == "heat map":
        draw_heat(sheet, chart)
        return None
    is_named = chart.kind in NAMED_KINDS
    sheet.write((chart.y_label or chart.x_label) if is_named else chart.y_label, SMALL, 1, FAINT)
    sheet.bottom += 5
    if not is_named:
        return _draw_numeric(sheet, chart)
    _draw_named(sheet, chart)
    return None


def are_named_at_ends(chart: Chart) -> bool:
    """True where each line's name stands beside its end."""
    kinds = {chart.kind_of(series) for series in chart.series}
    return 1 < len(chart.series) <= MOST_ENDS and kinds <= {"line", "step"}


def _draw_key(sheet: Sheet, chart: Chart) -> None:
    x, height = 0.0, LABEL * 1.5
    for index, series in enumerate(chart.series):
        name = fold(series.name, sheet.width - KEY_PX - GAP_PX, SMALL, 1)[0]
        width = KEY_PX + 5 + measure(name, SMALL)
        if x and x + width > sheet.width:
            x, sheet.bottom = 0.0, sheet.bottom + height
        middle = sheet.bottom + height / 2
        kind = chart.kind_of(series)
        if kind == "scatter":
            sheet.add(Dots([(x + KEY_PX / 2, middle)], color_name(index), POINT_PX, index % 4))
        elif kind in ("line", "step"):
            ends = ((x, middle), (x + KEY_PX, middle))
            sheet.add(Line([ends], color_name(index), LINE_PX, _dash(chart, series, index)))
        else:
            sheet.add(*fill(x, middle - KEY_PX / 2, KEY_PX, KEY_PX, index))
        sheet.write_lines([name], x + KEY_PX + 5, middle, SMALL)
        x += width + GAP_PX * 2
    sheet.bottom += height + 2


NAME_SHARE, ROW_PX, BAR_PX, APART_PX = 0.38, 18.0, 13.0, 6.0
"""The most of the width that names take; the least height of a row and of one of several bars in it; between rows."""
FALL = 1
"""Place whose colour and hatching a step down has."""


@dataclass(frozen=True)
class Bar:
    """A bar of parts (place of the colour, start, end), with the number beside it."""

    parts: Sequence[tuple[int, float, float]]
    value: float | None

    @property
    def ends(self) -> list[float]:
        """Where its parts begin and end."""
        return [end for _, *ends in self.parts for end in ends]


def _draw_named(sheet: Sheet, chart: Chart) -> None:
    rows = _make_bars(chart)
    names = [str(x) for x in chart.x] + [chart.total] * (len(rows) - len(chart.x))
    folded = [fold(name, sheet.width * NAME_SHARE, LABEL, NAME_LINES) for name in names]
    left = max((measure(line, LABEL) for lines in folded for line in lines), default=0.0) + GAP_PX
    texts = [[UNKNOWN if bar.value is None else number(bar.value) for bar in row] for row in rows]
    room = max((measure(text, SMALL) for row in texts for text in row), default=0.0) + 5
    ends = [0.0, *(end for row in rows for bar in row for end in bar.ends)]
    low = min(ends)
    scale = (sheet.width - left - room) / ((max(ends) - low) or 1.0)
    begin, last = sheet.bottom, None
    for lines, row, row_texts in zip(folded, rows, texts, strict=True):
        thick = max(ROW_PX, len(row) * BAR_PX) / len(row)
        height = max(len(lines) * LABEL * LINE_HEIGHT, thick * len(row)) + APART_PX
        sheet.write_lines(lines, left - GAP_PX, sheet.bottom + height / 2, LABEL, "end")
        top = sheet.bottom + (height - thick * len(row)) / 2
        if chart.kind == "waterfall":
            if last is not None:
                sheet.add(Line([[(last, sheet.bottom - APART_PX), (last, top + 2)]], FAINT, 0.8))
            last = left + (row[0].ends[1] - low) * scale
        for bar, text in zip(row, row_texts, strict=True):
            for index, *span in bar.parts:
                first, width = left + (min(span) - low) * scale, abs(span[1] - span[0]) * scale
                sheet.add(*(fill(first, top + 1, width, thick - 2, index) if width else ()))
            reach = left + (max([0.0, *bar.ends]) - low) * scale
            sheet.write_lines([text], reach + 4, top + thick / 2, SMALL)
            top += thick
        sheet.bottom += height
    zero = left - low * scale
    sheet.add(Line([[(zero, begin), (zero, sheet.bottom)]], FAINT))
    sheet.bottom += 4


def _make_bars(chart: Chart) -> list[list[Bar]]:
    """The bars of each row."""
    if chart.kind == "waterfall":
        changes = list(chart.series[0].y)
        spans = running(changes)
        if chart.total:
            changes, spans = [*changes, spans[-1][1]], [*spans, (0.0, spans[-1][1])]
        return [
            [Bar([(FALL if end < start else 0, start, end)], y)] for (start, end), y in zip(spans, changes, strict=True)
        ]
    columns = list(zip(*(series.y for series in chart.series), strict=True))
    if chart.kind == "bar":
        return [[Bar([(i, 0.0, y or 0.0)], y) for i, y in enumerate(column)] for column in columns]
    stacked = []
    for column in columns:
        parts = [(i, *span) for i, span in enumerate(running(column))]
        known = [y for y in column if y is not None]
        stacked.append([Bar(parts, sum(known) if known else None)])
    return stacked


X_TICK_PX, Y_TICK_PX, TALL_SHARE, LEAST_TALL_PX = 62.0, 38.0, 0.34, 150.0
NAME_ENDS_SHARE, LEADER_PX = 0.3, 10.0
LINE_PX, POINT_PX, NEAR_PX = 1.8, 5.0, 24.0
"""Lines and points; a label farther from its point than this is tied to it by a thin line."""
FEW_POINTS, LABEL_PX, LABEL_LINES = 12, 180.0, 3
"""A line of at most this many points shows each."""
PREDICTION, DOTTED, DASHES = (6.0, 4.0), (1.5, 3.0), ((), (7.0, 3.0), (2.0, 2.5), (9.0, 3.0, 2.0, 3.0))
"""Dashes of a prediction, of thin lines, and of lines that a key names."""


@dataclass(frozen=True)
class Area:
    """Where a panel lies on the sheet, and its axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis

    def across(self, x: Value) -> Value:
        """The pixel of an x in drawing units."""
        return self.left + (self.right - self.left) * self.x.share(x)

    def down(self, y: Value) -> Value:
        """The pixel of a y in drawing units."""
        return self.bottom - (self.bottom - self.top) * self.y.share(y)

    @property
    def box(self) -> Box:
        """The panel for placing labels, whose boxes count upwards."""
        return Box(self.left, -self.bottom, self.right, -self.top)


def _draw_numeric(sheet: Sheet, chart: Chart) -> Area:
    outlines = [trace(chart, series) for series in chart.series]
    tall = max(sheet.width * TALL_SHARE, LEAST_TALL_PX)
    at_ends = are_named_at_ends(chart)
    names = _fold_ends(chart, sheet.width * NAME_ENDS_SHARE, tall) if at_ends else []
    beside = (
        max((measure(line, SMALL) for lines in names for line in lines), default=-GAP_PX)
        + GAP_PX
        + LEADER_PX * bool(names)
    )
    x_ticks = max(int((sheet.width - beside) / X_TICK_PX), 2)
    x_axis, y_axis = make_axes(chart, outlines, x_ticks, int(tall / Y_TICK_PX), whole=True)
    left = max((measure(text, SMALL) for _, text in y_axis.ticks), default=0.0) + GAP_PX
    right = sheet.width - max(beside, POINT_PX)
    area = Area(left, sheet.bottom + 5, right, sheet.bottom + 5 + tall, x_axis, y_axis)
    _draw_axes(sheet, chart, area)
    for index, outline in enumerate(outlines):
        _draw_series(sheet, chart, area, outline, index)
    if at_ends:
        _write_ends(sheet, area, outlines, names)
    _write_labels(sheet, chart, area)
    if all(outline.last is None for outline in outlines):
        middle = (area.left + area.right) / 2, (area.top + area.bottom) / 2
        sheet.write_lines(["nothing known"], *middle, LABEL, "middle")
    sheet.bottom = area.bottom + SMALL * 1.8
    if chart.x_label:
        label = fold(chart.x_label, sheet.width, SMALL, 1)[0]
        sheet.bottom += SMALL * LINE_HEIGHT
        sheet.add(Words(max(area.right, measure(label, SMALL)), sheet.bottom, label, SMALL, FAINT, "end"))
    sheet.bottom += 5
    return area


def _fold_ends(chart: Chart, width: float, tall: float) -> list[list[str]]:
    """The names of the lines in two lines each where there is room, else in one."""
    for most in (NAME_LINES, 1):
        names = [fold(series.name, width, SMALL, most) for series in chart.series]
        if sum(map(len, names)) * SMALL * LINE_HEIGHT <= tall:
            break
    return names


def _draw_axes(sheet: Sheet, chart: Chart, area: Area) -> None:
    for at, text in area.y.ticks:
        y = area.down(at)
        sheet.add(Line([[(area.left, y), (area.right, y)]], RULE))
        sheet.write_lines([text], area.left - GAP_PX + 2, y, SMALL, "end")
    sheet.add(Line([[(area.left, area.bottom), (area.right, area.bottom)]], FAINT))
    free = 0.0
    for at, text in area.x.ticks:
        x, width = area.across(at), measure(text, SMALL)
        begin = min(max(x - width / 2, 0.0), sheet.width - width)
        if begin >= free:
            sheet.add(Line([[(x, area.bottom), (x, area.bottom + 4)]], FAINT))
            sheet.add(Words(begin, area.bottom + SMALL * 1.5, text, SMALL))
            free = begin + width + GAP_PX
    for reference in chart.references:
        if reference.axis == "x":
            x = area.across(to_drawing(reference.value, chart.x_log))
            run = [(x, area.bottom), (x, area.top)]
        else:
            y = area.down(to_drawing(reference.value, chart.y_log))
            run = [(area.left, y), (area.right, y)]
        sheet.add(Line([run], FAINT, 1.3, DOTTED))


def _dash(chart: Chart, series: Series, index: int) -> Sequence[float]:
    if series.dashed:
        return PREDICTION
    return () if are_named_at_ends(chart) else DASHES[index % len(DASHES)]


def _draw_series(sheet: Sheet, chart: Chart, area: Area, outline: Outline, index: int) -> None:
    color, kind = color_name(index), chart.kind_of(outline.series)
    if kind == "histogram" and len(chart.series) == 1:
        edges = [area.across(x) for x in outline.xs[::2]]
        for first, last, y in zip(edges[:-1], edges[1:], outline.ys[1:-1:2], strict=True):
            if y is not None and area.down(y) < area.bottom:
                top = area.down(y)
                sheet.add(Rectangle(first + 0.5, top, max(last - first - 1, 0.5), area.bottom - top, color))
        return
    xs = area.across(np.array(outline.xs, dtype=float))
    ys = area.down(np.array(outline.ys, dtype=float))
    if kind == "scatter":
        known = np.isfinite(ys)
        points = dict.fromkeys(zip(xs[known].round().tolist(), ys[known].round().tolist(), strict=True))
        sheet.add(Dots(list(points), color, POINT_PX, index % 4))
        return
    runs = thin(xs, ys)
    sheet.add(Line(runs, color, LINE_PX, _dash(chart, outline.series, index)))
    if kind == "line" and len(xs) <= FEW_POINTS:
        sheet.add(Dots([point for run in runs for point in run], color, POINT_PX))


def thin(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> list[list[Point]]:
    """The runs of a line without its gaps (not finite), thinned to the lowest and highest value of each column of pixels.

    Where gaps are finer than a column, each column is a run.
    """
    known = np.isfinite(ys)
    run, xs, ys = np.cumsum(~known)[known], xs[known], ys[known]
    columns = np.floor(xs).astype(int)
    steps = np.diff(columns)
    most = 2 * (int(columns[-1] - columns[0]) + 1) if len(xs) else 0
    if len(xs) > most and not (steps < 0).any():
        new = np.concatenate(([True], (np.diff(run) != 0) | (steps != 0)))
        if new.sum() > most:
            new = np.concatenate(([True], steps != 0))
            run = columns
        group = np.cumsum(new)
        order = np.lexsort((ys, group))
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], len(xs)) - 1
        kept = np.unique(np.concatenate((order[starts], order[ends], (0, len(xs) - 1))))
        run, xs, ys = run[kept], xs[kept], ys[kept]
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    cuts = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(points)]
    return [points[first:last] for first, last in pairwise(cuts) if last > first]


def _write_ends(sheet: Sheet, area: Area, outlines: Sequence[Outline], names: Sequence[Sequence[str]]) -> None:
    """Names beside where the lines end, moved apart where they would meet."""
    lasts = [outline.last for outline in outlines]
    ends = [area.bottom if last is None else area.down(last[1]) for last in lasts]
    sizes = [len(lines) * SMALL * LINE_HEIGHT for lines in names]
    centres = spread(ends, sizes, area.top - SMALL, area.bottom + SMALL / 2)
    for index, (lines, last, end, centre) in enumerate(zip(names, lasts, ends, centres, strict=True)):
        if last is not None and area.across(last[0]) < area.right - GAP_PX:
            sheet.add(Line([[(area.across(last[0]) + 4, end), (area.right, end)]], color_name(index), 0.8, DOTTED))
        sheet.add(Line([[(area.right + 2, end), (area.right + LEADER_PX, centre)]], color_name(index), LINE_PX))
        sheet.write_lines(lines, area.right + LEADER_PX + 4, centre, SMALL)


def _write_labels(sheet: Sheet, chart: Chart, area: Area) -> None:
    """Marks and references, where none covers another."""
    points = [(area.across(to_drawing(m.x, chart.x_log)), area.down(to_drawing(m.y, chart.y_log))) for m in chart.marks]
    taken = [Box(x - 4, -y - 4, x + 4, -y + 4) for x, y in points]
    for reference in chart.references:
        upright = reference.axis == "x"
        at = to_drawing(reference.value, chart.x_log if upright else chart.y_log)
        spot = (area.across(at), area.bottom) if upright else (area.left, area.down(at))
        taken.append(_write_label(sheet, reference.label, spot, taken, area, "up" if upright else "across"))
    for mark, point in zip(chart.marks, points, strict=True):
        sheet.add(Dots([point], INK, POINT_PX + 1.5))
        if mark.label:
            taken.append(_write_label(sheet, mark.label, point, taken, area, "around"))


def _write_label(sheet: Sheet, label: str, at: Point, taken: Sequence[Box], area: Area, how: str) -> Box:
    """Write a label of a point or line where it covers no other; where it came to stand."""
    lines = fold(label, min(LABEL_PX, (area.right - area.left) / 2), SMALL, LABEL_LINES)
    width, height = max(measure(line, SMALL) for line in lines) + 4, len(lines) * SMALL * LINE_HEIGHT + 2
    x, y = at[0], -at[1]
    around = spots_around(x, y, width, height, (GAP_PX / 2, GAP_PX / 2), area.box)
    spots = around if how == "around" else (*_along(how, (x, y), width, height, area.box), *around)
    box = place(width, height, spots, taken, area.box)
    middle = -(box.bottom + box.top) / 2
    away = max(box.left - x, x - box.right, box.bottom - y, y - box.top)
    if how == "around" and away > NEAR_PX:
        sheet.add(Line([[at, (min(max(x, box.left), box.right), middle)]], FAINT, 0.8))
    sheet.write_lines(lines, box.left + 2, middle, SMALL, over=True)
    return box


def _along(how: str, at: Point, width: float, height: float, area: Box) -> Iterable[Point]:
    """Places along a line: of an upright one beside it from the top down, of a level one over and under it."""
    if how == "up":
        for row in range(1, int((area.top - area.bottom) / height) + 1):
            yield at[0] + 2, area.top - row * height
            yield at[0] - 2 - width, area.top - row * height
    else:
        steps = max(int((area.right - area.left) / (width / 2)), 1)
        for bottom in (at[1] + 1, at[1] - 1 - height):
            for step in range(steps + 1):
                yield area.left + (area.right - area.left - width) * step / steps, bottom
