"""Stretches of steps in which something holds."""

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import Flags


def list_runs(flags: Flags) -> list[tuple[int, int]]:
    """Where it begins to hold, and where no longer, [first, after).

    >>> list_runs(np.array([False, True, True, False, True]))
    [(1, 3), (4, 5)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(first), int(after)) for first, after in zip(edges[::2], edges[1::2], strict=True)]
