"""Protobuf: the few messages of Prometheus remote_write 1.0 that the agent writes, and the parts of a message that it reads."""

import struct
from collections.abc import Iterator
from typing import Final

TIMESERIES: Final = b"\x0a"
_LABEL: Final = b"\x0a"
_SAMPLE: Final = struct.Struct("<BBBd")
_VARINT, _PARTS, _FIXED, _LONGEST_VARINT = 0, 2, {1: 8, 5: 4}, 10
_SAMPLE_TAG, _VALUE_TAG, _TIMESTAMP_TAG = 0x12, 0x09, b"\x10"


def write_varint(number: int) -> bytes:
    """A number, seven bits a byte, the lowest first.

    >>> write_varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def write_label(name: str, value: str) -> bytes:
    """One label of a series."""
    parts = [text.encode("utf-8", "replace") for text in (name, value)]
    body = b"".join(tag + write_varint(len(part)) + part for tag, part in zip((b"\x0a", b"\x12"), parts, strict=True))
    return _LABEL + write_varint(len(body)) + body


def write_instant(at_ms: int) -> bytes:
    """The field of a sample that says when."""
    return _TIMESTAMP_TAG + write_varint(at_ms)


def write_sample(value: float, instant: bytes) -> bytes:
    """One sample of a series."""
    return _SAMPLE.pack(_SAMPLE_TAG, 9 + len(instant), _VALUE_TAG, value) + instant


def read_parts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that are texts or messages, with their numbers; other fields are passed over. Raises ValueError.

    >>> list(read_parts(bytes.fromhex("0a026869 1005 1a00")))
    [(1, b'hi'), (3, b'')]
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key & 7 == _PARTS:
            size, at = _read_varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        elif key & 7 == _VARINT:
            _, at = _read_varint(message, at)
        elif key & 7 in _FIXED:
            at += _FIXED[key & 7]
        else:
            raise ValueError(f"no field of protobuf begins with {key}")
    if at > len(message):
        raise ValueError("the message ends within a field")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    number = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(message))):
        number |= (message[place] & 0x7F) << 7 * (place - at)
        if message[place] < 0x80:
            return number, place + 1
    raise ValueError("the message ends within a number")
