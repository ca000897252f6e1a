"""The size of a fleet: the layout on the fewest GPUs, and the fewest replicas of it that keep the objective in a simulated day.

Equations order the layouts and the simulation has the last word: the first is simulated, and another where the first takes more
GPUs than equations find for it. Recommended by `plan serve`, and asked by the other plans.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.limits import MOST_GPUS
from loadfactor.base.units import H_PER_DAY, S_PER_DAY
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.calibration import LoadTestResult, ServingCalibration, calibrate
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.fleet_run import FleetRun, Policy, find_fewest_replicas, run_fleet
from loadfactor.planner.serving.layouts import EVERY_LAYOUT, FixedLayout, Precision, ReplicaLayout
from loadfactor.planner.serving.service import LayoutOption, Traffic, count_replicas, list_options, rank_by_gpus
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.simulation.simulate import Arrivals
from loadfactor.planner.serving.step import Replica, check_fits

MOST_SIMULATED_REQUESTS = 600_000
MOST_SIMULATED_STEPS = (
    16_000_000  # of engines: many slow replicas take more of them than requests, some ten seconds for these
)
MOST_SIMULATED_REPLICAS = 4000  # each keeps a ring of its sequences in memory: a quarter of a MiB
BEYOND_BENCHMARK = 1.2  # times what a replica takes in a benchmark, by equation: no simulated one takes as much
FINENESS_OF_PARTS = 200  # a part of a fleet does not tell sizes apart that differ by less than one in so many
HOPELESS_LOAD = 10.0  # times what replicas take in a benchmark
TUESDAY = 1


@dataclass(frozen=True)
class ServingInputs:
    """Question of a plan. `trace` makes a fresh stream of real requests each time it is called; without it, `demand` is drawn."""

    network: Network
    accelerator: Accelerator
    precision: Precision
    engine: EngineConstants
    demand: RequestDemand
    slo: Slo
    price_per_gpu_hour: float | None
    currency: str = "USD"
    price_range: tuple[float, float] = (1.0, 1.0)  # factors on it between which the catalog lists it
    wanted_share: float = 0.95
    headroom_share: float = 0.1
    traffic: Traffic | None = None
    policy: Policy = field(default_factory=Policy)
    replicas: int | None = None
    fixed: FixedLayout = EVERY_LAYOUT
    trace: Callable[[], Iterable[Arrivals]] | None = None
    days: float = 1.0
    seed: int = 1
    calibration: ServingCalibration | None = None  # what measurements taught of `engine`

    @property
    def mean_traffic(self) -> Traffic:
        """The traffic given, else the mean request of the demand."""
        lengths = self.demand.lengths
        return self.traffic or Traffic(lengths.prompt_mean, lengths.output_mean, lengths.prompt_cv)


Progress = Callable[[str], None]


@dataclass(frozen=True)
class SizedFleet:
    """A fleet, by equation and simulated: its layout, its replicas, and the run of the part of it that was simulated."""

    considered: tuple[LayoutOption, ...]
    chosen: LayoutOption
    fleet_run: FleetRun
    simulated_replicas: int
    simulated_share: float
    replicas: int

    @property
    def gpus(self) -> int:
        return self.replicas * self.chosen.replica.layout.gpus

    def keeps(self, wanted_share: float) -> bool:
        """Whether so many requests met the objective."""
        return (self.fleet_run.run.total.slo_share or 0.0) >= wanted_share


def list_layout_options(q: ServingInputs) -> tuple[LayoutOption, ...]:
    """Every layout of the question. PlanError when nothing fits."""
    return list_options(q.network, q.accelerator, q.precision, q.engine, q.mean_traffic, q.slo, q.fixed)


def rank_layouts(q: ServingInputs, considered: tuple[LayoutOption, ...]) -> tuple[LayoutOption, ...]:
    """The layouts by how few GPUs the demand's peak takes, by equation. PlanError when none keeps the objective."""
    return rank_by_gpus(considered, q.demand.peak_rate_per_s(), q.headroom_share, q.slo)


def count_by_equation(q: ServingInputs, option: LayoutOption) -> int:
    """Replicas of a layout that carry the demand's peak, by equation."""
    return count_replicas(q.demand.peak_rate_per_s(), option.require_capacity(), q.headroom_share)


def calibrate_inputs(
    q: ServingInputs, measured: Sequence[LoadTestResult], layout: ReplicaLayout | None
) -> ServingInputs:
    """The question with the engine as measurements know it. PlanError when no layout is given and none keeps the objective."""
    if layout is None:
        replica = rank_layouts(q, list_layout_options(q))[0].replica
    else:
        replica = Replica(q.network, q.accelerator, layout, q.precision, q.engine)
        check_fits(replica, max(one.prompt_tokens + one.output_tokens for one in measured))
    found = calibrate(replica, measured)
    return replace(q, engine=found.engine, calibration=found)


def size_fleet(
    q: ServingInputs, progress: Progress = lambda _: None, simulated: Iterable[SizedFleet] = ()
) -> SizedFleet:
    """The layout that equations choose on the replicas given, or the fewest GPUs that keep the objective in the simulation.

    What `plan serve` recommends, and what the other plans ask; fleets of this question that were `simulated` are not again.
    PlanError when nothing fits or none keeps the objective.
    """
    considered = list_layout_options(q)
    first, *others = rank_layouts(q, considered)
    gpus = count_by_equation(q, first) * first.replica.layout.gpus
    if gpus > MOST_GPUS:
        raise PlanError(
            f"{q.demand.peak_rate_per_s():,.3g} requests/s at the peak take {gpus:,.3g} × "
            f"{q.accelerator.name}, more than {MOST_GPUS:,}; give fewer --users or --requests-per-user"
        )
    _check_overload(q, first)
    sizes = _Sizes(
        q, considered, progress, {(fleet.chosen.replica.layout, fleet.replicas): fleet for fleet in simulated}
    )
    if q.replicas is not None:
        return sizes.simulate(first, q.replicas)
    best = sizes.find_fewest(first, count_by_equation(q, first))
    for option in others:
        most = (best.gpus - 1) // option.replica.layout.gpus
        if count_by_equation(q, option) <= most and sizes.simulate(option, most).keeps(q.wanted_share):
            best = sizes.find_fewest(option, most)
    return best


@dataclass(frozen=True)
class _Sizes:
    """Fleets of one question that were simulated, each once."""

    q: ServingInputs
    considered: tuple[LayoutOption, ...]
    progress: Progress
    fleets: dict[tuple[ReplicaLayout, int], SizedFleet]

    def simulate(self, option: LayoutOption, replicas: int) -> SizedFleet:
        key = option.replica.layout, replicas
        if key not in self.fleets:
            self.progress(f"simulating a day of the fleet with {replicas:,} replicas")
            self.fleets[key] = simulate_fleet(self.q, option, self.considered, replicas)
        return self.fleets[key]

    def find_fewest(self, option: LayoutOption, first: int) -> SizedFleet:
        """The fewest replicas of a layout that keep the objective, looked for from `first`."""
        q = self.q
        is_whole = q.trace is not None or _choose_share(q, option, first) == 1
        apart = 1 if is_whole else max(1, first // FINENESS_OF_PARTS)
        least = count_least_replicas(q, option)

        def run(n: int) -> FleetRun:
            return self.simulate(option, n).fleet_run

        fewest, _ = find_fewest_replicas(run, first, q.wanted_share, least, apart)
        return self.simulate(option, fewest)


def simulate_fleet(
    q: ServingInputs, chosen: LayoutOption, considered: tuple[LayoutOption, ...], replicas: int
) -> SizedFleet:
    """A fleet of so many replicas, simulated whole, or a whole number of its replicas with exactly their share of the demand.

    A part is simulated where the demand has too many requests or steps of engines.
    """
    drawn = _choose_share(q, chosen, replicas) if q.trace is None else 1.0
    simulated = max(1, round(replicas * drawn))
    if simulated > MOST_SIMULATED_REPLICAS:
        what = "give fewer --replicas" if q.replicas else "give fewer --users or shorter --output-tokens"
        raise PlanError(
            f"{q.demand.requests_per_day:,.3g} requests a day on {replicas:,} replicas cannot be simulated: "
            f"at most {MOST_SIMULATED_REPLICAS:,} replicas fit into memory; {what}"
        )
    share = simulated / replicas
    arrivals = q.trace() if q.trace else q.demand.scale(share).arrivals(q.days, q.seed, TUESDAY)
    policy = q.policy
    if policy.autoscale is not None:
        policy = replace(policy, autoscale=replace(policy.autoscale, least=min(policy.autoscale.least, simulated)))
    horizon_s = None if q.trace else q.days * S_PER_DAY
    run = run_fleet(chosen, simulated, arrivals, q.mean_traffic, q.slo, policy, horizon_s, q.seed)
    return SizedFleet(considered, chosen, run, simulated, share, replicas)


def _choose_share(q: ServingInputs, chosen: LayoutOption, replicas: int) -> float:
    """Share of the demand and fleet that is simulated: as much as there is time for, by requests and by steps of engines."""
    steps = replicas * q.days * S_PER_DAY / chosen.require_capacity().tpot_s
    return min(1.0, MOST_SIMULATED_REQUESTS / (q.demand.requests_per_day * q.days), MOST_SIMULATED_STEPS / steps)


def count_least_replicas(q: ServingInputs, chosen: LayoutOption) -> int:
    """Replicas below which no simulation is needed: hours with more requests than may miss have a rate beyond any benchmark."""
    if q.trace is not None or q.policy.order != "first-come":
        return 1
    rates = sorted((q.demand.rate_per_s(TUESDAY * H_PER_DAY + hour) for hour in range(H_PER_DAY)), reverse=True)
    missing = np.cumsum(rates) > (1 - q.wanted_share) * sum(rates)
    rate = rates[int(np.argmax(missing))]
    return max(1, ceil(rate / (BEYOND_BENCHMARK * chosen.benchmark.requests_per_s)))


def _check_overload(q: ServingInputs, chosen: LayoutOption) -> None:
    if q.replicas is None or q.trace is not None:
        return
    mean_per_s = q.demand.requests_per_day / S_PER_DAY
    most_per_s = q.replicas * chosen.benchmark.requests_per_s
    if mean_per_s > HOPELESS_LOAD * most_per_s:
        needed = count_by_equation(q, chosen)
        raise PlanError(
            f"{q.replicas} replicas of {chosen.layout} take at most {most_per_s:,.3g} requests/s, and {mean_per_s:,.3g} come; "
            f"about {needed:,} would do: leave --replicas out"
        )
