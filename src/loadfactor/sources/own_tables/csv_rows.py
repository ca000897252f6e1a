"""How does a CSV become rows of a table? Its text cells, column by column, as the values their kinds ask for."""

from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path

import pyarrow as pa

from loadfactor.sources.base import Rows
from loadfactor.sources.own_tables.headings import check_headings
from loadfactor.sources.parsing.csv_text import TextBatch, open_csv
from loadfactor.sources.parsing.text_instants import InstantColumn
from loadfactor.sources.parsing.text_values import Place, values
from loadfactor.tables import PRICES, Table


def csv_rows(path: Path, table: Table, zone: tzinfo | None) -> Iterator[Rows]:
    """The rows of one CSV, gzipped or not. Raises SourceError; see `typed_rows`, `check_headings` and `open_csv`."""
    names, batches = open_csv(path)
    check_headings(path, names, table)
    yield from typed_rows(path, table, batches, zone)


def typed_rows(path: Path, table: Table, batches: Iterator[TextBatch], zone: tzinfo | None) -> Iterator[Rows]:
    """Batches of text cells as rows of a table. SourceError names file, row, column and value of a cell that holds none.

    Prices may be dated by the day: the price list of a day begins at its midnight UTC.
    """
    instants = {
        c.name: InstantColumn(path, c.name, zone, days=table is PRICES) for c in table.columns if c.kind == "instant"
    }
    for batch in batches:
        columns = {}
        for name in batch.cells.schema.names:
            cells = batch.cells.column(name)
            if name in instants:
                columns[name] = instants[name].from_text(cells, batch.first_row)
            else:
                columns[name] = values(cells, table.column(name).kind, Place(path, name, batch.first_row))
        yield Rows(table.name, pa.table(columns), str(path))
