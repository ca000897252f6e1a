"""Totals of a driver that have too few bits: they begin again at 0 and are made to go on."""

from collections.abc import Hashable
from typing import Final

NARROW_BITS: Final = 32
_WRAP: Final = 1 << NARROW_BITS
_HIGH, _LOW = 3 * _WRAP // 4, _WRAP // 4


class NarrowTotals:
    """Totals of 32 bits by name."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._passed: dict[Hashable, int] = {}

    def extend(self, name: Hashable, total: int) -> int:
        """The total with what was lost when it began again; one that falls otherwise was set back, and begins anew.

        >>> totals = NarrowTotals()
        >>> [totals.extend("a", n) for n in (4294967290, 4, 10, 3)]
        [4294967290, 4294967300, 4294967306, 3]
        """
        last = self._last.get(name, 0)
        if total < last:
            wrapped = last >= _HIGH and total < _LOW
            self._passed[name] = self._passed.get(name, 0) + _WRAP if wrapped else 0
        self._last[name] = total
        return total + self._passed.get(name, 0)
