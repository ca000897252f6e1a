"""The largest kernels and copies of a device: how often, how long, on tensor cores or not, and where on the roofline.

Whether a kernel used tensor cores is judged by its name, so the share is a lower bound: those of Triton, XLA and users are unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from loadfactor.base.units import NS_PER_S, NS_PER_US
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.tables.trace_events import GpuEvents, GpuKind

_WITHOUT_TENSOR_CORES: Final = ("p100", "p40", "p4", "gtx", "k80", "m60")


@dataclass(frozen=True)
class Roof:
    """The roofline of an accelerator: dense FLOP/s in 16 bits, bytes/s of its memory, and FLOPs ÷ bytes where they meet."""

    accelerator: str
    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on the peak in FLOP/s is the nearer limit."""
        return self.flops_per_s / self.bytes_per_s


def find_roof(accelerator: str) -> Roof | None:
    """The roofline of a product of the catalog; None where it is not in there."""
    found = find_accelerator(accelerator) if accelerator else None
    if found is None:
        return None
    flops = found.get("peak_bf16_flops") or found.get("peak_fp16_flops")
    bandwidth = found.get("memory_bandwidth_bytes_per_s")
    return Roof(found.id, flops, bandwidth) if flops and bandwidth else None


def has_tensor_cores(accelerator: str) -> bool:
    """Whether an NVIDIA GPU of this name may have tensor cores: all since 2017 but some small ones."""
    return not any(old in accelerator.lower() for old in _WITHOUT_TENSOR_CORES)


@dataclass(frozen=True)
class PrecisionShares:
    """Shares of summed computing time: on tensor cores by name, matrix products, those without tensor cores, unknown."""

    tensor_core_share: float
    product_share: float
    plain_product_share: float
    unknown_share: float


def measure_precision(gpu: GpuEvents, names: Sequence[str]) -> PrecisionShares | None:
    """Shares of matrix products and tensor cores by the names of kernels; None where nothing was computed."""
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


TensorCores = Literal["yes", "no", "unknown"]

_USES: Final = re.compile(
    r"tensorop|[hsi](884|1688|16816)|hmma|imma|w?gmma|tcgen05|nvjet|xmma_(?!.*f32f32_f32f32_f32_)|flash_(fwd|bwd)|fmha|mfma"
    r"|_MT\d.*_MI|cutlass::device_kernel|bf16gemm|ck_tile|xdl",
    re.IGNORECASE,
)
_USES_NOT: Final = re.compile(r"ffma|simt|sgemm|dgemm|scudnn|gemv|gemmSN|splitKreduce", re.IGNORECASE)
_PRODUCT: Final = re.compile(
    r"gemm|conv|fprop|dgrad|wgrad|winograd|cutlass|xmma|cudnn.*(implicit|nn_v|fft)|_MT\d|matmul", re.IGNORECASE
)
_OPAQUE: Final = re.compile(r"triton|fusion|^%|^jit_|^loop_|inductor|^tvm|^void (?!at::|cudnn::)|^\w+$", re.IGNORECASE)


def tensor_cores_of(name: str) -> TensorCores:
    """Whether a kernel of this name computes on tensor cores.

    >>> [tensor_cores_of(n) for n in ("nvjet_tst_192x192", "ampere_sgemm_32x32_tn", "triton_poi_fused_0", "reduce_kernel<512, 1>")]
    ['yes', 'no', 'unknown', 'no']
    """
    if _USES.search(name) and not _USES_NOT.search(name):
        return "yes"
    return "unknown" if _OPAQUE.search(name) and not _USES_NOT.search(name) else "no"


def is_product(name: str) -> bool:
    """Whether a kernel of this name multiplies matrices or convolves, which tensor cores could do."""
    return bool(_PRODUCT.search(name) or _USES.search(name)) and "transpose" not in name.lower()


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
