"""A document as a spreadsheet: the sentence and what it rests on, then a sheet a table, its amounts as numbers with formats."""

import io
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Final

import xlsxwriter

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_DAY
from loadfactor.interfaces.charts.panels import draw_sheet
from loadfactor.interfaces.charts.svg import describe
from loadfactor.interfaces.document import Cell, DataTable, Document, TableColumn, write_cell
from loadfactor.interfaces.formats import SYMBOLS, make_visible
from loadfactor.interfaces.render.json import FORMULA_STARTS

MOST_ROWS: Final = 1_048_575
MOST_LETTERS: Final = 32_767
"""Rows below a heading, and letters in a cell: more than Excel holds."""
NAME_LETTERS: Final = 31
FORBIDDEN: Final = re.compile(r"[\[\]:*?/\\]")
NARROWEST, WIDEST = 8, 60
"""Widths of columns, in letters."""
FIRST: Final = "Summary"
PICTURES: Final = "Pictures"
ROWS_PER_IN: Final = 4.8
"""Rows of 15 points."""


def save_spreadsheet(document: Document, path: Path) -> None:
    """Write a document as .xlsx. Raises InputError for a table of more rows than a sheet holds."""
    document = make_visible(document)
    written = io.BytesIO()  # the writer would hide what a disk says
    with xlsxwriter.Workbook(written, {"in_memory": True}) as book:
        book.set_properties({"title": document.headline[:255], "comments": "loadfactor"})
        writer = _SheetWriter(book)
        writer.write_rows(FIRST, _summarize(document))
        for title, table in _name_tables(document):
            writer.write_table(title, table)
        if document.charts:
            _add_pictures(book, document)
    path.write_bytes(written.getvalue())


def _summarize(document: Document) -> Iterator[Sequence[str]]:
    """What stands around the tables."""
    yield (document.headline,)
    if document.subtitle:
        yield (document.subtitle,)
    yield ()
    yield from ((tile.title, tile.value, tile.text) for tile in document.tiles)
    for section in document.sections:
        if section.lead:
            yield from ((), (section.title, section.lead))
        yield from ((item.command, item.why) for item in section.suggestions)
    if document.assumptions:
        yield from ((), ("Assumed",))
        yield from ((a.name, a.value, f"{a.source} ({a.as_of})" if a.as_of else a.source) for a in document.assumptions)
    if document.notes:
        yield from ((), ("What would change this answer",), *((note,) for note in document.notes))


def _name_tables(document: Document) -> Iterator[tuple[str, DataTable]]:
    """Each table with the name of its sheet: that of the table or its section, as Excel takes it, each once."""
    taken = {FIRST.lower(), PICTURES.lower(), "history"}  # Excel keeps History for itself
    for section in document.sections:
        for table in section.tables:
            wished = FORBIDDEN.sub(" ", table.title or section.title or "Table").strip(" '") or "Table"
            name, number = wished[:NAME_LETTERS], 2
            while name.lower() in taken:
                tail = f" {number}"
                name, number = wished[: NAME_LETTERS - len(tail)] + tail, number + 1
            taken.add(name.lower())
            yield name, table.without_empty_columns()


class _SheetWriter:
    """Writes sheets of one workbook; a format is made once."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._formats: dict[tuple[tuple[str, Any], ...], Any] = {}

    def write_rows(self, name: str, rows: Iterator[Sequence[str]]) -> None:
        """Rows of text, the first one large, the second column wide."""
        sheet = self._book.add_worksheet(name)
        sheet.set_column(0, 0, 34)
        sheet.set_column(1, 2, 24)
        sheet.hide_gridlines(2)
        for at, row in enumerate(rows):
            for place, text in enumerate(row):
                self._write_text(sheet, at, place, text, **({"bold": True, "font_size": 14} if at == 0 else {}))

    def write_table(self, name: str, table: DataTable) -> None:
        """A heading that stays in sight, and a row a row."""
        if len(table.rows) > MOST_ROWS:
            raise InputError(f"{len(table.rows):,} rows are more than a sheet holds; take .csv")
        sheet = self._book.add_worksheet(name)
        sheet.freeze_panes(1, 0)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        sheet.repeat_rows(0)
        for place, column in enumerate(table.columns):
            align = "left" if column.style == "text" else "right"
            self._write_text(
                sheet, 0, place, column.title, bold=True, bottom=1, text_wrap=True, align=align, valign="top"
            )
            shown = [write_cell(row[place], column) for row in table.rows[:1000]]
            longest = max(map(len, [*shown, *column.title.split()]), default=0)
            sheet.set_column(place, place, min(max(longest + 2, NARROWEST), WIDEST))
        for at, row in enumerate(table.rows, 1):
            for place, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
                self._write_cell(sheet, at, place, cell, column)
        if table.rows:
            sheet.autofilter(0, 0, len(table.rows), len(table.columns) - 1)
        if table.note:
            self._write_text(sheet, len(table.rows) + 2, 0, table.note, italic=True)

    def _write_cell(self, sheet: Any, at: int, place: int, cell: Cell, column: TableColumn) -> None:
        """Text as text, what is unknown as an empty cell, else a number with the format of its column."""
        if isinstance(cell, str):
            self._write_text(sheet, at, place, cell, text_wrap=len(cell) > WIDEST, valign="top")
        elif cell is not None:
            value = float(cell) / S_PER_DAY if column.style == "duration" else float(cell)
            look = self._format(num_format=_choose_format(cell, column), valign="top")
            if not isfinite(value):
                self._write_text(sheet, at, place, write_cell(cell, column))
            else:
                sheet.write_number(at, place, value, look)

    def _write_text(self, sheet: Any, at: int, place: int, text: str, **look: Any) -> None:
        """Text that stays text: what begins as a formula does, also when somebody edits it."""
        if text.lstrip(" ").startswith(FORMULA_STARTS):
            look["quote_prefix"] = True
        sheet.write_string(at, place, text[:MOST_LETTERS], self._format(**look) if look else None)

    def _format(self, **look: Any) -> Any:
        key = tuple(sorted(look.items()))
        if key not in self._formats:
            self._formats[key] = self._book.add_format(look)
        return self._formats[key]


def _choose_format(cell: float | Decimal, column: TableColumn) -> str:
    """The format of a number: an exact amount with all of its digits, a share as percent, a time as hours and minutes.

    >>> _choose_format(Decimal("357.20"), TableColumn("cost", "money")), _choose_format(0.5, TableColumn("used", "percent"))
    ('#,##0.00', '0.0%')
    """
    if column.style == "percent":
        return "0.0%"
    if column.style == "duration":
        return "[h]:mm:ss"
    if isinstance(cell, Decimal):
        exponent = cell.as_tuple().exponent
        digits = max(0, -exponent) if isinstance(exponent, int) else 0
        return "#,##0" + ("." + "0" * digits if digits else "")
    if column.style in ("money", "about money"):
        symbol = SYMBOLS.get(column.currency, f"{column.currency} ")
        return f'"{symbol}"#,##0.00;-"{symbol}"#,##0.00'
    return "#,##0" if float(cell).is_integer() else "#,##0.0##" if abs(cell) >= 1 else "0.0#####"


def _add_pictures(book: Any, document: Document) -> None:
    """The charts on a sheet of their own, one below another."""
    from loadfactor.interfaces.charts.image import DPI, make_figure

    sheet = book.add_worksheet(PICTURES)
    sheet.hide_gridlines(2)
    row = 0
    for chart in document.charts:
        figure, png = make_figure(draw_sheet([chart])), io.BytesIO()
        figure.savefig(png, format="png", dpi=DPI)
        sheet.insert_image(row, 0, f"{chart.title}.png", {"image_data": png, "description": describe(chart)})
        row += ceil(figure.get_figheight() * ROWS_PER_IN) + 1
