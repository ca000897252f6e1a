"""Cells of text → values, a whole column at once; the first cell that holds none is named."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Rows
from loadfactor.tables.columns import Kind, arrow_type
from loadfactor.tables.schema import table

_SHOWN: Final = 60


def quote(value: object) -> str:
    """A value as a message may quote it: one line, at most about 60 characters.

    >>> quote("173%"), quote("two" + chr(10) + "lines")
    ("'173%'", "'two\\\\nlines'")
    """
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


_UNKNOWNS: Final = ("n/a", "[n/a]", "na", "none", "null", "-", "–", "?", "unknown", "error", "[not supported]")
_WANTED: Final = {"mask": "a whole number", "flag": "true or false"}


@dataclass(frozen=True)
class CellPosition:
    """Where a column of a batch stands, for messages."""

    label: str
    column: str
    first_row: int

    def refuse(self, index: int, value: object, why: str) -> SourceError:
        """The error about the value at `index` of the batch."""
        return SourceError(f"{self.label}, row {self.first_row + index}: {self.column} {quote(value)} {why}")


def parse_cells(cells: pa.Array, kind: Kind, position: CellPosition) -> pa.Array:
    """Cells of text as the values of their kind (anything but an instant); null stays null.

    Raises SourceError naming input, row, column and value of the first cell that is none: `173%`, `1,024`, `n/a`.
    """
    target = arrow_type(kind)
    if kind == "text":
        return cells

    def cast(part: pa.Array) -> pa.Array:
        return pc.cast(part, target)

    try:
        return cast(cells)
    except pa.ArrowInvalid:
        index = find_failing(cells, cast)
        text = cells[index].as_py()
        raise position.refuse(index, text, f"is not {_WANTED.get(kind, 'a number')}{_advise(text, kind)}") from None


def find_failing(cells: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """Index of the first cell that `convert` refuses with ArrowInvalid, by halving; there must be one."""
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(cells.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _advise(text: str, kind: Kind) -> str:
    if text.strip().lower() in _UNKNOWNS:
        return "; leave the cell empty where nothing is known"
    if text.rstrip().endswith("%"):
        return "; write the fraction, 0.73 for 73%" if kind == "share" else "; write a plain number"
    if "," in text or "_" in text:
        return "; write it without separators of thousands, and a point before decimals"
    if text != text.strip():
        return "; take the spaces away"
    return "; write a plain number in the column's unit" if kind not in _WANTED else ""


TableRow = tuple[str, dict[str, Any]]
"""The name of a table, and a row of it: any of its columns."""


def write_tables(rows: Iterable[TableRow], where: str) -> Iterator[Rows]:
    """A batch for each table, with the columns that any of its rows fills in."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, row in rows:
        found.setdefault(name, []).append(row)
    for name, some in found.items():
        schema = table(name).schema
        columns = {c: [row.get(c) for row in some] for c in schema.names if any(row.get(c) is not None for row in some)}
        yield Rows(name, pa.table(columns, schema=pa.schema([schema.field(c) for c in columns])), where)
