"""A document as one self-contained HTML file that can be mailed and printed: no script, no font, nothing fetched."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup, escape

from loadfactor import __version__
from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.charts import Chart
from loadfactor.interfaces.charts.panels import draw_sheet
from loadfactor.interfaces.charts.svg import draw_course, draw_figure, write_svg
from loadfactor.interfaces.document import Document, Histogram, TableColumn, Tile
from loadfactor.interfaces.formats import make_visible

STYLESHEET = files("loadfactor").joinpath("interfaces/render/static/page.css").read_text(encoding="utf-8")
"""Every colour and place of a page. A file carries it; a page of a server links it, as its policy allows no style in the page."""
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLESHEET.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
"""What a browser may do with a page that is one file: take this stylesheet, and nothing else."""
MARGIN = 16  # around the pictures of a file
BAR_UNITS, TALL = 10, 60  # of the small histograms' own drawing
ADDRESS = "address"
"""The title of a column whose cells are addresses of our own pages."""
SENTENCES = ("what to do", "what to change", "look at", "meaning")
"""Titles of columns whose cells are sentences of our own, never names from data."""


def render_html(document: Document) -> str:
    """The page as a whole HTML document."""
    return _render("page.html", document)


def render_body(document: Document) -> str:
    """The page as a fragment with its style, for notebooks."""
    return _render("body.html", document)


def render_svg(document: Document) -> str:
    """The charts of the page as one SVG file, one above another under the headline."""
    sheet = draw_sheet(document.charts, document.headline)
    ground = f"<style>{STYLESHEET}</style>" + '<rect class="ground" x="-100%" y="-100%" width="300%" height="300%"/>'
    return write_svg(sheet, 'xmlns="http://www.w3.org/2000/svg" class="loadfactor picture"', ground, MARGIN)


def render_content(document: Document, link: Callable[[TableColumn, str], Markup | str]) -> Markup:
    """The page as a fragment without style, for a page that links one; `link` writes a cell, as an address where it has one."""
    return Markup(_render("content.html", document, link))  # our own template, what it prints escaped


def render_mail(document: Document, pictures: Sequence[str]) -> str:
    """The page for programs that show mail: no style sheet, no SVG; `pictures` are addresses of its charts, in order."""
    return _render("mail.html", document, _link_addresses, list(pictures))


def _link_addresses(column: TableColumn, cell: str) -> Markup | str:
    """A cell, as a link where its column is of addresses of the server: a name from data never is one."""
    shown = spell_out(cell)
    return Markup('<a href="{0}">{0}</a>').format(shown) if column.title == ADDRESS else shown


def write_text(column: TableColumn, cell: str) -> Markup | str:
    """The text of a cell, with commands as code where its column is of sentences of our own."""
    return _mark(spell_out(cell)) if column.title in SENTENCES else spell_out(cell)


def _show(document: Document) -> Document:
    """The page with every text in it spelled out, but cells of tables: a link of one leads to the name as it is."""
    shown = make_visible(document)
    pairs = zip(shown.sections, document.sections, strict=True)
    sections = [
        replace(s, tables=[replace(t, rows=of.rows) for t, of in zip(s.tables, given.tables, strict=True)])
        for s, given in pairs
    ]
    return replace(shown, sections=sections)


def _render(
    name: str,
    document: Document,
    link: Callable[[TableColumn, str], Markup | str] = write_text,
    pictures: list[str] | None = None,
) -> str:
    return _template(name).render(
        link=link,
        pictures=pictures,
        mark=_mark,
        document=_show(document),
        picture=_picture if link is write_text else _picture_with_cursor,
        bars=_bars,
        line=_line,
        wide=BAR_UNITS,
        tall=TALL,
        version=__version__,
        stylesheet=Markup(STYLESHEET),  # our own
        policy=POLICY,
    )


@cache
def _template(name: str) -> Template:
    """The template of this name beside this file. What it prints is escaped."""
    loader = PackageLoader("loadfactor", "interfaces/render/templates")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def _mark(text: str) -> Markup:
    """A sentence with what stands between backticks, commands and names of files, as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one that is never closed
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _picture(chart: Chart) -> Markup:
    return Markup(draw_figure(chart))  # our own SVG, its text escaped


def _picture_with_cursor(chart: Chart) -> Markup:
    return Markup(draw_figure(chart, has_cursor=True))  # the same


def _line(tile: Tile) -> Markup:
    return Markup(draw_course(tile.course, f"{tile.title} {tile.course_words}"))  # the same


def _bars(histogram: Histogram) -> Sequence[tuple[int, float]]:
    """Left edge and height of each bar, the tallest of the GPU filling the picture."""
    top = max(histogram.bins) or 1.0
    return [(i * BAR_UNITS, round(value / top * TALL, 2)) for i, value in enumerate(histogram.bins)]
