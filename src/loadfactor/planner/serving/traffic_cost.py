"""Cost multiplier by kind of traffic: the same replica under even, part-time and bursty demand, simulated.

Services of the same mean rate while they are open: always and even; open 40 % of the time; and open 40 % of the time with mild
and with wild bursts. Each gets the fewest replicas that keep the objective for the wanted share of requests.
"""

from dataclasses import dataclass, replace

from loadfactor.base.units import S_PER_DAY, S_PER_MIN
from loadfactor.planner.serving.cost_multiplier import CostMultiplier
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.fleet_run import FleetRun, find_fewest_replicas, run_fleet
from loadfactor.planner.serving.layout_search import LayoutOption
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo

OPEN_SHARE = 0.4
REPLICAS_OF_LOAD = 8.0  # mean rate while open, in capacities of one replica: enough that whole replicas hardly matter
MOST_REQUESTS = 100_000  # of one simulated stretch
LONGEST_S, SHORTEST_S = 7200.0, 600.0
BURSTS_IN_STRETCH = 12


@dataclass(frozen=True)
class TrafficCost:
    """One kind of traffic: replicas it needs, share of requests within the objective, and its multiplier by cause."""

    name: str
    condition: str
    replicas: int
    slo_share: float | None
    causes: CostMultiplier

    @property
    def multiplier(self) -> float:
        """Times the benchmark price."""
        return self.causes.multiplier


def simulate_traffic_costs(
    option: LayoutOption, demand: RequestDemand, traffic: Traffic, slo: Slo, wanted_share: float, seed: int = 1
) -> tuple[TrafficCost, ...]:
    """The four services; lengths are those of `demand`. A stretch is simulated open, then, where there are such hours, closed."""
    rate = REPLICAS_OF_LOAD * option.require_capacity().requests_per_s
    minutes = max(SHORTEST_S, min(LONGEST_S, MOST_REQUESTS / rate)) // S_PER_MIN
    open_s = minutes * S_PER_MIN  # whole ones: duty counts minutes
    even = RequestDemand(rate * S_PER_DAY, demand.lengths)
    burst_s = open_s / BURSTS_IN_STRETCH
    mild = replace(even, process="bursts", burst_s=burst_s * 0.2, burst_share=0.2, burst_factor=1.6)
    wild = replace(even, process="bursts", burst_s=burst_s * 0.1, burst_share=0.1, burst_factor=4.0)
    kinds = (
        ("even, always open", "Poisson arrivals", even, 1.0),
        ("open 40 %", "Poisson arrivals while open", even, OPEN_SHARE),
        ("open 40 %, bursty", "a fifth of it at 1.6 × the calm rate", mild, OPEN_SHARE),
        ("open 40 %, wild", "a tenth of it at 4 × the calm rate", wild, OPEN_SHARE),
    )
    found = []
    for name, condition, kind, open_share in kinds:
        burst = kind.burst_levels[1] if kind.process == "bursts" else 1.0

        def run(n: int, kind: RequestDemand = kind, horizon_s: float = open_s / open_share) -> FleetRun:
            arrivals = kind.arrivals(open_s / S_PER_DAY, seed)
            return run_fleet(option, n, arrivals, traffic, slo, horizon_s=horizon_s, seed=seed)

        n, fleet_run = find_fewest_replicas(run, int(REPLICAS_OF_LOAD * burst), wanted_share)
        found.append(TrafficCost(name, condition, n, fleet_run.run.total.slo_share, fleet_run.multiplier))
    return tuple(found)
