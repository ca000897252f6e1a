"""How does a fleet of this replica fly through a demand? A plan simulated, hour by hour, and why its tokens cost what they do."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from loadfactor.planner.serving.cache_memory import cache_tokens
from loadfactor.planner.serving.cost_multiplier import CostMultiplier, split_cost_multiplier
from loadfactor.planner.serving.layout_search import LayoutOption
from loadfactor.planner.serving.replica_layout import compute_datatype
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.costs import tabulate_costs
from loadfactor.planner.serving.simulation.fleet import (
    Autoscale,
    Batching,
    Failures,
    Order,
    PrefixCache,
    Router,
    ServingFleet,
    Slo,
)
from loadfactor.planner.serving.simulation.simulate import Arrivals, Run, simulate
from loadfactor.planner.serving.simulation.statistics import Statistics
from loadfactor.planner.serving.step import Replica
from loadfactor.units import NS_PER_S, S_PER_HOUR, TOKENS_PER_MTOK

MINUTE_NS = 60 * NS_PER_S
GIVE_UP = 0.6


@dataclass(frozen=True)
class Policy:
    """How the fleet is run, beyond its size."""

    router: Router = "least-loaded"
    order: Order = "first-come"
    prefix: PrefixCache = field(default_factory=PrefixCache)
    autoscale: Autoscale | None = None
    failures: Failures | None = None
    prefill_replicas: int = 0


@dataclass(frozen=True)
class FleetRun:
    """A simulated stretch of a fleet: what happened, when there was traffic, and why a token costs what it does."""

    fleet: ServingFleet
    run: Run
    duty_share: float  # share of minutes with a request
    causes: CostMultiplier


def build_fleet(r: Replica, replicas: int, traffic: Traffic, slo: Slo, policy: Policy) -> ServingFleet:
    """The fleet to simulate: batching as the engine does it, cache as memory allows."""
    e = r.engine
    most = e.max_sequences * r.layout.attention_dp
    chunk = e.chunk_tokens * r.layout.attention_dp
    batching = Batching(
        cache_tokens=cache_tokens(r, traffic.context),
        max_sequences=most,
        chunk_tokens=chunk,
        mixed=e.mixed,
        order=policy.order,
        max_context=r.network.max_context,
    )
    prefix = policy.prefix
    if traffic.cached_share and not prefix.blocks:
        prefix = replace(prefix, cached_share=traffic.cached_share)
    link = r.accelerator.get("scale_out_bytes_per_s") or r.accelerator.scale_up_bytes_per_s
    per_token = r.network.kv_bytes_per_token(r.precision.kv_bytes_per_value) / r.layout.gpus / (link * e.link_share)
    return ServingFleet(
        tabulate_costs(r, chunk, most, traffic.speculation),
        batching,
        replicas,
        router=policy.router,
        prefix=prefix,
        speculation=traffic.speculation,
        autoscale=policy.autoscale,
        failures=policy.failures,
        slo=slo,
        prefill_replicas=policy.prefill_replicas,
        transfer_s_per_token=per_token if policy.prefill_replicas else 0.0,
    )


def run_fleet(
    option: LayoutOption,
    replicas: int,
    arrivals: Iterable[Arrivals],
    traffic: Traffic,
    slo: Slo,
    policy: Policy | None = None,
    horizon_s: float | None = None,
    seed: int = 1,
) -> FleetRun:
    """Simulate `replicas` of the chosen layout under these arrivals."""
    policy = policy or Policy()
    fleet = build_fleet(option.replica, replicas, traffic, slo, policy)
    minutes = _Minutes()
    run = simulate(fleet, minutes.watch(arrivals), seed, horizon_s)
    total = run.total
    tokens = total.prompt_tokens + total.output_tokens
    open_s = horizon_s or run.elapsed_s  # the last answers after closing time are no demand
    duty = minutes.share(open_s)
    per_request = traffic.prompt + traffic.output
    assert option.capacity is not None
    mean_rate = total.finished / (open_s * duty) if duty else 0.0
    needed = max(1.0, mean_rate / option.capacity.requests_per_s)
    if tokens == 0:
        return FleetRun(fleet, run, duty, CostMultiplier(1.0, 1.0, 1.0))
    paid = total.paid_replica_s
    seen_per_request = tokens / total.finished
    speed = option.benchmark.requests_per_s * min(per_request, seen_per_request)
    return FleetRun(fleet, run, duty, split_cost_multiplier(paid, tokens, speed, duty, paid / run.elapsed_s, needed))


def fewest_replicas(flown: Callable[[int], FleetRun], first: int, wanted_share: float) -> tuple[int, FleetRun]:
    """The fewest replicas, from `first` on, that keep the objective for the wanted share of requests.

    Gives up, with the last fleet tried, at three times the first size, or when two more sizes have left more than `GIVE_UP` of
    what was missing: then replicas are not what is missing.
    """
    n, missing = max(1, first), [1.0, 1.0]
    while True:
        flight = flown(n)
        missing.append(wanted_share - (flight.run.total.slo_share or 0.0))
        if missing[-1] <= 0 or n >= 3 * first + 4 or (len(missing) > 4 and missing[-1] > GIVE_UP * missing[-3]):
            return n, flight
        n += max(1, n // 8)


class _Minutes:
    """Which minutes had a request."""

    def __init__(self) -> None:
        self.count, self.last = 0, -1

    def watch(self, arrivals: Iterable[Arrivals]) -> Iterator[Arrivals]:
        for chunk in arrivals:
            seen = np.unique(chunk.at_ns // MINUTE_NS)
            seen = seen[seen > self.last]
            if seen.size:
                self.count, self.last = self.count + seen.size, int(seen[-1])
            yield chunk

    def share(self, elapsed_s: float) -> float:
        return min(1.0, self.count * 60 / max(elapsed_s, 60.0))


@dataclass(frozen=True)
class HourStatistics:
    """One hour, or the whole flight, as a person reads it. None: nothing to measure."""

    requests: int
    finished: int
    rejected: int
    duty_share: float | None
    mean_batch: float | None
    batch_fill_share: float | None
    cache_fill_share: float | None
    compute_share: float | None
    bandwidth_share: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p99_s: float | None
    queue_p90_s: float | None
    end_to_end_p90_s: float | None
    slo_share: float | None
    replicas: float
    cost: float
    cost_per_mtok: float | None
    cost_per_prompt_mtok: float | None
    cost_per_output_mtok: float | None


def measure_hour(
    statistics: Statistics, option: LayoutOption, price_per_gpu_hour: float, elapsed_s: float
) -> HourStatistics:
    """One tally with its shares of the chip, each under its own name, and its dollars.

    The cost of tokens is split between prompt and output in the proportion of the time each takes on this replica at capacity.
    """
    r = option.replica
    assert option.capacity is not None
    chip, gpus = r.accelerator, r.layout.gpus
    cost = statistics.paid_replica_s / S_PER_HOUR * gpus * price_per_gpu_hour
    busy = statistics.busy_replica_s
    served = statistics.prompt_tokens + statistics.output_tokens
    c = option.capacity
    peak = chip.peak_flops(compute_datatype(r.precision.expert_bits, r.precision.name, chip))
    room = max(c.batch, option.benchmark.batch)
    return HourStatistics(
        requests=statistics.arrived,
        finished=statistics.finished,
        rejected=sum(statistics.rejected.values()),
        duty_share=statistics.duty_share,
        mean_batch=statistics.mean_batch,
        batch_fill_share=None if statistics.mean_batch is None else statistics.mean_batch / room,
        cache_fill_share=statistics.cache_fill_share,
        compute_share=statistics.flops / (busy * peak) if busy else None,
        bandwidth_share=statistics.moved_bytes / (busy * chip.memory_bandwidth_bytes_per_s) if busy else None,
        ttft_p50_s=statistics.ttft_s(0.5),
        ttft_p90_s=statistics.ttft_s(0.9),
        ttft_p99_s=statistics.ttft_s(0.99),
        tpot_p50_s=statistics.tpot_s(0.5),
        tpot_p90_s=statistics.tpot_s(0.9),
        tpot_p99_s=statistics.tpot_s(0.99),
        queue_p90_s=statistics.queue_s(0.9),
        end_to_end_p90_s=statistics.end_to_end_s(0.9),
        slo_share=statistics.slo_share,
        replicas=statistics.paid_replica_s / elapsed_s if elapsed_s else 0.0,
        cost=cost,
        cost_per_mtok=_per_mtok(cost, served),
        cost_per_prompt_mtok=_per_mtok(cost * c.prompt_share, statistics.prompt_tokens),
        cost_per_output_mtok=_per_mtok(cost * (1 - c.prompt_share), statistics.output_tokens),
    )


def _per_mtok(cost: float, tokens: int) -> float | None:
    return cost / (tokens / TOKENS_PER_MTOK) if tokens else None
