"""A step that was measured moves what a plan of reinforcement learning rests on, by Bayes' rule (planner/hardware/distance.py).

In logarithms, all normal: the framework's factor on both halves lies about the fitted one, and each half is off beside it by what
sources are off by that its model was not fitted to. Seconds of one half move both; what is left of them is that half's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadfactor.base.errors import InputError
from loadfactor.base.quantities import parse_duration_s
from loadfactor.catalog.constants import FrameworkFactor
from loadfactor.planner.hardware.distance import read_spread, spread_range, weigh_measurements

HALVES = ("rollout", "train")
STEP_SPREAD = 0.05  # of the logarithm of a half's seconds, between two ways of one run


@dataclass(frozen=True)
class MeasuredHalf:
    """Seconds of one half of a measured step, what was predicted of them before and after, and the range that is left about it."""

    half: str
    measured_s: float
    before_s: float
    after_s: float
    range_before: tuple[float, float]
    range_after: tuple[float, float]


@dataclass(frozen=True)
class RlCalibration:
    """What a measured step changed: the framework's factor, before and after, and by half the factor on what is predicted."""

    factor_before: float
    factor_after: float
    seconds_factors: Mapping[str, float]
    halves: Sequence[MeasuredHalf]

    def find_range(self, half: str, otherwise: tuple[float, float]) -> tuple[float, float]:
        """Factors on what is predicted of a half now; the ones given where it was not measured."""
        return next((one.range_after for one in self.halves if one.half == half), otherwise)


def read_measured(texts: Sequence[str]) -> dict[str, float]:
    """Seconds by half, of `rollout=212s,train=140s`. Raises InputError that says how it is written.

    >>> read_measured(("rollout=3m", "train=95s"))
    {'rollout': 180.0, 'train': 95.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in HALVES or not equals or not value:
            raise InputError(f"--measured is rollout=212s,train=140s or a log of training, got {text!r}")
        found[name] = parse_duration_s(value)
        if found[name] <= 0:
            raise InputError(f"--measured: {name}={value} is no time; give seconds above 0")
    return found


def weigh_step(
    measured: Mapping[str, float],
    predicted: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    known: FrameworkFactor,
) -> RlCalibration:
    """What is known after these seconds of a step's halves, of which `predicted` was the middle of `ranges`.

    Both halves a half longer than predicted, in a framework that is known as well as each half: two thirds are the framework's.

    >>> both = weigh_step({"rollout": 150.0, "train": 75.0}, {"rollout": 100.0, "train": 50.0},
    ...                   {"rollout": (0.7, 1.43), "train": (0.7, 1.43)}, FrameworkFactor(1.0, (0.7, 1.43), 0.0))
    >>> round(both.factor_after, 2), round(both.seconds_factors["train"], 2)
    (1.31, 1.49)
    """
    names = [name for name in HALVES if name in measured]
    posterior = weigh_measurements(
        [float(np.log(measured[name] / predicted[name])) for name in names],
        [[1.0]] * len(names),
        list(range(len(names))),
        read_spread(*known.range)[1] ** 0.5,
        [read_spread(*ranges[name]) for name in names],
        [STEP_SPREAD**2] * len(names),
    )
    moved = float(np.exp(posterior.moves[0]))
    own = {name: float(np.exp(mean)) for name, mean in zip(names, posterior.stack_mean, strict=True)}
    factors = {name: moved * own.get(name, 1.0) for name in HALVES}
    halves = [
        MeasuredHalf(
            name,
            measured[name],
            predicted[name],
            predicted[name] * factors[name],
            ranges[name],
            spread_range(float(variance) + STEP_SPREAD**2),
        )
        for name, variance in zip(names, posterior.stack_variance, strict=True)
    ]
    return RlCalibration(known.value, known.value * moved, factors, halves)
