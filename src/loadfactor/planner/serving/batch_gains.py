"""What a batch gains a named network at a context: the well-known figures batch 1 → 64 and 1 % → 50 % of the chip.

Memory-bound decoding gives R(b) = b(1+κ)/(1+bκ) and uses (BW/peak)·b/(1+bκ) of the chip (planner/serving/roofline.py), so a large
gain from batching and half of the chip need opposite things of the cache: they cannot both hold for one workload once κ is large.
"""

from dataclasses import dataclass

from loadfactor.planner.serving.cache_memory import cache_bytes_per_sequence, measure_memory, most_sequences
from loadfactor.planner.serving.replica_layout import compute_datatype
from loadfactor.planner.serving.roofline import batch_for_compute_share, batch_speedup, compute_share
from loadfactor.planner.serving.step import Replica, step_time

MANY = 64
HALF = 0.5
KAPPA_OF_27 = (MANY - 27) / (27 * MANY - MANY)  # at which a batch of 64 gains 27 times


@dataclass(frozen=True)
class BatchGains:
    """What batching does at one context, in the plain roofline and by the step equation. None: at no batch."""

    context: float
    kappa: float
    speedup_limit: float
    roofline_speedup_at_64: float
    predicted_speedup_at_64: float
    most_sequences: float
    compute_share_at_1: float
    compute_share_at_64: float
    compute_share_limit: float
    batch_for_half: float | None
    largest_kappa_for_half: float

    @property
    def both_hold(self) -> bool:
        """Whether a batch that fits reaches half of the chip."""
        return self.batch_for_half is not None and self.batch_for_half <= self.most_sequences


def compute_batch_gains(r: Replica, context: float) -> BatchGains:
    """The figures for a replica with sequences of `context` tokens."""
    chip = r.accelerator
    weights = measure_memory(r).weight_bytes
    kappa = cache_bytes_per_sequence(r, context) / weights
    bandwidth = chip.memory_bandwidth_bytes_per_s
    peak = chip.peak_flops(compute_datatype(r.precision.expert_bits, r.precision.name, chip))
    # FLOPs of one token over the bytes of the weights: 1 for dense 16-bit weights, less where experts are stored and not used
    intensity = 2 * r.network.matmul_parameters / r.layout.gpus / weights
    one = float(step_time(r, 1.0, context).total_s)
    many = float(step_time(r, float(MANY), MANY * context).total_s)
    return BatchGains(
        context,
        kappa,
        (1 + kappa) / kappa,
        batch_speedup(MANY, kappa),
        MANY * one / many,
        most_sequences(r, context),
        compute_share(1, kappa, bandwidth, peak, intensity),
        compute_share(MANY, kappa, bandwidth, peak, intensity),
        intensity * bandwidth / peak / kappa,
        batch_for_compute_share(HALF, kappa, bandwidth, peak, intensity),
        intensity * bandwidth / peak / HALF,
    )
