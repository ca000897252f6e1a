"""The bytes of a trace in bounded pieces, gzip of several members unpacked; what a damaged file still holds is given.

Files are opened to be read, and nothing is written beside them.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.files import check_plain

PIECE_BYTES: Final = 512 * BYTES_PER_KIB
_PACKED_BYTES: Final = 64 * BYTES_PER_KIB
GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31


@dataclass
class TracePieces:
    """The bytes of a file in pieces of at most half a MiB, gzip unpacked whatever the file is called.

    A gzip stream that is cut or corrupt ends where it does, and `fault` says so. Raises SourceError where the file is no plain
    file or cannot be read.
    """

    path: Path
    fault: str = field(default="", init=False)
    unpacked_bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        check_plain(self.path)
        self.fault, self.unpacked_bytes = "", 0
        try:
            with self.path.open("rb") as raw:
                is_packed = raw.read(len(GZIP)) == GZIP
                raw.seek(0)
                for piece in self._unpack(raw) if is_packed else iter(lambda: raw.read(PIECE_BYTES), b""):
                    self.unpacked_bytes += len(piece)
                    yield piece
        except OSError as e:
            raise SourceError(f"{self.path} cannot be read: {e.strerror or e}") from None

    def _unpack(self, raw: IO[bytes]) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        waiting = b""
        try:
            while packed := waiting or raw.read(_PACKED_BYTES):
                if piece := unpacker.decompress(packed, PIECE_BYTES):
                    yield piece
                waiting = unpacker.unconsumed_tail
                if unpacker.eof:
                    waiting = unpacker.unused_data.lstrip(b"\0") or raw.read(_PACKED_BYTES)
                    if not waiting.startswith(GZIP):
                        return
                    unpacker = zlib.decompressobj(_GZIP_WINDOW)
            self.fault = "its gzip stream is cut short"
        except zlib.error as e:
            self.fault = f"its gzip stream is corrupt ({e})"


def read_first(path: Path, count: int) -> bytes:
    """The first bytes of a file, unpacked."""
    found = b""
    for piece in TracePieces(path):
        found += piece
        if len(found) >= count:
            break
    return found[:count]
