"""Seconds of one GPU kernel: matrix products and memory-bound passes, from their shape and the accelerator.

Every argument may be a number or an array of them (one element a layout or a batch size): the same equation draws the
breakdown of one plan and scores a hundred thousand. Nothing here knows training from serving.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Real = float | npt.NDArray[Any]  # a number or an array of them


@dataclass(frozen=True)
class KernelSpeed:
    """What an accelerator reaches in a kernel: its datasheet peaks and the shares of them real kernels get.

    `matmul_share` of `peak_flops` is what the largest matrix product reaches; a product loses half of its speed along a
    dimension of `matmul_half_dim`. `memory_share` of `memory_bytes_per_s` is what a streaming kernel reaches.
    `launch_s` is what the host needs to start one kernel.
    """

    peak_flops: float
    memory_bytes_per_s: float
    matmul_share: float
    matmul_half_dim: float
    memory_share: float
    launch_s: float


def matmul_efficiency(m: Real, n: Real, k: Real, speed: KernelSpeed) -> Real:
    """Share of peak FLOP/s that an [m,k]×[k,n] product reaches while it is bound by arithmetic.

    matmul_share / ((1 + d/m)(1 + d/n)(1 + d/k)): tiles at the edges and the first loads of every tile cost as much as `d`
    more rows, columns and inner steps would; symmetric, so the two products of the backward pass cost the same.

    >>> a100 = KernelSpeed(312e12, 2.039e12, 0.8, 64, 0.85, 5e-6)
    >>> round(float(matmul_efficiency(64, 1e9, 1e9, a100)), 3)     # one dimension at the half point
    0.4
    """
    d = speed.matmul_half_dim
    return speed.matmul_share / ((1 + d / m) * (1 + d / n) * (1 + d / k))


def matmul_s(
    m: Real, n: Real, k: Real, speed: KernelSpeed, batch: Real = 1, weight_bytes: float = 2, value_bytes: float = 2
) -> Real:
    """Seconds of `batch` products [m,k]×[k,n]: arithmetic or memory traffic, whichever takes longer.

    2·m·n·k FLOPs against m·k and m·n values and k·n weights moved once. Decoding one token (m = 1) is bound by the weights.

    >>> a100 = KernelSpeed(312e12, 2e12, 0.8, 0, 1.0, 5e-6)
    >>> float(matmul_s(8192, 8192, 8192, a100)) == 2 * 8192**3 / (0.8 * 312e12)
    True
    >>> round(float(matmul_s(1, 4096, 4096, a100)) * 1e6, 2)       # 33.6 MB of weights and 16 kB of values at 2 TB/s
    16.79
    """
    arithmetic_s = 2.0 * m * n * k / (speed.peak_flops * matmul_efficiency(m, n, k, speed))
    moved_bytes = (m * k + m * n) * value_bytes + k * n * weight_bytes
    result: Real = batch * np.maximum(arithmetic_s, moved_bytes / (speed.memory_bytes_per_s * speed.memory_share))
    return result


def streaming_s(moved_bytes: Real, speed: KernelSpeed) -> Real:
    """Seconds of a memory-bound pass (norm, softmax, dropout, optimizer) that reads and writes this many bytes in all.

    >>> streaming_s(1.7e12, KernelSpeed(312e12, 2e12, 0.8, 64, 0.85, 5e-6))
    1.0
    """
    return moved_bytes / (speed.memory_bytes_per_s * speed.memory_share)
