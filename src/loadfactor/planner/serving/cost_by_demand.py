"""Cost per token by demand: what a token costs for more or fewer users, and the demand from which it is efficient. By equation."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadfactor.base.units import H_PER_DAY, S_PER_DAY, TOKENS_PER_MTOK
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.layout_search import LayoutOption, count_replicas

EFFICIENT = 1.5  # times the cost at unlimited demand
UNLIMITED_REQUESTS_PER_DAY = 1e12
ALMOST_NO_DEMAND = 1e-9  # of today's
FACTORS = tuple(10 ** (i / 8) for i in range(-16, 17))  # a hundredth to a hundred times today's demand


@dataclass(frozen=True)
class CostPoint:
    """A demand, the fleet it needs, and what a token costs then, prompt and output tokens alike."""

    demand_factor: float
    requests_per_day: float
    replicas: int
    gpus: float
    cost_per_mtok: float
    load_factor: float  # mean load over the capacity paid for


@dataclass(frozen=True)
class FleetPricing:
    """How a fleet of fixed size is priced by equation: replicas for the peak with headroom, at a price per GPU-hour."""

    price_per_gpu_hour: float
    headroom_share: float

    def price_demand(self, option: LayoutOption, demand: RequestDemand, factor: float) -> CostPoint:
        """The fleet for the peak of `factor` times the demand."""
        scaled, capacity = demand.scale(factor), option.require_capacity()
        replicas = count_replicas(scaled.peak_rate_per_s(), capacity, self.headroom_share)
        gpus = replicas * capacity.gpus
        tokens = scaled.requests_per_day * (scaled.lengths.prompt_mean + scaled.lengths.output_mean)
        cost = gpus * self.price_per_gpu_hour * H_PER_DAY / (tokens / TOKENS_PER_MTOK)
        load_factor = scaled.requests_per_day / S_PER_DAY / (replicas * capacity.requests_per_s)
        return CostPoint(factor, scaled.requests_per_day, replicas, gpus, cost, load_factor)

    def price_unlimited_demand(self, option: LayoutOption, demand: RequestDemand) -> float:
        """Cost per million tokens once whole replicas no longer matter: peaks and headroom stay."""
        return self.price_demand(option, demand, UNLIMITED_REQUESTS_PER_DAY / demand.requests_per_day).cost_per_mtok

    def find_efficient_requests_per_day(self, option: LayoutOption, demand: RequestDemand) -> float:
        """The least demand whose tokens cost at most `EFFICIENT` times those of unlimited demand, found on one replica's sawtooth.

        One replica costs the same whatever it serves, so its cost per token falls as 1/demand until the peak fills it.
        """
        floor = self.price_unlimited_demand(option, demand)
        one = self.price_demand(option, demand, ALMOST_NO_DEMAND)
        return one.requests_per_day * one.cost_per_mtok / (EFFICIENT * floor)


def price_demands(
    option: LayoutOption, demand: RequestDemand, pricing: FleetPricing, factors: Sequence[float] = FACTORS
) -> tuple[CostPoint, ...]:
    """The curve of cost per token against demand."""
    return tuple(pricing.price_demand(option, demand, factor) for factor in factors)
