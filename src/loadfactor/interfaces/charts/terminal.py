"""Charts in a terminal: braille lines with their names at their ends, in colour or without, within the width.

plotext keeps one figure for the whole process; it is cleared before every drawing, so drawing is not for several threads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from textwrap import wrap
from typing import Any

from loadfactor.interfaces.charts import NAMED_KINDS, Chart, running
from loadfactor.interfaces.charts.axes import Axis, Outline, make_axes, to_drawing, trace
from loadfactor.interfaces.charts.heat import write_heat
from loadfactor.interfaces.charts.labels import Box, paint, place, rgb, spots_around, spread
from loadfactor.interfaces.formats import UNKNOWN, make_visible, number

CHARACTERS_A_TICK, ROWS_A_TICK = 10, 4
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
RESET = "\x1b[0m"
NEAREST = 8
"""Places for a label that are tried before one that covers the drawing."""


@dataclass
class Canvas:
    """The part of a drawing inside its axes: rows of (style, character), row 0 at the top. Boxes count rows from below."""

    rows: list[list[tuple[str, str]]]
    left: int
    taken: list[Box] = field(default_factory=list)

    @property
    def area(self) -> Box:
        """All of it."""
        return Box(0, 0, max(len(row) for row in self.rows) - self.left, len(self.rows))

    def reserve(self, x: float, y: float) -> tuple[float, float]:
        """Keep the cell at these shares of the axes free of labels; the middle of that cell."""
        column, row = round(x * (self.area.right - 1)), round(y * (self.area.top - 1))
        self.taken.append(Box(column, row, column + 1, row + 1))
        return column + 0.5, row + 0.5

    def write(self, label: str, spots: Iterable[tuple[float, float]]) -> None:
        """Write a label at the first of the places (left, bottom) where it covers no other, off the drawing if it can be."""
        spots = [(float(round(left)), float(round(bottom))) for left, bottom in spots]
        drawn = [*self.taken, *self._drawn()]
        box = place(len(label), 1, islice(spots, NEAREST), drawn, self.area)
        if any(box.overlap(other) for other in drawn):
            box = place(len(label), 1, spots, self.taken, self.area)
        self.taken.append(box)
        row = self.rows[len(self.rows) - 1 - int(box.bottom)]
        for i, character in enumerate(label[: int(self.area.right)]):
            row[self.left + int(box.left) + i] = ("", character)

    def _drawn(self) -> list[Box]:
        boxes = []
        for bottom, row in enumerate(reversed(self.rows)):
            text = "".join(character for _, character in row[self.left :])
            boxes += [Box(run.start(), bottom, run.end(), bottom + 1) for run in re.finditer(r"\S+", text)]
        return boxes


def to_cells(line: str) -> list[tuple[str, str]]:
    cells, style, at = [], "", 0
    for code in ESCAPE.finditer(line):
        cells += [(style, character) for character in line[at : code.start()]]
        style = "" if code.group() in (RESET, "\x1b[m") else style + code.group()
        at = code.end()
    return [*cells, *((style, character) for character in line[at:])]


def to_line(cells: Sequence[tuple[str, str]]) -> str:
    """The line again, each run of one style with its codes once."""
    out, style = "", ""
    for own, character in cells:
        if own != style:
            out += (RESET if style else "") + own
            style = own
        out += character
    return out + (RESET if style else "")


EIGHTHS = " ▏▎▍▌▋▊▉"
SHADES = "█▒░▓▚+o~"
"""Each stays different from the others where a terminal shows ASCII alone."""
RISE, FALL = 0, 1


def draw_bars(chart: Chart, width: int, color: bool) -> list[str]:
    """One line a bar; stacked bars share a line and have a legend above."""
    names = [str(name) for name in chart.x]
    if chart.kind == "waterfall":
        return _waterfall(chart, names, width, color)
    if chart.kind == "stacked bar":
        return _stacked(chart, names, width, color)
    rows = []
    several = len(chart.series) > 1
    labels = [f"{name} {s.name}" if several else name for name in names for s in chart.series]
    values = [s.y[i] for i in range(len(names)) for s in chart.series]
    space = _name_space(labels, width)
    longest = max((abs(v) for v in values if v is not None), default=0.0) or 1.0
    room = width - space - 2 - max(len(number(v)) for v in values) - 1
    for position, (label, value) in enumerate(zip(labels, values, strict=True)):
        cells = abs(value or 0.0) / longest * room
        whole = int(cells)
        bar = "█" * whole + EIGHTHS[int((cells - whole) * 8)].strip()
        painted = paint(bar, position % len(chart.series), color)
        rows.append(f"{_fit(label, space)} {painted} {number(value)}")
    return [*([chart.y_label] if chart.y_label else []), *rows]


def draw_legend(keys: list[str], width: int, color: bool) -> list[str]:
    """The keys of the series, each a sign and a name, in lines of at most `width`."""
    lines: list[str] = []
    left = 0
    for index, key in enumerate(keys):
        key = key[:width]
        if not lines or len(key) + 2 > left:
            lines.append("")
            left = width
        gap = "  " if lines[-1] else ""
        lines[-1] += gap + paint(key[0], index, color) + key[1:]
        left -= len(gap + key)
    return lines


def _stacked(chart: Chart, names: list[str], width: int, color: bool) -> list[str]:
    parts = [[y for s in chart.series if (y := s.y[i]) is not None] for i in range(len(names))]
    totals = [sum(known) for known in parts]
    texts = [number(total if known else None) for total, known in zip(totals, parts, strict=True)]
    space = _name_space(names, width)
    room = width - space - 2 - max(map(len, texts)) - 1
    longest = max(totals, default=0.0) or 1.0
    keys = [f"{SHADES[0] if color else SHADES[i % 8]} {s.name}" for i, s in enumerate(chart.series)]
    rows = [*draw_legend(keys, width, color), *([chart.y_label] if chart.y_label else [])]
    for i, name in enumerate(names):
        drawn, level, line = 0, 0.0, ""
        for index, series in enumerate(chart.series):
            level += series.y[i] or 0.0
            cells = round(level / longest * room) - drawn
            line += paint((SHADES[0] if color else SHADES[index % 8]) * cells, index, color)
            drawn += cells
        rows.append(f"{_fit(name, space)} {line} {texts[i]}")
    return rows


def _waterfall(chart: Chart, names: list[str], width: int, color: bool) -> list[str]:
    changes = list(chart.series[0].y)
    spans = running(changes)
    texts = [UNKNOWN if c is None else number(c) for c in changes]
    if chart.total:
        names, spans = [*names, chart.total], [*spans, (0.0, spans[-1][1])]
        texts.append(number(spans[-1][1]))
    space = _name_space(names, width)
    room = width - space - 2 - max(map(len, texts)) - 1
    low = min(0.0, *(min(span) for span in spans))
    scale = room / ((max(0.0, *(max(span) for span in spans)) - low) or 1.0)
    rows = [chart.y_label] if chart.y_label else []
    for name, (start, end), text in zip(names, spans, texts, strict=True):
        first, last = round((min(start, end) - low) * scale), round((max(start, end) - low) * scale)
        fell = end < start
        bar = ("█" if color or not fell else "▒") * max(last - first, start != end)
        rows.append(f"{_fit(name, space)} {' ' * first}{paint(bar, FALL if fell else RISE, color)} {text}")
    return rows


def _name_space(names: list[str], width: int) -> int:
    return min(max(map(len, names), default=0), width // 3)


def _fit(name: str, space: int) -> str:
    return (name if len(name) <= space else name[: space - 1] + "…").ljust(space)


GLYPHS = ("braille", "•", "x", "+", "=", "%", "#", "&")
"""Without colour the glyph tells the series apart."""
SHOWN_GLYPHS = {"braille": "⠤"}
MIN_WIDTH = 40


def draw(chart: Chart, width: int = 80, height: int = 16, color: bool = False) -> str:
    """The chart as text of at most `width` columns; with `color` it holds terminal escape codes."""
    chart, width = make_visible(chart), max(width, MIN_WIDTH)
    head = wrap(chart.title, width)
    if chart.kind == "heat map":
        body = write_heat(chart, width)
    elif chart.kind in NAMED_KINDS:
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
    x_axis, y_axis = make_axes(chart, outlines, max(width // CHARACTERS_A_TICK, 2), max(height // ROWS_A_TICK, 2))

    drawn = _draw_lines(chart, outlines, keys, (x_axis, y_axis), (width - margin, height), color)
    rows = [to_cells(line) for line in drawn[: height - 2]]
    left = next(i for i, (_, character) in enumerate(rows[0]) if character in "│┤┼├") + 1
    canvas = Canvas(rows, left)
    _write_labels(canvas, chart, x_axis, y_axis)
    lines = [*map(to_line, canvas.rows), *drawn[height - 2 :]]
    if at_ends:
        ends = [y_axis.low if outline.last is None else outline.last[1] for outline in outlines]
        preferred = [(1 - y_axis.share(end)) * (len(rows) - 1) + 0.5 for end in ends]
        centres = spread([float(int(at)) + 0.5 for at in preferred], [1.0] * len(ends), 0, len(rows))
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
