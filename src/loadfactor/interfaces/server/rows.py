"""Rows as the bytes of an answer: JSON, CSV or Arrow, made and packed piece by piece, so that large answers stream."""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, Literal

import pyarrow as pa

from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.json import render_csv, render_json

Form = Literal["json", "csv", "arrow"]
MEDIA: Final[dict[str, str]] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
PIECE: Final = 2_000
"""Rows that are written at once."""
PAGE_PIECE_BYTES: Final = 256 * BYTES_PER_KIB
MOST_AT_ONCE: Final = 3
"""Pieces that are worked out before the first is sent."""
_GZIP: Final = zlib.MAX_WBITS | 16
_LEVEL: Final = 5


@dataclass(frozen=True)
class RowsAnswer:
    """Rows under a name: as records (dataclasses, objects with `as_json` or mappings), and as an Arrow table."""

    name: str
    records: Sequence[Any]
    arrow: Callable[[], pa.Table]

    def write(self, form: Form, packed: bool) -> Iterator[bytes]:
        """The bytes in this form, with gzip where `packed`."""
        pieces = {"json": self._write_json, "csv": self._write_csv, "arrow": self._write_arrow}[form]()
        return pack(pieces) if packed else pieces

    def _pieces(self) -> Iterator[Document]:
        for start in range(0, len(self.records), PIECE):
            yield Document("", data=self.records[start : start + PIECE])

    def _write_json(self) -> Iterator[bytes]:
        """`{"readings": [one object a line]}`."""
        opening = f'{{"{self.name}": [\n '
        for piece in self._pieces():
            yield (opening + render_json(piece)[len("[\n ") : -len("\n]")]).encode("utf-8", "replace")
            opening = ",\n "
        yield b"\n]}\n" if self.records else f'{{"{self.name}": []}}\n'.encode()

    def _write_csv(self) -> Iterator[bytes]:
        """A heading, and a line a row; nothing where there are no rows."""
        for number, piece in enumerate(self._pieces()):
            text = render_csv(piece)
            yield (text.partition("\n")[2] if number else text).encode("utf-8", "replace")

    def _write_arrow(self) -> Iterator[bytes]:
        """An Arrow stream, a batch at a time."""
        table = self.arrow()
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=PIECE):
                writer.write_batch(batch)
                yield _drain(sink)
        yield _drain(sink)


@dataclass(frozen=True)
class PageAnswer:
    """The JSON of a page, as the command line prints it."""

    page: Document

    def write(self, _form: Form, packed: bool) -> Iterator[bytes]:
        """The bytes, with gzip where `packed`."""
        text = (render_json(self.page) + "\n").encode("utf-8", "replace")
        pieces = (text[start : start + PAGE_PIECE_BYTES] for start in range(0, len(text), PAGE_PIECE_BYTES))
        return pack(pieces) if packed else iter(pieces)


def _drain(sink: io.BytesIO) -> bytes:
    """What was written since the last time."""
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces with gzip."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def begin(pieces: Iterator[bytes]) -> tuple[list[bytes], Iterator[bytes]]:
    """The first pieces, worked out now, and all of them; fewer than `MOST_AT_ONCE` are the whole of it."""
    first = list(islice(pieces, MOST_AT_ONCE))
    return first, chain(first, pieces)
