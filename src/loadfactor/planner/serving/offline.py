"""Throughput of a replica that is handed all requests at once: as many run together as memory and the engine allow."""

from dataclasses import replace

from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.cache_memory import most_sequences
from loadfactor.planner.serving.latency import prompt_time
from loadfactor.planner.serving.step import Replica, step_time

MOST_TOGETHER = 4096  # sequences that engines run together where nobody waits for an answer


def predict_offline(r: Replica, requests: float | None, prompt: float, output: float) -> float:
    """Output tokens per second of the whole replica over a run of `requests`, or over one without an end (None).

    Requests start as memory frees up for all their tokens. Those of one length start and end together, so that a run is a row
    of waves of which the last may be small:

        seconds = waves × cycle(batch) + cycle(rest)        cycle(b) = output × step(b) + b × what a prompt adds

    Nobody is told of single tokens, so that the host does nothing for each sequence and step.
    """
    r = replace(r, engine=replace(r.engine, sequence_s=0.0))
    together = max(min(most_sequences(r, prompt + output), float(MOST_TOGETHER * r.layout.attention_dp)), 1.0)
    if requests is None:
        return float(together * output / _cycle_s(r, together, prompt, output))
    batch = min(together, requests)
    waves, rest = divmod(requests, batch)
    seconds = waves * _cycle_s(r, batch, prompt, output) + (_cycle_s(r, rest, prompt, output) if rest else 0.0)
    return float(requests * output / seconds)


def _cycle_s(r: Replica, batch: float, prompt: float, output: float) -> Real:
    """Seconds in which `batch` sequences get all their tokens and as many prompts are computed."""
    context = prompt + output / 2
    decode_step = step_time(r, batch, batch * context).total_s
    _, added = prompt_time(r, prompt, batch, context)
    return output * decode_step + batch * added
