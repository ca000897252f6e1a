"""Lengths of responses: a log-normal cut at the most tokens that a response may have, or those of a trace."""

from dataclasses import dataclass
from functools import cache
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError

Floats = NDArray[np.float64]
USUAL_SPREAD = sqrt(log(2))  # of the logarithm: a deviation as large as the mean, as requests have elsewhere
P99 = NormalDist().inv_cdf(0.99)
FINENESS = 2000  # responses alike of which means are taken
HALVINGS = 60


@cache
def list_normal(count: int) -> Floats:
    """So many values that part a normal distribution into equal shares."""
    return np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])


@dataclass(frozen=True)
class ResponseLengths:
    """Tokens of responses. `middle`, `spread`: of their logarithm, before they are cut at `most`; `sample`: those of a trace."""

    prompt: float
    most: float
    middle: float = 0.0
    spread: float = 0.0
    sample: Floats | None = None

    def spread_evenly(self, count: int) -> Floats:
        """So many responses, the shortest first, that part the distribution into equal shares.

        >>> [round(float(tokens)) for tokens in fit_lengths(100, 1000, 4000).spread_evenly(3)]
        [327, 732, 1637]
        """
        if self.sample is not None:
            return np.quantile(self.sample, (np.arange(count) + 0.5) / count, method="inverted_cdf")
        return np.minimum(np.exp(self.middle + self.spread * list_normal(count)), self.most)

    def find_longest(self, count: int) -> float:
        """Tokens of the longest of so many responses: half of all draws have a longer one at most."""
        share = 0.5 ** (1 / count)
        if self.sample is not None:
            return float(np.quantile(self.sample, share, method="inverted_cdf"))
        return min(exp(self.middle + self.spread * NormalDist().inv_cdf(share)), self.most)

    @property
    def mean(self) -> float:
        return float(self.spread_evenly(FINENESS).mean())

    @property
    def p99(self) -> float:
        return float(np.quantile(self.spread_evenly(FINENESS), 0.99))

    @property
    def cut_share(self) -> float:
        """Responses that are cut."""
        return float((self.spread_evenly(FINENESS) >= self.most).mean())

    @property
    def attended(self) -> float:
        """Tokens of the prompt and response that a token belongs to, on average over tokens: longer than the mean one."""
        whole = self.prompt + self.spread_evenly(FINENESS)
        return float((whole**2).sum() / whole.sum())

    @property
    def context(self) -> float:
        """Tokens before a token of a response, on average over tokens."""
        each = self.spread_evenly(FINENESS)
        return self.prompt + float((each**2).sum() / (2 * each.sum()))


def fit_lengths(prompt: float, mean: float, most: float, p99: float | None = None) -> ResponseLengths:
    """The log-normal, cut at `most`, that has this mean, and this 99th percentile where it is given and not cut.

    >>> lengths = fit_lengths(512, 2000, 16000, p99=9000)
    >>> round(lengths.mean), round(lengths.p99, -3)
    (2000, 9000.0)
    """
    if not 1 <= mean <= most:
        raise PlanError(f"responses of {mean:g} tokens on average cannot be cut at {most:g}; give a smaller mean")

    def make(middle: float, spread: float) -> ResponseLengths:
        return ResponseLengths(prompt, most, middle, spread)

    if p99 is not None and mean < p99 < most:  # the wider, the smaller the mean that has this 99th percentile
        low, high = 0.0, log(most) + 1
        for _ in range(HALVINGS):
            spread = (low + high) / 2
            low, high = (spread, high) if make(log(p99) - P99 * spread, spread).mean > mean else (low, spread)
        return make(log(p99) - P99 * low, low)
    spread = 0.0 if p99 == mean else USUAL_SPREAD
    low, high = log(mean) - spread**2, log(most) + 5 * spread
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if make(middle, spread).mean < mean else (low, middle)
    return make((low + high) / 2, spread)


def read_lengths(prompts: Floats, responses: Floats) -> ResponseLengths:
    """The lengths of a trace. PlanError where it has none."""
    real = responses > 0
    if not real.any():
        raise PlanError("the trace has no response")
    kept = np.sort(responses[real].astype(np.float64))
    return ResponseLengths(max(1.0, float(prompts[real].mean())), float(kept[-1]), sample=kept)
