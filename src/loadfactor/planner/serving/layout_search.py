"""Layouts scored: what each takes under the objective and in a benchmark, and the one that carries a demand with the fewest."""

from dataclasses import dataclass, field

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.layouts import (
    EVERY_LAYOUT,
    FixedLayout,
    Precision,
    choose_precision,
    explain_no_layout,
    list_layouts,
)
from loadfactor.planner.serving.service import Service, Traffic, find_benchmark, find_capacity
from loadfactor.planner.serving.simulation.fleet import Slo
from loadfactor.planner.serving.step import Replica, check_fits, most_sequences


@dataclass(frozen=True)
class LayoutOption:
    """One layout: the replica, the most it takes under the objective (None: it cannot keep it) and in a benchmark."""

    replica: Replica = field(repr=False)
    capacity: Service | None
    benchmark: Service

    @property
    def layout(self) -> str:
        return str(self.replica.layout)

    def require_capacity(self) -> Service:
        """The capacity of a layout that is known to keep the objective."""
        assert self.capacity is not None
        return self.capacity


def list_options(
    network: Network,
    chip: Accelerator,
    kept: Precision,
    engine: EngineConstants,
    traffic: Traffic,
    slo: Slo,
    fixed: FixedLayout = EVERY_LAYOUT,
) -> tuple[LayoutOption, ...]:
    """Every layout on which at least one whole request fits. Raises PlanError, naming what would do, when there is none."""
    found, layouts = [], list_layouts(network, chip, fixed)
    for layout in layouts:
        replica = Replica(network, chip, layout, kept, engine)
        if most_sequences(replica, traffic.prompt + traffic.output) >= 1:
            found.append(LayoutOption(replica, find_capacity(replica, traffic, slo), find_benchmark(replica, traffic)))
    if not layouts:
        raise PlanError(explain_no_layout(network, chip, fixed))
    if not found:
        largest = max(layouts, key=lambda x: (x.gpus, -x.attention_dp))
        check_fits(Replica(network, chip, largest, kept, engine), traffic.prompt + traffic.output)
    return tuple(found)


def choose_cheapest(
    found: tuple[LayoutOption, ...], peak_requests_per_s: float, headroom_share: float, slo: Slo
) -> LayoutOption:
    """The layout that carries the peak with the fewest accelerators. Raises PlanError when no layout keeps the objective."""
    able = [o for o in found if o.capacity is not None]
    if not able:
        best = min(found, key=lambda o: o.benchmark.tpot_s)
        raise PlanError(
            f"no layout of {best.replica.network.name} on {best.replica.accelerator.name} keeps {slo.ttft_s:g} s to the "
            f"first token and {slo.tpot_s * MS_PER_S:g} ms a token even alone; "
            "relax them with --ttft or --tpot, or take a faster accelerator"
        )

    def gpus(o: LayoutOption) -> tuple[float, float]:
        c = o.require_capacity()
        return count_replicas(peak_requests_per_s, c, headroom_share) * c.gpus, -c.requests_per_gpu_s

    return min(able, key=gpus)


def count_replicas(requests_per_s: float, capacity_of_one: Service, headroom_share: float) -> int:
    """Replicas that carry a rate with this share of their capacity kept free.

    >>> count_replicas(9.5, Service(10, 1.0, 0.1, 0.01, 1, 0.2), 0.1)
    11
    """
    needed = requests_per_s / (capacity_of_one.requests_per_s * (1 - headroom_share))
    return max(1, -int(-needed // 1))


@dataclass(frozen=True)
class ReplicaThroughput:
    """Tokens per second of a replica under its objective, input and output together, and the GPUs it holds.

    `range`: factors on it between which four of five measured rows lie that the equations were not fitted to.
    """

    tokens_per_s: float
    gpus: int
    range: tuple[float, float]


def choose_throughput(
    network: Network,
    accelerator: Accelerator,
    engine: EngineConstants,
    traffic: Traffic,
    slo: Slo,
    gpus: int | None = None,
) -> ReplicaThroughput:
    """The layout with the most requests per GPU that keeps the objective, on `gpus` GPUs where they are given.

    Raises PlanError where the network does not fit, or keeps the objective on no layout (or not on `gpus`).
    """
    if traffic.output < 1:
        raise PlanError(
            f"a planned throughput needs an output token a request, got {traffic.output:g}; "
            "give --output-tokens 1 or more, or a measured --tokens-per-s"
        )
    kept = choose_precision(network, None, None if engine.narrow_cache else 2.0)
    found = list_options(network, accelerator, kept, engine, traffic, slo)
    able = [o for o in found if o.capacity is not None and gpus in (None, o.replica.layout.gpus)]
    if not able:
        where = f"any number of {accelerator.id}" if gpus is None else f"{gpus} {accelerator.id}"
        sizes = sorted({o.replica.layout.gpus for o in found if o.capacity is not None})
        others = f", or take a replica of {', '.join(map(str, sizes))} GPUs" if sizes else ""
        raise PlanError(
            f"{network.name} on {where} does not keep {slo.ttft_s:g} s to the first token and {slo.tpot_s * MS_PER_S:g} ms a "
            f"token, not even with one request at a time; relax --ttft or --tpot{others}"
        )

    def requests_per_gpu_s(o: LayoutOption) -> float:
        return o.require_capacity().requests_per_gpu_s

    best = max(able, key=requests_per_gpu_s)
    tokens_per_s = best.require_capacity().requests_per_s * (traffic.prompt + traffic.output)
    ranges = read_serving_errors().ranges["borrowed" if engine.is_estimate else "fitted"]
    return ReplicaThroughput(tokens_per_s, best.replica.layout.gpus, ranges["tokens_per_s"])


def measured_tokens_per_s(
    tokens_per_s: float | None, output_tokens_per_s: float | None, input_tokens: float, output_tokens: float
) -> float:
    """Saturated tokens per second, input and output together, from one of the two ways of counting.

    Raises InputError unless exactly one is given, or when requests have no output to count.

    >>> measured_tokens_per_s(None, 1000.0, 500.0, 250.0)
    3000.0
    """
    if (tokens_per_s is None) == (output_tokens_per_s is None):
        raise InputError(
            "give the replica's saturated throughput once: --tokens-per-s (in and out), --output-tokens-per-s, or --model to plan"
        )
    if tokens_per_s is not None:
        return tokens_per_s
    if output_tokens <= 0:
        raise InputError(
            "--output-tokens-per-s needs requests with output: give --output-tokens above 0, or --tokens-per-s"
        )
    assert output_tokens_per_s is not None
    return output_tokens_per_s * (input_tokens + output_tokens) / output_tokens
