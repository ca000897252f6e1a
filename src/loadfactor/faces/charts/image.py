"""How does a chart look on a page? matplotlib, as inline SVG for HTML or as a PNG file; names stand beside their lines."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from textwrap import fill
from typing import Any

from loadfactor.faces.charts import NAMED_KINDS, Chart, Series, running
from loadfactor.faces.charts.palette import color_of
from loadfactor.faces.formats import UNKNOWN, number, short

INK = "#222222"
FAINT = "#8a8a8a"
STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
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
WIDTH_IN, HEIGHT_IN = 7.6, 3.9


def svg(chart: Chart) -> str:
    """The chart as an <svg> element, ready to stand in an HTML page; its text is DejaVu Sans or the page's sans-serif."""
    with _one_panel(chart) as (figure, axes):
        draw(axes, chart)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :].replace("<svg ", '<svg role="img" ', 1)


def save(charts: Sequence[Chart], path: Path, heading: str = "") -> None:
    """Write the charts, one above another under a heading, as PNG or SVG by the file's suffix."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    heading = fill(heading, 76)
    top_in = 0.22 * (heading.count("\n") + 1) + 0.25 if heading else 0.0
    heights = [_height_in(c) for c in charts]
    with matplotlib.rc_context(STYLE):
        share = top_in / (top_in + sum(heights))
        layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - share), h_pad=0.12, hspace=0.04)
        figure = Figure(figsize=(WIDTH_IN, top_in + sum(heights)), layout=layout)
        if heading:
            figure.text(
                0.02,
                1 - 0.12 / (top_in + sum(heights)),
                heading,
                va="top",
                fontsize=11,
                weight="bold",
                color=INK,
                parse_math=False,
            )
        if charts:
            panels = figure.subplots(len(charts), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
            for axes, chart in zip(panels[:, 0], charts, strict=True):
                draw(axes, chart)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=160, metadata=metadata)


def draw(axes: Any, chart: Chart) -> None:
    """Draw the chart into matplotlib axes."""
    axes.set_title(chart.title, loc="left", fontsize=11, pad=10, wrap=True)
    if chart.kind in NAMED_KINDS:
        _draw_named(axes, chart)
    else:
        _draw_numeric(axes, chart)
    if chart.note:
        axes.text(0, -0.2, fill(chart.note, 100), transform=axes.transAxes, va="top", fontsize=8.5, color=FAINT)


def _draw_numeric(axes: Any, chart: Chart) -> None:
    from matplotlib.dates import ConciseDateFormatter, date2num
    from matplotlib.ticker import FuncFormatter

    if chart.x_log:
        axes.set_xscale("log")
    if chart.y_log:
        axes.set_yscale("log")
    ends = []
    for index, series in enumerate(chart.series):
        _draw_series(axes, chart, series, index)
        known = [(x, y) for x, y in zip(chart.x_of(series), series.y, strict=False) if y is not None]
        if known:
            ends.append((known[-1], series.name, color_of(index), chart.kind_of(series)))
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: short(v)))
    moments = [x for x in chart.x_of(chart.series[0]) if isinstance(x, datetime)]
    if moments:
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator(), tz=moments[0].tzinfo))
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: short(v)))
    if not chart.y_log and all(y is None or y >= 0 for s in chart.series for y in s.y):
        axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    for mark in chart.marks:
        axes.plot([mark.x], [mark.y], "o", color=INK, markersize=6, zorder=5)
        left_half = (
            axes.transLimits.transform(
                axes.transScale.transform((date2num(mark.x) if isinstance(mark.x, datetime) else mark.x, mark.y))
            )[0]
            < 0.5
        )
        axes.annotate(
            mark.label,
            (mark.x, mark.y),
            xytext=(8 if left_half else -8, 10),
            ha="left" if left_half else "right",
            textcoords="offset points",
            fontsize=9,
            color=INK,
            zorder=6,
        ).set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1})
    for reference in chart.references:
        _draw_reference(axes, reference.axis, reference.value, reference.label)
    if len(chart.series) > 1:
        _name_ends(axes, ends)


def _draw_series(axes: Any, chart: Chart, series: Series, index: int) -> None:
    xs = list(chart.x_of(series))
    ys = [float("nan") if y is None else y for y in series.y]
    color, dash = color_of(index), "--" if series.dashed else "-"
    match chart.kind_of(series):
        case "line":
            marker = "o" if len(xs) <= 12 else ""
            axes.plot(xs, ys, dash, color=color, marker=marker, markersize=3.5, label=series.name)
        case "step":
            axes.step(xs, ys, where="post", color=color, linestyle=dash, label=series.name)
        case "scatter":
            axes.plot(xs, ys, "o", color=color, markersize=5, alpha=0.75, markeredgewidth=0, label=series.name)
        case "histogram":
            several = len(chart.series) > 1
            axes.stairs(ys, xs, color=color, fill=not several, alpha=1 if several else 0.85, lw=2, label=series.name)


def _name_ends(axes: Any, ends: Sequence[tuple[tuple[Any, float], str, str, str]]) -> None:
    """Names at the right edge beside where each line ends, moved apart where they would meet; points get a legend."""
    if any(kind in ("scatter", "histogram") for _, _, _, kind in ends) or len(ends) > 8:
        axes.legend(frameon=False, fontsize=9, loc="best")
        return
    axes.figure.canvas.draw()
    to_share = axes.transData + axes.transAxes.inverted()
    placed: list[float] = []
    gap = 0.055
    wanted = sorted(
        (float(to_share.transform((axes.get_xlim()[1], point[1]))[1]), name, c) for point, name, c, _ in ends
    )
    for share, name, color in wanted:
        at = max(min(max(share, 0.0), 1.0), placed[-1] + gap if placed else -1.0)
        placed.append(at)
        axes.text(1.01, at, name, transform=axes.transAxes, color=color, va="center", fontsize=9.5, weight="bold")


def _draw_reference(axes: Any, axis: str, value: Any, label: str) -> None:
    if axis == "x":
        axes.axvline(value, color=FAINT, linestyle=":", linewidth=1.4)
        place = (value, 0.98)
        axes.text(*place, f" {label}", transform=axes.get_xaxis_transform(), va="top", fontsize=9, color=INK)
    else:
        axes.axhline(value, color=FAINT, linestyle=":", linewidth=1.4)
        axes.text(0.01, value, label, transform=axes.get_yaxis_transform(), va="bottom", fontsize=9, color=INK)


def _draw_named(axes: Any, chart: Chart) -> None:
    names = [str(x) for x in chart.x]
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    axes.xaxis.set_visible(False)
    axes.tick_params(axis="y", length=0)
    if chart.kind == "waterfall":
        names = _draw_waterfall(axes, chart, names)
    elif chart.kind == "stacked bar":
        lefts = [0.0] * len(names)
        for index, series in enumerate(chart.series):
            widths = [y or 0.0 for y in series.y]
            axes.barh(range(len(names)), widths, left=lefts, color=color_of(index), label=series.name, height=0.7)
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        _bar_numbers(axes, range(len(names)), lefts, [number(v) for v in lefts])
    else:
        height = 0.8 / len(chart.series)
        for index, series in enumerate(chart.series):
            places = [i + (index - (len(chart.series) - 1) / 2) * height for i in range(len(names))]
            axes.barh(
                places, [y or 0.0 for y in series.y], color=color_of(index), label=series.name, height=height * 0.92
            )
            _bar_numbers(
                axes, places, [y or 0.0 for y in series.y], [UNKNOWN if y is None else number(y) for y in series.y]
            )
    axes.set_yticks(range(len(names)), [fill(name, 30) for name in names])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    if len(chart.series) > 1:
        axes.legend(
            frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.02), ncols=min(len(chart.series), 5)
        )
    if chart.y_label:
        axes.text(1, 1.02, chart.y_label, transform=axes.transAxes, ha="right", fontsize=9, color=FAINT)


def _draw_waterfall(axes: Any, chart: Chart, names: list[str]) -> list[str]:
    changes = list(chart.series[0].y)
    spans = running(changes)
    texts = [number(c) for c in changes]
    if chart.total:
        names, spans = [*names, chart.total], [*spans, (0.0, spans[-1][1])]
        texts.append(number(spans[-1][1]))
    for place, (start, end) in enumerate(spans):
        axes.barh(place, end - start, left=start, color=color_of(1 if end < start else 0), height=0.7)
    _bar_numbers(axes, range(len(spans)), [max(span) for span in spans], texts)
    return names


def _bar_numbers(axes: Any, places: Sequence[float], ends: Sequence[float], texts: Sequence[str]) -> None:
    for place, end, text in zip(places, ends, texts, strict=True):
        axes.annotate(text, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9, color=INK)


def _height_in(chart: Chart) -> float:
    """Bars take the height their number needs."""
    if chart.kind not in NAMED_KINDS:
        return HEIGHT_IN
    rows = len(chart.x) * (1 if chart.kind != "bar" else max(1, len(chart.series)) * 0.75) + bool(chart.total)
    return max(1.6, 0.9 + 0.33 * rows)


@contextmanager
def _one_panel(chart: Chart) -> Iterator[tuple[Any, Any]]:
    """A figure with one pair of axes in the house style, without matplotlib's global state."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, _height_in(chart)), layout="constrained")
        yield figure, figure.subplots()
