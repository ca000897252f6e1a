"""Which files of a published trace are there, and what is in their columns? By a part of the name; the rest of it varies."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from loadfactor.errors import SourceError
from loadfactor.sources.parsing.csv_text import open_csv
from loadfactor.sources.parsing.text_values import Place, values
from loadfactor.tables import Kind

_ENDINGS: Final = (".csv", ".csv.gz")


def trace_files(paths: tuple[Path, ...], parts: Mapping[str, bool], trace: str) -> tuple[Path, ...]:
    """The CSVs, in these folders or named themselves, whose names contain one of `parts` (True: there must be one).

    Raises SourceError naming the part that is missing.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SourceError(f"{path} does not exist; check the name")
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [f for f in files if f.name.endswith(_ENDINGS) and any(part in f.name for part in parts)]
    for part, needed in parts.items():
        if needed and not any(part in f.name for f in found):
            raise SourceError(
                f"{paths[0]} holds no *{part}*.csv or .csv.gz of {trace}; name the folder the trace lies in"
            )
    return tuple(dict.fromkeys(found))


def columns(path: Path, kinds: Mapping[str, Kind]) -> Iterator[tuple[int, pa.Table]]:
    """These columns of one file as (number of the first row, values), batch by batch; other columns are read over.

    Raises SourceError: a column is missing, a cell is not of its kind.
    """
    names, batches = open_csv(path)
    missing = [name for name in kinds if name not in names]
    if missing:
        raise SourceError(f"{path} has no column {', '.join(missing)}; is it a file of this trace?")
    for batch in batches:
        data = {
            name: values(batch.cells.column(name), kind, Place(path, name, batch.first_row))
            for name, kind in kinds.items()
        }
        yield batch.first_row, pa.table(data)


def whole(path: Path, kinds: Mapping[str, Kind], needed: tuple[str, ...]) -> pa.Table:
    """All rows of these columns; for published traces, whose size is known. A null in a needed column is refused."""
    parts = []
    for first_row, data in columns(path, kinds):
        for name in needed:
            if data[name].null_count:
                index = data[name].is_null().index(True).as_py()
                raise SourceError(f"{path}, row {first_row + index}: {name} is empty; is the file damaged?")
        parts.append(data)
    if not parts:
        raise SourceError(f"{path} has a header and no rows")
    return pa.concat_tables(parts).combine_chunks()
