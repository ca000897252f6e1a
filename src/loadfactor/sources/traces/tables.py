"""The tables of an export as columns of numbers and texts, from SQLite or from a folder of Parquet or Arrow files.

Files are opened to be read alone: nothing, not even an index or a journal, is written beside them.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError, say_why
from loadfactor.base.limits import MOST_INPUT_BYTES
from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.sources.databases import Database
from loadfactor.sources.parquet_files import read_whole
from loadfactor.sources.traces.pieces import GZIP, TracePieces

NULL: Final = np.iinfo(np.int64).min
"""A number that is not there."""


class Tables(Protocol):
    """Tables by name."""

    path: Path

    def names(self) -> Sequence[str]:
        """The names of all tables."""

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table."""

    def numbers(self, table: str, columns: Sequence[str]) -> NDArray[np.int64]:
        """Columns of numbers, a row a row of the table; NULL where there is none, or a text that is no number."""

    def texts(self, table: str, column: str) -> list[Any]:
        """A column of texts."""


class SqliteTables:
    """An export as SQLite, gzip unpacked in memory. Raises SourceError if it is no whole database, or over its budget."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                is_packed = file.read(len(GZIP)) == GZIP
        except OSError as e:
            raise SourceError(f"{path} cannot be read: {say_why(e)}") from None
        self._database = Database(str(path), _unpack(path) if is_packed else path)

    def names(self) -> Sequence[str]:
        """The names of all tables."""
        return self._database.names

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table."""
        return self._database.list_columns(table)

    def numbers(self, table: str, columns: Sequence[str]) -> NDArray[np.int64]:
        """Columns of numbers."""
        pieces = [_as_numbers(rows) for rows in self._database.read_numbers(table, columns)]
        return np.concatenate(pieces) if pieces else np.empty((0, len(columns)), np.int64)

    def texts(self, table: str, column: str) -> list[Any]:
        """A column of texts."""
        return [row[0] for row in self._database.read(f'SELECT "{column}" FROM "{table}"')]


def _unpack(path: Path) -> bytes:
    """Unpack a database whole. Raises SourceError if it is cut, or larger than is taken."""
    pieces = TracePieces(path)
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > MOST_INPUT_BYTES:
            raise SourceError(f"{path} unpacks to more than {MOST_INPUT_BYTES / BYTES_PER_GIB:g} GiB; unpack it first")
    if pieces.fault:
        raise SourceError(f"{path} is not whole: {pieces.fault}; copy it again")
    return bytes(content)


def _as_numbers(rows: list[tuple[int | None, ...]]) -> NDArray[np.int64]:
    try:
        return np.array(rows, np.int64)
    except TypeError:  # some are NULL
        return np.array([[NULL if value is None else value for value in row] for row in rows], np.int64)


class ArrowTables:
    """An export as a folder with a Parquet or Arrow file a table. Raises SourceError where a file is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = {
            file.stem: file for file in sorted(path.iterdir()) if file.suffix in (".parquet", ".arrow", ".feather")
        }

    def names(self) -> Sequence[str]:
        """The names of all tables."""
        return list(self._files)

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table."""
        return list(self._open(table, None).column_names)

    def numbers(self, table: str, columns: Sequence[str]) -> NDArray[np.int64]:
        """Columns of numbers."""
        read = self._open(table, columns)
        found = []
        for column in columns:
            values = read[column]
            if pa.types.is_floating(values.type):
                values = pc.if_else(pc.is_finite(values), values, None)
            try:
                whole = pc.cast(values, pa.int64(), safe=False)
            except pa.ArrowException:
                whole = pa.nulls(len(values), pa.int64())
            found.append(pc.fill_null(whole, NULL).to_numpy())
        return np.column_stack(found) if found else np.empty((0, 0), np.int64)

    def texts(self, table: str, column: str) -> list[Any]:
        """A column of texts."""
        return list(self._open(table, [column])[column].to_pylist())

    def _open(self, table: str, columns: Sequence[str] | None) -> pa.Table:
        file = self._files[table]
        try:
            read = _read_table(file, columns)
            names = read.column_names
            if columns is None:
                return read
            if lost := [name for name in columns if names.count(name) != 1]:
                raise SourceError(f"{file} has no column {lost[0]}; export it again")
            read = read.select(list(columns))
            read.validate(full=True)  # texts that are none, and places outside of the file
            return read
        except (pa.ArrowException, OSError) as e:
            why = next(iter(str(e).splitlines()), "it cannot be read")
            raise SourceError(f"{file} is a damaged table ({why}); export it again") from None
        except UnicodeDecodeError:
            raise SourceError(f"{file} is a damaged table (names that are no text); export it again") from None


def _read_table(file: Path, columns: Sequence[str] | None) -> pa.Table:
    if file.suffix == ".parquet":
        with pa.OSFile(os.fsencode(file)) as source:
            return read_whole(source, str(file), None if columns is None else list(columns))
    with pa.memory_map(os.fsencode(file), "r") as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()
