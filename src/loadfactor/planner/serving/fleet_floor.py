"""The smallest fleet of one's own whose tokens cost no more than a price: the one that `plan serve` recommends for its demand.

A fleet of R replicas pays from the users on whose tokens would cost as much as it does at that price. So many users for each
replica are one load, and the larger the fleet, the better it carries it: R is the fewest replicas that keep the objective for R
times those users, and where many do not, none does.
"""

from dataclasses import dataclass, replace

from loadfactor.base.units import H_PER_DAY, TOKENS_PER_MTOK
from loadfactor.planner.serving.fleet_size import (
    ServingInputs,
    SizedFleet,
    choose_layout,
    count_least_replicas,
    list_layout_options,
    size_fleet,
)

MOST_REPLICAS = 32  # beyond that a replica more or less hardly evens out


@dataclass(frozen=True)
class FloorFleet:
    """A fleet whose tokens cost exactly the price, and the requests of an average day for which it is recommended."""

    requests_per_day: float
    fleet: SizedFleet


def find_floor_fleet(q: ServingInputs, price_per_mtok: float) -> FloorFleet | None:
    """The fleet from which on serving costs no more than this price per million tokens; None where it never does."""
    found: dict[int, FloorFleet | None] = {}
    for replicas in (1, MOST_REPLICAS):
        found[replicas] = _try_fleet(q, price_per_mtok, replicas)
        if found[replicas] is not None:
            break
    else:
        return None
    low, high = (0 if replicas == 1 else 1), replicas
    while high - low > 1:
        middle = (low + high) // 2
        found[middle] = _try_fleet(q, price_per_mtok, middle)
        low, high = (low, middle) if found[middle] is not None else (middle, high)
    return found[high]


def _try_fleet(q: ServingInputs, price_per_mtok: float, replicas: int) -> FloorFleet | None:
    """The fleet of so many replicas for the demand at which its tokens cost the price; None where the objective is not kept."""
    considered = list_layout_options(q)
    tokens_per_request = q.demand.lengths.prompt_mean + q.demand.lengths.output_mean
    mtok_per_gpu_day = q.price_per_gpu_hour * H_PER_DAY / price_per_mtok
    for gpus in sorted({o.replica.layout.gpus for o in considered if o.capacity is not None}):
        requests_per_day = replicas * gpus * mtok_per_gpu_day * TOKENS_PER_MTOK / tokens_per_request
        demand = replace(q.demand, requests_per_day=requests_per_day)
        one = replace(q, demand=demand, replicas=replicas)
        chosen = choose_layout(one, considered)
        if chosen.replica.layout.gpus == gpus and count_least_replicas(one, chosen) <= replicas:
            fleet = size_fleet(one)
            if fleet.keeps(q.wanted_share):
                return FloorFleet(requests_per_day, fleet)
    return None
