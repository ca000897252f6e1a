"""A fleet simulated under a demand: how it is run, what came out of it, and why its tokens cost what they do.

    multiplier = paid replica-time × benchmark tokens/s ÷ tokens served
               = 1/duty  ×  paid ÷ needed at the mean rate while there is traffic  ×  how far those are from the benchmark

The three factors multiply to the multiplier exactly. Duty is the share of minutes in which any request came.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.units import NS_PER_S, S_PER_MIN
from loadfactor.planner.serving.request import Order, Router
from loadfactor.planner.serving.service import LayoutOption, Traffic
from loadfactor.planner.serving.simulation.fleet import (
    Autoscale,
    Batching,
    Failures,
    PrefixCache,
    ServingFleet,
    Slo,
    tabulate_costs,
)
from loadfactor.planner.serving.simulation.simulate import Arrivals, Run, simulate
from loadfactor.planner.serving.step import Replica, cache_tokens


@dataclass(frozen=True)
class CostMultiplier:
    """Factors of the cost of a token over its benchmark price; `multiplier` is their product."""

    duty_factor: float = 1.0
    peaks_factor: float = 1.0
    fill_factor: float = 1.0

    @property
    def multiplier(self) -> float:
        return self.duty_factor * self.peaks_factor * self.fill_factor

    @property
    def duty_share(self) -> float:
        return 1 / self.duty_factor


def split_cost_multiplier(
    paid_replica_s: float,
    tokens: float,
    benchmark_tokens_per_s: float,
    duty_share: float,
    replicas: float,
    needed_replicas: float,
) -> CostMultiplier:
    """The multiplier of a run and its factors.

    `needed_replicas` carry the mean rate of the time with traffic; `replicas` is the mean number paid for.

    >>> c = split_cost_multiplier(100 * 3600.0, 10 * 3600 * 1000.0, 1000.0, 0.4, 4, 2)   # 100 hours paid, worth 10 at full speed
    >>> round(c.multiplier, 9), c.duty_factor, c.peaks_factor, round(c.fill_factor, 9)
    (10.0, 2.5, 2.0, 2.0)
    """
    if tokens <= 0:
        raise PlanError("nothing was served, so a token has no cost")
    total = paid_replica_s * benchmark_tokens_per_s / tokens
    duty = duty_multiplier(duty_share).duty_factor
    peaks = replicas / needed_replicas
    return CostMultiplier(duty, peaks, total / duty / peaks)


def duty_multiplier(duty_share: float, fill_share: float = 1.0) -> CostMultiplier:
    """1/(duty × fill): what hours without requests and half-empty batches do to the cost of a token.

    >>> duty_multiplier(0.4).multiplier, duty_multiplier(0.4, 0.5).multiplier
    (2.5, 5.0)
    """
    for name, share in (("duty_share", duty_share), ("fill_share", fill_share)):
        if not 0 < share <= 1:
            raise PlanError(f"{name} lies between 0 (excluded) and 1, got {share:g}")
    return CostMultiplier(duty_factor=1 / duty_share, fill_factor=1 / fill_share)


def exponential_peak_multiplier(quantile: float) -> float:
    """Capacity for the `quantile` of an exponential load over its mean: −ln(1 − q), what provisioning for peaks costs.

    >>> round(exponential_peak_multiplier(0.95), 4)
    2.9957
    """
    if not 0 <= quantile < 1:
        raise PlanError(f"a quantile lies between 0 and below 1, got {quantile:g}")
    return -log(1 - quantile)


HOPELESS_SHARE = 0.6  # of what was missing, still missing after two more sizes
LEAST_MISSED = 1e-4  # share of requests below which misses are chance


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
    """A simulated interval of a fleet: its results, and why a token costs what it does."""

    fleet: ServingFleet
    run: Run
    multiplier: CostMultiplier


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
        poll_steps=e.poll_steps,
        wait_steps=e.wait_steps,
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
    policy = policy or Policy()
    fleet = build_fleet(option.replica, replicas, traffic, slo, policy)
    minutes = _Minutes()
    run = simulate(fleet, minutes.watch(arrivals), seed, horizon_s)
    open_s = horizon_s or run.elapsed_s  # the last answers after closing time are no demand
    duty = minutes.share(open_s)
    counted = run.total.counters
    tokens = counted.prompt_tokens_out + counted.output_tokens_out
    if tokens == 0:
        return FleetRun(fleet, run, CostMultiplier())
    mean_rate = counted.finished / (open_s * duty) if duty else 0.0
    needed = max(1.0, mean_rate / option.require_capacity().requests_per_s)
    per_request = min(traffic.prompt + traffic.output, tokens / counted.finished)
    multiplier = split_cost_multiplier(
        counted.paid_ns / NS_PER_S,
        tokens,
        option.benchmark.requests_per_s * per_request,
        duty,
        run.total.replicas,
        needed,
    )
    return FleetRun(fleet, run, multiplier)


def find_fewest_replicas(
    run: Callable[[int], FleetRun], first: int, slo_share: float, least: int = 1, apart: int = 1
) -> tuple[int, FleetRun]:
    """The fewest replicas, `least` or more, that keep the objective for that share of requests: these do, and `apart` less do not.

    Looks from `first` in growing steps, then between a size that does not and one that does, by how fast misses fall. Gives up,
    with the last fleet tried, at three times the first size, or when two more sizes have left more than `HOPELESS_SHARE` of what
    was missing: then replicas are not what is missing.
    """
    n = max(least, first)
    low, high, missing, step = least - 1, None, [1.0, 1.0], max(1, n // 16)
    missed: dict[int, float] = {}
    while high is None or high[0] - low > apart:
        found = run(n)
        missed[n] = 1 - (found.run.total.slo_share or 0.0)
        if missed[n] <= 1 - slo_share:
            high = n, found
        else:
            low = n
        if high is not None and low < least:  # all sizes so far do
            n, step = max(least, high[0] - step), 2 * step
        elif high is not None:
            n = _choose_between(low, high[0], missed, 1 - slo_share, apart)
        else:
            missing.append(missed[n] - (1 - slo_share))
            hopeless = len(missing) > 4 and missing[-1] > HOPELESS_SHARE * missing[-3]
            if n >= 3 * first + 4 or hopeless:
                return n, found
            n, step = n + step, 2 * step
    return high


def _choose_between(low: int, high: int, missed: Mapping[int, float], most: float, apart: int) -> int:
    """A size between one that misses the objective too often and one that does not: misses fall by a constant factor."""
    if high - low <= 2 * apart:
        return (low + high) // 2
    few, many = (log(max(missed[n], LEAST_MISSED)) for n in (high, low))
    if many <= few:
        return (low + high) // 2
    at = low + (high - low) * (many - log(max(most, LEAST_MISSED))) / (many - few)
    return min(high - apart, max(low + apart, ceil(at)))


class _Minutes:
    """Which minutes had a request."""

    def __init__(self) -> None:
        self.count, self.last = 0, -1

    def watch(self, arrivals: Iterable[Arrivals]) -> Iterator[Arrivals]:
        for chunk in arrivals:
            seen = np.unique(chunk.at_ns // (S_PER_MIN * NS_PER_S))
            seen = seen[seen > self.last]
            if seen.size:
                self.count, self.last = self.count + seen.size, int(seen[-1])
            yield chunk

    def share(self, elapsed_s: float) -> float:
        return min(1.0, self.count * S_PER_MIN / max(elapsed_s, float(S_PER_MIN)))
