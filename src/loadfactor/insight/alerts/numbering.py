"""Numbers for names and for groups of names: the same name has the same number for as long as its numbering lives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NONE = -1
"""Stands for no name."""
_BITS = 32


class Names:
    """Names of one dimension, numbered from 0 in the order in which they came."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, codes: Ints, names: Sequence[str], left_out: frozenset[str] = frozenset()) -> Ints:
        """The numbers of rows that say by a code which of `names` they have; NONE where they have none, or one left out."""
        own = np.empty(len(names) + 1, dtype=np.int64)
        own[-1] = NONE  # where a code of NONE points
        for place, name in enumerate(names):
            number = NONE if name in left_out else self._numbers.get(name)
            if number is None:
                number = self._numbers[name] = len(self.names)
                self.names.append(name)
            own[place] = number
        return own[codes]

    def find(self, name: str) -> int:
        """The number of a name; NONE where it never came."""
        return self._numbers.get(name, NONE)


class Pairs:
    """Pairs of numbers, numbered from 0 in the order in which they came."""

    def __init__(self) -> None:
        self.firsts = np.empty(0, dtype=np.int64)
        self.seconds = np.empty(0, dtype=np.int64)
        self._sorted = np.empty(0, dtype=np.int64)
        self._numbers = np.empty(0, dtype=np.int64)

    def number(self, firsts: Ints, seconds: Ints) -> Ints:
        """The numbers of pairs; NONE where one of both is NONE."""
        keys = (firsts << _BITS) | (seconds & (2**_BITS - 1))
        is_none = (firsts == NONE) | (seconds == NONE)
        keys[is_none] = NONE
        place = np.minimum(np.searchsorted(self._sorted, keys), max(len(self._sorted) - 1, 0))
        is_known = is_none | (self._sorted[place] == keys if len(self._sorted) else np.zeros(len(keys), dtype=bool))
        if not is_known.all():
            self._add(np.unique(keys[~is_known]))
            place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        if not len(self._sorted):
            return np.full(len(keys), NONE, dtype=np.int64)
        return np.where(is_none, NONE, self._numbers[place])

    def _add(self, keys: Ints) -> None:
        numbers = np.arange(len(self.firsts), len(self.firsts) + len(keys))
        self.firsts = np.append(self.firsts, keys >> _BITS)
        self.seconds = np.append(self.seconds, keys & (2**_BITS - 1))
        at = np.searchsorted(self._sorted, keys)
        self._sorted, self._numbers = np.insert(self._sorted, at, keys), np.insert(self._numbers, at, numbers)
