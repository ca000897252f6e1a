"""Utilization of one step time: MFU, HFU, FLOP/s and tokens/s."""

from dataclasses import dataclass

from loadfactor.catalog.models import Network
from loadfactor.planner.training.flops import MODEL, MODEL_CAUSAL, FlopsConvention, mfu_share, training_flops_per_token
from loadfactor.planner.training.layout import RECOMPUTE, TrainingLayout
from loadfactor.planner.training.machine import Machine


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
    network: Network,
    seq: int,
    global_batch: int,
    layout: TrainingLayout,
    on: Machine,
    step_s: float,
    convention: FlopsConvention = MODEL,
) -> Utilization:
    """Utilization of a step of `global_batch` sequences of `seq` tokens that took `step_s` seconds.

    A 175B GPT on 1,024 A100 at 140 hardware TFLOP/s per GPU (arXiv:2104.04473 §5.1) works at 34 % MFU and 45 % HFU:

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.flops import HARDWARE
    >>> from loadfactor.planner.training.layout import FULL
    >>> from loadfactor.planner.training.machine import build_machine
    >>> gpt, a100 = network("gpt3-175b"), build_machine(accelerator("a100-sxm"), "fp16")
    >>> step_s = 1536 * 2048 * training_flops_per_token(gpt, 2048, HARDWARE) / (1024 * 140e12)
    >>> used = compute_utilization(gpt, 2048, 1536, TrainingLayout(8, 16, 8, recompute=FULL), a100, step_s)
    >>> round(used.mfu_share, 3), round(used.hfu_share, 3)
    (0.337, 0.449)

    The peak is that of the datatype the products are computed in: mixed FP8 is held against the FP8 peak.
    """
    hardware = FlopsConvention(convention.causal, convention.logits, RECOMPUTE[int(layout.recompute)])
    tokens_per_s = global_batch * seq / step_s
    gpus, peak = int(layout.gpus), on.matmul.peak_flops
    mfu = mfu_share(tokens_per_s, training_flops_per_token(network, seq, convention), gpus, peak)
    hfu = mfu_share(tokens_per_s, training_flops_per_token(network, seq, hardware), gpus, peak)
    halved = mfu_share(tokens_per_s, training_flops_per_token(network, seq, MODEL_CAUSAL), gpus, peak)
    return Utilization(tokens_per_s, mfu * peak, hfu * peak, mfu, hfu, halved)
