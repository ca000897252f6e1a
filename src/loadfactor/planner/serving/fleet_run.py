"""A fleet simulated under a demand: how it is run, what came out of it, and why its tokens cost what they do."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from loadfactor.base.units import NS_PER_S, S_PER_MIN
from loadfactor.planner.serving.cache_memory import cache_tokens
from loadfactor.planner.serving.choices import Order, Router
from loadfactor.planner.serving.cost_multiplier import CostMultiplier, split_cost_multiplier
from loadfactor.planner.serving.layout_search import LayoutOption
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.costs import tabulate_costs
from loadfactor.planner.serving.simulation.fleet import (
    Autoscale,
    Batching,
    Failures,
    PrefixCache,
    ServingFleet,
    Slo,
)
from loadfactor.planner.serving.simulation.simulate import Arrivals, Run, simulate
from loadfactor.planner.serving.step import Replica

HOPELESS_SHARE = 0.6  # of what was missing, still missing after two more sizes


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
    """A simulated stretch of a fleet: what came out of it, and why a token costs what it does."""

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


def find_fewest_replicas(run: Callable[[int], FleetRun], first: int, wanted_share: float) -> tuple[int, FleetRun]:
    """The fewest replicas, from `first` on, that keep the objective for the wanted share of requests.

    Gives up, with the last fleet tried, at three times the first size, or when two more sizes have left more than `HOPELESS_SHARE`
    of what was missing: then replicas are not what is missing.
    """
    n, missing = max(1, first), [1.0, 1.0]
    while True:
        found = run(n)
        missing.append(wanted_share - (found.run.total.slo_share or 0.0))
        hopeless = len(missing) > 4 and missing[-1] > HOPELESS_SHARE * missing[-3]
        if missing[-1] <= 0 or n >= 3 * first + 4 or hopeless:
            return n, found
        n += max(1, n // 8)


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
