"""What a rule reads and what it answers: the books at the end of a step, and a verdict for each group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadfactor.insight.alerts.records import Records

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Group = tuple[str, ...]
"""The values of the dimensions that a rule is split by."""
SINCE_START = float("inf")
"""As a window: since the job began."""


@dataclass(frozen=True)
class Need:
    """A metric that a condition reads: by which dimensions, over which window, and how long ago the window ended, in seconds."""

    metric: str
    by: tuple[str, ...]
    window_s: float
    ago_s: float = 0.0


@dataclass(frozen=True)
class RolledMetric:
    """A metric by group. `value` is NaN where it is not known; `is_there`: whether the group had GPUs in the last step.

    `coverage` is the share of what the value speaks of that was known.
    """

    value: Floats
    coverage: Floats
    is_there: Flags


@dataclass(frozen=True)
class Verdicts:
    """What a condition says of each of some groups: that it holds, that it is clear of it, or neither, which is to stay as it was.

    Of what cannot be told neither is said, and `value` is NaN. `explain` gives the facts, in sentences, of the group with a number.
    `is_gone`: groups that are no more, whose alerts end; a group that is not named is gone, too.
    """

    groups: Sequence[Group]
    is_bad: Flags
    is_clear: Flags
    value: Floats
    unit: str
    explain: Callable[[int], tuple[str, ...]]
    is_gone: Flags | None = None


@dataclass(frozen=True)
class Evidence:
    """The books at the end of a step, `at_ms`, as far as rules said that they read them.

    Arrays of a split have a place for every group that `groups(by)` names, in this order; groups that were there once stay.
    `starts(by)`: since when, in milliseconds, each group has had GPUs, a job since its allocation began. `said(by, dimension)`:
    what the books say of each group in this step, its team for instance: one of them where there are several.
    `parents(by, of)`: for each group of `by`, the place of what it is part of among the groups of `of`; −1: it is not there now.
    """

    at_ms: int
    step_ms: int
    records: Records
    read: Callable[[Need], RolledMetric]
    groups: Callable[[tuple[str, ...]], Sequence[Group]]
    starts: Callable[[tuple[str, ...]], Floats]
    said: Callable[[tuple[str, ...], str], Sequence[str | None]]
    parents: Callable[[tuple[str, ...], tuple[str, ...]], Ints]
