"""TFRecord: length, its masked CRC-32C, the data, and theirs; and the fields of a protobuf message.

Sources: tensorflow/core/lib/io/record_writer.h, tensorflow/core/lib/hash/crc32c.h; https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from loadfactor.base.units import BYTES_PER_MIB

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, bits reversed
_MASK: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("<QI")
_CHECK: Final = struct.Struct("<I")
_LONGEST: Final = 256 * BYTES_PER_MIB
_CHECKED: Final = BYTES_PER_MIB // 16  # data of a scalar is shorter; images and graphs are passed over unchecked


class DamagedRecordError(Exception):
    """The bytes from here on are no record; `args[0]` says how many records came before."""


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE: Final = _make_table()


def mask_crc32c(data: bytes) -> int:
    """The checksum of bytes as TFRecord writes it: CRC-32C, turned by 15 bits, plus a constant.

    >>> hex(mask_crc32c(b"123456789"))                     # CRC-32C e3069283
    '0xc78ab0e5'
    """
    crc = _WORD
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= _WORD
    return ((crc >> 15 | crc << 17) + _MASK) & _WORD


def is_record(begin: bytes) -> bool:
    """Whether these are the first bytes of a record: its length with the right checksum."""
    if len(begin) < _HEADER.size:
        return False
    return bool(mask_crc32c(begin[:8]) == _HEADER.unpack_from(begin)[1])


def split_records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of every whole record; a last one that was being written is left out.

    Raises DamagedRecordError where a checksum is wrong.
    """
    data, count = bytearray(), 0
    for chunk in chunks:
        data += chunk
        at = 0
        while len(data) - at >= _HEADER.size:
            length, check = _HEADER.unpack_from(data, at)
            if mask_crc32c(bytes(data[at : at + 8])) != check or length > _LONGEST:
                raise DamagedRecordError(count)
            end = at + _HEADER.size + length
            if len(data) < end + _CHECK.size:
                break
            found = bytes(data[at + _HEADER.size : end])
            if length <= _CHECKED and mask_crc32c(found) != _CHECK.unpack_from(data, end)[0]:
                raise DamagedRecordError(count)
            yield found
            count, at = count + 1, end + _CHECK.size
        del data[:at]


def split_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: a varint as a number, others as their bytes. Ends at the first that is none."""
    i, end = 0, len(message)
    while i < end:
        tag, i = _read_varint(message, i)
        kind = tag & 7
        if i < 0:
            return
        if kind == 0:
            number, i = _read_varint(message, i)
            if i < 0:
                return
            yield tag >> 3, number
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, i = _read_varint(message, i)
        if i < 0 or size < 0 or i + size > end:
            return
        yield tag >> 3, message[i : i + size]
        i += size


def _read_varint(data: bytes, i: int) -> tuple[int, int]:
    number = shift = 0
    while i < len(data) and shift < 70:
        byte = data[i]
        number |= (byte & 0x7F) << shift
        i += 1
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, i
        shift += 7
    return 0, -1
