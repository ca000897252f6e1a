"""SQLite files from outside: their real tables only, within a budget of rows, bytes and seconds.

A view may never end, and a virtual table runs code that the file chooses: no statement may read either. Files are opened read-only:
nothing, not even an index or a journal, is written next to them.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_INPUT_BYTES, MOST_INPUT_ROWS, MOST_INPUT_S
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB

SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of every such file."""
_MOST_CELL_BYTES: Final = 16 * BYTES_PER_MIB  # no name of a kernel is as long, and a cell can claim a gigabyte
_ROWS_AT_ONCE: Final = 50_000
_STEPS_BETWEEN_CHECKS: Final = 10_000  # of SQLite's virtual machine: some 100 µs
_NUMBER_BYTES: Final = 8
_READING: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA)
_BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors that damage of a database raises: SQLite's own messages of it may hold bytes that are no text."""


class Database:
    """A SQLite file, or its bytes, open for reading. Raises SourceError if it is damaged, or more than its budget allows."""

    def __init__(self, label: str, content: Path | bytes) -> None:
        self.label = label
        self._end_s = monotonic() + MOST_INPUT_S
        self._rows_left = MOST_INPUT_ROWS
        self._bytes_left = MOST_INPUT_BYTES
        address = ":memory:"
        if isinstance(content, Path):
            address = content.absolute().as_uri() + "?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(address, uri=True)
            if isinstance(content, bytes):
                self._connection.deserialize(content)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
            self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._connection.execute("PRAGMA trusted_schema = off")
            self._connection.set_progress_handler(self._is_late, _STEPS_BETWEEN_CHECKS)
            self._connection.set_authorizer(_permit)
        except _BROKEN as error:
            raise self._explain(error) from None
        # a virtual table is a table without pages of its own
        entries = list(self.read("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"))
        self.names = [str(name) for (name,) in entries]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def list_columns(self, table: str) -> list[str]:
        """List the columns of a table."""
        return [str(row[1]) for row in self.read(f'PRAGMA table_info("{table}")')]

    def read(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Read the rows that a statement selects, one by one."""
        try:
            for row in self._execute(statement, parameters):
                self._charge(1, sum(len(cell) for cell in row if isinstance(cell, str | bytes)))
                yield row
        except _BROKEN as error:
            raise self._explain(error) from None

    def read_numbers(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[int | None, ...]]]:
        """Read columns of a table as whole numbers, up to 50,000 rows at once."""
        chosen = ", ".join(f'CAST("{column}" AS INTEGER)' for column in columns)
        try:
            cursor = self._execute(f'SELECT {chosen} FROM "{table}"')
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                self._charge(len(rows), len(rows) * len(columns) * _NUMBER_BYTES)
                yield rows
        except _BROKEN as error:
            raise self._explain(error) from None

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        if self._is_late():  # a short statement ends before SQLite asks
            raise self._refuse(f"more than {MOST_INPUT_S:g} seconds")
        return self._connection.execute(statement, parameters)

    def _charge(self, rows: int, content_bytes: int) -> None:
        """Take what was read off the budget."""
        self._rows_left -= rows
        self._bytes_left -= content_bytes
        if self._rows_left < 0:
            raise self._refuse(f"more than {MOST_INPUT_ROWS:,} rows")
        if self._bytes_left < 0:
            raise self._refuse(f"more than {MOST_INPUT_BYTES / BYTES_PER_GIB:g} GiB")

    def _is_late(self) -> bool:
        return monotonic() > self._end_s

    def _refuse(self, excess: str) -> SourceError:
        return SourceError(f"{self.label} takes {excess}, which is the most of one SQLite file; export less in a file")

    def _explain(self, error: Exception) -> SourceError:
        if self._is_late():
            return self._refuse(f"more than {MOST_INPUT_S:g} seconds")
        why = str(error).splitlines()[0] if isinstance(error, sqlite3.Error) else "names that are no text"
        return SourceError(f"{self.label} is a damaged SQLite file ({why}); export it again")


def _permit(action: int, _what: str | None, _detail: str | None, _schema: str | None, through: str | None) -> int:
    """Permit to read tables, but nothing `through` a view or a trigger, whatever the file calls them."""
    return sqlite3.SQLITE_OK if action in _READING and through is None else sqlite3.SQLITE_DENY
