"""Local times without a zone → instants: in the caller's zone, and in the hour that comes twice by the order of the rows."""

from datetime import datetime, timedelta, tzinfo
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR

Instants = NDArray[np.int64]

_QUANTUM_MS: Final = MS_PER_HOUR // 4  # zones change their offset at quarters of an hour
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local on purpose
_CACHE_MAX: Final = 100_000


class _Above(NamedTuple):
    """The row above."""

    local_ms: int
    second: bool  # of the second pass of a repeated hour
    repeated: bool  # of either pass


class LocalClock:
    """Turns the local times of one log into instants, block by block, in the order of the rows.

    Where the clock is set back an hour comes twice: a row belongs to the pass of the row above it, until the clock jumps back.
    Where the clock is set forward the skipped times do not exist.
    """

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.guessed = 0  # rows in a repeated hour that nothing places; taken for the first pass
        self._last: _Above | None = None
        self._offsets: dict[int, tuple[int, int]] = {}

    def convert(self, local_ms: Instants) -> tuple[Instants, NDArray[np.bool_]]:
        """Instants (ms since 1970 UTC) of local times (ms since 1970 local), and whether each of them exists."""
        if not len(local_ms):
            return local_ms, np.ones(0, dtype=bool)
        first, second = self.find_candidates(local_ms)
        utc = first.copy()
        twice = np.flatnonzero(second > first)
        if len(twice):
            self._place(local_ms, utc, first, second, twice)
        self._last = _Above(int(local_ms[-1]), bool(utc[-1] != first[-1]), bool(second[-1] > first[-1]))
        return utc, second >= first

    def find_candidates(self, local_ms: Instants) -> tuple[Instants, Instants]:
        """Both instants (ms since 1970 UTC) that each local time can mean: equal for almost all, the earlier one first where
        the clock is set back, and the later one first where it is set forward and the local time does not exist."""
        each = local_ms // _QUANTUM_MS
        begins = np.append(True, each[1:] != each[:-1])[: len(each)]  # rows in the order of time come in few runs
        quanta, inverse = np.unique(each[begins], return_inverse=True)
        offsets = np.array([self._offset(int(q)) for q in quanta], dtype=np.int64).reshape(-1, 2)
        pairs = offsets[inverse][np.cumsum(begins) - 1]
        return local_ms - pairs[:, 0], local_ms - pairs[:, 1]

    def _offset(self, quantum: int) -> tuple[int, int]:
        """UTC offsets in ms of the two instants a local time can mean; equal but where the clock is set."""
        found = self._offsets.get(quantum)
        if found is None:
            if len(self._offsets) >= _CACHE_MAX:
                self._offsets.clear()
            at = (_EPOCH + timedelta(milliseconds=quantum * _QUANTUM_MS)).replace(tzinfo=self.zone)
            before, after = at.replace(fold=0).utcoffset(), at.replace(fold=1).utcoffset()
            ms = timedelta(milliseconds=1)
            found = self._offsets[quantum] = ((before or timedelta()) // ms, (after or timedelta()) // ms)
        return found

    def _place(
        self, local: Instants, utc: Instants, first: Instants, second: Instants, twice: NDArray[np.intp]
    ) -> None:
        """Decides the rows of a repeated hour, writing into `utc`."""
        start = 0
        if self._last is None and twice[0] == 0:
            run = int(np.argmax(np.append(np.diff(twice) > 1, True))) + 1  # the log begins inside the repeated hour
            back = np.diff(first[:run]) < -(second[0] - first[0]) // 2
            if not back.any():
                if run == len(first):
                    self.guessed += run
                    return
                if first[run] - second[run - 1] < second[0] - first[0]:  # what follows joins on to the second pass
                    utc[:run] = second[:run]
                start = run
            else:
                start = 1
        inside = np.zeros(len(local), dtype=bool)
        inside[twice] = True
        for i in twice[start:]:
            above = (
                _Above(int(local[i - 1]), bool(utc[i - 1] != first[i - 1]), bool(inside[i - 1])) if i else self._last
            )
            if above is None:
                continue
            margin = (second[i] - first[i]) // 2 if above.repeated else 0
            if above.second or local[i] < above.local_ms - margin:
                utc[i] = second[i]
