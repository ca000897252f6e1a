"""Plan of self-hosting against an API: the floor, the bills at a demand, what moves the floor, in one answer."""

from dataclasses import dataclass, field, replace

from loadfactor.planner.economics.breakeven import (
    ApiPrice,
    BreakEven,
    MeanDemand,
    MeanRequest,
    ReplicaCost,
    Sensitivity,
    compare_at_demand,
    find_break_even,
    vary_inputs,
)
from loadfactor.planner.economics.claimed_floors import ClaimedFloor, reproduce_claimed_floors
from loadfactor.planner.economics.measured_load import MeasuredLoad


@dataclass(frozen=True)
class BreakEvenPlan(BreakEven):
    """The floor and what it means. `demand` compares the bills at the demand given; `measured` is the load in a store."""

    replica: ReplicaCost
    api: str
    api_price: ApiPrice
    request: MeanRequest
    requests_per_user_hour: float
    demand: MeanDemand | None
    sensitivities: tuple[Sensitivity, ...]
    claimed_floors: tuple[ClaimedFloor, ...] = field(default_factory=reproduce_claimed_floors)
    currency: str = "USD"
    measured: MeasuredLoad | None = None
    peak_ratio: float = 1.0
    throughput_range: tuple[float, float] | None = None
    """Factors on a planned throughput between which four of five measured ones lie; None where it was measured."""

    @property
    def floor_range(self) -> tuple[float, float] | None:
        """The floor from the higher to the lower end of the throughput; None where that was measured."""
        if self.throughput_range is None:
            return None
        low, high = self.throughput_range
        return self.floor_share / high, self.floor_share / low

    @property
    def is_open(self) -> bool:
        """True where the choice between a replica and the API turns inside the range of the throughput."""
        if self.throughput_range is None:
            return False
        return any(self._pays_at(factor) != self.self_hosting_pays for factor in self.throughput_range)

    def _pays_at(self, factor: float) -> bool:
        """Whether self-hosting pays, at the demand given where there is one, when throughput is so many times the planned."""
        replica = replace(self.replica, tokens_per_s=self.replica.tokens_per_s * factor)
        if not find_break_even(replica, self.api_price, self.request).pays:
            return False
        if self.demand is None:
            return True
        rate = self.demand.requests_per_s
        return compare_at_demand(replica, self.api_price, self.request, rate, self.peak_ratio).self_hosting_pays

    @property
    def measured_share(self) -> float | None:
        """The measured load as a share of saturated throughput, to be held against the floor; None where none was measured."""
        return None if self.measured is None else self.measured.share_of(self.replica.tokens_per_s / self.replica.gpus)

    @property
    def floor_users(self) -> float | None:
        """Users whose requests reach the floor; None where nothing does."""
        return self.count_users(self.requests_per_user_hour) if self.pays else None

    @property
    def self_hosting_pays(self) -> bool:
        """True when it pays at some utilization, and at the demand given."""
        return self.pays and (self.demand is None or self.demand.self_hosting_pays)


def plan_break_even(
    replica: ReplicaCost,
    api: str,
    price: ApiPrice,
    request: MeanRequest,
    requests_per_s: float | None = None,
    peak_ratio: float = 1.0,
    requests_per_user_hour: float = 1.0,
    measured: MeasuredLoad | None = None,
    throughput_range: tuple[float, float] | None = None,
) -> BreakEvenPlan:
    """One replica against one API.

    >>> plan = plan_break_even(ReplicaCost(1.006, 559), "an API", ApiPrice(0.5, 1.5), MeanRequest(500, 500), 0.5)
    >>> round(plan.floor_share, 3), plan.demand.replicas, plan.self_hosting_pays
    (0.5, 1, True)
    """
    found = find_break_even(replica, price, request)
    demand = None
    if requests_per_s is not None:
        demand = compare_at_demand(replica, price, request, requests_per_s, peak_ratio)
    return BreakEvenPlan(
        **vars(found),
        replica=replica,
        api=api,
        api_price=price,
        request=request,
        requests_per_user_hour=requests_per_user_hour,
        demand=demand,
        sensitivities=vary_inputs(replica, price, request),
        measured=measured,
        peak_ratio=peak_ratio,
        throughput_range=throughput_range,
    )
