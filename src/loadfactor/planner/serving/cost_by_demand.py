"""How many users make a token cheap? Cost per million tokens against demand, and the demand from which it is efficient."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.layout_search import LayoutOption, replicas_for
from loadfactor.units import H_PER_DAY, S_PER_DAY, TOKENS_PER_MTOK

EFFICIENT = 1.5  # times the cost at unlimited demand


@dataclass(frozen=True)
class CostPoint:
    """A demand, the fleet it needs, and what a token costs then, prompt and output tokens alike."""

    demand_factor: float
    requests_per_day: float
    replicas: int
    gpus: float
    cost_per_mtok: float
    load_factor: float  # mean load over the capacity paid for


def cost_point(
    chosen: LayoutOption, demand: RequestDemand, factor: float, price_per_gpu_hour: float, headroom_share: float
) -> CostPoint:
    """One point of the curve: a fleet of fixed size for the peak of this demand."""
    some = demand.times(factor)
    assert chosen.capacity is not None
    replicas = replicas_for(some.peak_rate_per_s(), chosen.capacity, headroom_share)
    gpus = replicas * chosen.capacity.gpus
    tokens = some.requests_per_day * (some.lengths.prompt_mean + some.lengths.output_mean)
    cost = gpus * price_per_gpu_hour * H_PER_DAY / (tokens / TOKENS_PER_MTOK)
    mean_rate = some.requests_per_day / S_PER_DAY
    return CostPoint(
        factor, some.requests_per_day, replicas, gpus, cost, mean_rate / (replicas * chosen.capacity.requests_per_s)
    )


def cost_curve(
    chosen: LayoutOption,
    demand: RequestDemand,
    price_per_gpu_hour: float,
    headroom_share: float,
    factors: Sequence[float] | None = None,
) -> tuple[CostPoint, ...]:
    """Points from a hundredth to a hundred times today's demand (or at the factors given)."""
    factors = factors or [10 ** (i / 8) for i in range(-16, 17)]
    return tuple(cost_point(chosen, demand, f, price_per_gpu_hour, headroom_share) for f in factors)


def cost_at_unlimited_demand(
    chosen: LayoutOption, demand: RequestDemand, price_per_gpu_hour: float, headroom_share: float
) -> float:
    """What a token costs once whole replicas no longer matter: peaks and headroom stay."""
    return cost_point(
        chosen, demand, 1e9 / demand.requests_per_day * 1e3, price_per_gpu_hour, headroom_share
    ).cost_per_mtok


def efficient_requests_per_day(
    chosen: LayoutOption, demand: RequestDemand, price_per_gpu_hour: float, headroom_share: float
) -> float:
    """The least demand whose tokens cost at most `EFFICIENT` times those of unlimited demand, found on one replica's sawtooth.

    One replica costs the same whatever it serves, so its cost per token falls as 1/demand until the peak fills it.
    """
    floor = cost_at_unlimited_demand(chosen, demand, price_per_gpu_hour, headroom_share)
    now = cost_point(chosen, demand, 1e-9, price_per_gpu_hour, headroom_share)
    return now.requests_per_day * now.cost_per_mtok / (EFFICIENT * floor)
