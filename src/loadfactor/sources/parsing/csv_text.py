"""CSV of any length in batches of text cells, read strictly and in bounded memory."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pacsv

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import split_blocks

BATCH_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 2 * BYTES_PER_MIB  # the longest row; a line is at most 1 MiB already


NO_END: Final = "last line without an end: what is cut off there is not known"


@dataclass(frozen=True)
class TextBatch:
    """Up to 65,536 rows whose cells are all text; an empty cell is null."""

    cells: pa.RecordBatch
    first_row: int  # number of its first row, from 1; the header is not counted


class WatchedEnd:
    """The pieces of an input, and whether its last line had its end once all were read: else its last cell may be cut off."""

    def __init__(self, source: Input) -> None:
        self.input = replace(source, chunks=self)
        self.has_end = True
        self._chunks = source.chunks

    def __iter__(self) -> Iterator[bytes]:
        last = b""
        for piece in self._chunks:
            last = (last + piece)[-2:]
            yield piece
        self.has_end = last.rstrip(b"\0")[-1:] in (b"", b"\n", b"\r")


def split_csv(source: Input, delimiter: str = ",") -> tuple[tuple[str, ...], Iterator[TextBatch]]:
    """The names in the header line, and the rows below it. A byte order mark and CRLF are read over.

    Raises SourceError naming input and row: not text, no header, two columns of one name, a row with more or
    fewer cells than the header, a quote that never closes.
    """
    parts = (block.data for block in split_blocks(source))
    first = next(parts, b"")  # nothing but a byte order mark
    line, _, rest = first.partition(b"\n")
    names = _parse_header(source.label, line.decode(), delimiter)
    return names, _split_rows(source.label, names, chain([rest], parts), delimiter)


def _parse_header(label: str, line: str, delimiter: str) -> tuple[str, ...]:
    try:
        names = tuple(next(csv.reader([line], delimiter=delimiter), ()))
    except csv.Error as e:
        raise SourceError(f"{label}: the first line is no header of a CSV ({e})") from None
    if not any(names):
        raise SourceError(f"{label}: the first line is empty; it must name the columns")
    if len(names) == 1:
        for mark, name in ((";", "semicolons"), ("\t", "tabs")):
            if mark in line:
                raise SourceError(f"{label}: its columns are separated by {name}; write commas")
    for i, name in enumerate(names):
        if not name:
            raise SourceError(f"{label}: column {i + 1} has no name in the first line")
        if name in names[:i]:
            raise SourceError(f"{label}: two columns are called {quote(name)}; keep one")
    return names


class _PieceReader(io.RawIOBase):
    """Pieces of bytes as a file for Arrow. What the pieces raise is kept, because Arrow may turn it into its own error."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")
        self.error: SourceError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                piece = next(self._pieces, None)
            except SourceError as error:
                self.error = error
                raise
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _split_rows(label: str, names: tuple[str, ...], pieces: Iterator[bytes], delimiter: str) -> Iterator[TextBatch]:
    start = next((p for p in pieces if p.strip(b"\r\n")), None)
    if start is None:
        return  # a header and nothing under it
    stream = _PieceReader(chain([start], pieces))
    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    row = 1
    try:
        reader = pacsv.open_csv(
            stream,
            read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=list(names)),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
        for block in reader:
            for i in range(0, block.num_rows, BATCH_ROWS):
                batch = block.slice(i, BATCH_ROWS)
                yield TextBatch(batch, row)
                row += batch.num_rows
    except (pa.ArrowException, SourceError) as error:
        raise _explain(label, error, stream, wrong, row) from None


def _explain(label: str, error: Exception, stream: _PieceReader, wrong: list[Any], row: int) -> SourceError:
    if stream.error is not None:
        return stream.error
    if isinstance(error, SourceError):
        return error
    if wrong:
        bad = wrong[0]
        at = f", row {bad.number}" if bad.number is not None else f", after row {row - 1}"
        return SourceError(
            f"{label}{at}: {bad.actual_columns} cells where the header names {bad.expected_columns}: {quote(bad.text)}"
        )
    if "straddling" in str(error):
        return SourceError(f"{label}, after row {row - 1}: a row of more than 1 MiB; does a quote never close?")
    return SourceError(f"{label}, after row {row - 1}: {str(error).splitlines()[0]}")
