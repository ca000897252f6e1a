"""Text of any length in blocks of whole lines, in bounded memory; what is no text is refused."""

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input

LINE_LIMIT_BYTES: Final = BYTES_PER_MIB
BLANK_LIMIT_BYTES: Final = BYTES_PER_MIB  # of empty lines in a row
BLOCK_BYTES: Final = 4 * BYTES_PER_MIB
_BINARY: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
)


class EmptyInputError(SourceError):
    """There is not one byte in the input."""


@dataclass(frozen=True)
class TextBlock:
    """Whole lines as UTF-8 with `\\n` ends; only the last line of the last block may lack its end."""

    data: bytes
    line: int  # number of the first line, from 1


def split_blocks(source: Input, block_bytes: int = BLOCK_BYTES) -> Iterator[TextBlock]:
    """The text in blocks of whole lines; a byte order mark obeyed, CRLF made LF; at least one block.

    SourceError, naming input and line: empty, packed otherwise than by gzip, not text, a line over 1 MiB, empty lines for
    over 1 MiB.
    """
    label, line, carry, size, blank = source.label, 1, b"", 0, 0
    parts: list[bytes | memoryview] = []
    for chunk in _decode_utf(source):
        if blank + len(chunk) - len(chunk.lstrip()) > BLANK_LIMIT_BYTES:
            at = line + sum(map(count_lines, parts))
            raise SourceError(
                f"{label}, near line {at}: more than 1 MiB of empty lines; check that it is the right file"
            )
        trailing = len(chunk) - len(chunk.rstrip())
        blank = blank + trailing if trailing == len(chunk) else trailing
        end = chunk.rfind(b"\n") + 1
        first = chunk.find(b"\n") + 1 if end else len(chunk)
        if len(carry) + first > LINE_LIMIT_BYTES:
            at = line + sum(map(count_lines, parts))
            raise SourceError(f"{label}, line {at}: a line of more than 1 MiB; check that it is the right file")
        if not end:
            carry += chunk
            continue
        parts += [carry, memoryview(chunk)[:end]]  # joined below, not copied before
        size += len(carry) + end
        carry = chunk[end:]
        if size >= block_bytes:
            block = _check_text(label, b"".join(parts), line)
            yield block
            line, parts, size = line + count_lines(block.data), [], 0
    data = b"".join([*parts, carry])
    if data:
        yield _check_text(label, data, line)


def split_lines(source: Input, block_bytes: int = BYTES_PER_MIB) -> Iterator[str]:
    """The text line by line, without line ends. SourceError as `split_blocks`."""
    for block in split_blocks(source, block_bytes):
        yield from block.data.decode().removesuffix("\n").split("\n")


def count_lines(data: bytes | memoryview) -> int:
    """How many lines end in these bytes; several times faster than `bytes.count`.

    >>> count_lines(b"one, two\\nthree")
    1
    """
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")))


def join_pieces(label: str, pieces: Iterable[bytes], limit_bytes: int, advice: str) -> bytes:
    """All of an input that is needed whole. SourceError with this advice when it is larger than `limit_bytes`."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > limit_bytes:
            raise SourceError(f"{label} is larger than {limit_bytes // BYTES_PER_MIB} MiB; {advice}")
    return bytes(data)


def _check_text(label: str, data: bytes, line: int) -> TextBlock:
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as e:
        at = line + data.count(b"\n", 0, e.start)
        raise SourceError(f"{label}, line {at}: not text (bytes that are not UTF-8); is this the right file?") from None
    if b"\0" in data:
        at = line + data.count(b"\n", 0, data.find(b"\0"))
        raise SourceError(f"{label}, line {at}: not text (a zero byte); is this the right file?")
    return TextBlock(data.replace(b"\r\n", b"\n") if b"\r" in data else data, line)


def _decode_utf(source: Input) -> Iterator[bytes]:
    """The input as UTF-8, in the pieces it comes in; its byte order mark decides."""
    decode, first = None, True
    for chunk in source.chunks:
        if first and chunk:
            first = False
            for magic, name in _BINARY:
                if chunk.startswith(magic):
                    raise SourceError(f"{source.label} is {name}; unpack it first (gzip is read as it is)")
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
            raise SourceError(f"{source.label}: not text (broken UTF-16); is this the right file?") from None
    if first:
        raise EmptyInputError(f"{source.label} is empty; nothing was recorded in it")


_ENDINGS: Final = (".csv", ".log", ".txt", ".xml", ".prom", ".metrics", ".om", ".dmon", ".out")
_ROTATED: Final = re.compile(
    rf"(.+(?:{'|'.join(map(re.escape, _ENDINGS))}))[.-]\d[\d-]*"
)  # gpu.csv.1, gpu.csv-20240131


def strip_rotation(name: str) -> str:
    """The name as it was before the file was rotated away and compressed.

    >>> strip_rotation("node-7.log.2.gz")
    'node-7.log'
    """
    name = name.removesuffix(".gz")
    rotated = _ROTATED.fullmatch(name)
    return rotated[1] if rotated else name


def strip_endings(name: str) -> str:
    """The name without the endings of logs, of rotation and of compression: the node, when nothing else names it.

    >>> strip_endings("node-7.example.csv.gz"), strip_endings("node-7.log.2.gz"), strip_endings("node-7.csv-20240131")
    ('node-7.example', 'node-7', 'node-7')
    """
    plain = strip_rotation(name)
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending)
    return plain or name
