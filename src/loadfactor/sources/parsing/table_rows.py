"""Rows of several tables, one by one, as batches."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from loadfactor.sources.base import Rows
from loadfactor.tables.schema import table

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
