"""Readings, and their body of remote_write 1.0: protobuf in a block of snappy."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

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
    parts = [text.encode("utf-8", "replace") for text in (name, value)]
    body = b"".join(tag + write_varint(len(part)) + part for tag, part in zip((b"\x0a", b"\x12"), parts, strict=True))
    return _LABEL + write_varint(len(body)) + body


def write_instant(at_ms: int) -> bytes:
    return _TIMESTAMP_TAG + write_varint(at_ms)


def write_sample(value: float, instant: bytes) -> bytes:
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
    number = 0
    for index in range(at, min(at + _LONGEST_VARINT, len(message))):
        number |= (message[index] & 0x7F) << 7 * (index - at)
        if message[index] < 0x80:
            return number, index + 1
    raise ValueError("the message ends within a number")


_NAME: Final = "__name__"


class Labels:
    """Labels of a series but for its name; kept as long as they stay the same, so that they are encoded once."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.pairs = tuple(sorted((name, value) for name, value in labels.items() if value))
        self.before = b"".join(write_label(*pair) for pair in self.pairs if pair[0] < _NAME)
        self.after = b"".join(write_label(*pair) for pair in self.pairs if pair[0] > _NAME)


class SeriesValues(NamedTuple):
    """Values by metric name, read at `at_ms` (ms since 1970 UTC)."""

    labels: Labels
    at_ms: int
    values: Mapping[str, float]


AGENT_PREFIX: Final = "loadfactor_agent_"
"""Prefix of the names of the agent's own counts."""
_COUNTED: Final = (
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
)


def is_counter(name: str) -> bool:
    """Whether a metric is a total that only grows."""
    return name in _COUNTED or name.endswith(("_total", "_BYTES_TOTAL"))


_LONGEST_COPY: Final = 64
_SHORTEST_COPY: Final = 16
_NEAR: Final = 1 << 16


class SnappyBlock:
    """A block that grows by parts; a part that stood in it before is written as a reference."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._literal: list[bytes] = []
        self._literal_size = 0
        self._size = 0
        self._positions: dict[bytes, int] = {}

    def add(self, part: bytes) -> None:
        """Bytes that are not expected again."""
        self._literal.append(part)
        self._literal_size += len(part)
        self._size += len(part)

    def add_known(self, part: bytes) -> None:
        """Bytes that may stand in the block already."""
        if len(part) < _SHORTEST_COPY:
            return self.add(part)
        index = self._positions.get(part)
        self._positions[part] = self._size
        if index is None:
            return self.add(part)
        self._flush_literal()
        offset = self._size - index
        near = offset < _NEAR
        back = offset.to_bytes(2 if near else 4, "little")
        kind = 2 if near else 3
        whole, rest = divmod(len(part), _LONGEST_COPY)
        self._out.append((bytes((((_LONGEST_COPY - 1) << 2) | kind,)) + back) * whole)
        if rest:
            self._out.append(bytes((((rest - 1) << 2) | kind,)) + back)
        self._size += len(part)
        return None

    def finish(self) -> bytes:
        """The block."""
        self._flush_literal()
        return b"".join([write_varint(self._size), *self._out])

    def _flush_literal(self) -> None:
        size = self._literal_size
        if not size:
            return
        if size <= 60:
            self._out.append(bytes(((size - 1) << 2,)))
        else:
            bytes_of_size = ((size - 1).bit_length() + 7) // 8
            self._out.append(bytes(((59 + bytes_of_size) << 2,)) + (size - 1).to_bytes(bytes_of_size, "little"))
        self._out.extend(self._literal)
        self._literal, self._literal_size = [], 0


def pack_readings(readings: Iterable[SeriesValues]) -> bytes:
    """The body. Samples of one series stand together, in the order in which they were read; NaN is left out."""
    series: dict[tuple[int, str], tuple[Labels, list[bytes]]] = {}
    instants: dict[int, bytes] = {}
    for labels, at_ms, values in readings:
        instant = instants.get(at_ms) or instants.setdefault(at_ms, write_instant(at_ms))
        for name, value in values.items():
            if value != value:  # NaN: what is not known is not sent
                continue
            found = series.get((id(labels), name))
            if found is None:
                found = series[id(labels), name] = (labels, [])
            found[1].append(write_sample(value, instant))
    block = SnappyBlock()
    for (_, name), (labels, samples) in series.items():
        named = _write_name(name)
        size = len(labels.before) + len(named) + len(labels.after) + sum(map(len, samples))
        block.add(TIMESERIES + write_varint(size))
        block.add_known(labels.before)
        block.add(named)
        block.add_known(labels.after)
        for sample in samples:
            block.add(sample)
    return block.finish()


@lru_cache(1024)
def _write_name(name: str) -> bytes:
    return write_label("__name__", name)
