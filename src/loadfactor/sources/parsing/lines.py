"""How is a text file read that may be huge, compressed, cut off or no text at all? In blocks of whole lines, bounded."""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from loadfactor.errors import SourceError
from loadfactor.units import BYTES_PER_MIB

LINE_LIMIT_BYTES: Final = BYTES_PER_MIB
BLOCK_BYTES: Final = 4 * BYTES_PER_MIB
_GZIP: Final = b"\x1f\x8b"
_BINARY: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
)


_ENDINGS: Final = (".csv", ".log", ".txt", ".xml", ".prom", ".metrics", ".om", ".dmon", ".out")
_ROTATED: Final = re.compile(
    rf"(.+(?:{'|'.join(map(re.escape, _ENDINGS))}))[.-]\d[\d-]*"
)  # gpu.csv.1, gpu.csv-20240131


@dataclass(frozen=True)
class Block:
    """Whole lines of a file as UTF-8 with `\\n` ends; only the last line of the last block may lack its end."""

    data: bytes
    line: int  # number of the first line, from 1


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file in blocks of whole lines; gzip is unpacked, a byte order mark obeyed, CRLF made LF.

    SourceError, naming file and line: cannot be opened, empty, truncated or corrupt gzip, not text, a line over 1 MiB.
    """
    line, carry, size = 1, b"", 0
    parts: list[bytes] = []
    for chunk in _text_chunks(path):
        end = chunk.rfind(b"\n") + 1
        first = chunk.find(b"\n") + 1 if end else len(chunk)
        if len(carry) + first > LINE_LIMIT_BYTES:
            at = line + sum(p.count(b"\n") for p in parts)
            raise SourceError(f"{path}, line {at}: a line of more than 1 MiB; check that it is the right file")
        if not end:
            carry += chunk
            continue
        parts += [carry, chunk[:end]]
        size += len(carry) + end
        carry = chunk[end:]
        if size >= block_bytes:
            block = _block(path, b"".join(parts), line)
            yield block
            line, parts, size = line + block.data.count(b"\n"), [], 0
    data = b"".join([*parts, carry])
    if data:
        yield _block(path, data, line)


def _block(path: Path, data: bytes, line: int) -> Block:
    """Checked to be text, with LF line ends."""
    try:
        data.decode()
    except UnicodeDecodeError as e:
        at = line + data.count(b"\n", 0, e.start)
        raise SourceError(f"{path}, line {at}: not text (bytes that are not UTF-8); is this the right file?") from None
    if b"\0" in data:
        at = line + data.count(b"\n", 0, data.find(b"\0"))
        raise SourceError(f"{path}, line {at}: not text (a zero byte); is this the right file?")
    return Block(data.replace(b"\r\n", b"\n") if b"\r" in data else data, line)


def _text_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of the file as UTF-8 in pieces of at most 1 MiB."""
    decode = None
    for i, chunk in enumerate(_chunks(path)):
        if i == 0:
            for magic, name in _BINARY:
                if chunk.startswith(magic):
                    raise SourceError(f"{path} is {name}; unpack it first (gzip is read as it is)")
            if chunk.startswith(codecs.BOM_UTF8):
                chunk = chunk[len(codecs.BOM_UTF8) :]
            elif chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                decode = codecs.getincrementaldecoder("utf-16")()
        if decode is None:
            yield chunk
            continue
        try:
            yield decode.decode(chunk).encode()
        except UnicodeError:
            raise SourceError(f"{path}: not text (broken UTF-16); is this the right file?") from None


def _chunks(path: Path) -> Iterator[bytes]:
    """The unpacked bytes in pieces of at most 1 MiB; at least one byte altogether."""
    found = False
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            file: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            while chunk := file.read(BYTES_PER_MIB):
                found = True
                yield chunk
    except EOFError:
        raise SourceError(f"{path} is a truncated gzip file; copy it again") from None
    except (zlib.error, gzip.BadGzipFile) as e:
        raise SourceError(f"{path} is a corrupt gzip file ({e}); copy it again") from None
    except OSError as e:
        raise SourceError(f"{path} cannot be read: {e.strerror or e}") from None
    if not found:
        raise SourceError(f"{path} is empty; nothing was recorded in it")


def expand(paths: tuple[Path, ...], endings: tuple[str, ...], what: str, rotated: bool = False) -> tuple[Path, ...]:
    """Files as named, folders by the files in them that end in one of `endings` (or the same with .gz), sorted.

    With `rotated` also those to whose name rotation added a number or a date.

    SourceError when a path does not exist or a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                p
                for p in path.iterdir()
                if p.is_file() and (_plain(p) if rotated else p.name.removesuffix(".gz")).endswith(endings)
            )
            if not inside:
                raise SourceError(f"{path} holds no {what} ({', '.join(endings)}); name the files themselves")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise SourceError(f"{path} does not exist; check the name")
    return tuple(found)


def stem(path: Path) -> str:
    """The file's name without the endings of logs, of rotation and of compression: the node, when nothing else names it.

    >>> stem(Path("logs/node-7.example.csv.gz")), stem(Path("node-7.log.2.gz")), stem(Path("node-7.csv-20240131"))
    ('node-7.example', 'node-7', 'node-7')
    """
    name = _plain(path)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or path.name


def _plain(path: Path) -> str:
    """The file's name as it was before it was rotated away and compressed."""
    name = path.name.removesuffix(".gz")
    rotated = _ROTATED.fullmatch(name)
    return rotated[1] if rotated else name
