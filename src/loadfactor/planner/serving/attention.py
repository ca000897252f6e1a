"""Rates of attention on one accelerator: what a cached token and a pair of prompt tokens cost, all of them linear."""

from dataclasses import dataclass
from math import inf

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.replica_layout import Precision, ReplicaLayout, compute_datatype, fullest_stage

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
