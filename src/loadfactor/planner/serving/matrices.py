"""Matrices that one accelerator of a replica multiplies in a step, and kernels a step launches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.replica_layout import Precision, ReplicaLayout, compute_datatype

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
