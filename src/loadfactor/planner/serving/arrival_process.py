"""Arrivals that are less even than Poisson: gamma-distributed gaps, and bursts."""

import numpy as np
from numpy.typing import NDArray


class GammaGaps:
    """Gamma gaps of mean 1 on a clock that runs with the rate; what is left of a gap carries into the next hour."""

    def __init__(self, rng: np.random.Generator, cv: float) -> None:
        self.rng, self.shape = rng, 1 / cv**2
        self.next = float(rng.gamma(self.shape, 1 / self.shape))

    def draw_until(self, amount: float) -> NDArray[np.float64]:
        """Times of requests on that clock in the next `amount` of it."""
        found: list[NDArray[np.float64]] = []
        while self.next < amount:
            count = max(64, int((amount - self.next) * 1.05))
            at = self.next + np.concatenate([[0.0], np.cumsum(self.rng.gamma(self.shape, 1 / self.shape, count))])
            found.append(at[:-1][at[:-1] < amount])
            later = at[at >= amount]
            self.next = float(later[0]) if later.size else float(at[-1])
        self.next -= amount
        return np.concatenate(found) if found else np.zeros(0)


class Bursts:
    """A two-state Markov-modulated Poisson process whose mean rate is 1 × the hour's."""

    def __init__(self, rng: np.random.Generator, levels: tuple[float, float], share: float, burst_s: float) -> None:
        self.rng, self.level = rng, levels
        self.mean_s = (burst_s * (1 - share) / share, burst_s)
        self.bursting = int(rng.random() < share)
        self.ends_s = float(rng.exponential(self.mean_s[self.bursting]))

    def draw_within(self, start: float, stop: float, rate: float) -> NDArray[np.float64]:
        """Times of requests from `start` to `stop` (s) at a mean rate per second."""
        found = []
        while start < stop:
            upto = min(stop, self.ends_s)
            count = self.rng.poisson(rate * self.level[self.bursting] * (upto - start))
            found.append(np.sort(self.rng.uniform(start, upto, count)))
            if upto == self.ends_s:
                self.bursting = 1 - self.bursting
                self.ends_s += float(self.rng.exponential(self.mean_s[self.bursting]))
            start = upto
        return np.concatenate(found)
