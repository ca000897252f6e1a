"""What does traffic do to the price of a token? The same replica under even, part-time and bursty demand, simulated.

Services of the same mean rate while they are open: round the clock and even; open 40 % of the hours; and open 40 % of the hours
with mild and with wild bursts. Each gets the fewest replicas that keep the objective for the wanted share of requests.
"""

from dataclasses import dataclass, replace

from loadfactor.planner.serving.causes import Causes
from loadfactor.planner.serving.demand import Demand
from loadfactor.planner.serving.flight import Flight, fly
from loadfactor.planner.serving.layouts import Option
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.units import H_PER_DAY, S_PER_DAY, S_PER_HOUR

OPEN_SHARE = 0.4
REPLICAS_OF_LOAD = 8.0  # mean rate while open, in capacities of one replica: enough that whole replicas hardly matter
SIMULATED_H = 5
MOST_TRIES = 24


@dataclass(frozen=True)
class PricedTraffic:
    """One kind of traffic: replicas it needs, share of requests within the objective, and the multiplier by cause."""

    name: str
    condition: str
    replicas: int
    slo_share: float | None
    causes: Causes


def fewest_replicas(
    option: Option, demand: Demand, traffic: Traffic, slo: Slo, wanted_share: float, first: int, hours: float, seed: int
) -> tuple[int, Flight]:
    """The fewest replicas, from `first` on, that keep the objective for `wanted_share` of requests; the last tried if none does."""
    horizon = hours * S_PER_HOUR
    n = max(1, first)
    for _ in range(MOST_TRIES):
        flight = fly(option, n, demand.arrivals(hours / H_PER_DAY, seed), traffic, slo, horizon_s=horizon, seed=seed)
        if (flight.run.total.slo_share or 0.0) >= wanted_share:
            break
        n += max(1, n // 8)
    return n, flight


def price_of_traffic(
    option: Option, demand: Demand, traffic: Traffic, slo: Slo, wanted_share: float, seed: int = 1
) -> tuple[PricedTraffic, ...]:
    """The four services; lengths are those of `demand`. Their closed hours come last in each simulated stretch of five hours."""
    assert option.capacity is not None
    rate = REPLICAS_OF_LOAD * option.capacity.requests_per_s
    even = Demand(rate * S_PER_DAY, demand.lengths)
    hours_open = round(OPEN_SHARE * SIMULATED_H)
    part = tuple(1.0 if h % SIMULATED_H < hours_open else 0.0 for h in range(H_PER_DAY))
    share_of_day = sum(part) / H_PER_DAY
    open_hours = replace(even, requests_per_day=even.requests_per_day * share_of_day, day=part)
    mild = replace(open_hours, process="bursts", burst_factor=1.6, burst_share=0.2, burst_s=120.0)
    wild = replace(mild, burst_factor=4.0, burst_share=0.1)
    kinds = (
        ("even, round the clock", "open 100 % of hours, Poisson arrivals", even),
        ("open 40 % of hours", "Poisson arrivals while open", open_hours),
        ("open 40 %, bursty", "a fifth of the time 1.6 × the calm rate, two minutes at a time", mild),
        ("open 40 %, wild", "a tenth of the time 4 × the calm rate, two minutes at a time", wild),
    )
    found = []
    for name, condition, some in kinds:
        hours = SIMULATED_H if some.day == part else hours_open  # even demand needs no closed hours
        burst = some.burst_levels[1] if some.process == "bursts" else 1.0
        first = max(1, int(REPLICAS_OF_LOAD * burst))
        n, flight = fewest_replicas(option, some, traffic, slo, wanted_share, first, hours, seed)
        found.append(PricedTraffic(name, condition, n, flight.run.total.slo_share, flight.causes))
    return tuple(found)
