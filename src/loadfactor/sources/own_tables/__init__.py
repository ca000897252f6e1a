"""How does anybody's data get in? As files in our own schema, Parquet or CSV; `loadfactor tables` prints it."""

from collections.abc import Iterator
from pathlib import Path

from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.own_tables.csv_rows import csv_rows
from loadfactor.sources.own_tables.find import table_files, table_of
from loadfactor.sources.own_tables.parquet_rows import parquet_rows
from loadfactor.sources.own_tables.presence import Presence


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    presence = Presence(str(paths[0].parent), options)
    for path in table_files(paths):  # devices first, so that the others can be checked against them
        read = parquet_rows if path.suffix == ".parquet" else csv_rows
        for rows in read(path, table_of(path), options.timezone):
            presence.watch(rows)
            yield rows
    yield from presence.rows()


SOURCE = Source("tables", "Parquet or CSV in loadfactor's own schema (see `loadfactor tables`)", table_files, _read)
