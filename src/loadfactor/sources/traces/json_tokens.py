"""JSON's tokens, read by compiled code: spaces, strings, numbers and whole values, from bytes of which more may come.

Every function gives where it stopped, or MORE where the bytes end before the token does, or BAD where it is no JSON. A string that
holds bare quotes, which profilers have written, is read with `tolerant`: there a quote ends it only before , : ] or }.
https://www.rfc-editor.org/rfc/rfc8259
"""

from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import inner
from loadfactor.base.units import NS_PER_US

Bytes = NDArray[np.uint8]
MORE: Final = -1
BAD: Final = -2
MISSING: Final = np.iinfo(np.int64).min
"""A number that is not there."""
TOO_LARGE: Final = MISSING + 1
"""A number that no 64 bits hold, or one that is none: NaN, Infinity."""
QUOTE, COMMA, COLON, BACKSLASH = 34, 44, 58, 92
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
MINUS, PLUS, POINT, ZERO, NINE = 45, 43, 46, 48, 57
_SPACE: Final = 32
_E, _LARGE_E = 101, 69
_MOST: Final = np.iinfo(np.int64).max // 10 - 1
MOST_US: Final = np.iinfo(np.int64).max // NS_PER_US - 1
_THOUSANDTHS: Final = 3
TEXTS: Final = 8
"""The first columns are texts."""


@inner
def skip_space(data: Bytes, i: int, end: int) -> int:
    """Where the next token begins; control characters count as space."""
    while i < end and data[np.uint64(i)] <= _SPACE:
        i += 1
    return i


@inner
def find_quote(data: Bytes, i: int, end: int, tolerant: bool) -> int:
    """Where the string that began before `i` is closed."""
    while i < end:
        byte = data[np.uint64(i)]
        if byte == BACKSLASH:
            i += 2
            continue
        if byte == QUOTE:
            if not tolerant:
                return i
            after = skip_space(data, i + 1, end)
            if after >= end:
                return MORE
            follower = data[np.uint64(after)]
            if follower in (COMMA, COLON, CLOSE, CLOSE_LIST):
                return i
        i += 1
    return MORE


@inner
def skip_value(data: Bytes, i: int, end: int, tolerant: bool) -> int:
    """Where the value ends that begins at `i`."""
    depth = 0
    while i < end:
        byte = data[np.uint64(i)]
        if byte == QUOTE:
            i = find_quote(data, i + 1, end, tolerant)
            if i < 0:
                return i
            i += 1
        elif byte in (OPEN, OPEN_LIST):
            depth += 1
            i += 1
            continue
        elif byte in (CLOSE, CLOSE_LIST):
            if depth == 0:
                return BAD
            depth -= 1
            i += 1
        elif depth == 0:
            i = _end_of_word(data, i, end)
        else:
            i += 1
            continue
        if depth == 0:
            return i
    return MORE


@inner
def _end_of_word(data: Bytes, i: int, end: int) -> int:
    """Where a number, true, false or null ends."""
    begin = i
    while i < end:
        byte = data[np.uint64(i)]
        if byte <= _SPACE or byte in (COMMA, CLOSE, CLOSE_LIST, COLON, QUOTE):
            return i if i > begin else BAD
        i += 1
    return MORE


@inner
def find_text(data: Bytes, i: int, end: int, tolerant: bool) -> tuple[int, int, int]:
    """Where the text of a string or number begins and ends, and where the value does."""
    if data[np.uint64(i)] == QUOTE:
        stop = find_quote(data, i + 1, end, tolerant)
        return i + 1, stop, stop + 1 if stop >= 0 else stop
    stop = skip_value(data, i, end, tolerant)
    return i, stop, stop


@inner
def read_thousandths(data: Bytes, i: int, end: int) -> int:
    """A decimal number as whole thousandths, rounded: microseconds as nanoseconds, exact to the last digit."""
    negative = i < end and data[np.uint64(i)] == MINUS
    if i < end and (negative or data[np.uint64(i)] == PLUS):
        i += 1
    whole: Any = np.int64(0)
    begin = i
    while i < end and ZERO <= data[np.uint64(i)] <= NINE:
        if whole > _MOST:
            return TOO_LARGE
        whole = whole * 10 + (data[np.uint64(i)] - ZERO)
        i += 1
    if i == begin:
        return TOO_LARGE
    if i < end and data[np.uint64(i)] != POINT:
        return _scale(whole, data, i, end, negative)
    if whole > MOST_US:
        return TOO_LARGE
    part: Any = np.int64(0)
    digits = 0
    i += 1
    while i < end and ZERO <= data[np.uint64(i)] <= NINE:
        if digits < _THOUSANDTHS:
            part = part * 10 + (data[np.uint64(i)] - ZERO)
        elif digits == _THOUSANDTHS and data[np.uint64(i)] - ZERO >= 5:
            part += 1
        digits += 1
        i += 1
    while digits < _THOUSANDTHS:
        part *= 10
        digits += 1
    found: Any = whole * NS_PER_US + part
    if i < end:
        return _scale_float(found / NS_PER_US, data, i, end, negative)
    return int(-found if negative else found)


@inner
def _scale(whole: int, data: Bytes, i: int, end: int, negative: bool) -> int:
    """A whole number that something follows: an exponent."""
    return _scale_float(np.float64(whole), data, i, end, negative)


@inner
def _scale_float(value: float, data: Bytes, i: int, end: int, negative: bool) -> int:
    """A number with an exponent, as thousandths: exact to the digits of a float."""
    if data[np.uint64(i)] != _E and data[np.uint64(i)] != _LARGE_E:
        return TOO_LARGE
    i += 1
    down = i < end and data[np.uint64(i)] == MINUS
    if i < end and (down or data[np.uint64(i)] == PLUS):
        i += 1
    power = 0
    while i < end and ZERO <= data[np.uint64(i)] <= NINE and power < NS_PER_US:
        power = power * 10 + (data[np.uint64(i)] - ZERO)
        i += 1
    scaled = value * 10.0 ** (-power if down else power)
    if i < end or not scaled < MOST_US:
        return TOO_LARGE
    found: Any = np.int64(round(scaled * NS_PER_US))
    return int(-found if negative else found)


@inner
def read_whole(data: Bytes, i: int, end: int) -> int:
    """The whole part of a number; MISSING where there is none, TOO_LARGE beyond 64 bits."""
    negative = i < end and data[np.uint64(i)] == MINUS
    if negative:
        i += 1
    whole: Any = np.int64(0)
    begin = i
    while i < end and ZERO <= data[np.uint64(i)] <= NINE:
        if whole > _MOST:
            return TOO_LARGE
        whole = whole * 10 + (data[np.uint64(i)] - ZERO)
        i += 1
    if i == begin:
        return MISSING
    return int(-whole if negative else whole)


class EventField(IntEnum):
    """The columns of scanned rows. Those from NAME to DIMS are texts, by the number of the table of texts."""

    NAME = 0
    CAT = 1
    PID = 2
    TID = 3
    COLLECTIVE = 4
    DTYPE = 5
    GROUP = 6
    DIMS = 7
    START_NS = 8
    DURATION_NS = 9
    PHASE = 10
    CORRELATION = 11
    EXTERNAL = 12
    DEVICE = 13
    STREAM = 14
    BYTES = 15
    GRID = 16
    OCCUPANCY = 17
    ELEMENTS_IN = 18
    ELEMENTS_OUT = 19
    GROUP_SIZE = 20
    ALLOCATED = 21
    RESERVED = 22
    DEVICE_KIND = 23


COLUMNS: Final = len(EventField)
START, DURATION = int(EventField.START_NS), int(EventField.DURATION_NS)
PHASE, GRID, DIMS = int(EventField.PHASE), int(EventField.GRID), int(EventField.DIMS)
NAME, CAT, PID, TID = int(EventField.NAME), int(EventField.CAT), int(EventField.PID), int(EventField.TID)
ALLOCATED = int(EventField.ALLOCATED)
ARGS: Final = COLUMNS
"""The member that holds the others."""
NOTHING: Final = COLUMNS + 1
_OF_EVENT: Final = {
    "ph": PHASE,
    "ts": START,
    "cat": CAT,
    "dur": DURATION,
    "pid": PID,
    "tid": TID,
    "name": NAME,
    "args": ARGS,
}
_OF_ARGS: Final = {
    "device": EventField.DEVICE,
    "stream": EventField.STREAM,
    "bytes": EventField.BYTES,
    "grid": EventField.GRID,
    "correlation": EventField.CORRELATION,
    "external id": EventField.EXTERNAL,
    "input dims": EventField.DIMS,
    "est. achieved occupancy %": EventField.OCCUPANCY,
    "collective name": EventField.COLLECTIVE,
    "dtype": EventField.DTYPE,
    "process group name": EventField.GROUP,
    "in msg nelems": EventField.ELEMENTS_IN,
    "out msg nelems": EventField.ELEMENTS_OUT,
    "group size": EventField.GROUP_SIZE,
    "total allocated": EventField.ALLOCATED,
    "total reserved": EventField.RESERVED,
    "device type": EventField.DEVICE_KIND,
    "device id": EventField.DEVICE,
}


def _tabulate(members: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The names of members one behind another, by length; where each begins; and the column of each."""
    names = sorted(members, key=len)
    begins = np.cumsum([0, *(len(name) for name in names)]).astype(np.int64)
    columns = np.array([int(members[name]) for name in names], np.int64)
    return np.frombuffer("".join(names).encode(), np.uint8), begins, columns


EVENT_TEXT, EVENT_BEGINS, EVENT_COLUMNS = _tabulate(_OF_EVENT)
ARGS_TEXT, ARGS_BEGINS, ARGS_COLUMNS = _tabulate({name: int(column) for name, column in _OF_ARGS.items()})
