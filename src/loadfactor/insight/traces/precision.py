"""How much of a device's computing is matrix products, and how much of it runs on tensor cores, as far as names say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadfactor.insight.traces.kernel_names import is_product, tensor_cores_of
from loadfactor.tables.trace_events import GpuEvents, GpuKind


@dataclass(frozen=True)
class PrecisionShares:
    """Shares of summed computing time: on tensor cores by name, matrix products, those without tensor cores, unknown."""

    tensor_core_share: float
    product_share: float
    plain_product_share: float
    unknown_share: float


def measure_precision(gpu: GpuEvents, names: Sequence[str]) -> PrecisionShares | None:
    """What the names of computing kernels say; None where nothing was computed."""
    rows = gpu.kind == GpuKind.COMPUTE
    length = (gpu.end_ns - gpu.start_ns)[rows].astype(np.float64)
    if not length.sum():
        return None
    numbers, place = np.unique(gpu.name[rows], return_inverse=True)
    each = np.bincount(place, weights=length, minlength=len(numbers)) / length.sum()
    uses = [tensor_cores_of(names[number]) for number in numbers]
    products = [is_product(names[number]) for number in numbers]
    return PrecisionShares(
        tensor_core_share=float(sum(share for share, use in zip(each, uses, strict=True) if use == "yes")),
        product_share=float(sum(share for share, is_one in zip(each, products, strict=True) if is_one)),
        plain_product_share=float(
            sum(share for share, use, is_one in zip(each, uses, products, strict=True) if is_one and use == "no")
        ),
        unknown_share=float(sum(share for share, use in zip(each, uses, strict=True) if use == "unknown")),
    )
