"""Requests simulated per second on one core, on the lengths of Azure's code service, with batches near full.

The best peer measured (Vidur) simulates about 100 requests per second. Requests come at 95 % of what the replica can take, so the
queue stays and batches are as full as its cache allows. Times are processor seconds; compiling is not counted. Without the trace
beside the checkout its lengths are lognormal with the same means (2,048 and 28 tokens).
"""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import numpy as np

from loadfactor.base.units import NS_PER_S
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.serving.demand import Lengths, fit_lengths
from loadfactor.planner.serving.fleet_run import Policy, build_fleet
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.service import Traffic, find_benchmark
from loadfactor.planner.serving.simulation.fleet import ServingFleet, Slo
from loadfactor.planner.serving.simulation.simulate import Arrivals, Run, simulate
from loadfactor.planner.serving.step import Replica
from loadfactor.sources.public_traces.request_traces import read_requests

NAME = "serving"
PEER_REQUESTS_PER_S = 100.0
TRACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "serving" / "AzureLLMInferenceTrace_code.csv.gz"
CHUNK = 20_000


def _lengths() -> Lengths:
    if not TRACE.exists():
        return Lengths(2048, 28, 0.9, 2.1, 16_384)
    chunks = list(read_requests(TRACE))
    return fit_lengths(
        np.concatenate([c.prompt_tokens for c in chunks]), np.concatenate([c.output_tokens for c in chunks])
    )


def _requests(count: int, rate: float, lengths: Lengths, seed: int = 1) -> Iterator[Arrivals]:
    rng = np.random.default_rng(seed)
    now_s = 0.0
    for _ in range(0, count, CHUNK):
        at_s = now_s + np.cumsum(rng.exponential(1 / rate, CHUNK))
        now_s = float(at_s[-1])
        yield Arrivals((at_s * NS_PER_S).astype(np.int64), *lengths.draw(rng, CHUNK))


def _fleet(lengths: Lengths) -> tuple[ServingFleet, float]:
    chip, net = accelerator("h100-sxm"), network("llama-3.1-8b")
    replica = Replica(net, chip, ReplicaLayout(1), choose_precision(net, "bf16"), read_engine_constants(chip, "vllm"))
    traffic = Traffic(lengths.prompt_mean, lengths.output_mean, lengths.prompt_cv)
    return build_fleet(replica, 1, traffic, Slo(), Policy()), find_benchmark(replica, traffic).requests_per_s


def _peak_bytes(fleet: ServingFleet, count: int, rate: float, lengths: Lengths) -> int:
    tracemalloc.start()
    simulate(fleet, _requests(count, rate, lengths))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def run(quick: bool) -> dict[str, float]:
    """Requests per second, how full the batches were, and the memory of ten times the requests over that of one."""
    lengths = _lengths()
    fleet, most_per_s = _fleet(lengths)
    rate = 0.95 * most_per_s
    few = 100_000 if quick else 200_000
    simulate(fleet, _requests(CHUNK, rate, lengths))  # the first call pays for compiling
    chunks = list(_requests(few if quick else 1_000_000, rate, lengths))  # drawing them is not simulating them
    started = process_time()
    done: Run = simulate(fleet, chunks)
    spent = process_time() - started
    total = done.total
    return {
        "requests_per_s": total.requests / spent,
        "requests_per_s_over_best_peer": total.requests / spent / PEER_REQUESTS_PER_S,
        "simulated_mean_batch": total.counters.present_ns / total.counters.busy_ns,
        "simulated_cache_fill_share": total.cache_fill_share or 0.0,
        "memory_of_ten_times_the_requests": _peak_bytes(fleet, few, rate, lengths) / _peak_bytes(fleet, few // 10, rate, lengths),
    }  # fmt: skip
