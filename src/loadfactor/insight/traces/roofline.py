"""The roofline of the accelerator of a trace, from the catalog."""

from dataclasses import dataclass
from typing import Final

from loadfactor.catalog.accelerators import find_accelerator

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
