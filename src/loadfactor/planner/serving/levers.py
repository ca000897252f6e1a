"""Engineering levers, each alone: cost of a token at scale, and the demand it takes to be efficient then. By equation.

A lever that makes a replica faster makes tokens cheaper at scale, and needs more users to get there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadfactor.planner.serving.cost_by_demand import FleetPricing
from loadfactor.planner.serving.demand import RequestDemand
from loadfactor.planner.serving.layout_search import LayoutOption
from loadfactor.planner.serving.replica_layout import choose_precision
from loadfactor.planner.serving.service import Traffic, find_benchmark, find_capacity, improve_kernels
from loadfactor.planner.serving.simulation.costs import Speculation
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.step import Replica

Change = tuple[Replica, Traffic]


@dataclass(frozen=True)
class Lever:
    """One change: its name, what is assumed, and how it changes the replica and the traffic it sees (None: does not apply)."""

    name: str
    assumes: str
    change: Callable[[Replica, Traffic], Change | None]


@dataclass(frozen=True)
class LeverEffect:
    """What a lever does alone. Factors are over today's; None when it breaks the objective."""

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


LEVERS: tuple[Lever, ...] = (
    Lever("prefix caching", "half of every prompt found again", lambda r, t: (r, replace(t, cached_share=0.5))),
    Lever("chunked prefill", "prompts share decoding steps", _mixing(True)),
    Lever("no chunked prefill", "prompts stop decoding", _mixing(False)),
    Lever("weight quantization", "16 → 8 → 4 bits, cache in 8", _narrower),
    Lever(
        "disaggregation",
        "prompt replicas kept at 70 %",
        lambda r, t: (r, replace(t, disaggregated=True)),
    ),
    Lever(
        "speculative decoding",
        "3 drafted at 5 % each, 70 % taken",
        lambda r, t: (r, replace(t, speculation=Speculation(3, 0.7))),
    ),
    Lever(
        "better kernels",
        "half of the losses and launches",
        lambda r, t: (improve_kernels(r), t),
    ),
)


def compare_levers(
    option: LayoutOption, traffic: Traffic, slo: Slo, demand: RequestDemand, pricing: FleetPricing
) -> tuple[LeverEffect, ...]:
    """Every lever of `LEVERS` that applies, alone, on the chosen replica."""
    cost = pricing.price_unlimited_demand(option, demand)
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
        other_cost = pricing.price_unlimited_demand(other, demand)
        needed = pricing.find_efficient_requests_per_day(other, demand)
        found.append(LeverEffect(lever.name, lever.assumes, other_cost, other_cost / cost, needed, needed / efficient))
    return tuple(found)
