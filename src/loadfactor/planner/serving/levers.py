"""Engineering levers, each alone: cost of a token at scale, and the demand it takes to be efficient then. By equation.

A lever that makes a replica faster makes tokens cheaper at scale, and needs more users to get there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadfactor.base.units import H_PER_DAY, S_PER_DAY, S_PER_MIN, TOKENS_PER_MTOK
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.fleet_run import CostMultiplier, FleetRun, find_fewest_replicas, run_fleet
from loadfactor.planner.serving.layouts import choose_precision, compute_datatype
from loadfactor.planner.serving.service import (
    LayoutOption,
    Traffic,
    batch_for_compute_share,
    batch_speedup,
    compute_share,
    count_replicas,
    find_benchmark,
    find_capacity,
    improve_kernels,
)
from loadfactor.planner.serving.simulation.fleet import Slo, Speculation
from loadfactor.planner.serving.step import Replica, cache_bytes_per_sequence, measure_memory, most_sequences, step_time

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
    gpu_hours_per_mtok: float
    cost_per_mtok: float | None
    load_factor: float  # mean load over the capacity paid for


@dataclass(frozen=True)
class FleetPricing:
    """How a fleet of fixed size is priced by equation: replicas for the peak with headroom, at a price per GPU-hour if known."""

    price_per_gpu_hour: float | None
    headroom_share: float

    def price_demand(
        self, option: LayoutOption, demand: RequestDemand, factor: float, replicas: int | None = None
    ) -> CostPoint:
        """The point of so many times this demand, on `replicas` where they are known."""
        scaled, capacity = demand.scale(factor), option.require_capacity()
        replicas = replicas or count_replicas(scaled.peak_rate_per_s(), capacity, self.headroom_share)
        gpus = replicas * capacity.gpus
        tokens = scaled.requests_per_day * (scaled.lengths.prompt_mean + scaled.lengths.output_mean)
        hours = gpus * H_PER_DAY / (tokens / TOKENS_PER_MTOK)
        cost = None if self.price_per_gpu_hour is None else hours * self.price_per_gpu_hour
        load_factor = scaled.requests_per_day / S_PER_DAY / (replicas * capacity.requests_per_s)
        return CostPoint(factor, scaled.requests_per_day, replicas, gpus, hours, cost, load_factor)

    def price_unlimited_demand(self, option: LayoutOption, demand: RequestDemand) -> CostPoint:
        """The point where whole replicas no longer matter: peaks and headroom stay."""
        return self.price_demand(option, demand, UNLIMITED_REQUESTS_PER_DAY / demand.requests_per_day)

    def find_efficient_requests_per_day(self, option: LayoutOption, demand: RequestDemand) -> float:
        """The least demand whose tokens cost at most `EFFICIENT` times those of unlimited demand, found on one replica's sawtooth.

        One replica costs the same whatever it serves, so its cost per token falls as 1/demand until the peak fills it.
        """
        floor = self.price_unlimited_demand(option, demand).gpu_hours_per_mtok
        one = self.price_demand(option, demand, ALMOST_NO_DEMAND)
        return one.requests_per_day * one.gpu_hours_per_mtok / (EFFICIENT * floor)


def price_demands(
    option: LayoutOption, demand: RequestDemand, pricing: FleetPricing, replicas: int
) -> tuple[CostPoint, ...]:
    """The cost of a token by demand; that of today on the replicas that the simulation says it takes."""
    return tuple(pricing.price_demand(option, demand, f, replicas if f == 1 else None) for f in FACTORS)


Change = tuple[Replica, Traffic]


@dataclass(frozen=True)
class Lever:
    """One change: its name, what is assumed, and how it changes the replica and the traffic it sees (None: does not apply)."""

    name: str
    assumes: str
    change: Callable[[Replica, Traffic], Change | None]


@dataclass(frozen=True)
class LeverEffect:
    """Effect of one lever alone. Factors are over today's; None when it breaks the objective, costs also without a price."""

    name: str
    assumes: str
    cost_per_mtok: float | None
    cost_factor: float | None
    efficient_requests_per_day: float | None
    demand_factor: float | None


def _narrower(r: Replica, t: Traffic) -> Change | None:
    below = {"bf16": "fp8", "fp16": "fp8", "fp8": "fp4", "int8": "int4"}.get(r.precision.name)
    if below is None:
        return None
    if r.accelerator.get(f"peak_{below}_flops") is None:
        below = "int8" if below == "fp8" else "int4"
    return replace(r, precision=choose_precision(r.network, below)), t


def _mixing(mixed: bool) -> Callable[[Replica, Traffic], Change | None]:
    def change(r: Replica, t: Traffic) -> Change | None:
        return None if r.engine.mixed == mixed else (replace(r, engine=replace(r.engine, mixed=mixed)), t)

    return change


def _speculating(r: Replica, t: Traffic) -> Change:
    return r, replace(t, speculation=Speculation(3, 0.7))


LEVERS: tuple[Lever, ...] = (
    Lever("prefix caching", "half of every prompt found again", lambda r, t: (r, replace(t, cached_share=0.5))),
    Lever("chunked prefill", "prompts share decoding steps", _mixing(True)),
    Lever("no chunked prefill", "prompts stop decoding", _mixing(False)),
    Lever("weight quantization", "16 → 8 → 4 bits, cache in 8", _narrower),
    Lever("disaggregation", "prompt replicas kept at 70 %", lambda r, t: (r, replace(t, disaggregated=True))),
    Lever("speculative decoding", "3 drafted at 5 % each, 70 % taken", _speculating),
    Lever("better kernels", "half of the losses and launches", lambda r, t: (improve_kernels(r), t)),
)


def compare_levers(
    option: LayoutOption, traffic: Traffic, slo: Slo, demand: RequestDemand, pricing: FleetPricing
) -> tuple[LeverEffect, ...]:
    """Every lever of `LEVERS` that applies, alone, on the chosen replica."""
    today = pricing.price_unlimited_demand(option, demand)
    efficient = pricing.find_efficient_requests_per_day(option, demand)
    found = []
    for lever in LEVERS:
        changed = lever.change(option.replica, traffic)
        if changed is None:
            continue
        service = find_capacity(*changed, slo)
        if service is None:
            found.append(LeverEffect(lever.name, lever.assumes, None, None, None, None))
            continue
        other = LayoutOption(changed[0], service, find_benchmark(*changed))
        then = pricing.price_unlimited_demand(other, demand)
        factor = then.gpu_hours_per_mtok / today.gpu_hours_per_mtok
        needed = pricing.find_efficient_requests_per_day(other, demand)
        found.append(LeverEffect(lever.name, lever.assumes, then.cost_per_mtok, factor, needed, needed / efficient))
    return tuple(found)


MANY = 64
HALF = 0.5
KAPPA_OF_27 = (MANY - 27) / (27 * MANY - MANY)  # at which a batch of 64 gains 27 times


@dataclass(frozen=True)
class BatchGains:
    """Gains of batching at one context, in the plain roofline and by the step equation. None: at no batch."""

    context: float
    kappa: float
    speedup_limit: float
    roofline_speedup_at_64: float
    predicted_speedup_at_64: float
    most_sequences: float
    compute_share_at_1: float
    compute_share_at_64: float
    compute_share_limit: float
    batch_for_half: float | None
    largest_kappa_for_half: float

    @property
    def both_hold(self) -> bool:
        """Whether a batch that fits reaches half of the chip."""
        return self.batch_for_half is not None and self.batch_for_half <= self.most_sequences


def compute_batch_gains(r: Replica, context: float) -> BatchGains:
    """The figures for a replica with sequences of `context` tokens."""
    chip = r.accelerator
    weights = measure_memory(r).weight_bytes
    kappa = cache_bytes_per_sequence(r, context) / weights
    bandwidth = chip.memory_bandwidth_bytes_per_s
    peak = chip.peak_flops(compute_datatype(r.precision.expert_bits, r.precision.name, chip))
    # FLOPs of one token over the bytes of the weights: 1 for dense 16-bit weights, less where experts are stored and not used
    intensity = 2 * r.network.matmul_parameters / r.layout.gpus / weights
    one = float(step_time(r, 1.0, context).total_s)
    many = float(step_time(r, float(MANY), MANY * context).total_s)
    return BatchGains(
        context,
        kappa,
        (1 + kappa) / kappa,
        batch_speedup(MANY, kappa),
        MANY * one / many,
        most_sequences(r, context),
        compute_share(1, kappa, bandwidth, peak, intensity),
        compute_share(MANY, kappa, bandwidth, peak, intensity),
        intensity * bandwidth / peak / kappa,
        batch_for_compute_share(HALF, kappa, bandwidth, peak, intensity),
        intensity * bandwidth / peak / HALF,
    )


OPEN_SHARE = 0.4
REPLICAS_OF_LOAD = 8.0  # mean rate while open, in capacities of one replica: enough that whole replicas hardly matter
MOST_REQUESTS = 40_000  # of one simulated interval
LONGEST_S, SHORTEST_S = 7200.0, 600.0
BURSTS_IN_INTERVAL = 12


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
        return self.causes.multiplier


def simulate_traffic_costs(
    option: LayoutOption, demand: RequestDemand, traffic: Traffic, slo: Slo, slo_share: float, seed: int = 1
) -> tuple[TrafficCost, ...]:
    """The four services; lengths are those of `demand`. An interval is simulated open, then, where there are such hours, closed."""
    rate = REPLICAS_OF_LOAD * option.require_capacity().requests_per_s
    minutes = max(SHORTEST_S, min(LONGEST_S, MOST_REQUESTS / rate)) // S_PER_MIN
    open_s = minutes * S_PER_MIN  # whole ones: duty counts minutes
    even = RequestDemand(rate * S_PER_DAY, demand.lengths)
    burst_s = open_s / BURSTS_IN_INTERVAL
    mild = replace(even, process="bursts", burst_s=burst_s * 0.2, burst_share=0.2, burst_factor=1.6)
    wild = replace(even, process="bursts", burst_s=burst_s * 0.1, burst_share=0.1, burst_factor=4.0)
    kinds = (
        ("even, always open", "Poisson arrivals", even, 1.0),
        ("open 40 %", "Poisson arrivals while open", even, OPEN_SHARE),
        ("open 40 %, bursty", "a fifth of it at 1.6 × the calm rate", mild, OPEN_SHARE),
        ("open 40 %, wild", "a tenth of it at 4 × the calm rate", wild, OPEN_SHARE),
    )
    found, fewest = [], dict[RequestDemand, int]()
    for name, condition, kind, open_share in kinds:
        burst = kind.burst_levels[1] if kind.process == "bursts" else 1.0

        def run(n: int, kind: RequestDemand = kind, horizon_s: float = open_s / open_share) -> FleetRun:
            arrivals = kind.arrivals(open_s / S_PER_DAY, seed)
            return run_fleet(option, n, arrivals, traffic, slo, horizon_s=horizon_s, seed=seed)

        first = int(REPLICAS_OF_LOAD * burst)
        if kind in fewest:  # the same requests miss as often, however long nobody comes after them
            n, fleet_run = fewest[kind], run(fewest[kind])
        else:
            n, fleet_run = find_fewest_replicas(run, first, slo_share, least=first)
        fewest[kind] = n
        found.append(TrafficCost(name, condition, n, fleet_run.run.total.slo_share, fleet_run.multiplier))
    return tuple(found)
