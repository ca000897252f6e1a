"""A slow and obvious reader of a remote_write request, unpacked: what the scanner is compared with."""

import struct
from collections.abc import Iterator
from typing import Any

EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_133_980_799_999


class MalformedError(Exception):
    """The request is none."""


def read_request(data: bytes) -> list[tuple[dict[str, str], list[tuple[int, int]]]]:
    """Every series with its labels and its samples, as (milliseconds, bits of the value)."""
    found = []
    for number, wire, content in read_fields(data):
        if number in (4, 5) or (number == 1 and wire != 2):
            raise MalformedError(number)
        if number == 1:
            found.append(_read_series(content))
    return found


def _read_series(data: bytes) -> tuple[dict[str, str], list[tuple[int, int]]]:
    labels: dict[str, str] = {}
    samples, count, begun = [], 0, False
    for number, wire, content in read_fields(data):
        if number in (1, 2) and wire != 2:
            raise MalformedError(number)
        if number == 1 and begun:
            raise MalformedError("labels behind samples")
        begun = begun or number != 1
        if number == 1:
            texts = {1: b"", 2: b""}
            for part, kind, text in read_fields(content):
                if part in (1, 2):
                    if kind != 2:
                        raise MalformedError(part)
                    texts[part] = text
            try:
                name, value = texts[1].decode(), texts[2].decode()
            except UnicodeDecodeError:
                raise MalformedError("not UTF-8") from None
            if not name or (value and name in labels):
                raise MalformedError("name")
            count += 1
            if value:
                labels[name] = value
        elif number == 2:
            bits, at = 0, 0
            for part, kind, inside in read_fields(content):
                if (part, kind) == (1, 1):
                    bits = inside
                elif (part, kind) == (2, 0):
                    at = inside - (1 << 64) if inside >> 63 else inside
                elif part in (1, 2):
                    raise MalformedError(part)
            if not EARLIEST_MS <= at <= LATEST_MS:
                raise MalformedError("instant")
            samples.append((at, bits))
    if not count or "__name__" not in labels:
        raise MalformedError("nameless")
    return labels, samples


def read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and content of every field."""
    i = 0
    while i < len(data):
        tag, i = _read_varint(data, i)
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag >> 32:
            raise MalformedError("tag")
        content: Any
        if wire == 0:
            content, i = _read_varint(data, i)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if len(data) - i < size:
                raise MalformedError("ends")
            content = struct.unpack("<Q" if wire == 1 else "<I", data[i : i + size])[0]
            i += size
        elif wire == 2:
            size, i = _read_varint(data, i)
            if size > len(data) - i:
                raise MalformedError("length")
            content = data[i : i + size]
            i += size
        else:
            raise MalformedError("wire type")
        yield number, wire, content


def _read_varint(data: bytes, i: int) -> tuple[int, int]:
    found = 0
    for k in range(10):
        if i + k >= len(data):
            raise MalformedError("ends")
        byte = data[i + k]
        if k == 9 and byte > 1:
            raise MalformedError("long")
        found |= (byte & 127) << 7 * k
        if byte < 128:
            return found, i + k + 1
    raise MalformedError("long")
