"""The serving plan: layout, replicas, simulated day, cost by demand, levers and what a batch gains, in one result."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

import numpy as np

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.limits import shorten
from loadfactor.base.units import MS_PER_S, NS_PER_S, S_PER_HOUR, TOKENS_PER_MTOK
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.catalog.prices import ChosenPrice
from loadfactor.planner.hardware.distance import Distance
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.serving.calibration import Ranges, ServingCalibration, read_ranges, tell_distance
from loadfactor.planner.serving.demand import Lengths, RequestDemand, build_demand
from loadfactor.planner.serving.fleet_run import CostMultiplier, FleetRun, Policy
from loadfactor.planner.serving.fleet_size import Progress, ServingInputs, SizedFleet, size_fleet
from loadfactor.planner.serving.latency import predict_latency
from loadfactor.planner.serving.layouts import (
    FixedLayout,
    ReplicaLayout,
    choose_precision,
    compute_datatype,
)
from loadfactor.planner.serving.levers import (
    BatchGains,
    CostPoint,
    FleetPricing,
    LeverEffect,
    TrafficCost,
    compare_levers,
    compute_batch_gains,
    price_demands,
    simulate_traffic_costs,
)
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.serving.service import (
    LayoutOption,
    Traffic,
    predict_mean_batch,
)
from loadfactor.planner.serving.simulation.fleet import Autoscale, Failures, PrefixCache, Slo, Speculation
from loadfactor.planner.serving.simulation.simulate import Arrivals, Statistics


@dataclass(frozen=True)
class PricedStatistics(Statistics):
    """Statistics of replicas of `option` at a price per GPU-hour; costs are None without one.

    Shares of the accelerator are of its peaks while busy.

    The cost of tokens is split between prompt and output in the proportion of the time each takes on this replica at capacity.
    `busy_factor` is the tokens that came over those of average time as long: a fleet is paid in quiet time, too.
    """

    option: LayoutOption = field(repr=False)
    price_per_gpu_hour: float | None = field(repr=False)
    busy_factor: float = 1.0

    @property
    def batch_fill_share(self) -> float | None:
        """Mean batch over the most a benchmark or the objective allows."""
        most = max(self.option.require_capacity().batch, self.option.benchmark.batch)
        return None if self.mean_batch is None else self.mean_batch / most

    @property
    def compute_share(self) -> float | None:
        """Achieved FLOP/s over the peak of the datatype the weights are computed in."""
        r = self.option.replica
        datatype = compute_datatype(r.precision.expert_bits, r.precision.name, r.accelerator)
        return self._of_busy_time(self.counters.flops, r.accelerator.peak_flops(datatype))

    @property
    def bandwidth_share(self) -> float | None:
        """Achieved bytes/s over peak memory bandwidth."""
        return self._of_busy_time(
            self.counters.moved_bytes, self.option.replica.accelerator.memory_bandwidth_bytes_per_s
        )

    @property
    def cost(self) -> float | None:
        if self.price_per_gpu_hour is None:
            return None
        paid_s = self.counters.paid_ns / NS_PER_S
        return paid_s / S_PER_HOUR * self.option.replica.layout.gpus * self.price_per_gpu_hour

    @property
    def cost_per_mtok(self) -> float | None:
        """Cost of average time per million tokens served, prompt and output together."""
        return self._per_mtok(1.0, self.counters.prompt_tokens_out + self.counters.output_tokens_out)

    @property
    def cost_per_prompt_mtok(self) -> float | None:
        """Cost of prompts per million prompt tokens."""
        return self._per_mtok(self.option.require_capacity().prompt_share, self.counters.prompt_tokens_out)

    @property
    def cost_per_output_mtok(self) -> float | None:
        """Cost of decoding per million output tokens."""
        return self._per_mtok(1 - self.option.require_capacity().prompt_share, self.counters.output_tokens_out)

    def _per_mtok(self, share: float, tokens: int) -> float | None:
        if self.cost is None or not tokens:
            return None
        return self.cost * self.busy_factor * share / (tokens / TOKENS_PER_MTOK)

    def _of_busy_time(self, amount: float, peak_per_s: float) -> float | None:
        busy_s = self.counters.busy_ns / NS_PER_S
        return amount / (busy_s * peak_per_s) if busy_s else None


CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Objective:
    """Latency that requests should see, for how many of them, and whether the simulated ones did."""

    ttft_s: float
    tpot_s: float
    wanted_share: float
    kept: bool


@dataclass(frozen=True)
class LoadTest:
    """One replica that always has as many requests as `concurrency`, by equation."""

    concurrency: tuple[int, ...]
    ttft_s: Real
    tpot_s: Real
    output_tokens_per_s: Real


@dataclass(frozen=True)
class ServingPlan:
    """The result; its fields and properties are what `plan serve` writes as JSON.

    `total`, `hours`, `multiplier` and `traffic` are simulated, the rest is by equation. Simulated demand is `simulated_share` of
    the real one where that would be too many requests or steps of engines. Costs per token of `total` and `multiplier` are those
    of an average day, whose tokens share a fleet that is paid for the busiest. `crowd` is the cost per token by demand, `claims`
    what batches gain.
    """

    chosen: LayoutOption = field(repr=False)
    fleet_run: FleetRun = field(repr=False)
    headroom_share: float = field(repr=False)
    replicas: int
    gpus: int
    price_per_gpu_hour: float | None
    cost_per_hour: float | None
    slo: Objective
    simulated_replicas: int
    simulated_share: float
    total: PricedStatistics
    hours: tuple[PricedStatistics, ...]
    mean_batch_by_equation: float | None
    layouts: tuple[LayoutOption, ...]
    crowd: tuple[CostPoint, ...]
    cost_per_mtok_at_unlimited_demand: float | None
    efficient_requests_per_day: float
    levers: tuple[LeverEffect, ...]
    claims: BatchGains
    traffic: tuple[TrafficCost, ...]
    load_test: LoadTest
    currency: str
    price_range: tuple[float, float]
    marginal: tuple[Marginal, ...] = ()
    """What more GPUs or money bring, where requested."""
    calibration: ServingCalibration | None = None
    """What measured runs changed, where there are any."""

    @property
    def distance(self) -> Distance:
        """How far from home the plan is: what was measured of the like."""
        replica = self.chosen.replica
        return tell_distance(replica.engine, replica.network) if self.calibration is None else "measured nearby"

    @property
    def model(self) -> str:
        return self.chosen.replica.network.name

    @property
    def accelerator(self) -> str:
        return self.chosen.replica.accelerator.id

    @property
    def engine(self) -> str:
        return self.chosen.replica.engine.engine

    @property
    def precision(self) -> str:
        return self.chosen.replica.precision.name

    @property
    def layout(self) -> ReplicaLayout:
        return self.chosen.replica.layout

    @property
    def rejected(self) -> dict[str, int]:
        """Simulated requests turned away, by reason."""
        return self.total.count_rejections()

    @property
    def balance(self) -> Mapping[str, int]:
        """Simulated tokens in and out, and paid time that no state accounts for (0)."""
        return self.total.balance()

    @property
    def tpot_range(self) -> tuple[float, float]:
        """Factors on times per token between which four of five measured rows lie that the equations were not fitted to."""
        return self._ranges["tpot"]

    @property
    def ttft_range(self) -> tuple[float, float]:
        """The same factors on times to the first token."""
        return self._ranges["ttft"]

    @property
    def replicas_range(self) -> tuple[int, int]:
        """Replicas, if one takes as much more or less as measured throughput differs from predicted in four of five cases."""
        low, high = self._ranges["tokens_per_s"]
        return max(1, ceil(self.replicas / high)), max(1, ceil(self.replicas / low))

    @property
    def gpus_range(self) -> tuple[int, int]:
        low, high = self.replicas_range
        return low * self.layout.gpus, high * self.layout.gpus

    @property
    def cost_per_mtok_range(self) -> tuple[float, float] | None:
        """Cost per million tokens on a fleet of just the size it takes, over that range and that of the listed price.

        None where no token was served, and without a price.
        """
        cost = self.total.cost_per_mtok
        (slow, fast), (cheap, dear) = self._ranges["tokens_per_s"], self.price_range
        return None if cost is None else (cost * cheap / fast, cost * dear / slow)

    @property
    def open_layouts(self) -> tuple[str, ...]:
        """Other layouts that take fewer requests a GPU, by less than errors of two layouts of one network lie apart."""
        enough = self.chosen.require_capacity().requests_per_gpu_s / (1 + read_serving_errors().layout_spread)
        able = ((o, o.capacity) for o in self.layouts if o is not self.chosen)
        return tuple(o.layout for o, c in able if c is not None and c.requests_per_gpu_s >= enough)

    @property
    def _ranges(self) -> Ranges:
        replica = self.chosen.replica
        return self.calibration.ranges_after if self.calibration else read_ranges(replica.engine, replica.network)

    @property
    def multiplier(self) -> CostMultiplier:
        """Of an average day: the quiet ones are paid for the peaks of the busiest."""
        simulated = self.fleet_run.multiplier
        return replace(simulated, peaks_factor=simulated.peaks_factor * self.total.busy_factor)


def plan_fleet(q: ServingInputs, progress: Progress = lambda _: None) -> ServingPlan:
    """Plan a fleet: equations choose, the simulation checks and sizes. PlanError when nothing fits or none keeps the objective."""
    fleet = size_fleet(q, progress)
    chosen, traffic, run = fleet.chosen, q.mean_traffic, fleet.fleet_run.run
    progress("cost by demand, levers and bursts")
    pricing = FleetPricing(q.price_per_gpu_hour, q.headroom_share)
    lengths = traffic.prompt, traffic.output
    seen = predict_latency(
        chosen.replica, np.array(CONCURRENCIES, dtype=float), *lengths, speculation=traffic.speculation
    )
    rate_per_s = run.total.finished / run.elapsed_s / run.total.replicas
    priced = partial(PricedStatistics, option=chosen, price_per_gpu_hour=q.price_per_gpu_hour)
    return ServingPlan(
        chosen=chosen,
        fleet_run=fleet.fleet_run,
        headroom_share=q.headroom_share,
        replicas=fleet.replicas,
        gpus=fleet.gpus,
        price_per_gpu_hour=q.price_per_gpu_hour,
        cost_per_hour=None if q.price_per_gpu_hour is None else fleet.gpus * q.price_per_gpu_hour,
        slo=Objective(q.slo.ttft_s, q.slo.tpot_s, q.wanted_share, kept=fleet.keeps(q.wanted_share)),
        simulated_replicas=fleet.simulated_replicas,
        simulated_share=fleet.simulated_share,
        total=priced(**vars(run.total), busy_factor=_compare_with_average_day(q, fleet)),
        hours=tuple(priced(**vars(hour)) for hour in run.hours),
        mean_batch_by_equation=predict_mean_batch(chosen.replica, chosen.require_capacity().batch, rate_per_s, traffic),
        layouts=fleet.considered,
        crowd=price_demands(chosen, q.demand, pricing, fleet.replicas),
        cost_per_mtok_at_unlimited_demand=pricing.price_unlimited_demand(chosen, q.demand).cost_per_mtok,
        efficient_requests_per_day=pricing.find_efficient_requests_per_day(chosen, q.demand),
        levers=compare_levers(chosen, traffic, q.slo, q.demand, pricing),
        claims=compute_batch_gains(chosen.replica, traffic.context),
        traffic=simulate_traffic_costs(chosen, q.demand, traffic, q.slo, q.wanted_share, q.seed),
        currency=q.currency,
        price_range=q.price_range,
        calibration=q.calibration,
        load_test=LoadTest(CONCURRENCIES, seen.ttft_s, seen.tpot_s, seen.output_tokens_per_s),
    )


def _compare_with_average_day(q: ServingInputs, fleet: SizedFleet) -> float:
    """Tokens that came over those of an average day; 1 where a trace is all the demand there is, or replicas follow the load."""
    if q.trace is not None or q.policy.autoscale is not None:
        return 1.0
    counted, lengths = fleet.fleet_run.run.total.counters, q.demand.lengths
    average = q.demand.requests_per_day * q.days * fleet.simulated_share * (lengths.prompt_mean + lengths.output_mean)
    return (counted.prompt_tokens_in + counted.output_tokens_asked) / average


@dataclass(frozen=True)
class RequestTrace:
    """Real requests: the demand behind them, a fresh stream of them at each call, tokens in a prefix block (0: no hashes)."""

    demand: RequestDemand
    stream: Callable[[], Iterable[Arrivals]]
    prefix_block_tokens: int = 0


def build_inputs(
    request: ServingRequest,
    network: Network,
    accelerator: Accelerator,
    engine: EngineConstants,
    price: ChosenPrice | None,
    trace: RequestTrace | None = None,
) -> ServingInputs:
    """The question, from the request and the facts it names. Raises InputError for options that exclude each other."""
    if request.prefill_replicas and request.replicas is None:
        raise InputError(
            "--prefill-replicas needs --replicas: the whole number of replicas, of which some compute prompts"
        )
    if request.chunked_prefill is not None:
        engine = replace(engine, mixed=request.chunked_prefill)
    demand = trace.demand if trace else _demand_of_users(request, network)
    lengths = demand.lengths
    block_tokens = trace.prefix_block_tokens if trace else 0
    return ServingInputs(
        network=network,
        accelerator=accelerator,
        precision=choose_precision(network, request.precision, None if engine.narrow_cache else 2.0),
        engine=engine,
        demand=demand,
        slo=Slo(request.ttft, request.tpot / MS_PER_S),
        price_per_gpu_hour=price.per_gpu_hour if price else None,
        currency=price.currency if price else "USD",
        price_range=price.range if price else (1.0, 1.0),
        wanted_share=request.attainment,
        traffic=Traffic(
            lengths.prompt_mean,
            lengths.output_mean,
            lengths.prompt_cv,
            request.prefix_share,
            parse_speculation(request.speculate),
            bool(request.prefill_replicas),
        ),
        policy=Policy(
            router=request.router,
            order=request.order,
            prefix=PrefixCache.in_host_memory(block_tokens) if block_tokens else PrefixCache(),
            autoscale=Autoscale(cold_start_s=request.cold_start) if request.autoscale else None,
            failures=Failures(request.mtbf_hours * S_PER_HOUR) if request.mtbf_hours else None,
            prefill_replicas=request.prefill_replicas,
        ),
        replicas=request.replicas,
        fixed=FixedLayout(request.tp, request.pp, request.ep, request.attention_dp, request.gpus_per_replica),
        trace=trace.stream if trace else None,
        seed=request.seed,
    )


def _demand_of_users(request: ServingRequest, network: Network) -> RequestDemand:
    lengths = Lengths(request.input_tokens, request.output_tokens, longest=network.max_context)
    demand = build_demand(request.users, request.requests_per_user, lengths, request.shape)
    return replace(demand, process=request.arrivals, burst_factor=request.burst_factor, gap_cv=request.gap_cv)


def parse_speculation(text: str | None) -> Speculation:
    """Speculative decoding written as drafted:acceptance; None is none. Raises InputError when it is written otherwise.

    >>> parse_speculation("3:0.7").acceptance
    0.7
    """
    if text is None:
        return Speculation()
    drafted, _, acceptance = text.partition(":")
    try:
        return Speculation(int(drafted), float(acceptance))
    except PlanError as error:
        raise InputError(f"--speculate {shorten(text)}: {error}; 3:0.7 drafts three tokens, 70 % accepted") from error
    except ValueError:
        raise InputError(
            f"--speculate {shorten(text)} is not drafted:acceptance; 3:0.7 drafts three tokens, 70 % accepted"
        ) from None
