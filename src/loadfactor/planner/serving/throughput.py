"""Throughput of one replica: the layout with the most requests per GPU that keeps an objective, or a measured rate."""

from dataclasses import dataclass

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.layout_search import LayoutOption, list_options
from loadfactor.planner.serving.replica_layout import choose_precision
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo


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
