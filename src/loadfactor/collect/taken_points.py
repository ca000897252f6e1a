"""Which points of answers that overlap were taken already: each counts once, also one that a server stored late."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.prometheus.pending_points import pick_points
from loadfactor.sources.prometheus.remote_write import Points

KNOWN_MS: Final = 10 * S_PER_MIN * MS_PER_S
"""Points are known for so long: answers overlap by no more."""
SHORTEST_KNOWN_MS: Final = S_PER_MIN * MS_PER_S
"""For so long where they are very many; one that comes later than that then counts only where it is the newest of its series."""
MOST_KNOWN: Final = 1_000_000
_AT_BITS: Final = 42


class TakenPoints:
    """The points of the last answers of one server, by the numbers of their series."""

    def __init__(self) -> None:
        self._since_ms: int | None = None  # what lies before, an earlier process took
        self._known: NDArray[np.int64] = np.empty(0, np.int64)
        self._known_from_ms = 0

    def pick_new(self, points: Points, from_ms: int) -> Points:
        """The points of an answer that were in none before. `from_ms`: what is after that is new."""
        if self._since_ms is None:
            self._since_ms = self._known_from_ms = from_ms
        if not len(points.series):
            return points
        keys = (points.series.astype(np.int64) << _AT_BITS) | points.at_ms
        again = (points.at_ms > max(self._since_ms, self._known_from_ms)) & (points.at_ms <= from_ms)
        new = points.at_ms > from_ms
        new[again] = ~np.isin(keys[again], self._known)
        self._remember(keys[new], int(points.at_ms.max()))
        return pick_points(points, new)

    def _remember(self, keys: NDArray[np.int64], newest_ms: int) -> None:
        keys = np.concatenate([self._known, keys])
        at_ms = keys & ((1 << _AT_BITS) - 1)
        oldest_ms = max(self._known_from_ms, newest_ms - KNOWN_MS)
        if np.count_nonzero(at_ms > oldest_ms) > MOST_KNOWN:
            oldest_ms = max(oldest_ms, newest_ms - SHORTEST_KNOWN_MS)
        self._known, self._known_from_ms = keys[at_ms > oldest_ms], oldest_ms
