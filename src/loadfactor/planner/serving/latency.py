"""Latency and throughput of one busy replica against concurrency: time to first token, time per token, tokens per second.

A load test keeps `concurrency` requests in the system, each replaced when it ends. In one cycle every running sequence gets all its
output tokens and every prompt is computed once:

    cycle = output × step(batch) + batch × Δ        Δ: what one prompt adds to the steps it shares
    time per token = step(batch) + (batch − 1)·Δ / output

The time to the first token is the queue and the prompt, which depend on who arrives with whom: it is simulated (first_token.py).
"""

from dataclasses import dataclass

import numpy as np

from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.cache_memory import most_sequences
from loadfactor.planner.serving.first_token import simulate_first_token_s, tabulate_steps
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


def fill_s(r: Replica, prompt: float, cached: float = 0.0) -> float:
    """Seconds a prompt's chunk spends in other pipeline stages, beside the share of its work that one stage does.

    Steps count what a stage does for a chunk, while the other stages work on other parts; a chunk itself passes them all.
    """
    p = r.layout.pipeline
    if p == 1:
        return 0.0
    fresh = min(max(prompt - cached, 1.0), float(r.engine.chunk_tokens))
    pairs = fresh * cached + fresh * (fresh + 1) / 2
    whole, share = (step_time(r, 0.0, 0.0, n * fresh, n * pairs).total_s for n in (p, 1))
    return float(whole - share)


def ahead_s(r: Replica, batch: Real, step_s: Real) -> Real:
    """Seconds that a first token waits for steps launched before the engine reads results, where others run beside it."""
    result: Real = r.engine.ahead_steps * step_s * np.clip(np.asarray(batch) - 1, 0.0, 1.0)
    return result


@dataclass(frozen=True)
class TokenTime:
    """Time per token in steady state and what it is made of; seconds."""

    batch: Real
    tpot_s: Real
    decode_step_s: Real
    prompt_s: Real
    prompt_added_s: Real


def predict_tpot(r: Replica, concurrency: Real, prompt: float, output: float, cached: float = 0.0) -> TokenTime:
    """Time per token of a replica that always has `concurrency` requests of `prompt` and `output` tokens."""
    context = prompt + output / 2
    most = min(most_sequences(r, context), float(r.engine.max_sequences * r.layout.attention_dp))
    batch = np.minimum(concurrency, max(most, 1.0))
    others = np.maximum(batch - 1, 0.0)
    decode_step = step_time(r, batch, batch * context).total_s
    prompt_s, added = prompt_time(r, prompt, others, context, cached)
    return TokenTime(batch, decode_step + others * added / output, decode_step, prompt_s, added)


def predict_latency(r: Replica, concurrency: Real, prompt: float, output: float, cached: float = 0.0) -> Latency:
    """Latency and throughput in a load test that keeps `concurrency` requests of `prompt` and `output` tokens in the replica."""
    t = predict_tpot(r, concurrency, prompt, output, cached)
    wave_s = (output * t.decode_step_s + t.batch * t.prompt_added_s) * np.maximum(concurrency / t.batch, 1.0)
    ttft = (
        r.engine.request_s
        + fill_s(r, prompt, cached)
        + ahead_s(r, t.batch, t.tpot_s)
        + _simulate_ttft(r, concurrency, prompt, output, wave_s, cached)
    )
    throughput = concurrency * output / (ttft + t.tpot_s * np.maximum(output - 1, 0))
    return Latency(t.batch, ttft, t.tpot_s, throughput, t.decode_step_s, t.prompt_s, t.prompt_added_s)


def _simulate_ttft(r: Replica, concurrency: Real, prompt: float, output: float, wave_s: Real, cached: float) -> Real:
    """Seconds to the first token at each concurrency; `wave_s` is what one wave of requests takes at it."""
    costs, share = tabulate_steps(r), min(cached / prompt, 0.999)
    many, waves = np.atleast_1d(concurrency), np.atleast_1d(wave_s)
    lengths = max(round(prompt), 1), max(round(output), 1)
    found = [
        simulate_first_token_s(r, costs, max(round(c), 1), *lengths, float(w), share)
        for c, w in zip(many, waves, strict=True)
    ]
    return np.array(found) if np.ndim(concurrency) else found[0]
