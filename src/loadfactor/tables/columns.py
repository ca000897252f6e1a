"""Tables and their columns, with their kinds, units and meaning, and what an empty cell says."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa

from loadfactor.base.limits import MOST_AMOUNT, MOST_COUNT

Kind = Literal["text", "instant", "share", "amount", "count", "mask", "flag", "exact"]

EXACT_DIGITS: Final = 38
EXACT_DECIMALS: Final = 18
"""An exact amount has 20 digits before its point and 18 after it: decimal128 of Arrow, DECIMAL(38, 18) of DuckDB."""

TYPES: Final[dict[Kind, str]] = {
    "text": "string",
    "instant": "int64",
    "mask": "int64",
    "flag": "boolean",
    "exact": f"decimal({EXACT_DIGITS}, {EXACT_DECIMALS})",
}
"""Types of cells, as Ibis names them; of other kinds `float64`."""
MOST: Final[dict[Kind, float]] = {"share": 1.0, "count": MOST_COUNT, "amount": MOST_AMOUNT}
"""The greatest value of each kind."""


NOT_MEASURED: Final = "not measured"


@dataclass(frozen=True)
class Column:
    """One column. `empty` says what a null means; an empty string there means the column may not be null."""

    name: str
    kind: Kind
    meaning: str
    empty: str = ""
    one_of: tuple[str, ...] = ()
    is_currency: bool = False
    above_zero: bool = False
    at_most: float | None = None
    """The greatest value that can be meant; by default `MOST` of its kind."""
    is_numbers: bool = False
    """Whole numbers with commas between them."""
    stands_for: bool | None = None
    """In a key an empty cell is the same as this value."""
    apart_without: str = ""
    """Rows that leave this other column empty are distinguished by this one, too."""

    @property
    def is_measured(self) -> bool:
        """True for what is measured of an interval: a reading that cannot be true says nothing of the others."""
        return self.empty == NOT_MEASURED

    @property
    def most(self) -> float:
        """The greatest value that can be meant."""
        return MOST.get(self.kind, inf) if self.at_most is None else self.at_most

    @property
    def required(self) -> bool:
        """True when a row without it is refused."""
        return not self.empty


@dataclass(frozen=True)
class Table:
    """One table. `key` identifies a row: a later import with the same key replaces the earlier row."""

    name: str
    says: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """SQL of what rows with one key have in common: the key's columns, empty cells as what they stand for."""
        given = ((name, self.column(name).stands_for) for name in self.key)
        more = (f"if({c.apart_without} IS NULL, {c.name}, NULL)" for c in self.columns if c.apart_without)
        return (*(name if value is None else f"coalesce({name}, {value})" for name, value in given), *more)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the table, all columns in their order."""
        import pyarrow as pa

        return pa.schema([pa.field(c.name, arrow_type(c.kind)) for c in self.columns])

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError when there is none."""
        return {c.name: c for c in self.columns}[name]


def arrow_type(kind: Kind) -> "pa.DataType":
    """The Arrow type of cells of a kind."""
    import pyarrow as pa  # takes longer to import than to name the tables

    if kind == "exact":
        return pa.decimal128(EXACT_DIGITS, EXACT_DECIMALS)
    return pa.type_for_alias(TYPES.get(kind, "float64"))
