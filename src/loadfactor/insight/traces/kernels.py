"""The largest kernels and copies of a device: how often, how long, on tensor cores or not, and where on the roofline.

Whether a kernel used tensor cores is told by its name, so the share is a lower bound: kernels of Triton, XLA and users are unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_S, NS_PER_US
from loadfactor.insight.traces.kernel_names import TensorCores, tensor_cores_of
from loadfactor.insight.traces.roofline import Roof
from loadfactor.tables.trace_events import GpuEvents, GpuKind

MOST: Final = 10


@dataclass(frozen=True)
class KernelTime:
    """All events of one name on a device. `share` is of the summed time of its GPU events, which overlaps may make longer than
    its span.

    `peak_share` is achieved FLOP/s ÷ the accelerator's peak in 16 bits, where both are known; `bound` is on which side of the
    ridge it lies, where bytes are known, too.
    """

    name: str
    kind: str
    count: int
    total_us: float
    share: float
    median_us: float
    tensor_cores: TensorCores | None
    flops: float | None
    peak_share: float | None
    intensity: float | None
    bound: str | None


def list_kernels(gpu: GpuEvents, names: Sequence[str], roof: Roof | None) -> tuple[KernelTime, ...]:
    """The ten names of a device that took the longest."""
    length = gpu.end_ns - gpu.start_ns
    key = gpu.name.astype(np.int64) * len(GpuKind) + gpu.kind
    kinds, place = np.unique(key, return_inverse=True)
    total = np.bincount(place, weights=length.astype(np.float64), minlength=len(kinds))
    found = []
    for largest in np.argsort(-total, kind="stable")[:MOST].tolist():
        rows = np.nonzero(place == largest)[0]
        kind = GpuKind(int(kinds[largest]) % len(GpuKind))
        number = int(kinds[largest]) // len(GpuKind)
        name = names[number] if number >= 0 else ""
        flops, intensity, share, bound = _place_on_roofline(gpu.take(rows), roof)
        found.append(
            KernelTime(
                name=name,
                kind=kind.name.lower(),
                count=len(rows),
                total_us=float(total[largest]) / NS_PER_US,
                share=float(total[largest] / max(total.sum(), 1)),
                median_us=float(np.median(length[rows])) / NS_PER_US,
                tensor_cores=tensor_cores_of(name) if kind == GpuKind.COMPUTE else None,
                flops=flops,
                peak_share=share,
                intensity=intensity,
                bound=bound,
            )
        )
    return tuple(found)


def _place_on_roofline(
    gpu: GpuEvents, roof: Roof | None
) -> tuple[float | None, float | None, float | None, str | None]:
    """FLOPs of these events, FLOPs ÷ bytes, achieved ÷ peak, and which limit is the nearer; None what is not known."""
    known = ~np.isnan(gpu.flops) & (gpu.flops > 0)
    if not known.any():
        return None, None, None, None
    flops = float(gpu.flops[known].sum(dtype=np.float64))
    time_s = float((gpu.end_ns - gpu.start_ns)[known].sum()) / NS_PER_S
    moved = float(gpu.moved[known].sum(dtype=np.float64))
    intensity = flops / moved if moved > 0 else None  # NaN, where bytes are unknown, is not above 0
    if roof is None or time_s <= 0:
        return flops, intensity, None, None
    bound = None if intensity is None else "memory" if intensity < roof.ridge else "compute"
    return flops, intensity, flops / time_s / roof.flops_per_s, bound
