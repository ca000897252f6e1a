"""The steps of devices whose scrapes come one after the other, and the intervals that follow. What comes later changes nothing."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S, is_within_reach

GAPS: Final = 9
"""The step is the median of so many distances between scrapes, of an even number the lower one."""
NO_GAP: Final = np.iinfo(np.int64).max
NEVER: Final = -1
DEFAULT_STEP_MS: Final = round(EXPORTER_STEP_S * MS_PER_S)


class RunningSteps:
    """The last scrape of each device (`last_ms`, NEVER) and the distances between its latest ones (`gaps_ms`, NO_GAP)."""

    def __init__(self) -> None:
        self.last_ms = np.empty(0, np.int64)
        self.gaps_ms = np.empty((0, GAPS), np.int64)

    def grow(self, devices: int) -> None:
        """Room for so many devices."""
        missing = devices - len(self.last_ms)
        if missing > 0:
            missing = max(missing, len(self.last_ms))
            self.last_ms = np.append(self.last_ms, np.full(missing, NEVER))
            self.gaps_ms = np.concatenate([self.gaps_ms, np.full((missing, GAPS), NO_GAP)])

    def follow(
        self, device: NDArray[np.int32], at_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For scrapes sorted by device, then time: where the interval of each begins, its step, and the scrape before (NEVER)."""
        n = len(device)
        is_first = np.append(True, device[1:] != device[:-1])[:n]
        is_last = np.append(is_first[1:], True)[:n]
        before_ms = np.where(is_first, self.last_ms[device], np.append(NEVER, at_ms[:-1])[:n])
        gap_ms = np.where(before_ms >= 0, at_ms - before_ms, NO_GAP)
        begins = np.flatnonzero(is_first)
        at = np.arange(n) + GAPS * np.cumsum(is_first)  # each device's gaps behind those it had
        line = np.empty(n + GAPS * len(begins), np.int64)
        line[at] = gap_ms
        line[(at[begins, None] - GAPS) + np.arange(GAPS)] = self.gaps_ms[device[begins]]
        latest = line[at[:, None] + np.arange(1 - GAPS, 1)]
        known = (latest != NO_GAP).sum(axis=1)
        middle = np.maximum(known - 1, 0) // 2
        step_ms = np.sort(latest, axis=1)[np.arange(n), middle]
        step_ms = np.where(known > 0, np.minimum(step_ms, MS_PER_HOUR), DEFAULT_STEP_MS)
        near = (before_ms >= 0) & is_within_reach(at_ms, before_ms, step_ms)  # type: ignore[arg-type]
        self.last_ms[device[is_last]], self.gaps_ms[device[is_last]] = at_ms[is_last], latest[is_last]
        return np.where(near, before_ms, at_ms - step_ms), step_ms, before_ms
