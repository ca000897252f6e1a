"""What share of the machine's arithmetic did a step use? MFU, HFU, TFLOP/s and tokens/s of one layout's step time."""

from dataclasses import dataclass

from loadfactor.catalog.models import Network
from loadfactor.planner.training.flops import MODEL, FlopsConvention, mfu_share, training_flops_per_token
from loadfactor.planner.training.layout import RECOMPUTE, Layout
from loadfactor.planner.training.machine import Machine


@dataclass(frozen=True)
class Utilization:
    """One step time in the ways the field quotes it; `model_` counts the network's FLOPs, `hardware_` recomputed ones too."""

    tokens_per_s: float
    model_flops_per_gpu_per_s: float
    hardware_flops_per_gpu_per_s: float
    mfu_share: float
    hfu_share: float


def utilization(
    network: Network,
    seq: int,
    global_batch: int,
    layout: Layout,
    on: Machine,
    step_s: float,
    convention: FlopsConvention = MODEL,
) -> Utilization:
    """Utilization of a step of `global_batch` sequences of `seq` tokens that took `step_s` seconds.

    The peak is that of the datatype the products are computed in: mixed FP8 is held against the FP8 peak.
    """
    hardware = FlopsConvention(convention.causal, convention.logits, RECOMPUTE[int(layout.recompute)])
    tokens_per_s = global_batch * seq / step_s
    gpus, peak = int(layout.gpus), on.matmul.peak_flops
    mfu = mfu_share(tokens_per_s, training_flops_per_token(network, seq, convention), gpus, peak)
    hfu = mfu_share(tokens_per_s, training_flops_per_token(network, seq, hardware), gpus, peak)
    return Utilization(tokens_per_s, mfu * peak, hfu * peak, mfu, hfu)
