"""Utilization of one step time: MFU, HFU, FLOP/s and tokens/s."""

from dataclasses import dataclass

from loadfactor.planner.training.flops import MODEL, MODEL_CAUSAL, FlopsConvention, mfu_share, training_flops_per_token
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import RECOMPUTE, TrainingLayout


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
    >>> from loadfactor.planner.training.machine import MEGATRON_2021, build_machine
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 1536, a100, MEGATRON_2021)
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
