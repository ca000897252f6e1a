"""Protobuf messages field by field, in Python: for the parts of an input of which there are few.

https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MASK: Final = (1 << 64) - 1
_WIRE = 7
_LONGEST: Final = 70


class WireError(ValueError):
    """Bytes that are no message."""


def read_varint(data: memoryview, i: int, end: int) -> tuple[int, int]:
    """A number and where it stopped."""
    found = shift = 0
    while i < end and shift < _LONGEST:
        byte = data[i]
        found |= (byte & 0x7F) << shift
        i += 1
        if byte < 0x80:
            return found & _MASK, i
        shift += 7
    raise WireError(f"a number at byte {i:,} does not end")


def walk(data: memoryview, i: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message: its number, its value or where its bytes begin, where they end, and its wire type."""
    while i < end:
        tag, i = read_varint(data, i, end)
        number, wire = tag >> 3, tag & _WIRE
        if number == 0:
            raise WireError(f"a field at byte {i:,} has number 0")
        if wire == VARINT:
            value, i = read_varint(data, i, end)
            yield number, value, i, wire
        elif wire == BYTES:
            size, i = read_varint(data, i, end)
            if size > end - i:
                raise WireError(f"a field at byte {i:,} reaches beyond the message it is in")
            yield number, i, i + size, wire
            i += size
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            if size > end - i:
                raise WireError(f"a number at byte {i:,} is cut")
            yield number, i, i + size, wire
            i += size
        else:
            raise WireError(f"a field at byte {i:,} is of a type that is not in use")


def signed(value: int) -> int:
    """A number as protobuf's int64."""
    return value - (1 << 64) if value >> 63 else value


def text(data: memoryview, begin: int, end: int) -> str:
    """Bytes as text."""
    return bytes(data[begin:end]).decode("utf-8", "replace")


def real(data: memoryview, begin: int) -> float:
    """Eight bytes as a floating-point number."""
    return float(struct.unpack_from("<d", data, begin)[0])
