"""SQL that reads the files of a table by its columns of today: what an earlier version did not write is null."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loadfactor.store.sample_files import quote, read
from loadfactor.tables.schema import TABLES, columns_of

_SQL_TYPES: Final = {"string": "VARCHAR", "int64": "BIGINT", "float64": "DOUBLE", "boolean": "BOOLEAN"}
_TABLES: Final = {t.name for t in TABLES}


def empty(table: str) -> str:
    """SQL: a table without rows."""
    return (
        f"SELECT {', '.join(f'NULL::{_SQL_TYPES.get(t, t)} AS {c}' for c, t in columns_of(table).items())} WHERE false"
    )


def read_rows(table: str, paths: Sequence[Path]) -> str:
    """SQL: the rows of files of a small table, its columns first, then those that only a log has.

    The store's own list of imports is read as it lies.
    """
    if table not in _TABLES:
        return read(paths)
    files = ", ".join(quote(str(path)) for path in paths)
    return f"({empty(table)} UNION ALL BY NAME SELECT * FROM read_parquet([{files}], union_by_name = true))"
