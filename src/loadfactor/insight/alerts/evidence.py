"""What a rule reads and what it answers: the books at the end of a step, and a verdict for each group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Group = tuple[str, ...]
"""The values of the dimensions that a rule is split by."""


@dataclass(frozen=True)
class Verdicts:
    """What a condition says of each of some groups: that it holds, that it is clear of it, or neither, which is to stay as it was.

    Of what cannot be told neither is said, and `value` is NaN. `explain` gives the facts, in sentences, of the group with a number.
    """

    groups: Sequence[Group]
    is_bad: Flags
    is_clear: Flags
    value: Floats
    unit: str
    explain: Callable[[int], tuple[str, ...]]


@dataclass(frozen=True)
class Evidence:
    """The books at the end of a step."""

    at_ms: int
    step_ms: int
