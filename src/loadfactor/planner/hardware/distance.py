"""How far from home a prediction is: what was measured of the like, in one word; and what a measured run teaches.

Both are the same for training and serving: the equations have constants fitted to published rows, ranges come from rows that were
left out of the fit by that distance, and a run of one's own moves the constants by Bayes' rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Distance = Literal["measured nearby", "same stack", "other stack", "never seen"]
"""`measured nearby`: this network with this software on this accelerator was measured, or a run of one's own was given.
`same stack`: the software on the accelerator was measured, with other networks. `other stack`: the accelerator's architecture was
measured, with other software or on another of its accelerators. `never seen`: not even its architecture was, or not the release of
the engine that was named."""


def name_distance(nearby: bool, stack: bool, architecture: bool) -> Distance:
    """The word for the nearest of what was measured.

    >>> name_distance(False, True, True), name_distance(False, False, False)
    ('same stack', 'never seen')
    """
    if nearby:
        return "measured nearby"
    return "same stack" if stack else "other stack" if architecture else "never seen"


def share_inside(factors: Iterable[tuple[float, tuple[float, float]]]) -> float | None:
    """Share of factors (measured over predicted) that lie in the range stated for each; None of none.

    >>> share_inside([(1.1, (0.8, 1.2)), (1.3, (0.8, 1.2))])
    0.5
    """
    inside = [low <= factor <= high for factor, (low, high) in factors]
    return sum(inside) / len(inside) if inside else None


TENTH = 1.2816  # standard deviations beyond which one of ten lies


def spread_range(variance: float, middle: float = 0.0) -> tuple[float, float]:
    """Factors between which four of five lie, of a normal logarithm."""
    reach = TENTH * variance**0.5
    return float(np.exp(middle - reach)), float(np.exp(middle + reach))


def read_spread(low: float, high: float) -> tuple[float, float]:
    """Mean and variance of a normal logarithm of which four of five lie between these factors.

    >>> middle, variance = read_spread(*spread_range(0.04))
    >>> round(middle, 9), round(variance, 9)
    (0.0, 0.04)
    """
    below, above = np.log(low), np.log(high)
    return float(below + above) / 2, float((above - below) / (2 * TENTH)) ** 2


@dataclass(frozen=True)
class MovedConstant:
    """A constant before and after measurements."""

    name: str
    before: float
    after: float


WORTH_SAYING = 0.005
"""Of a constant: moves of less are not listed."""


@dataclass(frozen=True)
class Posterior:
    """What is known after measurements, in logarithms: how far each constant moves, and by what predictions are still off.

    `stack_mean`, `stack_variance`: of one quantity each, beside what moved constants do.
    """

    moves: npt.NDArray[Any]
    stack_mean: npt.NDArray[Any]
    stack_variance: npt.NDArray[Any]


def weigh_measurements(
    surprise: Sequence[float],
    slopes: Sequence[Sequence[float]],
    quantity: Sequence[int],
    constant_spread: float,
    stack: Sequence[tuple[float, float]],
    noise: Sequence[float],
) -> Posterior:
    """Bayes' rule for measurements that depend on constants and on how far off the whole stack is; in logarithms, all normal.

    `surprise`: ln(measured ÷ predicted) of each measurement, `slopes` its change by each constant, `quantity` which `stack` (mean
    and variance beforehand) and `noise` (variance between two measurements alike) are its own. `constant_spread`: of each constant.

    One measurement of 20 % more, on which one constant acts fully, shares it out by variance:

    >>> p = weigh_measurements([0.2], [[1.0]], [0], 0.1, [(0.0, 0.02)], [0.01])
    >>> [round(float(v), 3) for v in (p.moves[0], p.stack_mean[0], p.stack_variance[0])]
    [0.05, 0.1, 0.01]
    """
    a, of = np.asarray(slopes, dtype=float), np.eye(len(stack))[list(quantity)]
    mean, variance = np.array(stack, dtype=float).T
    expected = of @ mean
    total = constant_spread**2 * a @ a.T + (of * variance) @ of.T + np.diag(of @ np.asarray(noise, dtype=float))
    pull = np.linalg.solve(total, np.asarray(surprise) - expected)
    shared = of * variance  # covariance of each measurement with each stack
    left = variance - np.einsum("iq,ij,jq->q", shared, np.linalg.inv(total), shared)
    return Posterior(constant_spread**2 * a.T @ pull, mean + shared.T @ pull, left)
