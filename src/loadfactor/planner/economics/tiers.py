"""Tiers of GPUs: which to own, which to commit to, which to rent by the hour. Own the base, rent the peaks.

A tier costs `fixed` for every hour it is held and `used` for every hour it works. At marginal utilization u an hour of one GPU
costs fixed + used·u, so each GPU of the load-duration curve takes the tier that is cheapest at its own u: the screening curve of
the power industry. With one owned tier c and one rented tier p this is the newsvendor's rule: own GPU k while P(D ≥ k) ≥ c/p.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics.load_duration import Floats, LoadDuration

STANDARD = NormalDist()


@dataclass(frozen=True)
class Tier:
    """One way to get a GPU: its cost per hour held, and per hour used on top."""

    name: str
    fixed_cost_per_hour: float = 0.0
    used_cost_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """A tier that costs nothing decides everything by accident."""
        if min(self.fixed_cost_per_hour, self.used_cost_per_hour) < 0 or not self.cost_per_hour(1.0) > 0:
            raise PlanError(
                f"tier {self.name!r} costs {self.fixed_cost_per_hour:g} held, {self.used_cost_per_hour:g} used; one must be above 0"
            )

    def cost_per_hour(self, utilization_share: float) -> float:
        """What an hour of one GPU costs at this utilization."""
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
    beyond = float(curve.marginal_share[owned_gpus:].sum())
    return own_cost_per_hour * owned_gpus + rent_price_per_hour * beyond


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
    if not tiers:
        raise PlanError("a mix needs at least one tier")
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
