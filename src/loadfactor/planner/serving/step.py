"""Time of one engine step: a roofline with shape-dependent efficiency, part by part.

    step = tokens(n) + head(rows) + cache read + prompt attention + host        n = decoding sequences + prompt tokens

`tokens` reads every dense weight once and, of the experts, those that n tokens touch, and moves what lies between products; the
cache is read per sequence. Arguments
may be numbers or NumPy arrays. The event simulation runs on the same functions, tabulated (simulation/costs.py).
"""

from dataclasses import dataclass, field, replace
from math import log

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.units import BITS_PER_BYTE, BYTES_PER_GB
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import MOST, EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.hardware.kernels import Fabric, KernelSpeed, Real, all_reduce_s, dispatch_s, matmul_s, send_s
from loadfactor.planner.serving.layouts import Precision, ReplicaLayout, fullest_stage, weight_bytes
from loadfactor.planner.serving.matrices import (
    AttentionRates,
    ExpertMatrices,
    Matrix,
    build_dense_matrices,
    build_expert_matrices,
    build_head_matrix,
    compute_attention_rates,
    count_pass_values,
    kernels_per_step,
)

ACTIVATION_BYTES = 2
NARROW_BITS = 8  # below, weights are unpacked and scaled as they are read
EXCHANGES_PER_LAYER = 2  # after attention and after the MLP, each the volume of an all-reduce


@dataclass(frozen=True)
class Replica:
    """One copy of a network on its accelerators, and the engine that runs it."""

    network: Network
    accelerator: Accelerator
    layout: ReplicaLayout
    precision: Precision
    engine: EngineConstants
    dense: tuple[Matrix, ...] = field(init=False, repr=False, compare=False)
    head: Matrix = field(init=False, repr=False, compare=False)
    experts: ExpertMatrices | None = field(init=False, repr=False, compare=False)
    kernels: int = field(init=False, repr=False, compare=False)
    attention: AttentionRates = field(init=False, repr=False, compare=False)
    pass_values: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        about = (self.network, self.layout, self.precision, self.accelerator)
        tp = self.layout.attention_tp
        if self.network.heads % tp:
            raise PlanError(f"{self.network.name} has {self.network.heads} heads, which {tp} accelerators cannot share")
        if self.network.experts and self.network.experts.count < self.layout.expert_parallel:
            raise PlanError(
                f"{self.network.name} has {self.network.experts.count} experts, "
                f"fewer than {self.layout.expert_parallel} expert ranks"
            )
        if self.layout.pipeline > self.network.layers:
            raise PlanError(
                f"{self.network.name} has {self.network.layers} layers, fewer than {self.layout.pipeline} pipeline stages"
            )
        set_ = object.__setattr__
        set_(self, "dense", build_dense_matrices(*about))
        set_(self, "head", build_head_matrix(*about))
        set_(self, "experts", build_expert_matrices(*about))
        set_(self, "kernels", kernels_per_step(self.network))
        set_(self, "pass_values", count_pass_values(self.network, self.layout))
        set_(self, "attention", compute_attention_rates(*about, self.engine))

    def speed(self, datatype: str) -> KernelSpeed:
        """Speed of kernels that multiply in `datatype` here."""
        e = self.engine
        by_hand = self.network.fp8_blocks and not self.accelerator.get(
            "peak_fp4_flops"
        )  # hardware with fp4 scales blocks itself
        blocks = e.fp8_block_factor if by_hand else 1.0
        narrow = {"fp8": e.fp8_matmul_factor * blocks, "int8": e.fp8_matmul_factor, "fp4": e.fp4_matmul_factor}.get(
            datatype, 1.0
        )
        return KernelSpeed(
            self.accelerator.peak_flops(datatype),
            self.accelerator.memory_bandwidth_bytes_per_s,
            e.matmul_share * narrow,
            e.matmul_half_dim,
            e.memory_share,
            e.kernel_s,
        )

    def stream_bytes(self, bits: float, narrow_factor: float) -> float:
        """Bytes that take as long to read as one weight of so many bits, where narrow ones are read at this factor of the speed."""
        if bits >= NARROW_BITS:
            return bits / BITS_PER_BYTE
        return bits / BITS_PER_BYTE / min(narrow_factor, MOST["memory_share"] / self.engine.memory_share)

    @property
    def sequence_s(self) -> float:
        """Seconds of the host for each sequence and step; in wide groups every attention rank has a host process of its own."""
        return self.engine.sequence_s / (self.layout.attention_dp if self.layout.is_wide else 1)

    @property
    def fabric(self) -> Fabric:
        """The links between this replica's accelerators, with the engine's shares and latencies."""
        chip, e = self.accelerator, self.engine
        out = chip.get("scale_out_bytes_per_s") or chip.scale_up_bytes_per_s
        return Fabric(
            chip.scale_up_gpus,
            chip.scale_up_bytes_per_s,
            out,
            e.link_share,
            e.link_share,
            e.link_latency_s,
            2 * e.link_latency_s,
        )


@dataclass(frozen=True)
class EngineStepTime:
    """Seconds of one step by part; `total_s` is their sum."""

    dense_s: Real
    experts_s: Real
    head_s: Real
    cache_s: Real
    prompt_attention_s: Real
    passes_s: Real
    links_s: Real
    launches_s: Real
    host_s: Real

    @property
    def total_s(self) -> Real:
        return (
            self.dense_s
            + self.experts_s
            + self.head_s
            + self.cache_s
            + self.prompt_attention_s
            + self.passes_s
            + self.links_s
            + self.launches_s
            + self.host_s
        )


def step_time(
    r: Replica, sequences: Real, context_tokens: Real, prompt_tokens: Real = 0.0, prompt_pairs: Real = 0.0
) -> EngineStepTime:
    """One step that decodes one token for each of `sequences`, with `context_tokens` cached in sum, and computes `prompt_tokens`.

    `prompt_pairs` counts the pairs (token, earlier or same token) attended inside prompts: L(L+1)/2 for a whole prompt of L.
    """
    tokens = sequences + prompt_tokens
    a = r.attention
    prompt_attention = a.pair_s * prompt_pairs + a.pair_window_s * np.minimum(prompt_pairs, a.window * prompt_tokens)
    cache = (
        a.context_s * context_tokens
        + a.window_s * np.minimum(context_tokens, a.window * sequences)
        + a.state_s * sequences
    )
    return EngineStepTime(
        dense_s(r, tokens),
        experts_s(r, tokens),
        head_s(r, sequences + (np.asarray(prompt_tokens) > 0)),
        cache,
        prompt_attention + a.state_token_s * prompt_tokens,
        passes_s(r, tokens),
        links_s(r, tokens),
        r.kernels * r.engine.kernel_s,
        r.engine.step_s + r.sequence_s * sequences,
    )


def part_rows(r: Replica, rows: Real) -> Real:
    """Rows of one of the parts into which a step is cut, one for each pipeline stage to work on; a row is not divided.

    While a part passes the stages one after another, the others do the same one stage behind: in the time in which a part passes
    all stages every sequence gets its token.
    """
    if r.layout.pipeline == 1:
        return rows
    result: Real = np.maximum(rows / r.layout.pipeline, np.minimum(rows, 1.0))
    return result


def rank_rows(r: Replica, rows: Real) -> Real:
    """Rows on the fullest attention rank: they are spread evenly, but a row is not divided."""
    if r.layout.attention_dp == 1:
        return rows
    result: Real = np.maximum(rows / r.layout.attention_dp, np.minimum(rows, 1.0))
    return result


def dense_s(r: Replica, tokens: Real) -> Real:
    total: Real = 0.0
    tokens = part_rows(r, tokens)
    mine = rank_rows(r, tokens)
    for m in r.dense:
        rows = tokens if m.rows == "all" else mine
        speed = r.speed(m.datatype)
        read_bytes = r.stream_bytes(m.bits, r.engine.fp4_memory_factor)
        total = total + matmul_s(rows, m.out, m.into, speed, m.count, read_bytes, ACTIVATION_BYTES)
    return total * fullest_stage(r.network, r.layout)


def head_s(r: Replica, rows: Real) -> Real:
    m = r.head
    rows = part_rows(r, rows)
    rows = rank_rows(r, rows) if r.layout.attention_dp > 1 else rows
    read_bytes = r.stream_bytes(m.bits, r.engine.fp4_memory_factor)
    return matmul_s(rows, m.out, m.into, r.speed(m.datatype), m.count, read_bytes, ACTIVATION_BYTES)


def experts_touched(held: float, assignments: Real, uneven: float) -> Real:
    """Expected distinct experts among `held` that `assignments` hit: held·(1 − (1 + u·assignments/held)^(−1/u)).

    `uneven` u is the variance of how popular experts are over their mean squared (gamma-distributed): a few popular ones take many
    tokens, and the rest are touched later than if all were alike (u → 0).

    >>> round(float(experts_touched(128, 8, 1e-6)), 2), round(float(experts_touched(128, 1024, 1e-6)), 1)
    (7.76, 128.0)
    >>> round(float(experts_touched(128, 1024, 1.0)), 1)
    113.8
    """
    if held <= 1:
        low: Real = np.minimum(assignments, held)
        return low
    result: Real = -held * np.expm1(-np.log1p(uneven * assignments / held) / uneven)
    return result


def expert_load(r: Replica, x: ExpertMatrices, tokens: Real) -> Real:
    """Token-expert pairs on the fullest expert-parallel rank: the mean, and what random routing adds at the fullest."""
    mean = tokens * x.per_token / x.ranks
    if x.ranks == 1:
        return mean
    spread = np.sqrt(2 * log(x.ranks) * (1 - 1 / x.ranks) * mean)
    result: Real = np.minimum(mean + r.engine.expert_skew * spread, tokens * min(x.per_token, x.count / x.ranks))
    return result


def experts_s(r: Replica, tokens: Real) -> Real:
    x = r.experts
    if x is None:
        return 0.0
    load = expert_load(r, x, part_rows(r, tokens))
    touched = np.maximum(experts_touched(x.count / x.ranks, load, r.engine.expert_unevenness), 1e-9)
    speed = replace(r.speed(x.datatype), matmul_half_dim=r.engine.expert_half_dim)
    inner = x.weights / x.into  # gate, up and down as one product of this many columns
    layers = x.layers * fullest_stage(r.network, r.layout)
    read_bytes = r.stream_bytes(x.bits, r.engine.fp4_expert_factor)
    return matmul_s(load / touched, inner, x.into, speed, layers * touched, read_bytes, ACTIVATION_BYTES)


def passes_s(r: Replica, tokens: Real) -> Real:
    """Seconds of what a step moves through memory between its products."""
    bytes_per_s = r.accelerator.memory_bandwidth_bytes_per_s * r.engine.memory_share
    return r.pass_values * ACTIVATION_BYTES / bytes_per_s * part_rows(r, tokens)


def links_s(r: Replica, tokens: Real) -> Real:
    """Seconds in which the accelerators of a replica exchange activations; 0 for one accelerator."""
    size = part_rows(r, tokens) * r.network.hidden * ACTIVATION_BYTES
    sent: Real = 0.0
    if r.layout.pipeline > 1:  # to the next stage, and from the last one back to the first
        sent = r.layout.pipeline * send_s(size / r.layout.stage_gpus, r.layout.stage_gpus, r.fabric)
    if r.layout.stage_gpus == 1:
        return sent
    if r.layout.is_wide:
        return sent + _wide_links_s(r, size)
    return sent + EXCHANGES_PER_LAYER * r.network.layers * _all_reduce_s(r, size, r.layout.stage_gpus)


def _all_reduce_s(r: Replica, size: Real, ranks: int) -> Real:
    """Seconds of an all-reduce in one scale-up domain: a ring sends 2(n-1)/n of it, switches that add up take (n+1)/n."""
    inside = ranks <= r.accelerator.scale_up_gpus and r.accelerator.reduces_in_switch
    sent = min(1.0, (ranks + 1) / (2 * (ranks - 1))) if inside else 1.0
    return all_reduce_s(size * sent, ranks, 1, r.fabric)


def _wide_links_s(r: Replica, size: Real) -> Real:
    mine, tp, e = size / r.layout.attention_dp, r.layout.attention_tp, r.network.experts
    inside = EXCHANGES_PER_LAYER * r.network.layers * _all_reduce_s(r, mine, tp) if tp > 1 else 0.0
    if e is None:
        return inside
    once = dispatch_s(mine / tp, e.per_token, r.layout.expert_parallel, 1, r.fabric, e.most_nodes)
    return inside + 2 * r.network.moe_layers * once


@dataclass(frozen=True)
class CacheMemory:
    """Bytes on the fullest accelerator of a replica. `cache_bytes` is below zero when the weights alone do not fit."""

    installed_bytes: float
    weight_bytes: float
    engine_bytes: float
    cache_bytes: float

    @property
    def fits(self) -> bool:
        """Whether anything is left for a cache."""
        return self.cache_bytes > 0


def measure_memory(r: Replica) -> CacheMemory:
    """Memory of one accelerator.

    Attention weights are split over the attention ranks' accelerators (once per `attention_dp`), everything else over all; of
    pipeline stages the first has the embedding, the last the head, and each its layers. Wide groups hold dense parts once a rank.
    """
    layout, bits = r.layout, r.precision.bits
    each = {part: count * bits(part) / BITS_PER_BYTE for part, count in r.network.parts.items()}
    ends = each.pop("embedding"), each.pop("head")
    body = 0.0
    for part, size in each.items():
        split = (
            layout.attention_tp
            if part == "attention"
            else layout.stage_gpus
            if part == "experts"
            else layout.dense_split
        )
        if part == "experts" and r.experts is not None and r.network.experts is not None:
            size *= r.experts.count / r.network.experts.count
        body += size / split
    held = body / layout.pipeline * fullest_stage(r.network, layout)
    held += (sum(ends) if layout.pipeline == 1 else max(ends)) / layout.dense_split
    installed = r.accelerator.driver_memory_bytes
    taken, share = held + r.engine.engine_bytes, r.engine.memory_for_engine_share
    cache = (installed - taken) * share if r.engine.shares_what_is_free else installed * share - taken
    return CacheMemory(installed, held, r.engine.engine_bytes, cache)


def cache_bytes_per_sequence(r: Replica, context: float) -> float:
    """Cache of one sequence of `context` tokens on one accelerator of its attention rank, bytes.

    Heads are split over the rank's accelerators as far as there are key-value heads; a latent cache is held whole by each.
    """
    whole = r.network.kv_bytes(int(context), r.precision.kv_bytes_per_value)
    whole *= fullest_stage(r.network, r.layout) / r.layout.pipeline
    return whole if r.network.latent else whole / min(r.layout.attention_tp, r.network.kv_heads)


def most_sequences(r: Replica, context: float) -> float:
    """How many sequences of `context` tokens the whole replica can hold (not rounded); 0 when the weights do not fit."""
    free = measure_memory(r).cache_bytes
    if free <= 0:
        return 0.0
    return free / cache_bytes_per_sequence(r, context) * r.layout.attention_dp


def cache_tokens(r: Replica, context: float) -> int:
    """Tokens the replica's cache holds when sequences are `context` long (they differ where layers keep a window)."""
    return int(most_sequences(r, context) * context)


def check_fits(r: Replica, context: float) -> None:
    """Raise PlanError, with the least number of accelerators that would do, when not even one sequence of `context` fits."""
    if most_sequences(r, context) >= 1:
        return
    m = measure_memory(r)
    need_gb = weight_bytes(r.network, r.precision) / BYTES_PER_GB
    share = 1.0 if r.engine.shares_what_is_free else r.engine.memory_for_engine_share
    each_gb = (m.installed_bytes * share - m.engine_bytes) / BYTES_PER_GB
    raise PlanError(
        f"{r.network.name} in {r.precision.name} ({need_gb:.0f} GB of weights) with a context of {context:,.0f} tokens does not "
        f"fit on {r.layout.gpus} × {r.accelerator.name} ({each_gb:.0f} GB each for weights and cache); "
        f"it needs at least {int(need_gb // each_gb) + 1} of them (more --pp stages, or --gpus-per-replica), or narrower weights"
    )
