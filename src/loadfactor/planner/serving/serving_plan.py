"""How should this network be served? Layout, replicas, cost, fullness, crowd, levers and the figures behind them, in one answer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.errors import PlanError
from loadfactor.planner.serving.batch_gains import BatchGains, compute_batch_gains
from loadfactor.planner.serving.cost_by_demand import (
    CostPoint,
    cost_at_unlimited_demand,
    cost_curve,
    efficient_requests_per_day,
)
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.fleet_run import (
    FleetRun,
    HourStatistics,
    Policy,
    fewest_replicas,
    measure_hour,
    run_fleet,
)
from loadfactor.planner.serving.latency import Latency, latency
from loadfactor.planner.serving.layout_search import LayoutOption, choose_cheapest, list_options, replicas_for
from loadfactor.planner.serving.levers import LeverEffect, compare_levers
from loadfactor.planner.serving.replica_layout import Precision
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.simulation.simulate import Arrivals
from loadfactor.planner.serving.traffic_cost import TrafficCost, simulate_traffic_costs
from loadfactor.units import S_PER_DAY, S_PER_HOUR

MOST_SIMULATED_REQUESTS = 600_000
TUESDAY = 1
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class ServingInputs:
    """What is asked. `trace` makes a fresh stream of real requests each time it is called; without it, `demand` is drawn."""

    network: Network
    accelerator: Accelerator
    precision: Precision
    engine: EngineConstants
    demand: RequestDemand
    slo: Slo
    price_per_gpu_hour: float
    wanted_share: float = 0.95
    headroom_share: float = 0.1
    traffic: Traffic | None = None
    policy: Policy = field(default_factory=Policy)
    replicas: int | None = None
    gpus_per_replica: int | None = None
    trace: Callable[[], Iterable[Arrivals]] | None = None
    days: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class ServingPlan:
    """The answer. Simulated demand is `simulated_share` of the asked one where that would be too many requests to draw."""

    chosen: LayoutOption
    considered: tuple[LayoutOption, ...]
    traffic: Traffic
    replicas: int
    simulated_replicas: int
    simulated_share: float
    gpus: int
    cost_per_hour: float
    flight: FleetRun
    hours: tuple[HourStatistics, ...]
    total: HourStatistics
    crowd: tuple[CostPoint, ...]
    cost_per_mtok_unlimited: float
    efficient_requests_per_day: float
    levers: tuple[LeverEffect, ...]
    claims: BatchGains
    traffic_prices: tuple[TrafficCost, ...]
    sweep: Latency
    keeps_slo: bool


Progress = Callable[[str], None]


def plan_serving(q: ServingInputs, progress: Progress = lambda _: None) -> ServingPlan:
    """Plan a fleet: equations choose, the simulation checks and sizes. PlanError when nothing fits or none keeps the objective."""
    lengths = q.demand.lengths
    traffic = q.traffic or Traffic(lengths.prompt_mean, lengths.output_mean, lengths.prompt_cv)
    considered = list_options(q.network, q.accelerator, q.precision, q.engine, traffic, q.slo)
    if q.gpus_per_replica is not None:
        considered = tuple(o for o in considered if o.replica.layout.gpus == q.gpus_per_replica)
        if not considered:
            raise PlanError(
                f"no layout of {q.network.name} on {q.gpus_per_replica} × {q.accelerator.name} fits; leave the number open"
            )
    peak = q.demand.peak_rate_per_s()
    chosen = choose_cheapest(considered, peak, q.headroom_share, q.slo)
    assert chosen.capacity is not None
    progress("simulating a day of the fleet")
    requests = q.demand.requests_per_day * q.days
    share = min(1.0, MOST_SIMULATED_REQUESTS / requests) if q.trace is None else 1.0
    asked = q.replicas or replicas_for(peak, chosen.capacity, q.headroom_share)
    small = max(1, round(asked * share))
    flight, small = _sized(q, chosen, traffic, small, share)
    replicas = small if share == 1 else max(asked if q.replicas else 1, round(small / share))
    gpus = replicas * chosen.replica.layout.gpus
    hours = tuple(
        measure_hour(t, chosen, q.price_per_gpu_hour, min(S_PER_HOUR, max(flight.run.elapsed_s - i * S_PER_HOUR, 1.0)))
        for i, t in enumerate(flight.run.hours)
    )
    progress("pricing crowds, levers and bursts")
    money = (q.price_per_gpu_hour, q.headroom_share)
    share_met = flight.run.total.slo_share or 0.0
    return ServingPlan(
        chosen=chosen,
        considered=considered,
        traffic=traffic,
        replicas=replicas,
        simulated_replicas=small,
        simulated_share=share,
        gpus=gpus,
        cost_per_hour=gpus * q.price_per_gpu_hour,
        flight=flight,
        hours=hours,
        total=measure_hour(flight.run.total, chosen, q.price_per_gpu_hour, flight.run.elapsed_s),
        crowd=cost_curve(chosen, q.demand, *money),
        cost_per_mtok_unlimited=cost_at_unlimited_demand(chosen, q.demand, *money),
        efficient_requests_per_day=efficient_requests_per_day(chosen, q.demand, *money),
        levers=compare_levers(chosen, traffic, q.slo, q.demand, *money),
        claims=compute_batch_gains(chosen.replica, traffic.context),
        traffic_prices=simulate_traffic_costs(chosen, q.demand, traffic, q.slo, q.wanted_share, q.seed),
        sweep=latency(chosen.replica, np.array(CONCURRENCIES, dtype=float), traffic.prompt, traffic.output),
        keeps_slo=share_met >= q.wanted_share,
    )


def _sized(q: ServingInputs, chosen: LayoutOption, traffic: Traffic, first: int, share: float) -> tuple[FleetRun, int]:
    """The fewest simulated replicas, from `first`, with which the objective is kept for the wanted share of requests."""
    horizon = None if q.trace else q.days * S_PER_DAY
    demand = replace(q.demand, requests_per_day=q.demand.requests_per_day * share)

    def flown(n: int) -> FleetRun:
        arrivals = q.trace() if q.trace else demand.arrivals(q.days, q.seed, TUESDAY)
        policy = q.policy
        if policy.autoscale is not None:
            policy = replace(policy, autoscale=replace(policy.autoscale, least=min(policy.autoscale.least, n)))
        return run_fleet(chosen, n, arrivals, traffic, q.slo, policy, horizon, q.seed)

    if q.replicas is not None:
        return flown(first), first
    n, flight = fewest_replicas(flown, first, q.wanted_share)
    return flight, n
