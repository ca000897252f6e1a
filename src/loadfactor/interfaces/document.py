"""The one model of a page: what a person needs to act on an answer. Every renderer draws it and knows nothing of its contents.

    Document(
        headline="Own 60 GPUs and rent the rest by the hour.",
        sections=(
            Section(
                "Cost of a day",
                tables=(DataTable((TableColumn("plan"), TableColumn("cost", "money")), (("own 60", 2208.0),)),),
            ),
        ),
        assumptions=(Assumption("rental price", "$3.00 per GPU-hour", source="your --rent-price"),),
        notes=("Below $1.50 per rented hour, rent everything.",),
        data=plan,
    )

`data` is a frozen dataclass (or a mapping, or a sequence of either); the JSON of a document is derived from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from loadfactor.interfaces.charts import Chart
from loadfactor.interfaces.formats import UNKNOWN, about_money, draw_line, duration, money, number, percent

Style = Literal["text", "number", "money", "about money", "percent", "duration"]
Cell = str | float | Decimal | None
"""A decimal is an exact amount: every digit of it is shown."""


@dataclass(frozen=True)
class TableColumn:
    """The heading of a column, with the unit where the style does not show it, and how its cells are written.

    `digits` are the significant digits of a number at least. `hint` says what the heading means, where a mouse rests on it. A cell
    chooses a `facet` of the page. A column that `stays` is shown where no row has a value, too: somebody requested it by name.
    """

    title: str
    style: Style = "text"
    currency: str = "USD"
    digits: int = 3
    hint: str = ""
    facet: str = ""
    stays: bool = False


@dataclass(frozen=True)
class DataTable:
    """Rows under headings. A cell of None was not measured; a string in any column is shown as it is, a decimal exactly."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r} has {len(self.columns)} columns, a row has {len(row)}")

    def without_empty_columns(self) -> "DataTable":
        """The table as people see it: columns in which no row has a value are left out."""
        kept = [
            i
            for i, column in enumerate(self.columns)
            if column.stays or any(row[i] not in (None, UNKNOWN) for row in self.rows)
        ]
        if not self.rows or len(kept) == len(self.columns):
            return self
        return replace(
            self, columns=[self.columns[i] for i in kept], rows=[[row[i] for i in kept] for row in self.rows]
        )

    def text_rows(self) -> list[list[str]]:
        """Every cell as a person reads it."""
        return [[write_cell(c, column) for c, column in zip(row, self.columns, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class Tile:
    """One number a reader should see first, with a few words on what it is and how much of it is known; `hint` as of a column.

    `course` is how it went over time, which `course_words` say to who cannot see it drawn.
    """

    title: str
    value: str
    note: str = ""
    hint: str = ""
    course: Sequence[float | None] = ()
    course_words: str = ""

    @property
    def text(self) -> str:
        """The note behind the course as a row of characters, for renderers that draw nothing."""
        return "; ".join(filter(None, (draw_line(self.course), self.note)))


@dataclass(frozen=True)
class Histogram:
    """How the observed time of one GPU is spread over the activity scale, 0 on the left."""

    name: str
    bins: Sequence[float]
    note: str


@dataclass(frozen=True)
class Suggestion:
    """A command to type next, and why."""

    command: str
    why: str


@dataclass(frozen=True)
class Assumption:
    """Something taken for granted: its value in words, where it comes from, and how old or sure it is ("2026-05, estimate")."""

    name: str
    value: str
    source: str
    as_of: str = ""


@dataclass(frozen=True)
class Section:
    """One part of a page. `lead` is what a hurried reader takes away."""

    title: str = ""
    lead: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[DataTable] = ()
    histograms: Sequence[Histogram] = ()
    suggestions: Sequence[Suggestion] = ()


@dataclass(frozen=True)
class Document:
    """A whole page: the sentence on top, what it rests on, tiles, sections, assumptions, and what would change the answer.

    The first table is the main one: `--brief` shows the headline and that. `is_no` makes a command leave with exit code 1.
    """

    headline: str
    sections: Sequence[Section] = ()
    subtitle: str = ""
    tiles: Sequence[Tile] = ()
    assumptions: Sequence[Assumption] = ()
    notes: Sequence[str] = ()
    data: Any = None
    is_no: bool = False

    @property
    def charts(self) -> Sequence[Chart]:
        """Every chart of the page, in order."""
        return [chart for section in self.sections for chart in section.charts]

    @property
    def brief(self) -> "Document":
        """The headline and the main table alone."""
        tables = [table for section in self.sections for table in section.tables]
        return Document(self.headline, (Section(tables=tables[:1]),), self.subtitle, data=self.data, is_no=self.is_no)


def write_cell(cell: Cell, column: TableColumn) -> str:
    """One cell as a person reads it.

    >>> write_cell(0.5, TableColumn("used", "percent")), write_cell(None, TableColumn("cost", "money"))
    ('50.0 %', '–')
    >>> write_cell("never", TableColumn("cost", "money")), write_cell(7200, TableColumn("wait", "duration"))
    ('never', '2 h')
    """
    if cell is None or isinstance(cell, str):
        return UNKNOWN if cell is None else cell
    if isinstance(cell, Decimal):
        return f"{cell:,f}"
    if column.style in ("money", "about money"):
        return (money if column.style == "money" else about_money)(cell, column.currency)
    if column.style in ("percent", "duration"):
        return percent(cell) if column.style == "percent" else duration(cell)
    return number(cell, column.digits)
