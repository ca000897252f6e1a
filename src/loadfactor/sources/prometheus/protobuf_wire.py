"""Protobuf's wire format, read by compiled code: varints, fields that are skipped, and the labels of a series.

Every function takes where to begin and where the message ends, and gives where it stopped, or a negative number that says why
not (`FAULTS`). Nothing outside the message is read. https://protobuf.dev/programming-guides/encoding
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types. The others, groups, have not been in use since 2008."""
WIRE_BITS: Final = 3
WIRE_MASK: Final = 7
_MORE: Final = 128  # the bit of a byte that says that the varint goes on
_PAYLOAD: Final = 127
_LAST_SHIFT: Final = 63  # of the tenth byte, of which one bit is left
_NAME: Final = np.frombuffer(b"__name__", np.uint8)
NAME_SPANS: Final = 4
_HIGHEST_TAG: Final = (1 << 32) - 1
FIRST_BYTES: Final = 1 << WIRE_BITS | BYTES
"""The tag of field 1 where it is bytes: a series of a request, a label of a series, the name of a label."""
SECOND_BYTES: Final = 2 << WIRE_BITS | BYTES
"""The tag of field 2 where it is bytes: a sample of a series, the value of a label."""

TRUNCATED, LONG_VARINT, BAD_LENGTH, BAD_TAG, BAD_WIRE = -1, -2, -3, -4, -5
NAMELESS, MANY_LABELS = -6, -7
"""Labels that are whole, of which nothing else is wrong."""
FAULTS: Final = {
    TRUNCATED: "ends in the middle of a value",
    LONG_VARINT: "has a number of more than 64 bits",
    BAD_LENGTH: "has a length that reaches beyond what it is in",
    BAD_TAG: "has a field with a number that protobuf does not allow",
    BAD_WIRE: "has a field of another type than remote_write 1.0 says",
}


@inner
def read_varint(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """A number of up to 64 bits, as a signed one, and where it stopped."""
    if i >= end:
        return 0, TRUNCATED
    byte: Any = np.int64(data[np.uint64(i)])  # unsigned places never count from the end, which would take a check
    if byte < _MORE:
        return byte, i + 1
    found: Any = byte & _PAYLOAD
    shift: Any = np.int64(7)
    while True:
        i += 1
        if i >= end:
            return 0, TRUNCATED
        byte = np.int64(data[np.uint64(i)])
        if shift == _LAST_SHIFT and byte > 1:
            return 0, LONG_VARINT
        found |= (byte & _PAYLOAD) << shift
        if byte < _MORE:
            return found, i + 1
        shift += 7


@inner
def read_length(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """The length of what follows, all of which lies before the end, and where it begins."""
    length, i = read_varint(data, i, end)
    if i >= 0 and (length < 0 or length > end - i):
        return 0, BAD_LENGTH
    return length, i


@inner
def skip_field(data: Bytes, i: int, end: int, tag: int) -> int:
    """Where the field ends whose tag was just read."""
    if tag < 1 << WIRE_BITS or tag > _HIGHEST_TAG:
        return BAD_TAG
    wire = tag & WIRE_MASK
    if wire == VARINT:
        return read_varint(data, i, end)[1]
    if wire == BYTES:
        length, i = read_length(data, i, end)
        return i + length if i >= 0 else i
    size = 8 if wire == FIXED64 else 4 if wire == FIXED32 else 0
    if size == 0:
        return BAD_WIRE
    return i + size if size <= end - i else TRUNCATED


@inner
def _is_name(data: Bytes, i: int) -> bool:
    same = True
    for k in range(len(_NAME)):
        same &= data[i + k] == _NAME[k]
    return same


@entry
def split_labels(data: Bytes, i: int, end: int, spans: Ints) -> int:
    """Splits the labels of a series; gives how many have a value, whose name and value lie where `spans` says: four ends each.

    The last four of `spans` (NAME_SPANS) say where the value of the label `__name__` lies, and where its whole field does; 0 where
    there is none, and right also after NAMELESS and MANY_LABELS. A label with an empty value is no label, as Prometheus has it.
    """
    last = len(spans) - NAME_SPANS
    count, most, odd = 0, last // 4, 0
    spans[last:] = 0
    while i < end:
        begin = i
        _, i = read_varint(data, i, end)  # the caller has seen that every field is a label
        size, i = read_length(data, i, end)
        if i < 0:
            return i
        stop, name, name_end, value, value_end = i + size, 0, 0, 0, 0
        while i < stop:
            tag, i = read_varint(data, i, stop)
            if i < 0:
                return i
            if tag in (FIRST_BYTES, SECOND_BYTES):
                size, i = read_length(data, i, stop)
                if i < 0:
                    return i
                if tag == FIRST_BYTES:
                    name, name_end = i, i + size
                else:
                    value, value_end = i, i + size
                i += size
                continue
            if tag >> WIRE_BITS in (1, 2):
                return BAD_WIRE
            i = skip_field(data, i, stop, tag)
            if i < 0:
                return i
        if name == name_end:
            odd = NAMELESS
            continue
        if value == value_end:
            continue
        if name_end - name == len(_NAME) and _is_name(data, name):
            spans[last], spans[last + 1], spans[last + 2], spans[last + 3] = value, value_end, begin, i
        if count == most:
            odd = MANY_LABELS
            continue
        spans[4 * count], spans[4 * count + 1] = name, name_end
        spans[4 * count + 2], spans[4 * count + 3] = value, value_end
        count += 1
    return count if odd == 0 else odd
