"""Matrices that one accelerator of a replica multiplies in a step, and kernels a step launches."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.layouts import Precision, ReplicaLayout, compute_datatype, fullest_stage

Rows = Literal["rank", "all"]  # multiplied with the tokens of this attention rank, or with all tokens of the replica


@dataclass(frozen=True)
class Matrix:
    """`count` weight matrices of `out` × `into` on each accelerator, with what they are multiplied."""

    count: int
    out: float
    into: float
    bits: float
    datatype: str
    rows: Rows = "rank"


@dataclass(frozen=True)
class ExpertMatrices:
    """Routed experts: `layers` layers of `count`, `per_token` used by each token, spread over `ranks` groups of accelerators.

    An expert on one accelerator is matrices of `out` × `into` in sum `weights`.
    """

    layers: int
    count: int
    per_token: int
    ranks: int
    out: float
    into: float
    weights: float
    bits: float
    datatype: str


# Kernels a layer launches: norm, projections, rotary and cache write, attention and its combination, output.
ATTENTION_KERNELS = 6
LATENT_KERNELS = 12  # queries and keys in two stages, absorbed products, rotary halves
LINEAR_KERNELS = 10
INDEXER_KERNELS = 5
MLP_KERNELS = 4  # norm, gate and up, activation, down
EXPERT_KERNELS = 7  # norm, router, choice, sorting, two grouped products with activation, combination
SHARED_EXPERT_KERNELS = 3


def kernels_per_step(network: Network) -> int:
    """Kernels launched for one pass through all layers.

    >>> from loadfactor.catalog.models import network
    >>> kernels_per_step(network("llama-3.1-8b"))  # 32 layers × (6 + 4)
    320
    """
    ordinary = network.layers - network.linear_layers
    each = (LATENT_KERNELS if network.latent else ATTENTION_KERNELS) + (INDEXER_KERNELS if network.indexer else 0)
    experts = EXPERT_KERNELS
    if network.experts is not None and network.experts.shared_ffn_hidden:
        experts += SHARED_EXPERT_KERNELS
    attention = ordinary * each + network.linear_layers * LINEAR_KERNELS
    return attention + network.dense_layers * MLP_KERNELS + network.moe_layers * experts


def build_dense_matrices(
    network: Network, layout: ReplicaLayout, kept: Precision, chip: Accelerator
) -> tuple[Matrix, ...]:
    """All matrices every token passes, on one accelerator, but the head."""
    attention_type = compute_datatype(kept.attention_bits, kept.name, chip)
    mlp_type = compute_datatype(kept.mlp_bits, kept.name, chip)
    found = [
        Matrix(count, out, into, kept.attention_bits, attention_type)
        for count, out, into in _attention(network, layout.attention_tp)
    ]
    gate = 2 if network.gated_mlp else 1
    mlps = [(network.dense_layers, network.ffn_hidden)]
    if network.experts is not None:
        mlps.append((network.moe_layers, network.experts.shared_ffn_hidden))
        wide = compute_datatype(16, kept.name, chip)
        found.append(Matrix(network.moe_layers, network.experts.count, network.hidden, 16, wide))
    for count, width in mlps:
        if count and width:
            mine = width / layout.dense_split
            rows: Rows = "rank" if layout.is_wide else "all"
            found.append(Matrix(count, gate * mine, network.hidden, kept.mlp_bits, mlp_type, rows))
            found.append(Matrix(count, network.hidden, mine, kept.mlp_bits, mlp_type, rows))
    return tuple(found)


def build_head_matrix(network: Network, layout: ReplicaLayout, kept: Precision, chip: Accelerator) -> Matrix:
    """The logits: vocabulary × hidden, kept wide, split over all accelerators of a stage.

    The last stage of several computes them beside its layers for each of the parts into which a batch is cut, one a stage.
    """
    wide = compute_datatype(16, kept.name, chip)
    return Matrix(layout.pipeline, network.vocabulary / layout.dense_split, network.hidden, 16, wide)


def count_expert_copies(experts: int, ranks: int) -> int:
    """Experts held by all ranks together: the busiest are there twice where ranks do not divide them.

    >>> count_expert_copies(256, 64), count_expert_copies(256, 72)
    (256, 288)
    """
    return -(-experts // ranks) * ranks


def build_expert_matrices(
    network: Network, layout: ReplicaLayout, kept: Precision, chip: Accelerator
) -> ExpertMatrices | None:
    """The routed experts as one accelerator holds them, or None."""
    if network.experts is None:
        return None
    e = network.experts
    split = layout.stage_gpus / layout.expert_parallel  # accelerators that share each expert
    return ExpertMatrices(
        network.moe_layers,
        count_expert_copies(e.count, layout.expert_parallel),
        e.per_token,
        layout.expert_parallel,
        (2 if network.gated_mlp else 1) * e.ffn_hidden / split,
        network.hidden,
        network.mlp_parameters(e.ffn_hidden) / split,
        kept.expert_bits,
        compute_datatype(kept.expert_bits, kept.name, chip),
    )


def _attention(network: Network, tp: int) -> Iterator[tuple[int, float, float]]:
    """(count, out, into) of the projections around attention, heads split over `tp` accelerators."""
    h, heads = network.hidden, network.heads / tp
    if network.latent is not None:
        a, layers = network.latent, network.layers - network.linear_layers
        yield layers, (a.q_rank or 0) + a.kv_rank + a.rope_dim, h  # down-projections: every rank computes them whole
        yield layers, heads * network.query_dim, a.q_rank or h
        yield layers, heads * (a.nope_dim + a.value_dim), a.kv_rank
        yield layers, h, heads * a.value_dim
        if network.indexer is not None:
            yield layers, network.indexer.heads * network.indexer.head_dim, a.q_rank or h
            yield layers, network.indexer.head_dim + network.indexer.heads, h
    else:
        q_and_gate = 2 if network.output_gate else 1
        full = network.full
        kinds = [
            (
                network.full_layers,
                full.head_dim if full else network.head_dim,
                full.kv_heads if full else network.kv_heads,
                1 if full and full.key_is_value else 2,
            ),
            (len(network.sliding_layers), network.head_dim, network.kv_heads, 2),
        ]
        for layers, dim, kv_heads, matrices in kinds:
            if layers:
                yield layers, dim * (q_and_gate * heads + matrices * max(kv_heads / tp, 1)), h
                yield layers, h, dim * heads
    if network.linear is not None:
        a2 = network.linear
        keys, values = a2.key_heads * a2.key_dim / tp, a2.value_heads * a2.value_dim / tp
        yield network.linear_layers, 2 * keys + 2 * values, h
        yield network.linear_layers, h, values


NORM_VALUES = 8  # of hidden size, a layer: two norms, each of which reads its input and the residual and writes both
ACTIVATION_VALUES = 4  # of the inner width: gate and up read, their product written and read by the next product
COPY_VALUES = 4  # of hidden size, a token and expert: gathered for the expert, its answer written, and both read again


def count_pass_values(network: Network, layout: ReplicaLayout) -> float:
    """Values that one accelerator moves for a token of a step, all layers; those of its own attention rank.

    The ranks of a tensor-parallel expert each gather every token that it works on; experts spread over ranks share them.

    >>> from loadfactor.catalog.models import network
    >>> count_pass_values(network("llama-3.1-8b"), ReplicaLayout(1))  # 32 × (8 × 4,096 + 4 × 14,336)
    2883584.0
    """
    values = float(NORM_VALUES * network.hidden * network.layers) / layout.attention_dp
    values += ACTIVATION_VALUES * network.dense_layers * network.ffn_hidden / layout.stage_gpus
    e = network.experts
    if e is None:
        return values
    split = layout.stage_gpus / layout.expert_parallel
    pairs = e.per_token / layout.expert_parallel
    each = COPY_VALUES * network.hidden + ACTIVATION_VALUES * e.ffn_hidden / split
    shared = ACTIVATION_VALUES * e.shared_ffn_hidden / layout.stage_gpus
    return values + network.moe_layers * (pairs * each + shared)


NO_WINDOW = 1e15  # tokens: a window that no context fills
DELTA_RULE_FLOPS = 6  # per state entry and token: decay, read, write


@dataclass(frozen=True)
class AttentionRates:
    """Seconds, bytes and FLOPs of attention on one accelerator of a replica.

    `context_*` per cached token of layers that see all of it; `window_*` per cached token inside `window` of those that do not (or,
    with a sparse indexer, of the tokens it picks); `state_*` per sequence and step of layers with a fixed state; `pair_*` per
    pair attended inside prompts.
    """

    context_s: float
    window_s: float
    window: float
    state_s: float
    state_token_s: float
    pair_s: float
    pair_window_s: float
    context_bytes: float
    window_bytes: float
    state_bytes: float
    pair_flops: float
    pair_window_flops: float


def compute_attention_rates(
    n: Network, layout: ReplicaLayout, kept: Precision, chip: Accelerator, engine: EngineConstants
) -> AttentionRates:
    """The rates of a network split over `layout.attention_tp` accelerators, 1/`attention_dp` of the sequences on each.

    A pipeline stage has all sequences, and its part of the layers.
    """
    tp, dp = layout.attention_tp, layout.attention_dp * layout.pipeline / fullest_stage(n, layout)
    heads = n.heads / tp
    window = float(n.sliding_window or inf)
    context_values = window_values = context_flops = window_flops = 0.0
    if n.latent is not None:  # every rank reads the whole latent: it has no heads to split
        latent = n.latent.kv_rank + n.latent.rope_dim
        absorbed = 2 * heads * (2 * n.latent.kv_rank + n.latent.rope_dim)
        if n.indexer is not None:
            window = float(n.indexer.top)
            context_values = n.full_layers * n.indexer.head_dim
            context_flops = 2 * n.full_layers * n.indexer.heads * n.indexer.head_dim / tp
            window_values, window_flops = n.full_layers * latent, n.full_layers * absorbed
        else:
            context_values, context_flops = n.full_layers * latent, n.full_layers * absorbed
    else:
        full_dim = n.full.head_dim if n.full else n.head_dim
        full_heads = n.full.kv_heads if n.full else n.kv_heads
        kinds = 1 if n.full and n.full.key_is_value else 2
        context_values = n.full_layers * kinds * full_dim * max(full_heads / tp, 1)
        context_flops = n.full_layers * 4 * heads * full_dim
        sliding = len(n.sliding_layers)
        window_values = sliding * 2 * n.head_dim * max(n.kv_heads / tp, 1)
        window_flops = sliding * 4 * heads * n.head_dim
    state_bytes = 2 * n.linear_state_bytes / tp / dp  # read and written
    state_flops = 0.0
    if n.linear is not None:
        entries = n.linear.value_heads * n.linear.key_dim * n.linear.value_dim / tp
        state_flops = DELTA_RULE_FLOPS * n.linear_layers * entries / dp
    pair_dim = n.query_dim + n.value_dim
    full_pair_dim = 2 * n.full.head_dim if n.full else pair_dim
    sparse = n.indexer is not None
    pair_flops = 2 * heads * (0 if sparse else n.full_layers) * full_pair_dim / dp
    pair_window_flops = 2 * heads * (n.full_layers if sparse else len(n.sliding_layers)) * pair_dim / dp
    if n.indexer is not None:
        pair_flops += 2 * n.full_layers * n.indexer.heads * n.indexer.head_dim / tp / dp
    flops_per_s = chip.peak_flops(compute_datatype(16, kept.name, chip)) * engine.attention_share
    bytes_per_s = chip.memory_bandwidth_bytes_per_s * engine.cache_share
    context_bytes = context_values * kept.kv_bytes_per_value / dp
    window_bytes = window_values * kept.kv_bytes_per_value / dp
    return AttentionRates(
        context_bytes / bytes_per_s + context_flops / dp / flops_per_s,
        window_bytes / bytes_per_s + window_flops / dp / flops_per_s,
        min(window, NO_WINDOW),
        state_bytes / bytes_per_s,
        state_flops / flops_per_s,
        pair_flops / flops_per_s,
        pair_window_flops / flops_per_s,
        context_bytes,
        window_bytes,
        state_bytes,
        pair_flops,
        pair_window_flops,
    )
