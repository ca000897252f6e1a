"""Decoder of Parquet in the columns of a table: batch by batch, types checked against the kinds of the columns."""

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, Rows
from loadfactor.sources.parquet_files import check_texts, open_parquet
from loadfactor.sources.parsing.cells import CellPosition, parse_cells, quote
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, NO_END, TextBatch, WatchedEnd, split_csv
from loadfactor.sources.parsing.times import InstantColumn
from loadfactor.tables.columns import Column, Table, arrow_type
from loadfactor.tables.schema import DATED_BY_DAY

_STORED_AS: Final = {
    "text": "text",
    "instant": "a timestamp with its zone, or int64 epoch milliseconds",
    "share": "a number",
    "amount": "a number",
    "count": "a number",
    "mask": "a whole number",
    "flag": "true or false",
    "exact": "decimals or whole numbers",
}


def check_headings(label: str, names: Sequence[str], table: Table) -> None:
    """SourceError naming the column the table does not have, and the nearest it has; or the required one that is missing."""
    known = [c.name for c in table.columns]
    for i, name in enumerate(names):
        if name not in known:
            near = get_close_matches(name.strip().lower(), known, 1, 0.0)[0]
            raise SourceError(
                f"{label}: {table.name} has no column {quote(name)}; the nearest is {near}; "
                f"`loadfactor tables` lists them"
            )
        if name in names[:i]:
            raise SourceError(f"{label}: two columns are called {name}; keep one")
    missing = [c.name for c in table.columns if c.required and c.name not in names]
    if missing:
        raise SourceError(
            f"{label}: {table.name} needs the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            f"`loadfactor tables` says what belongs in it"
        )


def decode_parquet(source: pa.NativeFile, label: str, table: Table, zone: tzinfo | None) -> Iterator[Rows]:
    """The rows of one Parquet file, open for reading, at most 65,536 at a time, whatever the size of its row groups.

    Raises SourceError: not Parquet or damaged, wrong columns, a column of another type, local times and no zone given.
    """
    try:
        with open_parquet(source, label) as file:
            schema = file.schema_arrow
            check_headings(label, schema.names, table)
            converters = {f.name: _find_converter(label, table, table.column(f.name), f.type, zone) for f in schema}
            row = 1
            for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                check_texts(label, batch, row)
                decoded = {name: converters[name](batch.column(name), row) for name in schema.names}
                yield Rows(table.name, pa.table(decoded), label)
                row += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{label} is not a whole Parquet file ({reason[:120]}); write or copy it again") from None


def _find_converter(
    label: str, table: Table, column: Column, stored: pa.DataType, zone: tzinfo | None
) -> Callable[[pa.Array, int], pa.Array]:
    """The function from an array of the stored type, and the number of its first row, to the column's values."""
    kind, target = column.kind, arrow_type(column.kind)
    plain = stored.value_type if pa.types.is_dictionary(stored) else stored
    instants = InstantColumn(label, column.name, zone)

    def cast(array: pa.Array, _: int) -> pa.Array:
        return pc.cast(array, target)

    def zoned(array: pa.Array, _: int) -> pa.Array:
        return pc.cast(pc.cast(array, pa.timestamp("ms", plain.tz), safe=False), pa.int64())

    def local(array: pa.Array, first_row: int) -> pa.Array:
        return instants.from_local(pc.cast(pc.cast(array, pa.timestamp("ms"), safe=False), pa.int64()), first_row)

    def midnight(array: pa.Array, _: int) -> pa.Array:
        return pc.cast(pc.cast(array, pa.timestamp("ms")), pa.int64())

    def epoch(array: pa.Array, first_row: int) -> pa.Array:
        return instants.from_epoch(pc.cast(array, pa.int64()), first_row)

    types = pa.types
    if types.is_null(plain):
        return cast
    if kind == "instant":
        if types.is_timestamp(plain):
            return zoned if plain.tz is not None else local
        if types.is_date(plain) and table in DATED_BY_DAY:
            return midnight
        if types.is_integer(plain):
            return epoch
    elif kind == "text":
        # Job ids are numbers in many schedulers; a decimal fraction is no name of anything.
        if (
            types.is_string(plain)
            or types.is_large_string(plain)
            or types.is_string_view(plain)
            or types.is_integer(plain)
        ):
            return cast
    elif kind == "flag":
        if types.is_boolean(plain):
            return cast
    elif kind == "exact":
        if types.is_integer(plain) or types.is_decimal(plain):
            return cast
    elif types.is_integer(plain) or (kind != "mask" and (types.is_floating(plain) or types.is_decimal(plain))):
        return cast
    raise SourceError(
        f"{label}: column {column.name} holds {plain}, and must hold {_STORED_AS[kind]}; write it as that"
    )


def decode_csv(source: Input, table: Table, zone: tzinfo | None) -> Iterator[Rows | Gap]:
    """The rows of one CSV. Raises SourceError; see `convert_cells`, `check_headings` and `split_csv`."""
    watched = WatchedEnd(source)
    names, batches = split_csv(watched.input)
    check_headings(source.label, names, table)
    has_rows = False
    for rows in convert_cells(source.label, table, batches, zone):
        has_rows = True
        yield rows
    if has_rows and not watched.has_end:
        yield Gap(source.label, NO_END)


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
