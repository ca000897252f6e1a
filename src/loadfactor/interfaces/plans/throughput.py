"""Throughput of a replica, and the line about it: measured and typed in, or planned from a network under an objective."""

from dataclasses import dataclass

from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.interfaces.document import Assumption
from loadfactor.interfaces.formats import counted, duration, number
from loadfactor.planner.economics.request import BreakEvenRequest
from loadfactor.planner.serving.layout_search import choose_throughput, measured_tokens_per_s
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo


@dataclass(frozen=True)
class StatedThroughput:
    """Tokens per second, input and output together, GPUs of a replica, where from; `range` where it is planned: factors on it."""

    tokens_per_s: float
    gpus: int
    about: Assumption
    range: tuple[float, float] | None = None


def read_throughput(request: BreakEvenRequest) -> StatedThroughput:
    """The throughput as typed in."""
    tokens_per_s = measured_tokens_per_s(
        request.tokens_per_s, request.output_tokens_per_s, request.input_tokens, request.output_tokens
    )
    if request.tokens_per_s is not None:
        about = Assumption("throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s")
    else:
        words = f"{request.output_tokens_per_s:g} output tokens/s saturated, with the input read beside them"
        about = Assumption("throughput", words, "your --output-tokens-per-s")
    return StatedThroughput(tokens_per_s, request.gpus or 1, about)


def plan_throughput(request: BreakEvenRequest, model: str) -> StatedThroughput:
    """The same, planned: the layout with the most requests per GPU that keeps the objective.

    Raises InputError where the network does not fit, or keeps the objective on no layout (or not on the GPUs asked for).
    """
    network, card = read_network(model), accelerator(request.accelerator)
    constants = read_engine_constants(card, request.engine)
    traffic = Traffic(request.input_tokens, request.output_tokens)
    slo = Slo(request.ttft, request.tpot / MS_PER_S)
    best = choose_throughput(network, card, constants, traffic, slo, request.gpus)
    words = (
        f"{number(best.tokens_per_s)} tokens/s in and out on {counted(best.gpus, 'GPU')}, {network.name} in {request.engine}, "
        f"while the first token comes within {duration(slo.ttft_s)} and the next every {duration(slo.tpot_s)}"
    )
    status = "estimate" if constants.is_estimate else "equations with constants fitted to measurements"
    about = Assumption("throughput", words, "the serving planner", status)
    return StatedThroughput(best.tokens_per_s, best.gpus, about, best.range)
