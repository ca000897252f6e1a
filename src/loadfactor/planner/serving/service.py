"""One replica in steady state: the plain roofline, requests per second under an objective and in a benchmark, layouts scored.

In steady state a rate of λ requests per second keeps b = λ·(output·step(b) + b·Δ) sequences in the batch (Little's law), where Δ is
what one prompt adds to the steps it shares. The largest b that fits in memory and keeps the objective is the replica's capacity.
In the roofline a step reads W + b·K, the weights and the cache of b sequences, κ = K/W (arXiv:2211.05102 section 2).
"""

from dataclasses import dataclass, field, replace
from typing import Any

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.latency import ahead_s, decode_s, fill_s, prompt_time
from loadfactor.planner.serving.layouts import (
    EVERY_LAYOUT,
    FixedLayout,
    Precision,
    explain_no_layout,
    list_layouts,
)
from loadfactor.planner.serving.simulation.fleet import Slo, Speculation
from loadfactor.planner.serving.step import Replica, check_fits, most_sequences

PROMPT_LOAD = 0.7  # share of time that prompt replicas of a disaggregated fleet work: it bounds their queue
LEAST_FREE = 1e-3  # of a replica's time, beside prompts: what keeps an overloaded one finite
BATCH_STEP = 0.75  # of one batch to the next smaller one that is tried
MOST_STEPS = 40


def cache_to_weights(
    parameters: float, kv_bytes_per_token: float, context: float, bytes_per_weight: float = 2
) -> float:
    """κ: cache bytes of one sequence of `context` tokens over the bytes of the weights.

    >>> round(cache_to_weights(6.738e9, 524288, 512), 5)
    0.01992
    """
    if parameters <= 0:
        raise PlanError(f"parameters must be positive, got {parameters:g}")
    return kv_bytes_per_token * context / (parameters * bytes_per_weight)


def batch_speedup(batch: float, kappa: float) -> float:
    """Throughput of a batch over that of one sequence while memory is the limit: b(1 + κ)/(1 + bκ); at most (1 + κ)/κ.

    >>> batch_speedup(64, 0.0), round(batch_speedup(64, 37 / 1664), 9)
    (64.0, 27.0)
    """
    return batch * (1 + kappa) / (1 + batch * kappa)


def compute_share(
    batch: float, kappa: float, bytes_per_s: float, flops_per_s: float, flops_per_weight_byte: float = 1.0
) -> float:
    """Share of peak FLOP/s used by memory-bound decoding: (BW/peak)·b/(1 + bκ); two FLOPs for two bytes of a 16-bit weight.

    >>> round(compute_share(1, 0.0, 2039e9, 312e12), 6)
    0.006535
    """
    return flops_per_weight_byte * bytes_per_s / flops_per_s * batch / (1 + batch * kappa)


def batch_for_compute_share(
    share: float, kappa: float, bytes_per_s: float, flops_per_s: float, flops_per_weight_byte: float = 1.0
) -> float | None:
    """The batch at which decoding uses `share` of peak; None when the cache forbids it at any batch (κ ≥ BW/(peak·share)).

    >>> round(batch_for_compute_share(0.5, 0.0, 2039e9, 312e12)), batch_for_compute_share(0.5, 0.0222, 2039e9, 312e12)
    (77, None)
    """
    once = flops_per_weight_byte * bytes_per_s / flops_per_s
    if share * kappa >= once:
        return None
    return share / (once - share * kappa)


def steady_batch(step_fixed_s: float, step_per_sequence_s: float, load_share: float) -> float:
    """Sequences in a replica in steady state when a step takes α + βb: b = (α/β)·u/(1 − u), u = λ·n·β (Little's law).

    `load_share` u is the offered tokens per second over the most the replica can make, 1/β.

    >>> round(steady_batch(0.00660912211868563, 0.00014695764326404348, 0.587), 4)
    63.9204
    """
    if not 0 <= load_share < 1:
        raise PlanError(f"the load must be below the replica's capacity, got {load_share:g} of it; add replicas")
    return step_fixed_s / step_per_sequence_s * load_share / (1 - load_share)


@dataclass(frozen=True)
class Traffic:
    """Tokens of an average request, and which options the replica serves it with."""

    prompt: float
    output: float
    prompt_cv: float = 1.0
    cached_share: float = 0.0  # of the prompt, found in the prefix cache
    speculation: Speculation = field(default_factory=Speculation)
    disaggregated: bool = False

    @property
    def context(self) -> float:
        """Cached tokens of a sequence half-way through its output."""
        return self.prompt + self.output / 2


@dataclass(frozen=True)
class Service:
    """One replica in steady state. With disaggregation `gpus` is fractional: decoding and its share of prompt replicas."""

    batch: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    gpus: float
    prompt_share: float  # of accelerator time, spent on prompts

    @property
    def requests_per_gpu_s(self) -> float:
        return self.requests_per_s / self.gpus


def evaluate_batch(r: Replica, batch: float, traffic: Traffic) -> Service:
    t = traffic
    step = float(decode_s(r, batch, t.context, t.speculation))
    cached = t.cached_share * t.prompt
    first_s = r.engine.request_s + fill_s(r, t.prompt, cached)
    if t.disaggregated:
        alone = float(prompt_time(r, t.prompt, 0.0, 0.0, cached)[0])
        rate = batch / (t.output * step)
        prompt_replicas = rate * alone / PROMPT_LOAD
        queue = _wait_s(PROMPT_LOAD, alone, t.prompt_cv) / max(prompt_replicas, 1.0)
        prompt_gpus = prompt_replicas * r.layout.gpus
        gpus = r.layout.gpus + prompt_gpus
        return Service(batch, rate, first_s + alone + queue, step, gpus, prompt_gpus / gpus)
    whole, added = (float(x) for x in prompt_time(r, t.prompt, batch, t.context, cached))
    rate = batch / (t.output * step + batch * added)
    busy = rate * added
    ttft = first_s + float(ahead_s(r, batch, step)) + step / 2 + whole + _wait_s(busy, added, t.prompt_cv)
    return Service(batch, rate, ttft, step / max(1 - busy, LEAST_FREE), float(r.layout.gpus), busy)


def most_in_batch(r: Replica, traffic: Traffic) -> float:
    return min(most_sequences(r, traffic.context), float(r.engine.max_sequences * r.layout.attention_dp))


def find_benchmark(r: Replica, traffic: Traffic) -> Service:
    """Steady state of a benchmark: the batch with the most requests per second and accelerator, whatever users wait."""
    most = most_in_batch(r, traffic)
    if most < 1:
        raise PlanError(f"{r.network.name} does not fit on {r.layout} of {r.accelerator.name}")
    batches = [most * BATCH_STEP**i for i in range(MOST_STEPS) if most * BATCH_STEP**i >= 1]
    return max((evaluate_batch(r, b, traffic) for b in batches), key=lambda s: s.requests_per_gpu_s)


def find_capacity(r: Replica, traffic: Traffic, slo: Slo) -> Service | None:
    """The steady state with the most requests per second that keeps the objective on average; None when a batch of 1 does not."""

    def keeps(batch: float) -> bool:
        s = evaluate_batch(r, batch, traffic)
        return s.tpot_s <= slo.tpot_s and s.ttft_s <= slo.ttft_s

    low, high = 1.0, most_in_batch(r, traffic)
    if high < 1 or not keeps(low):
        return None
    if keeps(high):
        return evaluate_batch(r, high, traffic)
    for _ in range(MOST_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return evaluate_batch(r, low, traffic)


def predict_mean_batch(r: Replica, most: float, requests_per_s: float, traffic: Traffic) -> float | None:
    """Sequences decoding at a steady rate, a step's time taken as linear up to a batch of `most`; None at or beyond capacity."""
    if most <= 1:
        return None
    one_s, most_s = (b / evaluate_batch(r, b, traffic).requests_per_s / traffic.output for b in (1.0, most))
    per_sequence_s = (most_s - one_s) / (most - 1)
    load_share = requests_per_s * traffic.output * per_sequence_s
    return steady_batch(one_s - per_sequence_s, per_sequence_s, load_share) if load_share < 1 else None


def improve_kernels(r: Replica) -> Replica:
    """The same replica if kernels lost half of what they lose today against the datasheet and launches took half the time."""
    e = r.engine
    shares = ("matmul_share", "memory_share", "cache_share", "attention_share", "link_share")
    better: dict[str, Any] = {name: (1 + getattr(e, name)) / 2 for name in shares}
    return replace(r, engine=replace(e, **better, kernel_s=e.kernel_s / 2, step_s=e.step_s / 2))


def _wait_s(load: float, service_s: float, cv: float) -> float:
    """Mean wait before one server that is busy so much of the time (Pollaczek and Khinchine)."""
    return load / max(1 - load, LEAST_FREE) * service_s * (1 + cv**2) / 2


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


def rank_by_gpus(
    found: tuple[LayoutOption, ...], peak_requests_per_s: float, headroom_share: float, slo: Slo
) -> tuple[LayoutOption, ...]:
    """The layouts that keep the objective, by how few GPUs carry the peak. Raises PlanError when none keeps it."""
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

    return tuple(sorted(able, key=gpus))


def count_replicas(requests_per_s: float, capacity_of_one: Service, headroom_share: float) -> int:
    """Replicas that carry a rate with this share of their capacity kept free.

    >>> count_replicas(9.5, Service(10, 1.0, 0.1, 0.01, 1, 0.2), 0.1)
    11
    """
    needed = requests_per_s / (capacity_of_one.requests_per_s * (1 - headroom_share))
    return max(1, -int(-needed // 1))


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
