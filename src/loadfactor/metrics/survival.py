"""How long something lasts, estimated where some of it has not ended: the Kaplan–Meier estimate with its interval.

What has not ended is right-censored: it lasted at least so long. Left out, it would make quantiles too small; counted as if it had
ended, too.

Sources: Kaplan and Meier 1958 (the estimate), Greenwood 1926 (its variance), Kalbfleisch and Prentice 2002 §1.4.1 (the log-log
interval), Brookmeyer and Crowley 1982 (quantiles: where the band crosses), Xie and Liu 2005 (weights: the effective number at risk,
which is the number itself where all weights are one).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE: Final = 0.95
ROUNDING: Final = 1e-9
"""A product of shares that should be one half is off by so much at most."""
_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its 95 % interval, in the unit of the durations; None where one is not reached."""

    value: float | None
    low: float | None
    high: float | None

    def less(self, passed: float) -> "Interval":
        """The part left of it after a time that has passed."""
        return Interval(*(None if x is None else x - passed for x in (self.value, self.low, self.high)))


@dataclass(frozen=True)
class SurvivalCurve:
    """From each of `times` on, the share that lasts longer, between `low` and `high`. `n` entered, `ended` of them ended."""

    times: Floats
    share: Floats
    low: Floats
    high: Floats
    n: int
    ended: int

    def quantile(self, q: float) -> Interval:
        """The time by which the share `q` has ended: the first at which no more than the rest lasts longer."""
        return Interval(*(self._reach(line, 1 - q) for line in (self.share, self.low, self.high)))

    def _reach(self, line: Floats, left: float) -> float | None:
        reached = np.flatnonzero(line <= left + ROUNDING)
        return float(self.times[reached[0]]) if len(reached) else None


def estimate_survival(durations: Floats, ended: NDArray[np.bool_], weights: Floats | None = None) -> SurvivalCurve:
    """The Kaplan–Meier estimate of durations of which some have not `ended`; each counts as often as its weight says.

    At one time, what ends does so before what is censored. Where nothing is left, the band has no formula: it stays as it was.

    >>> curve = estimate_survival(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> curve.share.round(3).tolist(), curve.quantile(0.5).value
    ([0.667, 0.0], 3.0)
    """
    weight = np.ones(len(durations)) if weights is None else weights
    order = np.lexsort((weight, durations))
    durations, ended, weight = durations[order], ended[order], weight[order]
    times, first = np.unique(durations, return_index=True)
    if not len(times):
        return SurvivalCurve(times, *(np.ones(0),) * 3, n=0, ended=0)
    at_risk, squares = (np.cumsum(w[::-1])[::-1][first] for w in (weight, weight**2))
    ends = np.add.reduceat(np.where(ended, weight, 0.0), first)
    some = ends > 0
    times, at_risk, squares, ends = (of[some] for of in (times, at_risk, squares, ends))
    kept: Floats = 1 - ends / at_risk
    kept[kept < ROUNDING] = 0.0
    share: Floats = np.cumprod(kept, dtype=np.float64)
    low, high = _band(share, kept, at_risk**2 / squares)
    return SurvivalCurve(times, share, low, high, len(durations), int(np.count_nonzero(ended)))


def estimate_rest(
    durations: Floats, ended: NDArray[np.bool_], passed: float, weights: Floats | None = None
) -> SurvivalCurve:
    """The curve of those that lasted longer than `passed`: how long they lasted in all, given that."""
    longer = durations > passed
    return estimate_survival(durations[longer], ended[longer], None if weights is None else weights[longer])


def _band(share: Floats, kept: Floats, number: Floats) -> tuple[Floats, Floats]:
    """The log-log interval around each share, from the number at risk; where nothing is left, it is as it was before."""
    some = share > 0
    spread = np.sqrt(np.cumsum((1 - kept[some]) / (kept[some] * number[some])))
    exponent = np.exp(_Z * spread / -np.log(share[some]))
    ends = []
    for power in (exponent, 1 / exponent):
        known = np.append(share[some] ** power, 1.0)  # ones where nothing is ever left: nothing is known
        place = np.minimum(np.arange(len(share)), some.sum() - 1)
        ends.append(known[place])
    return ends[0], ends[1]
