"""Latency and throughput of one busy replica against concurrency: time to first token, time per token, tokens per second.

A load test keeps `concurrency` requests in the system, each replaced when it ends. In one cycle every running sequence gets all its
output tokens and every prompt is computed once:

    cycle = output × step(batch) + batch × Δ        Δ: what one prompt adds to the steps it shares
    time per token = step(batch) + (batch − 1)·Δ / output

The time to the first token is the queue and the prompt, which depend on who arrives with whom: it is simulated.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import NS_PER_S
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.simulation.fleet import Batching, PrefixCache, ServingFleet, Speculation, tabulate_costs
from loadfactor.planner.serving.simulation.simulate import Arrivals, simulate
from loadfactor.planner.serving.simulation.state import Costs
from loadfactor.planner.serving.step import Replica, cache_tokens, most_sequences, step_time

WAVES = 10  # requests of a load test over its concurrency, as public load generators send by default
SHORTEST = 0.8  # of the nominal length
CLIENT_GAP_NS = 5_000_000  # between the first requests of a client, which tokenizes and connects
SPARE_TIME = 1.1  # simulated beyond what the equations say that the waves take


def simulate_first_token_s(
    r: Replica,
    costs: Costs,
    concurrency: int,
    prompt: int,
    output: int,
    wave_s: float,
    cached_share: float = 0.0,
    speculation: Speculation = Speculation(),
    alike: bool = False,
) -> float:
    """Mean seconds to the first token inside the engine; `wave_s` is about how long one wave of requests takes.

    Requests that are all `alike` come back one by one, in the order in which their prompts were computed.
    """
    rng = np.random.default_rng(0)
    ranks, context = r.layout.attention_dp, prompt + output / 2
    shortest = 1.0 if alike else SHORTEST
    beside = concurrency * (1 + speculation.drafted) if r.engine.chunk_is_prompts else 0
    batching = Batching(
        cache_tokens=max(cache_tokens(r, context), prompt + output + 1),
        max_sequences=r.engine.max_sequences * ranks,
        chunk_tokens=r.engine.chunk_tokens * ranks + beside,
        mixed=r.engine.mixed,
        max_context=prompt + output,
        queue_limit=concurrency + 1,
        poll_steps=r.engine.poll_steps,
        wait_steps=r.engine.wait_steps,
    )
    fleet = ServingFleet(
        costs, batching, 1, prefix=PrefixCache(cached_share=cached_share), speculation=speculation, closed_loop=True
    )
    first_wave = Arrivals(
        np.arange(concurrency, dtype=np.int64) * (CLIENT_GAP_NS if alike else 0),
        rng.integers(max(int(prompt * shortest), 1), prompt, concurrency, endpoint=True),
        rng.integers(max(int(output * shortest), min(output, 2)), output, concurrency, endpoint=True),
    )
    seen: list[NDArray[np.int64]] = []
    simulate(fleet, [first_wave], horizon_s=wave_s * WAVES * SPARE_TIME, records=seen.append, most_output=output + 1)
    rows = np.concatenate(seen) if seen else np.zeros((0, 6), np.int64)
    rows = rows[np.argsort(rows[:, 0], kind="stable")][: WAVES * concurrency]
    return float((rows[:, 2] - rows[:, 0]).mean()) / NS_PER_S if len(rows) else wave_s


@dataclass(frozen=True)
class Latency:
    """Results of a load test at one or several concurrencies; times in seconds, tokens per second of the whole replica."""

    batch: Real
    ttft_s: Real
    tpot_s: Real
    output_tokens_per_s: Real
    decode_step_s: Real
    prompt_s: Real  # computing one prompt on an otherwise idle replica
    prompt_added_s: Real  # what it adds to the steps of a running batch

    @property
    def prompt_share(self) -> Real:
        return self.prompt_added_s * self.batch / (self.prompt_added_s * self.batch + self.decode_step_s)


def prompt_time(
    r: Replica, prompt: float, batch: Real = 0.0, context: float = 0.0, cached: float = 0.0, together: Real = 1.0
) -> tuple[Real, Real]:
    """(seconds to compute one prompt beside `batch` running sequences, seconds it adds to their steps).

    The prompt goes in chunks of at most the engine's; an engine that does not mix computes it between decode steps. `cached` tokens
    at its start are found in the prefix cache: not computed, but attended to. `together` prompts share a step, as many as it holds.
    """
    fresh = max(prompt - cached, 1.0)
    chunks = max(1.0, fresh / r.engine.chunk_tokens)
    pairs = (fresh * cached + fresh * (fresh + 1) / 2) / chunks
    count = np.clip(together, 1.0, max(1.0, r.engine.chunk_tokens / fresh))
    if not r.engine.mixed:
        whole = step_time(r, 0.0, 0.0, count * fresh / chunks, count * pairs).total_s
        alone = chunks * whole
        return alone, alone / count
    whole = step_time(r, batch, batch * context, count * fresh / chunks, count * pairs).total_s
    with_prompt = chunks * whole
    without = chunks * step_time(r, np.maximum(batch, 1e-9), batch * context).total_s
    return with_prompt, (with_prompt - np.where(np.asarray(batch) > 0, without, 0.0)) / count


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

    def next_steps_s(self, speculation: Speculation, alike: bool) -> Real:
        """Seconds of a step after one that ended a prompt: where requests are all alike, the prompt of the next one."""
        return self.prompt_s if alike else self.tpot_s * speculation.tokens_per_step


def decode_s(r: Replica, batch: Real, context: float, speculation: Speculation) -> Real:
    """Seconds in which each of `batch` sequences of `context` tokens gets one; with drafts, of a step over what it yields."""
    return step_time(r, batch, batch * context, batch * speculation.drafted).total_s / speculation.speed


def predict_tpot(
    r: Replica,
    concurrency: Real,
    prompt: float,
    output: float,
    cached: float = 0.0,
    speculation: Speculation = Speculation(),
) -> TokenTime:
    """Time per token of a replica that always has `concurrency` requests of `prompt` and `output` tokens."""
    context = prompt + output / 2
    most = min(most_sequences(r, context), float(r.engine.max_sequences * r.layout.attention_dp))
    batch = np.minimum(concurrency, max(most, 1.0))
    others = np.maximum(batch - 1, 0.0)
    decode_step = decode_s(r, batch, context, speculation)
    prompt_s, added = prompt_time(r, prompt, others, context, cached, others / output)
    return TokenTime(batch, decode_step + others * added / output, decode_step, prompt_s, added)


def predict_latency(
    r: Replica,
    concurrency: Real,
    prompt: float,
    output: float,
    cached: float = 0.0,
    speculation: Speculation = Speculation(),
    alike: bool = False,
) -> Latency:
    """Latency and throughput in a load test that keeps `concurrency` requests of `prompt` and `output` tokens in the replica."""
    t = predict_tpot(r, concurrency, prompt, output, cached, speculation)
    wave_s = (output * t.decode_step_s + t.batch * t.prompt_added_s) * np.maximum(concurrency / t.batch, 1.0)
    ranks = r.layout.attention_dp
    costs = tabulate_costs(r, r.engine.chunk_tokens * ranks, r.engine.max_sequences * ranks, speculation)
    lengths, share = (max(round(prompt), 1), max(round(output), 1)), min(cached / prompt, 0.999)
    first = [
        simulate_first_token_s(r, costs, max(round(c), 1), *lengths, float(w), share, speculation, alike)
        for c, w in zip(np.atleast_1d(concurrency), np.atleast_1d(wave_s), strict=True)
    ]
    simulated = np.array(first) if np.ndim(concurrency) else first[0]
    ahead = ahead_s(r, t.batch, t.next_steps_s(speculation, alike))
    ttft = r.engine.request_s + fill_s(r, prompt, cached) + ahead + simulated
    throughput = concurrency * output / (ttft + t.tpot_s * np.maximum(output - 1, 0))
    return Latency(t.batch, ttft, t.tpot_s, throughput, t.decode_step_s, t.prompt_s, t.prompt_added_s)


MOST_TOGETHER = 4096  # sequences that engines run together where nobody waits for an answer


def predict_offline(r: Replica, requests: float | None, prompt: float, output: float) -> float:
    """Output tokens per second of the whole replica over a run of `requests`, or over one without an end (None).

    Requests start as memory frees up for all their tokens. Those of one length start and end together, so that a run is a row
    of waves of which the last may be small:

        seconds = waves × cycle(batch) + cycle(rest)        cycle(b) = output × step(b) + b × what a prompt adds

    Single tokens are not streamed, so that the host does nothing for each sequence and step.
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
    _, added = prompt_time(r, prompt, batch, context, together=batch)
    return output * decode_step + batch * added
