"""A document as one self-contained HTML file that can be mailed and printed: no script, no font, nothing fetched."""

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from loadfactor import __version__
from loadfactor.interfaces.charts import Chart, image
from loadfactor.interfaces.document import Document, Histogram
from loadfactor.interfaces.formats import make_visible

BAR_UNITS, TALL = 10, 60  # of the small histograms' own drawing


def render_html(document: Document) -> str:
    """The page as a whole HTML document."""
    return _render("page.html", document)


def render_body(document: Document) -> str:
    """The page as a fragment with its style, for notebooks."""
    return _render("body.html", document)


def _render(name: str, document: Document) -> str:
    return _template(name).render(
        document=make_visible(document), picture=_picture, bars=_bars, wide=BAR_UNITS, tall=TALL, version=__version__
    )


@cache
def _template(name: str) -> Template:
    """The template of this name beside this file. What it prints is escaped."""
    loader = PackageLoader("loadfactor", "interfaces/render/templates")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def _picture(chart: Chart) -> Markup:
    return Markup(image.svg(chart))  # our own SVG; matplotlib escapes its text


def _bars(histogram: Histogram) -> Sequence[tuple[int, float]]:
    """Left edge and height of each bar, the tallest of the GPU filling the picture."""
    top = max(histogram.bins) or 1.0
    return [(i * BAR_UNITS, round(value / top * TALL, 2)) for i, value in enumerate(histogram.bins)]
