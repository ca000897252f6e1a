"""The nominal step of a series, and how far a sample reaches back."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.tables.schema import REACH_STEPS

EXPORTER_STEP_S: Final = 30.0
"""What dcgm-exporter collects at unless it is told otherwise: the step of a series that shows none."""


def learn_step(gaps_ms: NDArray[np.int64], step_s: float | None) -> int | None:
    """The step in ms: as told (`step_s`), else the median distance between neighbouring samples, an hour at most.

    None when nothing was told and there are no two samples.

    >>> learn_step(np.array([30_000, 30_000, 540_000]), None), learn_step(np.array([]), None)
    (30000, None)
    """
    if step_s is not None:
        return round(step_s * MS_PER_S)
    known = gaps_ms[gaps_ms > 0]
    return min(int(np.median(known)), MS_PER_HOUR) if len(known) else None


def learn_step_of(times_ms: Sequence[int], step_s: float | None, default_step_s: float) -> int:
    """The step in ms of a series with these sorted instants; the default where they do not show it.

    >>> learn_step_of([0, 30_000, 60_000, 600_000], None, 1)
    30000
    """
    times = np.asarray(times_ms, dtype=np.int64)
    step_ms = learn_step(times[1:] - times[:-1], step_s)
    return round(default_step_s * MS_PER_S) if step_ms is None else step_ms


def is_within_reach(at_ms: int, previous_ms: int, step_ms: int) -> bool:
    """True where a sample covers the whole time since the one before, and False where there is a gap between them.

    >>> is_within_reach(45_000, 0, 30_000), is_within_reach(45_001, 0, 30_000)
    (True, False)
    """
    return at_ms - previous_ms <= REACH_STEPS * step_ms


def find_start(at_ms: int, previous_ms: int | None, step_ms: int) -> int:
    """The start of the interval that a sample speaks of: the sample before it, or one step before where that is out of reach.

    >>> find_start(45_000, 0, 30_000), find_start(45_001, 0, 30_000), find_start(45_000, None, 30_000)
    (0, 15001, 15000)
    """
    if previous_ms is not None and is_within_reach(at_ms, previous_ms, step_ms):
        return previous_ms
    return at_ms - step_ms
