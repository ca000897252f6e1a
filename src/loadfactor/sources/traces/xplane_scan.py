"""The events of a line of an XPlane, read by compiled code: each becomes a row of whole numbers.

XEvent{metadata_id=1, offset_ps=2, duration_ps=3, stats=4, num_occurrences=5}, XStat{metadata_id=1, uint64=3, int64=4, ref=7}.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner
from loadfactor.sources.prometheus.protobuf_wire import (
    BYTES,
    VARINT,
    WIRE_BITS,
    WIRE_MASK,
    read_length,
    read_varint,
    skip_field,
)

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
KIND, OFFSET_PS, DURATION_PS, OCCURRENCES, FIRST_STAT = 0, 1, 2, 3, 4
SOUGHT: Final = 4
"""How many statistics are looked for."""
THERE: Final = 1
"""The value of a statistic that is a text."""
COLUMNS: Final = FIRST_STAT + SOUGHT
NONE: Final = np.iinfo(np.int64).min
_EVENTS, _STATS = 4, 4
_UINT, _INT, _REF = 3, 4, 7


@inner
def _read_stat(data: Bytes, i: int, end: int, stats: Ints, row: Ints) -> int:
    """Puts a statistic into its column where it is looked for; gives where it ends or a fault."""
    key: Any = np.int64(0)
    value: Any = np.int64(NONE)
    while i < end:
        tag, i = read_varint(data, i, end)
        if i < 0:
            return i
        number, wire = tag >> WIRE_BITS, tag & WIRE_MASK
        if wire == VARINT and (number == 1 or number in (_UINT, _INT, _REF)):
            found, i = read_varint(data, i, end)
            if number == 1:
                key = found
            else:
                value = found
        else:
            if wire == BYTES:
                value = np.int64(THERE)
            i = skip_field(data, i, end, tag)
        if i < 0:
            return i
    for k in range(SOUGHT):
        if key == stats[k]:
            row[FIRST_STAT + k] = value
    return i


@inner
def _read_event(data: Bytes, i: int, end: int, stats: Ints, row: Ints) -> int:
    row[:] = NONE
    row[:FIRST_STAT] = 0
    while i < end:
        tag, i = read_varint(data, i, end)
        if i < 0:
            return i
        number, wire = tag >> WIRE_BITS, tag & WIRE_MASK
        if wire == VARINT and (number <= 3 or number == 5):
            found, i = read_varint(data, i, end)
            row[KIND if number == 1 else OFFSET_PS if number == 2 else DURATION_PS if number == 3 else OCCURRENCES] = (
                found
            )
        elif wire == BYTES and number == _STATS:
            size, i = read_length(data, i, end)
            if i < 0:
                return i
            i = _read_stat(data, i, i + size, stats, row)
        else:
            i = skip_field(data, i, end, tag)
        if i < 0:
            return i
    return i


@entry
def count_events(data: Bytes, i: int, end: int) -> int:
    """How many events a line has, or a fault."""
    count = 0
    while i < end:
        tag, i = read_varint(data, i, end)
        if i >= 0 and tag == _EVENTS << WIRE_BITS | BYTES:
            count += 1
        if i >= 0:
            i = skip_field(data, i, end, tag)
        if i < 0:
            return i
    return count


@entry
def scan_line(data: Bytes, i: int, end: int, stats: Ints, rows: Ints) -> int:
    """Reads the events of a line into rows, of which there are as many; gives 0 or a fault."""
    at = 0
    while i < end:
        tag, i = read_varint(data, i, end)
        if i >= 0 and tag == _EVENTS << WIRE_BITS | BYTES:
            size, i = read_length(data, i, end)
            if i >= 0:
                i = _read_event(data, i, i + size, stats, rows[at])
                at += 1
        elif i >= 0:
            i = skip_field(data, i, end, tag)
        if i < 0:
            return i
    return 0
