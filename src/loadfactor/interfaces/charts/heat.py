"""Heat maps: a row a series, a column a stretch of time; a colour for a share, a pattern for a state that has none."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from loadfactor.interfaces.charts import Chart, Series, State
from loadfactor.interfaces.charts.axes import Axis, make_time_axis
from loadfactor.interfaces.charts.labels import SCALE
from loadfactor.interfaces.charts.picture import FAINT, GROUND, RULE, SMALL, Line, Point, Rectangle, Sheet, Words, hatch
from loadfactor.interfaces.charts.words import LINE_HEIGHT, fold, measure
from loadfactor.interfaces.formats import percent

LOOKS: dict[State, tuple[str, str, str, str]] = {
    "idle": ("s1", "/", "i", "held and idle"),
    "free": (RULE, "", " ", "held by nobody"),
    "down": ("s3", "x", "x", "down"),
    "unobserved": ("s6", "-", "?", "held and unobserved"),
}
"""Of each state its colour, its hatching, its character in a terminal, and its words."""
NOTHING = ""
"""The look of a cell of nothing that was there."""
LEVELS = "▁▂▃▅▆█"
NAMES_SHARE, TALL_PX, ROW_PX, MOST_ROW_PX, TICK_PX, KEY_PX, GAP_PX = 0.28, 300.0, 4.0, 18.0, 62.0, 14.0, 8.0


def end_of(chart: Chart) -> tuple[float, float]:
    """The first and the last moment of the columns, seconds since 1970; the last column is as long as the one before."""
    starts = [x.timestamp() for x in chart.x if isinstance(x, datetime)]
    return starts[0], starts[-1] + (starts[-1] - starts[-2] if len(starts) > 1 else 3600.0)


def list_looks(series: Series) -> list[str]:
    """The look of each cell: the class of its share, else its state, else nothing."""
    states = series.states or [None] * len(series.y)
    return [
        state or NOTHING if share is None else f"h{level_of(share)}"
        for share, state in zip(series.y, states, strict=True)
    ]


def level_of(share: float) -> int:
    """The place of a share in the scale."""
    return min(len(SCALE) - 1, max(0, int(share * len(SCALE))))


def draw_heat(sheet: Sheet, chart: Chart) -> None:
    """Draw the key, the rows with their names as far as there is room, and the axis of time."""
    _draw_key(sheet)
    low, high = end_of(chart)
    names = [fold(s.name, sheet.width * NAMES_SHARE, SMALL, 1)[0] for s in chart.series]
    left = max(measure(name, SMALL) for name in names) + GAP_PX
    tall = min(MOST_ROW_PX, max(ROW_PX, TALL_PX / len(names)))
    every = max(1, -(-int(SMALL * LINE_HEIGHT) // int(tall)))
    zone = next((x.tzinfo for x in chart.x if isinstance(x, datetime)), None) or UTC
    axis = make_time_axis(low, high, max(int((sheet.width - left) / TICK_PX), 2), zone)
    edges = [left + (sheet.width - left) * axis.share(x.timestamp()) for x in chart.x if isinstance(x, datetime)]
    edges.append(sheet.width)
    lines: list[Sequence[Point]] = []
    for number, (series, name) in enumerate(zip(chart.series, names, strict=True)):
        top = sheet.bottom + number * tall
        if number % every == 0:
            sheet.write_lines([name], left - GAP_PX + 2, top + tall / 2, SMALL, "end")
        for look, first, last in _list_runs(list_looks(series)):
            box = (edges[first], top, edges[last] - edges[first], tall - (0.5 if tall > ROW_PX else 0.0))
            color, signs = LOOKS[look][:2] if look in LOOKS else (look, "")
            sheet.add(Rectangle(*box, color))
            lines += hatch(box[0], box[1], box[0] + box[2], box[1] + box[3], signs)
    sheet.add(*([Line(lines, GROUND, 1.1)] if lines else ()))
    sheet.bottom += len(names) * tall
    _draw_axis(sheet, chart, axis, left)


def _list_runs(looks: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Columns of the same look beside each other: the look, the first column, and the one after the last."""
    at = 0
    for look, run in groupby(looks):
        many = len(list(run))
        if look != NOTHING:
            yield look, at, at + many
        at += many


def _draw_axis(sheet: Sheet, chart: Chart, axis: Axis, left: float) -> None:
    free = 0.0
    for at, text in axis.ticks:
        x, width = left + (sheet.width - left) * axis.share(at), measure(text, SMALL)
        begin = min(max(x - width / 2, 0.0), sheet.width - width)
        if begin >= free:
            sheet.add(Line([[(x, sheet.bottom), (x, sheet.bottom + 4)]], FAINT))
            sheet.add(Words(begin, sheet.bottom + SMALL * 1.5, text, SMALL))
            free = begin + width + GAP_PX
    sheet.bottom += SMALL * 1.8
    if chart.x_label:
        sheet.bottom += SMALL * LINE_HEIGHT
        sheet.add(Words(sheet.width, sheet.bottom, chart.x_label, SMALL, FAINT, "end"))
    sheet.bottom += 5


def _draw_key(sheet: Sheet) -> None:
    """The scale from 0 to 100 %, and each state."""
    parts = [("0 %", [(f"h{n}", "") for n in range(len(SCALE))], "100 % utilization")]
    parts += [("", [(color, signs)], words) for color, signs, _, words in LOOKS.values()]
    x, height = 0.0, SMALL * 1.7
    for before, boxes, after in parts:
        width = measure(before, SMALL) + len(boxes) * KEY_PX + measure(after, SMALL) + 10
        if x and x + width > sheet.width:
            x, sheet.bottom = 0.0, sheet.bottom + height
        middle = sheet.bottom + height / 2
        if before:
            sheet.write_lines([before], x, middle, SMALL)
            x += measure(before, SMALL) + 4
        for color, signs in boxes:
            top = middle - KEY_PX / 2
            sheet.add(Rectangle(x, top, KEY_PX, KEY_PX, color))
            runs = list(hatch(x, top, x + KEY_PX, top + KEY_PX, signs))
            sheet.add(*([Line(runs, GROUND, 1.1)] if runs else ()))
            x += KEY_PX
        sheet.write_lines([after], x + 4, middle, SMALL)
        x += measure(after, SMALL) + 4 + GAP_PX * 2
    sheet.bottom += height + 4


def write_heat(chart: Chart, width: int) -> list[str]:
    """The same in characters: a line a row, several columns in one where they are many, by what most of them are."""
    longest = max(len(s.name) for s in chart.series)
    room = max(8, min(len(chart.x), width - min(longest, width // 3) - 1))
    space = min(longest, width - room - 1)
    each = -(-len(chart.x) // room)
    marks = {f"h{n}": mark for n, mark in enumerate(LEVELS)} | {state: look[2] for state, look in LOOKS.items()}
    lines = []
    for series in chart.series:
        looks = list_looks(series)
        most = [Counter(looks[at : at + each]).most_common(1)[0][0] for at in range(0, len(looks), each)]
        name = series.name if len(series.name) <= space else series.name[: space - 1] + "…"
        lines.append(f"{name:<{space}} {''.join(marks.get(look, ' ') for look in most)}".rstrip())
    first, last = (x.strftime("%d %b %H:%M") if isinstance(x, datetime) else str(x) for x in (chart.x[0], chart.x[-1]))
    across = -(-len(chart.x) // each)
    lines.append(" " * (space + 1) + (f"{first}{last:>{across - len(first)}}" if across > len(first + last) else first))
    key = [f"{LEVELS} 0 to 100 % utilization", *(f"{look[2].strip() or 'blank'} {look[3]}" for look in LOOKS.values())]
    return [*lines, *_wrap(key, width)]


def _wrap(parts: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(part)
    return lines


def describe_heat(chart: Chart) -> str:
    """What shares of the cells are in each state, and how full the rest is."""
    shares = [y for s in chart.series for y in s.y if y is not None]
    states = Counter(state for s in chart.series for state in s.states if state is not None)
    many = len(shares) + sum(states.values())
    if not many:
        return "Nothing known"
    parts = [f"{percent(states[state] / many)} {look[3]}" for state, look in LOOKS.items() if states[state]]
    full = f"working, {percent(sum(shares) / len(shares))} full on average" if shares else ""
    working = [f"{percent(len(shares) / many)} {full}"] if shares else []
    return f"{len(chart.series)} rows; of their cells " + ", ".join([*working, *parts])
