"""Charts as SVG of our own: for pages, whose style sheet gives every colour by class, and as files that carry that sheet."""

from collections.abc import Sequence
from datetime import datetime
from xml.sax.saxutils import escape, quoteattr

from loadfactor.interfaces.charts import Chart, Series, X, running
from loadfactor.interfaces.charts.cursor import write_area, write_values
from loadfactor.interfaces.charts.heat import describe_heat
from loadfactor.interfaces.charts.panels import NARROW_PX, WIDE_PX, draw_chart
from loadfactor.interfaces.charts.picture import Dots, Line, Point, Rectangle, Shape, Sheet, Words
from loadfactor.interfaces.formats import make_visible, number, short

MOST_SERIES, MOST_PARTS = 8, 12
COURSE_WIDTH, COURSE_HEIGHT = 100, 24


def draw_figure(chart: Chart, has_cursor: bool = False) -> str:
    """The chart as a <figure> that says in words what it shows: laid out for a screen and for a phone, one of which is shown.

    `has_cursor`: with what the script of pages needs to show values where somebody points.
    """
    chart = make_visible(chart)
    words = f"{chart.title}. {describe(chart)}"
    values = write_values(chart) if has_cursor else ""
    pictures = []
    for name, width in (("wide", WIDE_PX), ("narrow", NARROW_PX)):
        sheet = Sheet(width)
        area = draw_chart(sheet, chart)
        place = f' data-area="{write_area(area)}"' if values and area else ""
        pictures.append(write_svg(sheet, f'class="picture {name}" aria-hidden="true"{place}'))
    attributes = f" data-chart={quoteattr(values)}" if values else ""
    attributes += " data-heat" if has_cursor and chart.kind == "heat map" else ""
    return f'<figure role="img" aria-label={quoteattr(words)}{attributes}>\n' + "\n".join(pictures) + "\n</figure>"


def draw_course(values: Sequence[float | None], words: str) -> str:
    """A small line without axes, from nothing or the lowest below it to the highest, broken where a value is not known.

    `words` say the same. Empty where fewer than two values are known.
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    low, high = min(0.0, *known), max(0.0, *known)
    across, up = COURSE_WIDTH / (len(values) - 1), (COURSE_HEIGHT - 2) / ((high - low) or 1.0)
    runs: list[list[Point]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((n * across, COURSE_HEIGHT - 1 - (value - low) * up))
    path = _write_runs([run for run in runs if run])
    return (
        f'<svg class="picture course" viewBox="0 0 {COURSE_WIDTH} {COURSE_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label={quoteattr(words)}><title>{escape(words)}</title><path class="line s0" d="{path}"/></svg>'
    )


def write_svg(sheet: Sheet, attributes: str, before: str = "", margin: int = 0) -> str:
    """The sheet as an <svg> element with these attributes; `before` comes first in it."""
    size = f'viewBox="{-margin} {-margin} {sheet.width + 2 * margin:g} {sheet.bottom + 2 * margin:.0f}"'
    return f"<svg {size} {attributes}>{before}{''.join(map(_write_shape, sheet.shapes))}</svg>"


def _write_shape(shape: Shape) -> str:
    match shape:
        case Words():
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            bold = ' font-weight="600"' if shape.bold else ""
            over = " over" if shape.over else ""
            place = f'x="{_write(shape.x)}" y="{_write(shape.y)}" font-size="{shape.size:g}"'
            return f'<text class="{shape.color}{over}" {place}{anchor}{bold}>{escape(shape.text)}</text>'
        case Rectangle():
            place = f'x="{_write(shape.left)}" y="{_write(shape.top)}"'
            return (
                f'<rect class="{shape.color}" {place} width="{_write(shape.width)}" height="{_write(shape.height)}"/>'
            )
        case Line():
            dash = f' stroke-dasharray="{" ".join(map(_write, shape.dash))}"' if shape.dash else ""
            path = _write_runs(shape.runs)
            return f'<path class="line {shape.color}" stroke-width="{shape.width:g}"{dash} d="{path}"/>' if path else ""
        case Dots():
            path = "".join(_write_dot(point, shape) for point in shape.points)
            outline = f' stroke-width="{shape.size:g}"' if shape.shape == 0 else ""
            look = "line" if shape.shape == 0 else "dots"
            return f'<path class="{look} {shape.color}"{outline} d="{path}"/>' if path else ""


POINT = "%.1f,%.1f"
PAIR = f"M{POINT} {POINT}"


def _write_runs(runs: Sequence[Sequence[Point]]) -> str:
    """All runs by one format: that takes half the time of one a point."""
    forms = [PAIR if len(run) == 2 else f"M{' '.join([POINT] * len(run))}{'h0' * (len(run) == 1)}" for run in runs]
    return "".join(forms) % tuple(value for run in runs for point in run for value in point)


def _write_dot(point: Point, dots: Dots) -> str:
    (x, y), half = point, dots.size * 0.55
    if dots.shape == 0:
        return f"M{x:.1f},{y:.1f}h0"  # the round cap of a line
    corners = {
        1: ((-half, -half), (half, -half), (half, half), (-half, half)),
        2: ((0, -half * 1.2), (half * 1.2, half), (-half * 1.2, half)),
        3: ((0, -half * 1.4), (half * 1.4, 0), (0, half * 1.4), (-half * 1.4, 0)),
    }[dots.shape]
    return f"M{' '.join([f'{x + across:.1f},{y + down:.1f}' for across, down in corners])}z"


def _write(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def describe(chart: Chart) -> str:
    """The chart in one or a few sentences.

    >>> describe(Chart("Cost", "line", (1, 2, 4), (Series("API", (2, 3, 1)),), "year", "USD"))
    'USD by year. API: first 2 at 1, last 1 at 4, highest 3 at 2, lowest 1 at 4.'
    """
    axes = " by ".join(label for label in (chart.y_label, chart.x_label) if label)
    if chart.kind == "waterfall":
        changes = chart.series[0].y
        parts = [f"{name} {number(change)}" for name, change in zip(chart.x, changes, strict=True)]
        if chart.total:
            parts.append(f"{chart.total} {number(running(changes)[-1][1])}")
        sentences = [", ".join(parts)]
    elif chart.kind == "stacked bar":
        sentences = [_totals(chart)]
    elif chart.kind == "heat map":
        sentences = [describe_heat(chart)]
    elif chart.kind == "histogram":
        sentences = [_peak(chart, series) for series in chart.series[:MOST_SERIES]]
    else:
        sentences = [_extremes(chart, series) for series in chart.series[:MOST_SERIES]]
    return " ".join(f"{part}." for part in (axes, *sentences) if part)


def _extremes(chart: Chart, series: Series) -> str:
    known = [(y, x) for x, y in zip(chart.x_of(series), series.y, strict=True) if y is not None]
    if not known:
        return f"{series.name}: nothing known"
    highest, lowest = max(known, key=lambda at: at[0]), min(known, key=lambda at: at[0])
    named = [("highest", highest), ("lowest", lowest)]
    if chart.kind != "bar":
        named = [("first", known[0]), ("last", known[-1]), *named]
    return f"{series.name}: " + ", ".join(f"{word} {number(y)} at {_write_x(x)}" for word, (y, x) in named)


def _peak(chart: Chart, series: Series) -> str:
    edges = chart.x_of(series)
    known = [(y, i) for i, y in enumerate(series.y) if y is not None]
    if not known:
        return f"{series.name}: nothing known"
    most, at = max(known)
    return f"{series.name}: most, {number(most)}, between {_write_x(edges[at])} and {_write_x(edges[at + 1])}"


def _totals(chart: Chart) -> str:
    totals = [sum(y or 0.0 for y in column) for column in zip(*(s.y for s in chart.series), strict=True)]
    largest = sorted(zip(totals, chart.x, strict=True), key=lambda at: -at[0])[:MOST_PARTS]
    bars = ", ".join(f"{_write_x(name)} {number(total)}" for total, name in largest)
    parts = ", ".join(f"{s.name} {number(_add_known(s.y))}" for s in chart.series)
    return f"Bars, the longest first: {bars}. Parts in all: {parts}"


def _add_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _write_x(x: X) -> str:
    if isinstance(x, datetime):
        return x.strftime("%Y-%m-%d %H:%M")
    return x if isinstance(x, str) else short(x)
