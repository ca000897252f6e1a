"""A DuckDB session in the process: views, temporary tables and small Arrow tables to ask. Knows nothing of files of the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa

MEMORY_LIMIT = "1000MB"


class Session:
    """One connection, as Ibis (`connection`) and as DuckDB (`raw`). What does not fit into memory is spilled to a folder."""

    def __init__(self, spill: Path) -> None:
        self.connection: Any = ibis.duckdb.connect()
        self.raw: duckdb.DuckDBPyConnection = self.connection.con
        self.raw.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        self.raw.execute("SET preserve_insertion_order = false")
        self.raw.execute("SET enable_progress_bar = false")  # faces show progress, and only where it is wanted
        self.raw.execute(f"SET temp_directory = '{quote_path(spill)}'")

    def create_view(self, name: str, sql: str) -> None:
        """Give a query a name, to be worked out whenever it is read."""
        self.raw.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {sql}')

    def materialize(self, name: str, query: Any) -> Any:
        """Work a query (SQL or an Ibis expression) out once, into a temporary table; that table."""
        sql = query if isinstance(query, str) else self.connection.compile(query)
        self.raw.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {sql}')
        return self.connection.table(name)

    def register(self, name: str, rows: pa.Table) -> None:
        """Put a small Arrow table into a temporary table."""
        self.raw.register("registered", rows)
        self.raw.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM registered")
        self.raw.unregister("registered")

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Work queries out in one thread: floating-point sums are added up in the same order every time."""
        threads = self.raw.execute("SELECT current_setting('threads')").fetchone()
        self.raw.execute("SET threads = 1")
        try:
            yield
        finally:
            self.raw.execute(f"SET threads = {(threads or (1,))[0]}")


def quote_path(path: Path) -> str:
    """A path inside single quotes of SQL."""
    return str(path).replace("'", "''")
