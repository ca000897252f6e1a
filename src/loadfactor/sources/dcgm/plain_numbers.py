"""Plain numbers and times in bytes, compiled: read as Python and `parse_epoch_ms` read them to the last bit, or not at all."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import inner
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.parsing.times import EPOCH_MS_BELOW, SECONDS_BELOW

Bytes = NDArray[np.uint8]
_PLUS, _MINUS, _DOT, _ZERO, _NINE, _SMALL_E, _LARGE_E = (ord(c) for c in "+-.09eE")
_EXACT: Final = 2**53  # whole numbers up to here, divided or multiplied by one exact power of ten, are rounded once
POWERS: Final = np.array([10.0**i for i in range(23)])
"""The powers of ten that a float holds exactly."""


@inner
def read_number(data: Bytes, i: int, powers: NDArray[np.float64]) -> tuple[float, int]:
    """A number in digits and where it ends; -1 there where it is anything else, or would be rounded twice."""
    negative = data[i] == _MINUS
    if negative or data[i] == _PLUS:
        i += 1
    whole, digits, scale, n = 0, 0, 0, len(data)
    for part in range(2):
        while i < n and _ZERO <= data[i] <= _NINE:
            if whole >= _EXACT:
                return 0.0, -1
            whole = 10 * whole + (int(data[i]) - _ZERO)
            digits += 1
            scale += part
            i += 1
        if part == 0 and i < n and data[i] == _DOT:
            i += 1
        else:
            break
    if digits and i < n and (data[i] == _SMALL_E or data[i] == _LARGE_E):
        i += 1
        down = i < n and data[i] == _MINUS
        if down or (i < n and data[i] == _PLUS):
            i += 1
        power, digits = 0, 0
        while i < n and _ZERO <= data[i] <= _NINE and digits < 4:
            power = 10 * power + (int(data[i]) - _ZERO)
            digits += 1
            i += 1
        scale += power if down else -power
    if not digits or whole > _EXACT or not -len(powers) < scale < len(powers):
        return 0.0, -1
    value = whole / powers[scale] if scale >= 0 else whole * powers[-scale]
    return -value if negative else value, i


@inner
def read_time(data: Bytes, i: int, powers: NDArray[np.float64]) -> tuple[int, int]:
    """A time in ms since 1970 and where it ends, -1 there where LineReader has to read it (`parse_epoch_ms`)."""
    at, end = read_number(data, i, powers)
    if end < 0 or not _ZERO <= data[i] <= _NINE or at >= EPOCH_MS_BELOW:
        return 0, -1
    return int(at) if at >= SECONDS_BELOW else int(np.rint(at * MS_PER_S)), end
