"""The few messages of Prometheus remote_write 1.0 that the agent writes."""

import struct
from typing import Final

TIMESERIES: Final = b"\x0a"
_LABEL: Final = b"\x0a"
_SAMPLE: Final = struct.Struct("<BBBd")
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
