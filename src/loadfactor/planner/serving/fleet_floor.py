"""The smallest fleet of one's own whose tokens cost no more than a price: the one that `plan serve` recommends for its demand.

A fleet of R replicas of a layout pays from the users on whose tokens would cost as much as it does at that price. So many users
for each replica are one load, and the larger the fleet, the better it carries it: R is the fewest replicas that keep the objective
for R times those users, and where many do not, none does. Of the layouts the floor is the one with the fewest GPUs, and what is
said of it is sized for those users as `plan serve` does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadfactor.base.errors import PlanError
from loadfactor.base.units import H_PER_DAY, TOKENS_PER_MTOK
from loadfactor.planner.serving.fleet_size import (
    ServingInputs,
    SizedFleet,
    count_by_equation,
    count_least_replicas,
    list_layout_options,
    rank_layouts,
    simulate_fleet,
    size_fleet,
)
from loadfactor.planner.serving.service import LayoutOption

MOST_REPLICAS = 32  # beyond that a replica more or less hardly evens out


@dataclass(frozen=True)
class FloorFleet:
    """The fleet recommended for so many requests of an average day, at which its tokens cost the price."""

    requests_per_day: float
    fleet: SizedFleet


def find_floor_fleet(q: ServingInputs, price_per_mtok: float) -> FloorFleet | None:
    """The fleet from which on serving costs no more than this price per million tokens; None where it never does."""
    if q.price_per_gpu_hour is None:
        raise PlanError("where a fleet pays depends on what a GPU-hour costs; give --price-per-gpu-hour")
    tokens_per_request = q.demand.lengths.prompt_mean + q.demand.lengths.output_mean
    per_gpu_day = q.price_per_gpu_hour * H_PER_DAY / price_per_mtok * TOKENS_PER_MTOK / tokens_per_request

    def ask(gpus: int) -> ServingInputs:
        """The question for the demand whose tokens cost the price on so many GPUs."""
        return replace(q, demand=replace(q.demand, requests_per_day=gpus * per_gpu_day))

    considered, found = list_layout_options(q), None
    for option in sorted(rank_layouts(q, considered), key=lambda o: o.replica.layout.gpus):
        most = MOST_REPLICAS if found is None else (found.gpus - 1) // option.replica.layout.gpus
        found = _find_fewest(ask, considered, option, most) or found
    if found is None:
        return None
    gpus = found.gpus
    fleet = size_fleet(ask(gpus), simulated=(found,))
    while fleet.gpus < gpus and (smaller := size_fleet(ask(fleet.gpus))).gpus <= fleet.gpus:
        gpus, fleet = fleet.gpus, smaller
    return FloorFleet(gpus * per_gpu_day, fleet)


def _find_fewest(
    ask: Callable[[int], ServingInputs], considered: tuple[LayoutOption, ...], option: LayoutOption, most: int
) -> SizedFleet | None:
    """The fewest replicas of a layout, at most `most`, that keep the objective for their demand; None where none do."""

    def attempt(replicas: int) -> SizedFleet | None:
        asked = ask(replicas * option.replica.layout.gpus)
        if count_least_replicas(asked, option) > replicas:
            return None
        if count_by_equation(asked, option) > replicas and rank_layouts(asked, considered)[0] is not option:
            return None  # `plan serve` does not look at it
        fleet = simulate_fleet(asked, option, considered, replicas)
        return fleet if fleet.keeps(asked.wanted_share) else None

    found = attempt(1) if most else None
    if found is not None or most <= 1:
        return found
    found = attempt(most)
    if found is None:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        smaller = attempt(middle)
        low, high, found = (middle, high, found) if smaller is None else (low, middle, smaller)
    return found
