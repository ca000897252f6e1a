"""Load-duration curve of a demand, the cheapest mix of tiers for it, and the judgement on one GPU.

The marginal utilization of GPU k is the share of time at least k GPUs are needed; where demand is between k−1 and k the GPU works
the fraction. A tier costs fixed + used·u, so each GPU of the curve takes the tier that is cheapest at its own u: the screening
curve of the power industry; with one owned tier c and one rented tier p, the newsvendor's rule: own GPU k while P(D ≥ k) ≥ c/p.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.limits import MOST_GPUS
from loadfactor.base.quantities import write_share

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LoadDuration:
    """Demand in GPUs over equal (or weighted) intervals, sorted downward, and the marginal utilization of every GPU."""

    demand_gpus: Floats
    time_share: Floats
    marginal_share: Floats

    @property
    def mean_gpus(self) -> float:
        return float(self.demand_gpus @ self.time_share)

    @property
    def peak_gpus(self) -> float:
        return float(self.demand_gpus[0])

    @property
    def sd_gpus(self) -> float:
        return float(np.sqrt((self.demand_gpus - self.mean_gpus) ** 2 @ self.time_share))

    @property
    def mean_of_peak_share(self) -> float:
        """Mean over peak: the load factor of a fleet bought for the peak."""
        return self.mean_gpus / self.peak_gpus

    def load_factor(self, kept_gpus: int) -> float:
        """GPU-hours used over those paid for, where so many GPUs are paid every hour and what exceeds them as it is used.

        >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
        >>> round(day.load_factor(80), 3), round(day.load_factor(60), 3), round(day.load_factor(0), 3)
        (0.646, 0.775, 1.0)
        """
        return self.mean_gpus / (kept_gpus + self.rented_gpus(kept_gpus))

    def rented_gpus(self, kept_gpus: int) -> float:
        """GPUs rented on average, where so many are kept."""
        return float(self.marginal_share[kept_gpus:].sum())

    def utilization_share(self, gpu: int) -> float:
        """Marginal utilization of the `gpu`-th GPU, counted from 1; zero beyond the peak."""
        return float(self.marginal_share[gpu - 1]) if gpu <= len(self.marginal_share) else 0.0


def load_duration(demand_gpus: ArrayLike, weight: ArrayLike | None = None) -> LoadDuration:
    """The curve of a demand series; `weight` where intervals differ in length.

    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> [round(day.utilization_share(k), 4) for k in (20, 40, 60, 80)]
    [1.0, 0.75, 0.5, 0.3333]
    >>> round(day.mean_of_peak_share, 3), round(float(day.marginal_share.sum()), 4) == round(day.mean_gpus, 4)
    (0.646, True)
    """
    demand = np.asarray(demand_gpus, dtype=np.float64).ravel()
    if demand.size == 0:
        raise PlanError("the demand series is empty; give GPUs per hour")
    if not np.isfinite(demand).all() or demand.min() < 0:
        raise PlanError("demand must be finite and not negative in every interval; leave unknown hours out")
    if demand.max() > MOST_GPUS:
        raise PlanError(f"the demand reaches {demand.max():,.6g} GPUs; more than {MOST_GPUS:,} cannot be planned for")
    if demand.max() == 0:
        raise PlanError("the demand is 0 GPUs in every interval; there is nothing to size")
    parts = np.ones_like(demand) if weight is None else np.asarray(weight, dtype=np.float64).ravel()
    if parts.shape != demand.shape or parts.min() < 0 or parts.sum() == 0:
        raise PlanError("weights must be one positive length per interval")
    order = np.argsort(-demand, kind="stable")
    demand, share = demand[order], (parts / parts.sum())[order]
    # E[min(D, k)] for every k from one pass over the sorted series; its differences are the marginal utilizations.
    sizes = np.arange(int(np.ceil(demand[0])) + 1, dtype=np.float64)
    above = np.searchsorted(-demand, -sizes, side="right")  # intervals with demand ≥ k
    share_above = np.concatenate(([0.0], np.cumsum(share)))
    load_above = np.concatenate(([0.0], np.cumsum(share * demand)))
    served = sizes * share_above[above] + (load_above[-1] - load_above[above])
    return LoadDuration(demand, share, np.clip(np.diff(served), 0.0, 1.0))


STANDARD = NormalDist()


@dataclass(frozen=True)
class Tier:
    """One way to get a GPU: its cost per hour held, and per hour used on top."""

    name: str
    fixed_cost_per_hour: float = 0.0
    used_cost_per_hour: float = 0.0

    def __post_init__(self) -> None:
        if min(self.fixed_cost_per_hour, self.used_cost_per_hour) < 0 or not self.cost_per_hour(1.0) > 0:
            raise PlanError(
                f"tier {self.name!r} costs {self.fixed_cost_per_hour:g} held, {self.used_cost_per_hour:g} used; one must be above 0"
            )

    def cost_per_hour(self, utilization_share: float) -> float:
        return self.fixed_cost_per_hour + self.used_cost_per_hour * utilization_share


@dataclass(frozen=True)
class TierUse:
    """How much of the demand a tier takes in the cheapest mix."""

    tier: Tier
    gpus: int
    used_gpu_hours_per_hour: float
    cost_per_hour: float


@dataclass(frozen=True)
class Mix:
    """The cheapest mix of tiers, base first; and what single-tier plans would cost."""

    uses: tuple[TierUse, ...]
    cost_per_hour: float
    single_tier_cost_per_hour: dict[str, float]


@dataclass(frozen=True)
class Crossing:
    """On the screening curve: from this utilization up, this tier is the cheapest."""

    from_share: float
    tier: Tier


def choose_owned_gpus(curve: LoadDuration, own_cost_per_hour: float, rent_price_per_hour: float) -> int:
    """How many GPUs to own when every further one is rented by the used hour: the largest k with marginal utilization ≥ c/p.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> choose_owned_gpus(load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8), 1.2, 3.0)
    60
    """
    threshold = _ratio(own_cost_per_hour, rent_price_per_hour)
    return int(np.count_nonzero(curve.marginal_share >= threshold - 1e-12))


def cost_own_and_rent(
    curve: LoadDuration, owned_gpus: int, own_cost_per_hour: float, rent_price_per_hour: float
) -> float:
    """Mean cost of an hour when `owned_gpus` are owned and the rest is rented: c·q + p·E(D − q)⁺.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> [round(24 * cost_own_and_rent(day, owned, 1.2, 3.0)) for owned in (60, 80, 40, 0)]
    [2208, 2304, 2352, 3720]
    """
    _ratio(own_cost_per_hour, rent_price_per_hour)
    return own_cost_per_hour * owned_gpus + rent_price_per_hour * curve.rented_gpus(owned_gpus)


def own_for_normal_demand(
    mean_gpus: float, sd_gpus: float, own_cost_per_hour: float, rent_price_per_hour: float
) -> tuple[float, float]:
    """(GPUs to own, mean cost per hour) for normal demand: q = μ + σ·z(1 − c/p), cost cμ + pσφ(z).

    >>> [round(x, 2) for x in own_for_normal_demand(100, 30, 1.2, 3.0)]
    [107.6, 154.77]
    """
    if sd_gpus <= 0:
        raise PlanError(
            f"the standard deviation of demand must be positive, got {sd_gpus:g}; steady demand is simply owned"
        )
    ratio = _ratio(own_cost_per_hour, rent_price_per_hour)
    if ratio >= 1:
        return 0.0, rent_price_per_hour * mean_gpus
    z = -STANDARD.inv_cdf(ratio)  # exact for the smallest ratios, where 1 − ratio is 1
    cost = own_cost_per_hour * mean_gpus + rent_price_per_hour * sd_gpus * STANDARD.pdf(z)
    return mean_gpus + sd_gpus * z, cost


def draw_screening_curve(tiers: Sequence[Tier]) -> tuple[Crossing, ...]:
    """The cheapest tier at every utilization from 0 to 1, as the utilizations at which it changes hands.

    >>> tiers = (Tier("own", 1.2), Tier("reserved", 0.9, 0.5), Tier("on demand", 0, 3.0))
    >>> [(round(c.from_share, 3), c.tier.name) for c in draw_screening_curve(tiers)]
    [(0.0, 'on demand'), (0.36, 'reserved'), (0.6, 'own')]
    """
    at = 0.0
    current = min(tiers, key=lambda t: (t.fixed_cost_per_hour, t.used_cost_per_hour))
    crossings = [Crossing(0.0, current)]
    while True:
        nearest: tuple[float, Tier] | None = None
        for tier in tiers:
            slope = current.used_cost_per_hour - tier.used_cost_per_hour
            if slope <= 0:
                continue
            share = (tier.fixed_cost_per_hour - current.fixed_cost_per_hour) / slope
            if at <= share <= 1 and (
                nearest is None or (share, tier.used_cost_per_hour) < (nearest[0], nearest[1].used_cost_per_hour)
            ):
                nearest = (share, tier)
        if nearest is None:
            return tuple(crossings)
        at, current = nearest
        crossings.append(Crossing(at, current))


def find_cheapest_mix(curve: LoadDuration, tiers: Sequence[Tier]) -> Mix:
    """Every GPU of the curve in its cheapest tier, the base (highest utilization) first.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> mix = find_cheapest_mix(day, (Tier("own", 1.2), Tier("on demand", 0, 3.0)))
    >>> [(use.tier.name, use.gpus) for use in mix.uses], round(24 * mix.cost_per_hour)
    ([('own', 60), ('on demand', 20)], 2208)
    """
    shares = curve.marginal_share
    if not tiers:
        raise PlanError("a mix needs at least one tier")
    costs: Floats = np.array([t.fixed_cost_per_hour + t.used_cost_per_hour * shares for t in tiers])
    # At a tie the tier with the smaller price per used hour wins: it is the one that holds when demand grows.
    costs_tied = costs + 1e-12 * np.array([[t.used_cost_per_hour] for t in tiers])
    chosen = np.argmin(costs_tied, axis=0)
    uses = []
    for index, tier in enumerate(tiers):
        mine = chosen == index
        if mine.any():
            uses.append(TierUse(tier, int(mine.sum()), float(shares[mine].sum()), float(costs[index][mine].sum())))
    uses.sort(key=lambda use: -use.used_gpu_hours_per_hour / use.gpus)
    alone = {tier.name: float(costs[index].sum()) for index, tier in enumerate(tiers)}
    return Mix(tuple(uses), sum(use.cost_per_hour for use in uses), alone)


def _ratio(own_cost_per_hour: float, rent_price_per_hour: float) -> float:
    if own_cost_per_hour <= 0 or rent_price_per_hour <= 0:
        raise PlanError(
            f"an owned and a rented GPU-hour must both cost something, got {own_cost_per_hour:g} and {rent_price_per_hour:g}"
        )
    return own_cost_per_hour / rent_price_per_hour


Verdict = Literal["add it", "rent it at peaks", "use the API", "bring demand first"]


@dataclass(frozen=True)
class MarginalGpu:
    """One GPU, the `gpu`-th: costs are per hour of its life, used or not. An option that does not exist is None."""

    gpu: int
    utilization_share: float
    first_year_utilization_share: float
    own_cost_per_hour: float
    rent_price_per_hour: float | None
    api_price_per_hour: float | None
    value_per_hour: float | None
    break_even_share: float | None
    verdict: Verdict

    @property
    def earned_per_hour(self) -> float | None:
        """Saving of owning it against the cheapest other way to do its work (or the work's value, where there is no other way)."""
        others = [cost for cost in (self.rent_price_per_hour, self.api_price_per_hour) if cost is not None]
        return min(others) if others else self.value_per_hour

    @property
    def sentence(self) -> str:
        used = f"GPU {self.gpu} would work {write_share(self.utilization_share)} of its life"
        if self.utilization_share == 0:
            return f"{used}: bring demand first."
        earned = "" if self.earned_per_hour is None else f", earns ${self.earned_per_hour:.2f} an hour"
        reason = {
            "add it": "add it",
            "rent it at peaks": f"renting it when needed costs ${self.rent_price_per_hour or 0:.2f}: rent it at peaks",
            "use the API": f"the same work at the API costs ${self.api_price_per_hour or 0:.2f}: use the API",
            "bring demand first": "its work is not worth that: bring demand first",
        }[self.verdict]
        return f"{used}{earned} and costs ${self.own_cost_per_hour:.2f}: {reason}."


def judge_gpu(
    curve: LoadDuration,
    gpu: int,
    own_cost_per_hour: float,
    rent_price_per_used_hour: float | None = None,
    api_price_per_used_hour: float | None = None,
    value_per_used_hour: float | None = None,
    yearly_growth_share: float = 0.0,
    life_years: int = 4,
) -> MarginalGpu:
    """Judge the `gpu`-th GPU of a demand whose size grows by `yearly_growth_share` a year over its life.

    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> judge_gpu(day, 60, 1.2, rent_price_per_used_hour=3.0).sentence
    'GPU 60 would work 50 % of its life, earns $1.50 an hour and costs $1.20: add it.'
    >>> judge_gpu(day, 80, 1.2, rent_price_per_used_hour=3.0).verdict
    'rent it at peaks'
    >>> judge_gpu(day, 80, 1.2, rent_price_per_used_hour=3.0, value_per_used_hour=2.0).verdict
    'bring demand first'
    """
    if own_cost_per_hour <= 0:
        raise PlanError(f"an owned GPU-hour must cost something, got {own_cost_per_hour:g}")
    for name, cost in (
        ("rent_price", rent_price_per_used_hour),
        ("api_price", api_price_per_used_hour),
        ("value", value_per_used_hour),
    ):
        if cost is not None and cost <= 0:
            raise PlanError(f"{name}_per_used_hour must be positive, got {cost:g}; leave it out where there is none")
    years = [curve.utilization_share(gpu)]
    for year in range(1, life_years):
        # demand beyond this GPU does not change its own utilization, and growth may make it very large
        grown = np.minimum(curve.demand_gpus * (1 + yearly_growth_share) ** year, gpu)
        years.append(load_duration(grown, curve.time_share).utilization_share(gpu) if yearly_growth_share else years[0])
    share = sum(years) / life_years

    def used(cost: float | None) -> float | None:
        return None if cost is None else cost * share

    ways: list[tuple[float, Verdict]] = [(own_cost_per_hour, "add it")]
    if rent_price_per_used_hour is not None:
        ways.append((rent_price_per_used_hour * share, "rent it at peaks"))
    if api_price_per_used_hour is not None:
        ways.append((api_price_per_used_hour * share, "use the API"))
    cheapest, verdict = min(ways, key=lambda way: way[0])
    if share == 0 or (value_per_used_hour is not None and value_per_used_hour * share < cheapest):
        verdict = "bring demand first"
    others = [cost for cost in (rent_price_per_used_hour, api_price_per_used_hour) if cost is not None]
    against = min(others) if others else value_per_used_hour
    return MarginalGpu(
        gpu=gpu,
        utilization_share=share,
        first_year_utilization_share=years[0],
        own_cost_per_hour=own_cost_per_hour,
        rent_price_per_hour=used(rent_price_per_used_hour),
        api_price_per_hour=used(api_price_per_used_hour),
        value_per_hour=used(value_per_used_hour),
        break_even_share=None if against is None else own_cost_per_hour / against,
        verdict=verdict,
    )
