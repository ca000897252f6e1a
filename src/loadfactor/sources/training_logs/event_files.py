"""TensorBoard's event files: scalars with the time they were written, without TensorFlow.

Sources: tensorboard/compat/proto/event.proto, summary.proto and tensor.proto (tensorflow/tensorboard).
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Gaps, Input
from loadfactor.sources.parsing.times import SECONDS_BELOW
from loadfactor.sources.protobuf import VARINT, WireError, walk
from loadfactor.sources.training_logs.iteration import RunLog
from loadfactor.sources.training_logs.scalars import Scalars, make_run

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, bits reversed
_MASK: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("<QI")
_CHECK: Final = struct.Struct("<I")
_LONGEST: Final = 256 * BYTES_PER_MIB
_CHECKED: Final = BYTES_PER_MIB // 16  # data of a scalar is shorter; images and graphs are passed over unchecked
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5  # of Event
_VALUE, _TAG, _SIMPLE, _TENSOR = 1, 1, 2, 8  # of Summary, and of its values
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _LONGS = 1, 4, 5, 6, 7, 10  # of TensorProto
_FORMS: Final = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # of its types
_STEP_MAX: Final = 10**12


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
    try:
        for number, value, end, wire in walk(memoryview(message), 0, len(message)):
            yield number, value if wire == VARINT else message[value:end]
    except WireError:
        return


def read_event_file(source: Input, gaps: Gaps) -> RunLog:
    """The run that an event file tells of: an iteration for each step at which a loss, or else anything, was written."""
    scalars = Scalars()
    try:
        for record in split_records(source.chunks):
            _read_event(record, scalars)
    except DamagedRecordError:
        gaps.add(source.label, "damaged record; what comes after it is not in")
    return make_run(source.label, "TensorBoard", scalars)


def _read_event(record: bytes, scalars: Scalars) -> None:
    at_s, step, summaries = 0.0, 0, []
    for number, found in split_fields(record):
        if number == _WALL_TIME and isinstance(found, bytes) and len(found) == 8:
            at_s = struct.unpack("<d", found)[0]
        elif number == _STEP and isinstance(found, int):
            step = found
        elif number == _SUMMARY and isinstance(found, bytes):
            summaries.append(found)
    if not 0 <= step < _STEP_MAX or not 0 < at_s < SECONDS_BELOW:
        return
    for summary in summaries:
        for number, found in split_fields(summary):
            if number == _VALUE and isinstance(found, bytes):
                tag, value = _read_value(found)
                if tag and value is not None and abs(value) < float("inf"):
                    scalars.add(tag, step, round(at_s * MS_PER_S), value)


def _read_value(message: bytes) -> tuple[str, float | None]:
    tag, value = "", None
    for number, found in split_fields(message):
        if not isinstance(found, bytes):
            continue
        if number == _TAG:
            tag = found.decode(errors="replace")
        elif number == _SIMPLE and len(found) == 4:
            value = float(struct.unpack("<f", found)[0])
        elif number == _TENSOR:
            value = _read_tensor(found)
    return tag, value


def _read_tensor(message: bytes) -> float | None:
    """The number of a tensor that is one; TensorFlow 2 writes scalars so."""
    dtype, content = 0, b""
    for number, found in split_fields(message):
        if number == _DTYPE and isinstance(found, int):
            dtype = found
        elif number in (_CONTENT, _FLOATS, _DOUBLES) and isinstance(found, bytes):
            content = found
        elif number in (_INTS, _LONGS):
            values = [found] if isinstance(found, int) else []
            return float(values[0]) if values else None
    form = _FORMS.get(dtype)
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])
