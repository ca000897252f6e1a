"""Traces that others published: columns of their CSV as values; the decoders are beside this file."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import CellPosition, parse_cells
from loadfactor.sources.parsing.csv_text import split_csv
from loadfactor.tables.columns import Kind


def read_columns(source: Input, kinds: Mapping[str, Kind], needed: tuple[str, ...]) -> pa.Table:
    """All rows of these columns; for published traces, whose size is known. A null in a needed column is refused.

    Raises SourceError: a column is missing, a cell is not of its kind, there are no rows.
    """
    parts = list(_read_batches(source, kinds, needed))
    if not parts:
        raise SourceError(f"{source.label} has a header and no rows")
    return pa.concat_tables(parts).combine_chunks()


def convert_seconds(seconds: pa.ChunkedArray, label: str, name: str) -> pa.ChunkedArray:
    """Seconds of a trace as int64 milliseconds. SourceError where a number is no time."""
    try:
        return pc.cast(pc.round(pc.multiply(seconds, float(MS_PER_S))), pa.int64())
    except pa.ArrowInvalid:
        raise SourceError(f"{label}: {name} holds a number that is no time; is the file damaged?") from None


def _read_batches(source: Input, kinds: Mapping[str, Kind], needed: tuple[str, ...]) -> Iterator[pa.Table]:
    names, batches = split_csv(source)
    missing = [name for name in kinds if name not in names]
    if missing:
        raise SourceError(f"{source.label} has no column {', '.join(missing)}; is it a file of this trace?")
    for batch in batches:
        data = {}
        for name, kind in kinds.items():
            cells = parse_cells(batch.cells.column(name), kind, CellPosition(source.label, name, batch.first_row))
            if name in needed and cells.null_count:
                row = batch.first_row + cells.is_null().index(True).as_py()
                raise SourceError(f"{source.label}, row {row}: {name} is empty; is the file damaged?")
            data[name] = cells
        yield pa.table(data)
