"""Memory of a replica: weights first, then the key-value cache in what is left, and how many sequences fit."""

from dataclasses import dataclass

from loadfactor.base.errors import PlanError
from loadfactor.base.units import BITS_PER_BYTE, BYTES_PER_GB
from loadfactor.planner.serving.replica_layout import fullest_stage, weight_bytes
from loadfactor.planner.serving.step import Replica


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
    """What lies on one accelerator.

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
