"""Decoder of CSV in the columns of a table: text cells, column by column, as the values their kinds ask for."""

from collections.abc import Iterator
from datetime import tzinfo

import pyarrow as pa

from loadfactor.sources.base import Input, Rows
from loadfactor.sources.own_tables.headings import check_headings
from loadfactor.sources.parsing.cells import CellPosition, parse_cells
from loadfactor.sources.parsing.csv_text import TextBatch, split_csv
from loadfactor.sources.parsing.times import InstantColumn
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import DATED_BY_DAY


def decode_csv(source: Input, table: Table, zone: tzinfo | None) -> Iterator[Rows]:
    """The rows of one CSV. Raises SourceError; see `convert_cells`, `check_headings` and `split_csv`."""
    names, batches = split_csv(source)
    check_headings(source.label, names, table)
    yield from convert_cells(source.label, table, batches, zone)


def convert_cells(label: str, table: Table, batches: Iterator[TextBatch], zone: tzinfo | None) -> Iterator[Rows]:
    """Batches of text cells as rows of a table. SourceError names input, row, column and value of a cell that holds none.

    Prices and exchange rates may be dated by the day: they begin at its midnight UTC.
    """
    instants = {
        c.name: InstantColumn(label, c.name, zone, days=table in DATED_BY_DAY)
        for c in table.columns
        if c.kind == "instant"
    }
    for batch in batches:
        columns = {}
        for name in batch.cells.schema.names:
            cells = batch.cells.column(name)
            if name in instants:
                columns[name] = instants[name].from_text(cells, batch.first_row)
            else:
                columns[name] = parse_cells(cells, table.column(name).kind, CellPosition(label, name, batch.first_row))
        yield Rows(table.name, pa.table(columns), label)
