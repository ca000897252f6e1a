"""What more GPUs or money bring a fleet that serves: the users whom so many replicas more carry, simulated as the fleet is."""

from dataclasses import replace

from loadfactor.base.units import H_PER_MONTH
from loadfactor.planner.hardware.marginal import Marginal, list_enlargements
from loadfactor.planner.serving.fleet_size import ServingInputs, count_least_replicas, simulate_fleet
from loadfactor.planner.serving.service import LayoutOption

COARSEST, FINENESS = 0.02, 0.1  # the most is found to this share of it, and to this share of what one replica carries


def enlarge_fleet(
    q: ServingInputs, option: LayoutOption, replicas: int, requests_per_user: float, node_gpus: int
) -> tuple[Marginal, ...]:
    """Users more whom each enlargement of so many replicas of a layout carries, in whole replicas, and what they cost a month.

    A fleet carries more than the demand it was sized for; what is gained counts from there.
    """
    each = option.replica.layout.gpus
    price = None if q.price_per_gpu_hour is None else q.price_per_gpu_hour * H_PER_MONTH
    capacity = option.require_capacity().requests_per_s * (1 - q.headroom_share) / q.demand.peak_rate_per_s()
    most = find_most_requests(q, option, replicas, q.demand.requests_per_day * replicas * capacity)
    now, found = most / requests_per_user, []
    for step in list_enlargements(node_gpus, price, q.currency):
        added = step.gpus // each
        then, reason = now, f"one replica takes {each} GPUs, and these are {step.gpus}"
        if added:
            share = (replicas + added) / replicas
            then, reason = find_most_requests(q, option, replicas + added, most * share) / requests_per_user, ""
        cost = None if price is None else added * each * price
        found.append(Marginal(step.name, added * each, "users", now, then, then - now, cost, then / now, reason))
    return tuple(found)


def find_most_requests(q: ServingInputs, option: LayoutOption, replicas: int, about: float) -> float:
    """Requests of an average day up to which so many replicas keep the objective, or the demand of the question, if that is more.

    Looks from `about` in growing steps, then between.
    """
    least = q.demand.requests_per_day

    def keeps(requests_per_day: float) -> bool:
        asked = replace(q, demand=replace(q.demand, requests_per_day=requests_per_day), replicas=replicas)
        if count_least_replicas(asked, option) > replicas:
            return False
        return simulate_fleet(asked, option, (option,), replicas).keeps(q.wanted_share)

    fineness = min(COARSEST, FINENESS / replicas)
    low, step = max(least, about), 1 + 2 * fineness
    high = low * step
    if low == least or keeps(low):
        while keeps(high):
            step **= 2
            low, high = high, high * step
    else:
        high, low = low, max(least, low / step)
        while low > least and not keeps(low):
            step **= 2
            high, low = low, max(least, low / step)
    while high / low > 1 + fineness:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
