"""The page of `loadfactor tables`: every table and column that one's own data is imported as."""

from dataclasses import dataclass

from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.sources.own_tables.templates import describe_kind
from loadfactor.tables.columns import Column, Table
from loadfactor.tables.schema import GIVEN

COLUMNS = (TableColumn("column"), TableColumn("written as"), TableColumn("meaning"))


@dataclass(frozen=True)
class ColumnEntry:
    """One column: its kind, how a value is written, what it means, and what an empty cell means (None: not allowed)."""

    name: str
    kind: str
    written: str
    meaning: str
    empty: str | None
    required: bool
    one_of: tuple[str, ...]


@dataclass(frozen=True)
class TableEntry:
    """One table, with the columns that identify a row."""

    name: str
    says: str
    key: tuple[str, ...]
    columns: tuple[ColumnEntry, ...]


def build_document() -> Document:
    """The tables in the order of their definition."""
    sections = (
        Section(
            lead="A time is ISO 8601 with its zone (2026-05-01T12:00:00Z) or epoch milliseconds; a number is in the"
            " unit its column's name ends with. `loadfactor tables --write DIR` makes empty files to fill in,"
            " `loadfactor import tables DIR` reads them.",
        ),
        *(Section(tables=(_table(table),)) for table in GIVEN),
    )
    return Document(f"{len(GIVEN)} tables take your own data, as Parquet or CSV.", sections, data=_entries())


def _table(table: Table) -> DataTable:
    rows = tuple((c.name, describe_kind(c), f"{c.meaning} {_when_empty(c)}") for c in table.columns)
    return DataTable(COLUMNS, rows, title=f"{table.name}: one row says “{table.says}”")


def _when_empty(column: Column) -> str:
    return f"(empty: {column.empty})" if column.empty else "(required)"


def _entries() -> tuple[TableEntry, ...]:
    return tuple(
        TableEntry(
            table.name,
            table.says,
            table.key,
            tuple(
                ColumnEntry(c.name, c.kind, describe_kind(c), c.meaning, c.empty or None, c.required, c.one_of)
                for c in table.columns
            ),
        )
        for table in GIVEN
    )
