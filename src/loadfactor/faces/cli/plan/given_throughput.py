"""Which throughput is meant? A measured one typed in, or what the serving planner says a replica takes under an objective."""

from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption
from loadfactor.faces.formats import counted, duration, number
from loadfactor.units import MS_PER_S


def measured(
    tokens_per_s: float | None, output_only: float | None, input_tokens: float, output_tokens: float
) -> tuple[float, Assumption]:
    """Saturated tokens per second, input and output together, from one of the two ways of counting."""
    if (tokens_per_s is None) == (output_only is None):
        raise InputError(
            "give the replica's saturated throughput once: --tokens-per-s (in and out), --output-tokens-per-s, or --model to plan"
        )
    if tokens_per_s is not None:
        return tokens_per_s, Assumption(
            "throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s"
        )
    if output_tokens <= 0:
        raise InputError(
            "--output-tokens-per-s needs requests with output: give --output-tokens above 0, or --tokens-per-s"
        )
    assert output_only is not None
    words = f"{output_only:g} output tokens/s saturated, with the input read beside them"
    return output_only * (input_tokens + output_tokens) / output_tokens, Assumption(
        "throughput", words, "your --output-tokens-per-s"
    )


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
    """(tokens per second, GPUs of a replica, where from): the layout with the most requests per GPU that keeps the objective.

    Raises InputError where the network does not fit, or keeps the objective on no layout (or not on `gpus`).
    """
    from loadfactor.catalog.accelerators import accelerator
    from loadfactor.catalog.engines import engine_constants
    from loadfactor.catalog.models import read_network
    from loadfactor.planner.serving.layout_search import list_options
    from loadfactor.planner.serving.replica_layout import choose_precision
    from loadfactor.planner.serving.service import Traffic
    from loadfactor.planner.serving.simulation.fleet import Slo

    if min(ttft_s, tpot_ms) <= 0:
        raise InputError(f"--ttft and --tpot are times above 0, got {ttft_s:g} s and {tpot_ms:g} ms")
    network, chip = read_network(model), accelerator(gpu)
    constants = engine_constants(chip, engine)
    kept = choose_precision(network, None, None if constants.narrow_cache else 2.0)
    found = list_options(
        network, chip, kept, constants, Traffic(input_tokens, output_tokens), Slo(ttft_s, tpot_ms / MS_PER_S)
    )
    able = [o for o in found if o.capacity is not None and gpus in (None, o.replica.layout.gpus)]
    if not able:
        on = "any number of GPUs" if gpus is None else f"{gpus} GPUs"
        raise InputError(
            f"{network.name} keeps {ttft_s:g} s to the first token and {tpot_ms:g} ms a token on {on} of {chip.id} not even alone; "
            f"relax --ttft or --tpot, or take --gpus {', '.join(sorted({str(o.replica.layout.gpus) for o in found}))}"
        )
    best = max(able, key=lambda o: o.capacity.requests_per_gpu_s if o.capacity else 0.0)
    assert best.capacity is not None
    tokens_per_s = best.capacity.requests_per_s * (input_tokens + output_tokens)
    words = (
        f"{number(tokens_per_s)} tokens/s in and out on {counted(best.replica.layout.gpus, 'GPU')}, {network.name} in {engine}, "
        f"while the first token comes within {duration(ttft_s)} and the next every {duration(tpot_ms / MS_PER_S)}"
    )
    status = "estimate" if constants.is_estimate else "equations with constants fitted to measurements"
    return tokens_per_s, best.replica.layout.gpus, Assumption("throughput", words, "the serving planner", status)
