"""What does a person need to act on an answer? The sentence, the picture, the numbers, what was assumed, what would change it.

    Answer(
        sentence="Own 60 GPUs and rent the rest by the hour.",
        tables=(Table("Cost of a day", (Column("plan"), Column("$", "money")), (("own 60", 2208.0), ("rent all", 3720.0))),),
        charts=(chart,),
        assumptions=(Assumption("rental price", "$3.00 per GPU-hour", source="your --rent-price"),),
        would_change=("Below $1.50 per rented hour, rent everything.",),
        data={"own_gpus": 60, "cost": 2208.0},
    )

`present(answer, output_format, output)` is what a command ends with: text, HTML page, PNG or JSON, to the terminal or a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loadfactor.faces.charts import Chart
from loadfactor.faces.formats import UNKNOWN, duration, money, number, percent

Style = Literal["text", "number", "money", "percent", "duration"]
Cell = str | float | None


@dataclass(frozen=True)
class Column:
    """A column's heading, with the unit where the style does not show it, and how its cells are written."""

    title: str
    style: Style = "text"


@dataclass(frozen=True)
class Table:
    """Rows of numbers under headings. A cell of None was not measured; a string in any column is shown as it is."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r} has {len(self.columns)} columns, a row has {len(row)}")

    def text_rows(self) -> list[list[str]]:
        """Every cell as a person reads it."""
        return [[written(c, col.style) for c, col in zip(row, self.columns, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class Assumption:
    """What was taken for granted: its value in words, where it comes from, and how old or sure it is ("2026-05, estimate")."""

    name: str
    value: str
    source: str
    as_of: str = ""


@dataclass(frozen=True)
class Answer:
    """One answer. `data` holds plain numbers for programs; `is_no` makes the command leave with exit code 1."""

    sentence: str
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    assumptions: Sequence[Assumption] = ()
    would_change: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    is_no: bool = False


def written(cell: Cell, style: Style) -> str:
    """One cell as a person reads it.

    >>> written(0.5, "percent"), written(None, "money"), written("never", "money"), written(7200, "duration")
    ('50.0 %', '–', 'never', '2 h')
    """
    if cell is None or isinstance(cell, str):
        return UNKNOWN if cell is None else cell
    spell: dict[str, Callable[[float], str]] = {"money": money, "percent": percent, "duration": duration}
    return spell.get(style, number)(cell)


def present(answer: Answer, output_format: str = "terminal", output: Path | None = None) -> None:
    """Show an answer on stdout (`terminal`, `json` or `html`), or write it to `output` by its suffix.

    Ends the command with exit code 1 when the answer is no. Raises InputError for a suffix or format it cannot write.
    """
    from loadfactor.faces.answer.giving import give

    give(answer, output_format, output)
