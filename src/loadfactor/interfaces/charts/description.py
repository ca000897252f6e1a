"""What a chart shows in a sentence, for those who cannot see it: first, last, highest and lowest, or the parts."""

from collections.abc import Sequence
from datetime import datetime

from loadfactor.interfaces.charts import Chart, Series, X, running
from loadfactor.interfaces.formats import number, short

MOST_SERIES, MOST_PARTS = 8, 12


def describe(chart: Chart) -> str:
    """The chart in one or a few sentences.

    >>> describe(Chart("Cost", "line", (1, 2, 4), (Series("API", (2, 3, 1)),), "year", "USD"))
    'USD by year. API: first 2 at 1, last 1 at 4, highest 3 at 2, lowest 1 at 4.'
    """
    axes = " by ".join(label for label in (chart.y_label, chart.x_label) if label)
    if chart.kind == "waterfall":
        said = [_parts(chart)]
    elif chart.kind == "stacked bar":
        said = [_totals(chart)]
    elif chart.kind == "histogram":
        said = [_peak(chart, series) for series in chart.series[:MOST_SERIES]]
    else:
        said = [_extremes(chart, series) for series in chart.series[:MOST_SERIES]]
    return " ".join(f"{part}." for part in (axes, *said) if part)


def _extremes(chart: Chart, series: Series) -> str:
    known = [(y, x) for x, y in zip(chart.x_of(series), series.y, strict=True) if y is not None]
    if not known:
        return f"{series.name}: nothing known"
    highest, lowest = max(known, key=lambda at: at[0]), min(known, key=lambda at: at[0])
    named = [("highest", highest), ("lowest", lowest)]
    if chart.kind != "bar":
        named = [("first", known[0]), ("last", known[-1]), *named]
    return f"{series.name}: " + ", ".join(f"{word} {number(y)} at {_say(x)}" for word, (y, x) in named)


def _peak(chart: Chart, series: Series) -> str:
    edges = chart.x_of(series)
    known = [(y, i) for i, y in enumerate(series.y) if y is not None]
    if not known:
        return f"{series.name}: nothing known"
    most, at = max(known)
    return f"{series.name}: most, {number(most)}, between {_say(edges[at])} and {_say(edges[at + 1])}"


def _parts(chart: Chart) -> str:
    changes = chart.series[0].y
    parts = [f"{name} {number(change)}" for name, change in zip(chart.x, changes, strict=True)]
    if chart.total:
        parts.append(f"{chart.total} {number(running(changes)[-1][1])}")
    return ", ".join(parts)


def _totals(chart: Chart) -> str:
    totals = [sum(y or 0.0 for y in column) for column in zip(*(s.y for s in chart.series), strict=True)]
    largest = sorted(zip(totals, chart.x, strict=True), key=lambda at: -at[0])[:MOST_PARTS]
    bars = ", ".join(f"{_say(name)} {number(total)}" for total, name in largest)
    parts = ", ".join(f"{s.name} {number(_sum(s.y))}" for s in chart.series)
    return f"Bars, the longest first: {bars}. Parts in all: {parts}"


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _say(x: X) -> str:
    if isinstance(x, datetime):
        return x.strftime("%Y-%m-%d %H:%M")
    return x if isinstance(x, str) else short(x)
