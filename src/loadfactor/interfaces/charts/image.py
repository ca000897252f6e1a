"""Charts as pictures by matplotlib: inline SVG for HTML, or PNG and SVG files; names stand beside their lines."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.charts import NAMED_KINDS, Chart, Series, X, running
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, LINE, color_of
from loadfactor.interfaces.charts.panels import (
    are_named_at_ends,
    draw_named,
    draw_numeric,
    legend_columns,
    names_width_in,
    place_labels,
    row_height_in,
)
from loadfactor.interfaces.formats import make_visible, number, short

MOST_SERIES, MOST_PARTS = 8, 12


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


VARIABLES = {INK: "--ink", FAINT: "--faint", LINE: "--line", CARD: "--card"}
"""Colours that follow the page around an inline SVG: its style sheet sets these variables for light and dark."""
STYLE = {
    "figure.facecolor": CARD,
    "axes.facecolor": "none",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.titlecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "lines.linewidth": 2.0,
    "text.parse_math": False,  # a dollar is a dollar
    "svg.fonttype": "none",  # text stays text: sharp, searchable, small
    "svg.hashsalt": "loadfactor",  # the same chart gives the same file
}
TAG, ID = re.compile("<[^<>]*>"), re.compile(r' id="(?:[a-z]+_)?[a-zA-Z0-9.]+_\d+"')
WIDTH_IN, HEIGHT_IN = 6.5, 3.5
TITLE_CHARACTERS, HEADING_CHARACTERS = 64, 66
SMALL_CHARACTER_IN, AXIS_IN = 0.077, 0.8
"""A character of the small print, and the numbers left of an axis."""
W_PAD_IN, H_PAD_IN = 0.08, 0.06
LINE_IN = {"title": 0.2, "note": 0.16, "legend": 0.22, "heading": 0.22}


def svg(chart: Chart) -> str:
    """The chart as an <svg> element for an HTML page: it takes the page's colours and says in words what it shows."""
    chart = make_visible(chart)
    out = io.StringIO()
    with _style({"figure.facecolor": "none"}):
        make_figure([chart]).savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    text = TAG.sub(_adapt_tag, text[text.index("<svg") :])
    words = describe(chart)
    head = f'<svg role="img" aria-label={quoteattr(f"{chart.title}. {words}")} '
    text = text.replace("<svg ", head, 1)
    end = text.index(">") + 1
    return f"{text[:end]}<title>{escape(chart.title)}</title><desc>{escape(words)}</desc>{text[end:]}"


def _adapt_tag(tag: re.Match[str]) -> str:
    """A tag without its id, for one page has many pictures, and with the page's colours. Words between tags stay."""
    text = ID.sub("", tag[0])
    for code, name in VARIABLES.items():
        text = text.replace(code, f"var({name}, {code})")
    return text


def save(charts: Sequence[Chart], path: Path, heading: str = "") -> None:
    """Write the charts, one above another under a heading, as PNG or SVG by the file's suffix."""
    with _style({}):
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        make_figure(charts, heading).savefig(path, dpi=160, metadata=metadata)


@contextmanager
def _style(different: Mapping[str, Any]) -> Iterator[None]:
    """Our style while something is drawn; a character that the font has not is a box, and no warning says so."""
    import matplotlib

    with matplotlib.rc_context({**STYLE, **different}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def make_figure(charts: Sequence[Chart], heading: str = "") -> Any:
    """The matplotlib figure of the charts, laid out, every label where it stays."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    charts = [make_visible(chart) for chart in charts]
    head = wrap(spell_out(heading), HEADING_CHARACTERS)
    heights = [_height_in(chart) for chart in charts]
    top = LINE_IN["heading"] * len(head) + 0.2 if head else 0.0
    with _style({"figure.facecolor": rcParams["figure.facecolor"]}):
        figure = Figure(
            figsize=(WIDTH_IN, top + sum(heights)), layout=ConstrainedLayoutEngine(w_pad=W_PAD_IN, h_pad=H_PAD_IN)
        )
        if head:
            figure.suptitle("\n".join(head), x=0.01, ha="left", fontsize=11, weight="bold")
        parts = figure.subfigures(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0] if charts else ()
        panels = [(_draw_panel(part, chart), chart) for part, chart in zip(parts, charts, strict=True)]
        figure.draw_without_rendering()  # now the layout knows where everything is
        for axes, chart in panels:
            if chart.kind not in NAMED_KINDS:
                place_labels(axes, chart)
        figure.set_layout_engine("none")  # it stays so at any resolution
    return figure


def _draw_panel(part: Any, chart: Chart) -> Any:
    part.suptitle("\n".join(wrap(chart.title, TITLE_CHARACTERS)), x=0.01, ha="left", fontsize=11)
    axes = part.subplots()
    is_named = chart.kind in NAMED_KINDS
    small = [*_note_lines(chart), *([chart.y_label] if is_named and chart.y_label else [])]
    if small:
        axes.set_title("\n".join(small), loc="left", fontsize=8.5)
    (draw_named if is_named else draw_numeric)(axes, chart)
    if has_legend(chart):
        keys = [_key(series, chart, index) for index, series in enumerate(chart.series)]
        columns = legend_columns([s.name for s in chart.series], WIDTH_IN)
        part.legend(handles=keys, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)
    return axes


def has_legend(chart: Chart) -> bool:
    return len(chart.series) > 1 and not are_named_at_ends(chart)


def _note_lines(chart: Chart) -> list[str]:
    """The note in lines that fit right of the names or numbers of the axis."""
    left = names_width_in(chart) if chart.kind in NAMED_KINDS else AXIS_IN
    return wrap(chart.note, int((WIDTH_IN - left) / SMALL_CHARACTER_IN))


def _key(series: Any, chart: Chart, index: int) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if chart.kind in NAMED_KINDS or chart.kind == "histogram":
        return Patch(color=color_of(index), label=series.name)
    points = chart.kind_of(series) == "scatter"
    line = "none" if points else "--" if series.dashed else "-"
    return Line2D([], [], color=color_of(index), linestyle=line, marker="o" if points else "", label=series.name)


def _height_in(chart: Chart) -> float:
    """Bars take the height their number needs, and so do the lines of words around them."""
    words = LINE_IN["title"] * len(wrap(chart.title, TITLE_CHARACTERS))
    words += LINE_IN["note"] * len(_note_lines(chart))
    if has_legend(chart):
        columns = legend_columns([s.name for s in chart.series], WIDTH_IN)
        words += LINE_IN["legend"] * -(-len(chart.series) // columns)
    if chart.kind not in NAMED_KINDS:
        return HEIGHT_IN + words - LINE_IN["title"]
    rows = len(chart.x) * (1 if chart.kind != "bar" else max(1, len(chart.series)) * 0.75) + bool(chart.total)
    return max(1.4, 0.5 + row_height_in(chart) * rows) + words
