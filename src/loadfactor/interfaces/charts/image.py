"""Charts as PNG: what is laid out for a page, painted by matplotlib."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle as Patch
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D

from loadfactor.interfaces.charts import Chart
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, LINE, PALETTE, SCALE
from loadfactor.interfaces.charts.panels import draw_sheet
from loadfactor.interfaces.charts.picture import Dots, Line, Rectangle, Shape, Sheet

COLORS: Mapping[str, str] = MappingProxyType(
    {"ink": INK, "dim": FAINT, "rule": LINE, "ground": CARD}
    | {f"s{i}": code for i, code in enumerate(PALETTE)}
    | {f"h{i}": code for i, code in enumerate(SCALE)}
)
"""What the style sheet of a page gives by class, for a picture without one."""
PX_PER_IN, POINTS_PER_PX, DPI = 96, 0.75, 160
MARGIN_PX = 12.0
MARKERS = "os^D"
SIDES = {"start": "left", "middle": "center", "end": "right"}


def save_png(charts: Sequence[Chart], path: Path | BinaryIO, heading: str = "") -> None:
    """Write the charts, one above another under a heading, as PNG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # it is a box then
        make_figure(draw_sheet(charts, heading)).savefig(path, format="png", dpi=DPI)


def make_figure(sheet: Sheet) -> Figure:
    """A matplotlib figure with the shapes of a sheet on it."""
    width, height = sheet.width + 2 * MARGIN_PX, sheet.bottom + 2 * MARGIN_PX
    figure = Figure(figsize=(width / PX_PER_IN, height / PX_PER_IN), facecolor=CARD)
    pixels = Affine2D().scale(1, -1).translate(MARGIN_PX, height - MARGIN_PX).scale(1 / PX_PER_IN)
    for order, shape in enumerate(sheet.shapes):
        placed = {"transform": pixels + figure.dpi_scale_trans, "zorder": order, "color": COLORS[shape.color]}
        _paint(figure, shape, placed)
    return figure


def _paint(figure: Figure, shape: Shape, placed: Mapping[str, Any]) -> None:
    look: dict[str, Any]
    if isinstance(shape, Rectangle):
        figure.add_artist(Patch((shape.left, shape.top), shape.width, shape.height, linewidth=0, **placed))
    elif isinstance(shape, Line):
        dashes = (0, [length / shape.width for length in shape.dash]) if shape.dash else "-"
        for run in shape.runs:
            xs, ys = zip(*run, *run[: len(run) == 1], strict=True)  # a point twice is a dot
            look = {"linewidth": shape.width * POINTS_PER_PX, "linestyle": dashes, "solid_capstyle": "round"}
            figure.add_artist(Line2D(xs, ys, **look, **placed))
    elif isinstance(shape, Dots):
        xs, ys = zip(*shape.points, strict=True) if shape.points else ((), ())
        look = {"linestyle": "none", "marker": MARKERS[shape.shape], "markeredgewidth": 0}
        figure.add_artist(Line2D(xs, ys, markersize=shape.size * POINTS_PER_PX, **look, **placed))
    else:
        look = {"size": shape.size * POINTS_PER_PX, "weight": "bold" if shape.bold else "normal", "va": "baseline"}
        look |= {"ha": SIDES[shape.anchor], "family": "DejaVu Sans", "parse_math": False}  # a dollar is a dollar
        text = figure.text(shape.x, shape.y, shape.text, **look, **placed)
        if shape.over:
            text.set_path_effects([withStroke(linewidth=2.5, foreground=CARD)])
