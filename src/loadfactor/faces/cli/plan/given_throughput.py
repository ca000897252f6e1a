"""The throughput of a replica for `plan breakeven`, with the line that says where it comes from."""

from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption
from loadfactor.faces.formats import counted, duration, number
from loadfactor.planner.serving.throughput import choose_throughput, measured_tokens_per_s
from loadfactor.units import MS_PER_S


def measured(
    tokens_per_s: float | None, output_only: float | None, input_tokens: float, output_tokens: float
) -> tuple[float, Assumption]:
    """Saturated tokens per second, input and output together, from one of the two ways of counting."""
    found = measured_tokens_per_s(tokens_per_s, output_only, input_tokens, output_tokens)
    if tokens_per_s is not None:
        return found, Assumption(
            "throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s"
        )
    words = f"{output_only:g} output tokens/s saturated, with the input read beside them"
    return found, Assumption("throughput", words, "your --output-tokens-per-s")


def planned(
    model: str,
    gpu: str,
    engine: str,
    gpus: int | None,
    input_tokens: float,
    output_tokens: float,
    ttft_s: float,
    tpot_ms: float,
) -> tuple[float, int, Assumption]:
    """(tokens per second, GPUs of a replica, where from) of the best layout that keeps the objective."""
    from loadfactor.catalog.accelerators import accelerator
    from loadfactor.catalog.engines import engine_constants
    from loadfactor.catalog.models import read_network
    from loadfactor.planner.serving.service import Traffic
    from loadfactor.planner.serving.simulation.fleet import Slo

    if min(ttft_s, tpot_ms) <= 0:
        raise InputError(f"--ttft and --tpot are times above 0, got {ttft_s:g} s and {tpot_ms:g} ms")
    network, chip = read_network(model), accelerator(gpu)
    constants, slo = engine_constants(chip, engine), Slo(ttft_s, tpot_ms / MS_PER_S)
    best = choose_throughput(network, chip, constants, Traffic(input_tokens, output_tokens), slo, gpus)
    words = (
        f"{number(best.tokens_per_s)} tokens/s in and out on {counted(best.gpus, 'GPU')}, {network.name} in {engine}, "
        f"while the first token comes within {duration(ttft_s)} and the next every {duration(tpot_ms / MS_PER_S)}"
    )
    status = "estimate" if constants.is_estimate else "equations with constants fitted to measurements"
    return best.tokens_per_s, best.gpus, Assumption("throughput", words, "the serving planner", status)
