"""Time in which the GPU computes: on tensor cores or without them, and when there is little else left to win."""

from typing import Final

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.judge import has_one_gap
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.insight.traces.roofline import has_tensor_cores
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, say_share, say_us

PLAIN: Final = 0.3
FULL: Final = 0.8
_LOW_GAIN, _HIGH_GAIN = 1.5, 3.0
"""How many times as fast products become in 16 bits, usually."""


def find_plain_products(device: ObservedDevice) -> TraceFinding | None:
    """Matrix products of at least 30 % of computing, none of them on tensor cores by its name."""
    precision = device.precision
    if precision is None or not has_tensor_cores(device.device.accelerator) or has_one_gap(device):
        return None
    plain = precision.plain_product_share
    if plain < PLAIN or precision.tensor_core_share > plain / 2:
        return None
    computing = device.share(device.partition.compute.length_ns)
    if computing < LEAST_SHARE:
        return None
    sureness: Sureness = "high" if precision.tensor_core_share == 0 and precision.unknown_share < PLAIN else "medium"
    bounds = [plain * computing * (1 - 1 / gain) for gain in (_LOW_GAIN, _HIGH_GAIN)]
    return TraceFinding(
        cause="precision_fp32",
        class_="precision and kernels",
        share=computing,
        sureness=sureness,
        evidence=(
            f"Computing takes {say_us(device.partition.compute.length_ns / NS_PER_US)}, {say_share(computing)} of the span;"
            f" {say_share(plain)} of it are matrix products whose kernels by their names use no tensor cores"
            f" ({say_share(precision.tensor_core_share)} do).",
        ),
        action=(
            "Mixed precision: bf16 autocast, on V100, T4 and RTX 20 float16 with GradScaler;"
            ' torch.set_float32_matmul_precision("high") for TF32 on A100 and later; channels_last for convolutions.'
            " Check convergence."
        ),
        saved_share_low=bounds[0],
        saved_share_high=bounds[1],
        misleads="Work that needs 32 or 64 bits; kernels whose names say nothing.",
    )


def find_full(device: ObservedDevice) -> TraceFinding | None:
    """Little else than computing, and that not plainly in 32 bits."""
    computing = device.share(device.partition.compute.length_ns)
    if computing < FULL or find_plain_products(device) is not None:
        return None
    precision = device.precision
    cores = f"; {say_share(precision.tensor_core_share)} of it on tensor cores at least" if precision else ""
    return TraceFinding(
        cause="compute",
        class_="precision and kernels",
        share=computing,
        sureness="medium",
        evidence=(f"Computing takes {say_share(computing)} of the span{cores}.",),
        action=(
            "Only smaller levers are left around the kernels. In them: FlashAttention, fused operators, fp8 on H100"
            " and later, a better"
            " layout; compare the achieved FLOP/s with the peak."
        ),
        saved_share_low=0.0,
        saved_share_high=0.0,
        misleads="A GPU can compute all the time and far below its peak.",
    )
