"""FLOPs that training needs and the share of peak they are (MFU, HFU), by each convention of the field.

*Model* FLOPs are what the network needs: forward 2 and backward 4 per weight and token. *Hardware* FLOPs also count what was
computed again (activation recomputation). Both count dense matrix products only; the input embedding is a look-up and counts
nothing. Attention is counted in full unless `causal`: half of its scores are masked, and flash kernels skip them.
"""

from dataclasses import dataclass

from loadfactor.base.units import S_PER_HOUR
from loadfactor.catalog.models import Network
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import RECOMPUTE, TrainingLayout


@dataclass(frozen=True)
class FlopsConvention:
    """Which FLOPs are counted: attention halved by the causal mask, the logits, recomputed work."""

    causal: bool = False
    logits: bool = True
    recomputed: str = "none"  # none, selective, full: what a hardware count adds
    recomputed_share: float = 1.0  # of the layers


MODEL = FlopsConvention()
MODEL_CAUSAL = FlopsConvention(causal=True)
HARDWARE = FlopsConvention(recomputed="full")


def forward_flops_per_token(network: Network, seq: int, convention: FlopsConvention = MODEL) -> float:
    """FLOPs of one token's forward pass: 2 per matrix weight it meets, and 2·keys·heads·(d_qk + d_v) per layer of attention.

    Grouped-query attention lessens the projections, not the scores; of experts only those a token is sent to count.

    >>> from loadfactor.catalog.models import network
    >>> gpt = network("megatron-1t")                                   # 24·l·h²(1 + s/6h) + 2·V·h, arXiv:2104.04473
    >>> paper = 24 * 128 * 25600**2 * (1 + 2048 / (6 * 25600)) + 2 * 51200 * 25600
    >>> round(forward_flops_per_token(gpt, 2048) / paper, 4)
    1.0
    """
    weights = network.matmul_parameters - network.parts["norm"]
    weights -= 0 if convention.logits else network.vocabulary * network.hidden
    return 2.0 * weights + attention_flops_per_token(network, seq, convention)


def attention_flops_per_token(network: Network, seq: int, convention: FlopsConvention = MODEL) -> float:
    """FLOPs of one token's scores and weighted values, forward, over all layers; a sliding layer sees at most its window."""
    window = min(network.sliding_window or seq, seq)
    keys = network.full_layers * seq * (0.5 if convention.causal else 1)
    keys += len(network.sliding_layers) * (window * (1 - window / (2 * seq)) if convention.causal else window)
    return 2.0 * keys * network.heads * (network.query_dim + network.value_dim)


def training_flops_per_token(
    network: Network, seq: int, convention: FlopsConvention = MODEL, is_frozen: bool = False
) -> float:
    """FLOPs of one token's training: forward once, backward twice that, and what the convention says was computed again.

    `is_frozen`: only adapters are trained, so that backward is as much as forward: nothing is computed for frozen weights.

    >>> from loadfactor.catalog.models import network
    >>> gpt = network("megatron-1t")
    >>> round(training_flops_per_token(gpt, 2048, HARDWARE) / training_flops_per_token(gpt, 2048), 3)
    1.333
    """
    forward = forward_flops_per_token(network, seq, convention)
    logits = 2.0 * network.vocabulary * network.hidden if convention.logits else 0.0
    again = {"none": 0.0, "selective": attention_flops_per_token(network, seq, convention), "full": forward - logits}
    return (2 if is_frozen else 3) * forward + again[convention.recomputed] * convention.recomputed_share


def mfu_share(tokens_per_s: float, flops_per_token: float, gpus: float, peak_flops: float) -> float:
    """Share of the peak the network's own FLOPs used: model FLOPs give MFU, hardware FLOPs give HFU.

    >>> round(mfu_share(238_300, 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048, 6144, 275e12), 4)    # PaLM, arXiv:2204.02311
    0.4623
    """
    return tokens_per_s * flops_per_token / (gpus * peak_flops)


def paid_mfu_share(training_flops: float, paid_gpu_hours: float, peak_flops: float) -> float:
    """Share of the peak over every hour that was paid for: restarts, small batches, evaluation and idle hours included.

    >>> round(paid_mfu_share(2.56e24, 8_404_992, 275e12), 3)                                     # PaLM, 46 % in steady state
    0.308
    """
    return training_flops / (paid_gpu_hours * S_PER_HOUR * peak_flops)


def palm_flops_per_token(parameters: float, layers: int, heads_times_dim: int, seq: int) -> float:
    """Model FLOPs per token by arXiv:2204.02311 App. B: 6N + 12·L·H·Q·T."""
    return 6 * parameters + 12.0 * layers * heads_times_dim * seq


@dataclass(frozen=True)
class Utilization:
    """One step time in the ways the field quotes it.

    `model_` and MFU count the network's FLOPs, `hardware_` and HFU recomputed ones too; `causal_` counts half of the scores, as
    Megatron-LM does since 2025.
    """

    tokens_per_s: float
    model_flops_per_gpu_per_s: float
    hardware_flops_per_gpu_per_s: float
    mfu_share: float
    hfu_share: float
    causal_mfu_share: float


def compute_utilization(
    job: TrainingJob, layout: TrainingLayout, step_s: float, convention: FlopsConvention = MODEL
) -> Utilization:
    """Utilization of a job whose steps take `step_s` seconds.

    A 175B GPT on 1,024 A100 at 140 hardware TFLOP/s per GPU (arXiv:2104.04473 §5.1) works at 34 % MFU and 45 % HFU:

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.flops import HARDWARE
    >>> from loadfactor.planner.training.layout import FULL
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 1536, a100, find_software("megatron", "2021-04"))
    >>> step_s = 1536 * 2048 * training_flops_per_token(job.network, 2048, HARDWARE) / (1024 * 140e12)
    >>> used = compute_utilization(job, TrainingLayout(8, 16, 8, recompute=FULL), step_s)
    >>> round(used.mfu_share, 3), round(used.hfu_share, 3)
    (0.337, 0.449)

    The peak is that of the datatype the products are computed in: mixed FP8 is held against the FP8 peak.
    """
    hardware = FlopsConvention(
        convention.causal, convention.logits, RECOMPUTE[int(layout.recompute)], layout.recompute_share
    )
    tokens_per_s = job.global_batch * job.seq / step_s
    gpus, peak, frozen = int(layout.gpus), job.machine.matmul.peak_flops, job.adapters is not None
    mfu, hfu, halved = (
        mfu_share(tokens_per_s, training_flops_per_token(job.network, job.seq, counted, frozen), gpus, peak)
        for counted in (convention, hardware, MODEL_CAUSAL)
    )
    return Utilization(tokens_per_s, mfu * peak, hfu * peak, mfu, hfu, halved)
