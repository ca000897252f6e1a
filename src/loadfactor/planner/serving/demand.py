"""Demand for a service: requests drawn from users, the shape of a day and a week, and bursts.

The rate is piecewise constant over hours. Arrivals follow a Poisson process, gamma-distributed gaps of a chosen coefficient of
variation, or a Markov-modulated process that switches between a calm and a bursting rate. Everything streams in chunks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import H_PER_DAY, NS_PER_S, S_PER_DAY, S_PER_HOUR
from loadfactor.planner.hardware.workload import Shape
from loadfactor.planner.serving.request import Process
from loadfactor.planner.serving.simulation.simulate import Arrivals


@dataclass(frozen=True)
class Lengths:
    """Prompt and output tokens of requests: lognormal, or pairs drawn again from `sample`."""

    prompt_mean: float
    output_mean: float
    prompt_cv: float = 1.0
    output_cv: float = 1.0
    longest: int = 131_072
    sample: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __post_init__(self) -> None:
        if self.prompt_mean < 1 or self.output_mean < 1:
            raise PlanError(f"mean lengths are at least one token, got {self.prompt_mean:g} and {self.output_mean:g}")
        if self.prompt_cv < 0 or self.output_cv < 0:
            raise PlanError("a coefficient of variation is 0 (all alike) or more")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self.sample is not None:
            picked = rng.integers(len(self.sample[0]), size=count)
            return self.sample[0][picked], self.sample[1][picked]
        kinds = ((self.prompt_mean, self.prompt_cv), (self.output_mean, self.output_cv))
        first, second = (_lognormal(rng, mean, cv, count, self.longest) for mean, cv in kinds)
        return first, second


def fit_lengths(prompts: NDArray[np.int64], outputs: NDArray[np.int64]) -> Lengths:
    """Lengths fitted to a trace: its means and coefficients of variation, and its own pairs to draw from.

    Requests without a prompt or an output are left out. Raises PlanError when none is left.
    """
    real = (prompts > 0) & (outputs > 0)
    if not real.any():
        raise PlanError("the trace has no request with a prompt and an output")
    p, o = prompts[real], outputs[real]
    return Lengths(
        float(p.mean()),
        float(o.mean()),
        float(p.std() / p.mean()),
        float(o.std() / o.mean()),
        int((p + o).max()),
        (p, o),
    )


def _lognormal(rng: np.random.Generator, mean: float, cv: float, count: int, longest: int) -> NDArray[np.int64]:
    if cv == 0:
        return np.full(count, round(mean), np.int64)
    spread = log(1 + cv * cv)
    drawn = rng.lognormal(log(mean) - spread / 2, sqrt(spread), count)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)


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


FLAT_DAY = (1.0,) * H_PER_DAY
# Requests by hour of a working day, in any unit: an interactive service in one time zone (assumed).
OFFICE_DAY = (
    *(0.35, 0.28, 0.24, 0.22, 0.24, 0.32, 0.5, 0.85),
    *(1.35, 1.75, 1.9, 1.85, 1.65, 1.8, 1.95, 1.9),
    *(1.75, 1.5, 1.3, 1.2, 1.1, 0.95, 0.7, 0.5),
)
OFFICE_WEEK = (1.15, 1.2, 1.2, 1.18, 1.1, 0.6, 0.57)
FLAT_WEEK = (1.0,) * 7
SHAPES: dict[Shape, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "flat": (FLAT_DAY, FLAT_WEEK),
    "office": (OFFICE_DAY, OFFICE_WEEK),
    "daily": (OFFICE_DAY, FLAT_WEEK),
}


def peak_over_mean(shape: Shape) -> float:
    """Demand of the busiest hour of the week over the mean.

    >>> round(peak_over_mean("office"), 2), peak_over_mean("flat")
    (2.15, 1.0)
    """
    day, week = SHAPES[shape]
    return max(day) * H_PER_DAY / sum(day) * max(week) * 7 / sum(week)


@dataclass(frozen=True)
class RequestDemand:
    """A stream of requests: `requests_per_day` on an average day, spread by hour of day and day of week."""

    requests_per_day: float
    lengths: Lengths
    day: tuple[float, ...] = FLAT_DAY
    week: tuple[float, ...] = FLAT_WEEK
    process: Process = "poisson"
    gap_cv: float = 1.0  # of gamma gaps
    burst_factor: float = 5.0  # rate while bursting over the calm rate
    burst_share: float = 0.1  # of time spent bursting
    burst_s: float = 60.0  # mean length of a burst
    peak_factor: float = 1.0  # of the busiest minutes over their hour, beyond what `process` makes

    def __post_init__(self) -> None:
        if self.requests_per_day <= 0:
            raise PlanError(f"requests per day must be positive, got {self.requests_per_day:g}")
        if (
            len(self.day) != H_PER_DAY
            or len(self.week) != 7
            or min(self.day + self.week) < 0
            or not sum(self.day) * sum(self.week)
        ):
            raise PlanError("the shape of demand has 24 hours and 7 days, none below 0 and not all 0")
        if self.gap_cv <= 0 or self.burst_factor < 1 or not 0 < self.burst_share < 1 or self.burst_s <= 0:
            raise PlanError("gap_cv and burst_s are positive, burst_factor at least 1, burst_share between 0 and 1")

    def rate_per_s(self, hour: int) -> float:
        """Mean requests per second in this hour since the start, a Monday's midnight."""
        day = self.day[hour % H_PER_DAY] * H_PER_DAY / sum(self.day)
        week = self.week[hour // H_PER_DAY % 7] * 7 / sum(self.week)
        return self.requests_per_day / S_PER_DAY * day * week

    def peak_rate_per_s(self, days: int = 7) -> float:
        """The rate of the busiest hour, while bursting where there are bursts."""
        burst = self.burst_levels[1] if self.process == "bursts" else 1.0
        return max(self.rate_per_s(hour) for hour in range(days * H_PER_DAY)) * burst * self.peak_factor

    @property
    def burst_levels(self) -> tuple[float, float]:
        """Rate while calm and while bursting, over the hour's mean."""
        calm = 1 / (1 - self.burst_share + self.burst_share * self.burst_factor)
        return calm, calm * self.burst_factor

    def scale(self, factor: float) -> "RequestDemand":
        return replace(self, requests_per_day=self.requests_per_day * factor)

    def arrivals(self, days: float, seed: int = 1, first_day: int = 0) -> Iterator[Arrivals]:
        """Requests of `days` days from `first_day` (0: Monday) in order of time. Same seed: same requests."""
        rng = np.random.default_rng(seed)
        end_s = days * S_PER_DAY
        gaps = GammaGaps(rng, self.gap_cv)
        bursts = Bursts(rng, self.burst_levels, self.burst_share, self.burst_s)
        hour = 0
        while hour * S_PER_HOUR < end_s:
            start, stop = hour * S_PER_HOUR, min((hour + 1) * S_PER_HOUR, end_s)
            rate = self.rate_per_s(hour + first_day * H_PER_DAY)
            if self.process == "gamma":
                at = start + gaps.draw_until(rate * (stop - start)) / max(rate, 1e-300)
            elif self.process == "bursts":
                at = bursts.draw_within(start, stop, rate)
            else:
                at = np.sort(rng.uniform(start, stop, rng.poisson(rate * (stop - start))))
            for first in range(0, at.size, 65_536):
                part = at[first : first + 65_536]
                prompts, outputs = self.lengths.draw(rng, part.size)
                yield Arrivals((part * NS_PER_S).astype(np.int64), prompts, outputs)
            hour += 1


def build_demand(
    users: float, requests_per_user_per_day: float, lengths: Lengths, shape: Shape = "office"
) -> RequestDemand:
    """Demand of `users` who each make so many requests on an average day.

    >>> build_demand(1000, 20, Lengths(500, 200)).requests_per_day
    20000
    """
    day, week = SHAPES[shape]
    return RequestDemand(users * requests_per_user_per_day, lengths, day, week)


PEAK_WINDOW_NS = 300 * NS_PER_S
MOST_SAMPLED = 100_000


def observe_demand(arrivals: Iterable[Arrivals]) -> RequestDemand:
    """The demand behind a trace: its mean rate, its busiest five minutes as the peak, lengths fitted to at most 100,000 requests.

    Raises PlanError when the trace has fewer than two requests or no duration.
    """
    counts: dict[int, int] = {}
    prompts: list[NDArray[np.int64]] = []
    outputs: list[NDArray[np.int64]] = []
    requests, last_ns = 0, 0
    for chunk in arrivals:
        for window, count in zip(*np.unique(chunk.at_ns // PEAK_WINDOW_NS, return_counts=True), strict=True):
            counts[int(window)] = counts.get(int(window), 0) + int(count)
        if requests < MOST_SAMPLED:
            prompts.append(chunk.prompts)
            outputs.append(chunk.outputs)
        if chunk.at_ns.size:
            requests, last_ns = requests + chunk.at_ns.size, int(chunk.at_ns[-1])
    if requests < 2 or last_ns <= 0:
        raise PlanError(
            f"a trace of {requests} requests without duration is no demand; it needs at least two, at different times"
        )
    lengths = fit_lengths(np.concatenate(prompts), np.concatenate(outputs))
    mean = requests / (last_ns / NS_PER_S)
    peak = max(counts.values()) / min(PEAK_WINDOW_NS / NS_PER_S, last_ns / NS_PER_S)
    return RequestDemand(mean * S_PER_DAY, lengths, peak_factor=max(1.0, peak / mean))
