"""A document as PDF of A4 pages: no table is cut, its headings stand on every page of it, charts are drawn as lines."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import matplotlib
from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    CondPageBreak,
    Flowable,
    KeepTogether,
    ListFlowable,
    Paragraph,
    SimpleDocTemplate,
    Spacer,
    Table,
)

from loadfactor import __version__
from loadfactor.interfaces.charts import Chart
from loadfactor.interfaces.charts.image import COLORS
from loadfactor.interfaces.charts.panels import WIDE_PX, draw_chart
from loadfactor.interfaces.charts.picture import Dots, Line, Rectangle, Shape, Sheet
from loadfactor.interfaces.document import DataTable, Document, Histogram, Section, TableColumn, Tile
from loadfactor.interfaces.formats import make_visible

FACES: Final = {"Text": "DejaVuSans", "Text-Bold": "DejaVuSans-Bold", "Code": "DejaVuSansMono"}
INK, FAINT, RULE, STRONG = "#1d2126", "#59626c", "#d9dde2", "#0061a0"
MARGIN: Final = 16 * mm
PAD: Final = 4.0
"""Points beside the words of a cell."""
CELL_SIZES: Final = (8.0, 7.0, 6.0)
"""Sizes of letters in tables, the first in which a table fits."""
WIDEST_WORDS: Final = 200.0
"""Points that a column of long text is at most given before it is folded."""
TILES_BESIDE: Final = 4
MOST_KEPT: Final = 25
"""A table of more rows goes on over the page."""
HEAD_ROOM: Final = 120.0
"""Points that a heading has below it at least."""
LEADING: Final = 1.25
BARS_BESIDE, BAR_HEIGHT = 4, 34.0


def save_pdf(document: Document, path: Path) -> None:
    """Write a document as .pdf: upright, across where a table does not fit upright."""
    document = make_visible(document)
    _register_fonts()
    upright = A4[0] - 2 * MARGIN
    tables = [table.without_empty_columns() for section in document.sections for table in section.tables]
    fits = all(sum(_measure(table, CELL_SIZES[1])[0]) <= upright for table in tables)
    size = A4 if fits else landscape(A4)
    template = SimpleDocTemplate(
        str(path), pagesize=size, leftMargin=MARGIN, rightMargin=MARGIN, topMargin=MARGIN, bottomMargin=MARGIN,
        title=document.headline, author=f"loadfactor {__version__}", lang="en", invariant=1,
    )  # fmt: skip
    width = size[0] - 2 * MARGIN - 12  # the frame keeps 6 points on each side
    template.build(_lay_out(document, width), canvasmaker=_number_pages(document.headline))


def _lay_out(document: Document, width: float) -> list[Flowable]:
    story: list[Flowable] = [Paragraph(escape(document.headline), _style("h1"))]
    if document.subtitle:
        story.append(Paragraph(escape(document.subtitle), _style("faint")))
    story.append(Spacer(1, 8))
    story += _lay_tiles(document.tiles, width)
    for section in document.sections:
        story += _lay_section(section, width)
    if document.assumptions:
        rows = [(a.name, a.value, f"{a.source} ({a.as_of})" if a.as_of else a.source) for a in document.assumptions]
        assumed = DataTable([TableColumn("what"), TableColumn("value"), TableColumn("source")], rows)
        story += _lay_section(Section("Assumed", tables=(assumed,)), width)
    if document.notes:
        notes = [Paragraph(escape(note), _style("text")) for note in document.notes]
        story += [
            Paragraph("What would change this answer", _style("h2")),
            ListFlowable(notes, bulletType="bullet", start="•", bulletFontName="Text"),
        ]
    return story


def _lay_tiles(tiles: Sequence[Tile], width: float) -> list[Flowable]:
    story: list[Flowable] = []
    for first in range(0, len(tiles), TILES_BESIDE):
        beside = tiles[first : first + TILES_BESIDE]
        cells = [
            [
                Paragraph(escape(text), _style(look))
                for text, look in ((tile.title, "faint"), (tile.value, "tile"), (tile.text, "faint"))
            ]
            for tile in beside
        ]
        drawn = Table([cells], colWidths=[width / len(beside)] * len(beside))
        lines = [(name, (0, 0), (-1, -1), 0.5, RULE) for name in ("BOX", "INNERGRID")]
        drawn.setStyle([*lines, ("VALIGN", (0, 0), (-1, -1), "TOP")])
        story += [drawn, Spacer(1, 8)]
    return story


def _lay_section(section: Section, width: float) -> list[Flowable]:
    head: list[Flowable] = []
    if section.title:
        head.append(Paragraph(escape(section.title), _style("h2")))
    if section.lead:
        head.append(Paragraph(escape(section.lead), _style("text")))
    blocks = [[_Picture(chart, width)] for chart in section.charts]
    long: list[bool] = [False] * len(blocks)
    for table in section.tables:
        blocks.append(_lay_table(table.without_empty_columns(), width))
        long.append(len(table.rows) > MOST_KEPT)
    if section.histograms:
        blocks.append([_lay_histograms(section.histograms, width)])
        long.append(True)
    for item in section.suggestions:
        words = f'<font name="Code" size="7.5">{escape(item.command)}</font><br/>{escape(item.why)}'
        blocks.append([Paragraph(words, _style("text"))])
        long.append(False)
    if not blocks:
        return head
    blocks[0] = [*head, *blocks[0]]  # a heading never stands alone at the end of a page
    story: list[Flowable] = []
    for block, is_long in zip(blocks, long, strict=True):
        story += [CondPageBreak(HEAD_ROOM), *block] if is_long else [KeepTogether(block)]
    return story


def _lay_table(table: DataTable, width: float) -> list[Flowable]:
    """A table with its columns as wide as their words; one that is too wide in several that repeat its first column."""
    story: list[Flowable] = [Paragraph(escape(table.title), _style("caption"))] if table.title else []
    for piece, size, widths in _fit(table, width):
        story += [_draw_table(piece, size, widths), Spacer(1, 4)]
    if table.note:
        story.append(Paragraph(escape(table.note), _style("faint")))
    return story


def _draw_table(table: DataTable, size: float, widths: Sequence[float]) -> Table:
    numeric = [place for place, column in enumerate(table.columns) if column.style != "text"]

    def fold(text: str, place: int, is_head: bool) -> str | Paragraph:
        """The text, as a paragraph where it takes several lines."""
        if _width(text, size, "Text-Bold" if is_head else "Text") <= widths[place] - 2 * PAD:
            return text
        return Paragraph(escape(text), _cell_style(size, place in numeric, is_head))

    texts = [[column.title for column in table.columns], *table.text_rows()]
    cells = [[fold(text, place, not at) for place, text in enumerate(row)] for at, row in enumerate(texts)]
    drawn = Table(cells, colWidths=widths, repeatRows=1, splitInRow=1, hAlign="LEFT")
    drawn.setStyle([
        ("FONT", (0, 0), (-1, -1), "Text", size, size * LEADING), ("FONT", (0, 0), (-1, 0), "Text-Bold", size, size * LEADING),
        ("TEXTCOLOR", (0, 0), (-1, -1), INK), *(("ALIGN", (place, 0), (place, -1), "RIGHT") for place in numeric),
        ("VALIGN", (0, 0), (-1, -1), "TOP"), ("VALIGN", (0, 0), (-1, 0), "BOTTOM"),
        ("LEFTPADDING", (0, 0), (-1, -1), PAD), ("RIGHTPADDING", (0, 0), (-1, -1), PAD),
        ("TOPPADDING", (0, 0), (-1, -1), 2), ("BOTTOMPADDING", (0, 0), (-1, -1), 2),
        ("LINEBELOW", (0, 0), (-1, 0), 0.8, INK), ("LINEBELOW", (0, 1), (-1, -1), 0.3, RULE),
    ])  # fmt: skip
    return drawn


def _fit(table: DataTable, width: float) -> list[tuple[DataTable, float, list[float]]]:
    """The table, or its columns in pieces, each with the size of its letters and the widths of its columns."""
    for size in CELL_SIZES:
        least, natural = _measure(table, size)
        if sum(least) <= width:
            return [(table, size, _share(least, natural, width))]
    kept = 0
    total = 0.0
    while kept < len(least) and total + least[kept] <= width:
        total += least[kept]
        kept += 1
    if kept <= 1:  # one column is wider than a page: its words are broken
        return [(table, size, [width / len(least)] * len(least))]
    places = [0, *range(kept, len(least))]
    first = _pick(table, list(range(kept)))
    return [(first, size, least[:kept]), *_fit(_pick(table, places), width)]


def _pick(table: DataTable, places: Sequence[int]) -> DataTable:
    return DataTable([table.columns[i] for i in places], [[row[i] for i in places] for row in table.rows])


def _measure(table: DataTable, size: float) -> tuple[list[float], list[float]]:
    """Widths of columns in points: at least, so that numbers and words stay whole, and so that no cell is folded."""
    least, natural = [], []
    texts = table.text_rows()
    for place, column in enumerate(table.columns):
        cells = {row[place] for row in texts}
        is_text = column.style == "text"
        head = [(word, "Text-Bold") for word in column.title.split()]
        whole = max((_width(cell, size) for cell in cells), default=0.0)
        words = max((_width(word, size) for cell in cells for word in cell.split()), default=0.0) if is_text else whole
        of_head = max((_width(word, size, face) for word, face in head), default=0.0)
        least.append(max(min(words, WIDEST_WORDS), of_head) + 2 * PAD + 1)
        natural.append(max(whole, _width(column.title, size, "Text-Bold")) + 2 * PAD + 1)
    return least, natural


def _share(least: Sequence[float], natural: Sequence[float], width: float) -> list[float]:
    """Widths between what columns need and what they would take, the room that is there shared by what they lack."""
    lacking = sum(natural) - sum(least)
    room = min(width - sum(least), lacking)
    return [low + (high - low) / lacking * room if lacking else low for low, high in zip(least, natural, strict=True)]


def _width(text: str, size: float, face: str = "Text") -> float:
    return float(pdfmetrics.stringWidth(text, face, size))


def _lay_histograms(histograms: Sequence[Histogram], width: float) -> Table:
    """Small pictures of GPUs, some beside each other."""
    each = width / BARS_BESIDE
    cells: list[Any] = [
        [_Bars(of, each - 14), Paragraph(f"<b>{escape(of.name)}</b><br/>{escape(of.note)}", _style("small"))]
        for of in histograms
    ]
    cells += [""] * (-len(cells) % BARS_BESIDE)
    rows = [cells[at : at + BARS_BESIDE] for at in range(0, len(cells), BARS_BESIDE)]
    return Table(rows, colWidths=[each] * BARS_BESIDE, style=[("VALIGN", (0, 0), (-1, -1), "TOP")])


class _Bars(Flowable):  # type: ignore[misc]
    """The histogram of one GPU, the tallest bar filling the height."""

    def __init__(self, of: Histogram, width: float) -> None:
        super().__init__()
        self.width, self.height, self._bins = width, BAR_HEIGHT, of.bins

    def draw(self) -> None:
        top, each = max(self._bins) or 1.0, self.width / len(self._bins)
        self.canv.setFillColor(colors.HexColor(COLORS["s0"]))
        for place, value in enumerate(self._bins):
            self.canv.rect(place * each, 0, each * 0.9, value / top * BAR_HEIGHT, stroke=0, fill=1)


class _Picture(Flowable):  # type: ignore[misc]
    """A chart, drawn as it is on pages, as wide as the text."""

    def __init__(self, chart: Chart, width: float) -> None:
        super().__init__()
        self._sheet = Sheet(WIDE_PX)
        draw_chart(self._sheet, chart)
        self._scale = min(width / WIDE_PX, 0.85)
        self.width, self.height = WIDE_PX * self._scale, (self._sheet.bottom + 10) * self._scale

    def draw(self) -> None:
        self.canv.translate(0, self.height)
        self.canv.scale(self._scale, self._scale)
        for shape in self._sheet.shapes:
            _paint(self.canv, shape)


def _paint(canvas: Any, shape: Shape) -> None:
    """A shape, whose y goes down, on a canvas, whose y goes up."""
    color = colors.HexColor(COLORS[shape.color])
    canvas.setFillColor(color)
    canvas.setStrokeColor(color)
    if isinstance(shape, Rectangle):
        canvas.rect(shape.left, -shape.top - shape.height, shape.width, shape.height, stroke=0, fill=1)
    elif isinstance(shape, Line):
        canvas.setLineWidth(shape.width)
        canvas.setLineCap(1)
        canvas.setDash(*([list(shape.dash)] if shape.dash else []))
        for run in shape.runs:
            path = canvas.beginPath()
            path.moveTo(run[0][0], -run[0][1])
            for x, y in run[1:] or run:  # a point twice is a dot
                path.lineTo(x, -y)
            canvas.drawPath(path)
        canvas.setDash()
    elif isinstance(shape, Dots):
        half = shape.size * 0.55
        for x, y in shape.points:
            if shape.shape == 1:
                canvas.rect(x - half, -y - half, 2 * half, 2 * half, stroke=0, fill=1)
            elif shape.shape == 0:
                canvas.circle(x, -y, half, stroke=0, fill=1)
            else:
                corners = (
                    [(0, 1.2), (1.2, -1), (-1.2, -1)]
                    if shape.shape == 2
                    else [(0, 1.4), (1.4, 0), (0, -1.4), (-1.4, 0)]
                )
                path = canvas.beginPath()
                path.moveTo(x + corners[0][0] * half, -y + corners[0][1] * half)
                for across, up in corners[1:]:
                    path.lineTo(x + across * half, -y + up * half)
                path.close()
                canvas.drawPath(path, stroke=0, fill=1)
    else:
        canvas.setFont("Text-Bold" if shape.bold else "Text", shape.size)
        write: Callable[..., None] = {
            "start": canvas.drawString, "middle": canvas.drawCentredString, "end": canvas.drawRightString
        }[shape.anchor]  # fmt: skip
        if shape.over:  # a rim of the ground around words that stand over a drawing
            canvas.setFillColor(colors.HexColor(COLORS["ground"]))
            canvas.rect(shape.left - 1, -shape.y - 2, shape.width + 2, shape.size * 1.1, stroke=0, fill=1)
            canvas.setFillColor(color)
        write(shape.x, -shape.y, shape.text)


def _number_pages(title: str) -> type[Canvas]:
    """A canvas that writes `page 2 of 5` under each page, which is known when all of them are."""

    class Numbered(Canvas):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._pages: list[dict[str, Any]] = []

        def showPage(self) -> None:  # noqa: N802 (ReportLab's name)
            self._pages.append(dict(self.__dict__))
            self._startPage()

        def save(self) -> None:
            for number, page in enumerate(self._pages, 1):
                self.__dict__.update(page)
                across = self._pagesize[0]
                self.setFont("Text", 7)
                self.setFillColor(colors.HexColor(FAINT))
                self.drawRightString(across - MARGIN, 8 * mm, f"page {number} of {len(self._pages)}")
                room = across - 2 * MARGIN - 80
                shown = title
                while _width(shown, 7) > room:
                    shown = f"{shown[:-2]}…" if len(shown) > 2 else ""
                self.drawString(MARGIN, 8 * mm, shown)
                super().showPage()
            super().save()

    return Numbered


@cache
def _register_fonts() -> None:
    """The fonts that come with matplotlib, which charts are painted with too."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name, file in FACES.items():
        pdfmetrics.registerFont(TTFont(name, folder / f"{file}.ttf"))
    pdfmetrics.registerFontFamily("Text", normal="Text", bold="Text-Bold", italic="Text", boldItalic="Text-Bold")


@cache
def _style(name: str) -> ParagraphStyle:
    looks: dict[str, dict[str, Any]] = {
        "h1": {"fontName": "Text-Bold", "fontSize": 15, "leading": 19, "spaceAfter": 3},
        "h2": {"fontName": "Text-Bold", "fontSize": 11, "leading": 14, "spaceBefore": 10, "spaceAfter": 3},
        "caption": {"fontName": "Text-Bold", "fontSize": 8.5, "leading": 11, "spaceBefore": 4, "spaceAfter": 2},
        "tile": {"fontName": "Text-Bold", "fontSize": 14, "leading": 18, "textColor": STRONG},
        "text": {"spaceAfter": 4},
        "faint": {"fontSize": 7.5, "leading": 10, "textColor": FAINT},
        "small": {"fontSize": 7, "leading": 9},
    }
    look = {"fontName": "Text", "fontSize": 8.5, "leading": 11.5, "textColor": INK, "splitLongWords": 1, **looks[name]}
    return ParagraphStyle(name, **look)


@cache
def _cell_style(size: float, is_number: bool, is_head: bool = False) -> ParagraphStyle:
    look: dict[str, Any] = {"alignment": TA_RIGHT} if is_number else {}
    name = "Text-Bold" if is_head else "Text"
    return ParagraphStyle(
        "cell", fontName=name, fontSize=size, leading=size * LEADING, textColor=INK, splitLongWords=1, **look
    )
