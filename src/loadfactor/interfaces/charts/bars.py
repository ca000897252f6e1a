"""Named amounts in a terminal: horizontal bars, the number at the end; shades stand in where there is no colour."""

from loadfactor.interfaces.charts import Chart, running
from loadfactor.interfaces.charts.palette import paint
from loadfactor.interfaces.formats import UNKNOWN, number

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
        bar = _bar(abs(value or 0.0) / longest * room)
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


def _bar(cells: float) -> str:
    whole = int(cells)
    return "█" * whole + EIGHTHS[int((cells - whole) * 8)].strip()


def _name_space(names: list[str], width: int) -> int:
    return min(max(map(len, names), default=0), width // 3)


def _fit(name: str, space: int) -> str:
    return (name if len(name) <= space else name[: space - 1] + "…").ljust(space)
