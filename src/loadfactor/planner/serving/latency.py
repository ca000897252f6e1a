"""Latency and throughput of one busy replica against concurrency: time to first token, time per token, tokens per second.

A load test keeps `concurrency` requests in the system, each replaced when it ends. In one cycle every running sequence gets all its
output tokens and every prompt is computed once:

    cycle = output × step(batch) + batch × Δ        Δ: what one prompt adds to the steps it shares
    time per token = step(batch) + (batch − 1)·Δ / output

A request waits for the step in progress, computes its prompt, and queues behind the prompts that came with it; when the cache
holds fewer sequences than there are requests the rest waits for whole cycles.
"""

from dataclasses import dataclass

import numpy as np

from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.cache_memory import most_sequences
from loadfactor.planner.serving.step import Replica, step_time


@dataclass(frozen=True)
class Latency:
    """What a load test at one or several concurrencies shows; times in seconds, tokens per second of the whole replica."""

    batch: Real
    ttft_s: Real
    tpot_s: Real
    output_tokens_per_s: Real
    decode_step_s: Real
    prompt_s: Real  # computing one prompt on an otherwise idle replica
    prompt_added_s: Real  # what it adds to the steps of a running batch
    queue_s: Real

    @property
    def prompt_share(self) -> Real:
        """Share of time the replica spends on prompts."""
        return self.prompt_added_s * self.batch / (self.prompt_added_s * self.batch + self.decode_step_s)


def prompt_time(
    r: Replica, prompt: float, batch: Real = 0.0, context: float = 0.0, cached: float = 0.0
) -> tuple[Real, Real]:
    """(seconds to compute one prompt beside `batch` running sequences, seconds it adds to their steps).

    The prompt goes in chunks of at most the engine's; an engine that does not mix computes it between decode steps. `cached` tokens
    at its start are found in the prefix cache: not computed, but attended to.
    """
    fresh = max(prompt - cached, 1.0)
    chunks = max(1.0, fresh / r.engine.chunk_tokens)
    pairs = (fresh * cached + fresh * (fresh + 1) / 2) / chunks
    if not r.engine.mixed:
        alone = chunks * step_time(r, 0.0, 0.0, fresh / chunks, pairs).total_s
        return alone, alone
    with_prompt = chunks * step_time(r, batch, batch * context, fresh / chunks, pairs).total_s
    without = chunks * step_time(r, np.maximum(batch, 1e-9), batch * context).total_s
    return with_prompt, with_prompt - np.where(np.asarray(batch) > 0, without, 0.0)


def predict_latency(r: Replica, concurrency: Real, prompt: float, output: float, cached: float = 0.0) -> Latency:
    """Latency and throughput of a replica that always has `concurrency` requests of `prompt` and `output` tokens."""
    context = prompt + output / 2
    most = min(most_sequences(r, context), float(r.engine.max_sequences * r.layout.attention_dp))
    batch = np.minimum(concurrency, max(most, 1.0))
    others = np.maximum(batch - 1, 0.0)
    decode_step = step_time(r, batch, batch * context).total_s
    prompt_s, added = prompt_time(r, prompt, others, context, cached)
    tpot = decode_step + others * added / output
    cycle = output * decode_step + batch * added
    # the first wave of a load test arrives at once and queues for half of itself; later requests meet those before them at random
    busy = np.minimum(batch * added / cycle, 0.98)
    queue = (
        r.engine.first_wave / 2 * others * added
        + (1 - r.engine.first_wave) * busy / (1 - busy) / 2 * added * others / batch
    )
    waiting = np.maximum(concurrency / batch - 1, 0.0) * cycle
    ttft = r.engine.request_s + decode_step / 2 * (others > 0) + prompt_s + queue + waiting
    throughput = concurrency * output / (ttft + tpot * np.maximum(output - 1, 0))
    return Latency(batch, ttft, tpot, throughput, decode_step, prompt_s, added, queue + waiting)
