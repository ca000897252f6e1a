"""The machine that the training equations run on: datasheet peaks of an accelerator and the shares of them that software gets."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import TrainingConstants, read_training_constants
from loadfactor.planner.hardware.kernels import Fabric, KernelSpeed
from loadfactor.planner.training.software import Scales, Software

NARROW = ("fp8", "fp4", "int8")
DATATYPES: Mapping[str, tuple[str, Scales]] = {
    "fp8-rowwise": ("fp8", "row"),
    "fp8-blockwise": ("fp8", "block"),
    "mxfp8": ("fp8", "block"),
    "fp4": ("fp4", "block"),
    "nvfp4": ("fp4", "block"),
}
"""Datatypes as frameworks name them: whose peak they compute at, and what shares a scale; others share one a tensor."""
PLAIN_HOST_BYTES_PER_S = 25e9  # PCIe 4.0 x16, where the catalog knows no link to the host
PLAIN_NETWORK_BYTES_PER_S = 12.5e9  # 100 Gb/s a GPU, where the catalog knows no network of an accelerator
H100_W_PER_FLOPS = 700 / 989.4e12  # what matmul_share_capped was measured at
HOT_TPUS = ("Trillium", "Ironwood")  # four times the peak of the one before it, at about its power
NEW_KERNELS = ("Hopper", "Blackwell", "CDNA3", "CDNA4")  # attention must be written for them to be fast


@dataclass(frozen=True)
class Machine:
    """An accelerator in its cluster, as the equations see it.

    `matmul` is the speed in the datatype of the layers' products, `wide` in the 16-bit one of attention and the logits.
    """

    name: str
    datatype: str  # of the layers' products
    matmul: KernelSpeed
    wide: KernelSpeed
    fabric: Fabric
    shard_bytes_per_s: float  # what one gather of sharded weights across domains reaches without every adapter
    memory_bytes: float
    attention_flops: tuple[
        float, float
    ]  # FLOP/s of attention over unmasked scores of long sequences, forward and backward
    host_bytes_per_s: float  # between a GPU and its host

    @property
    def narrow(self) -> bool:
        """True when layers compute in fewer than 16 bits, so that their inputs are cast first."""
        return self.matmul.peak_flops > self.wide.peak_flops


def scale_out_bytes_per_s(accelerator: Accelerator) -> float:
    """Bytes/s per GPU between domains: the catalog's, or where it knows none what a plain cluster has.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> scale_out_bytes_per_s(accelerator("h100-sxm")), scale_out_bytes_per_s(accelerator("l40s"))
    (50000000000.0, 12500000000.0)
    """
    return accelerator.get("scale_out_bytes_per_s") or min(PLAIN_NETWORK_BYTES_PER_S, accelerator.scale_up_bytes_per_s)


def choose_datatype(accelerator: Accelerator, datatype: str = "bf16") -> str:
    """The datatype to compute in: that one, or 16-bit floats of the other kind where the accelerator has only those.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> choose_datatype(accelerator("v100-sxm"))
    'fp16'
    """
    other = {"bf16": "fp16", "fp16": "bf16"}.get(datatype)
    if accelerator.get(f"peak_{datatype}_flops") is None and other and accelerator.get(f"peak_{other}_flops"):
        return other
    return datatype


def build_machine(
    accelerator: Accelerator,
    datatype: str = "bf16",
    network_bytes_per_s: float | None = None,
    constants: TrainingConstants | None = None,
    software: Software = Software(),
) -> Machine:
    """The machine of an accelerator computing in `datatype`; `network_bytes_per_s` per GPU overrides the reference design.

    Raises CatalogError when the catalog lacks the peak of that datatype or a link.
    """
    c = constants or read_training_constants()
    share = _matmul_share(accelerator, datatype, software, c)
    memory = accelerator.memory_bandwidth_bytes_per_s

    def speed(peak: float, of_it: float) -> KernelSpeed:
        return KernelSpeed(peak, memory, of_it, c.matmul_half_per_ridge * peak / memory, c.memory_share, c.launch_s)

    out = network_bytes_per_s or scale_out_bytes_per_s(accelerator)
    fabric = Fabric(
        accelerator.scale_up_gpus,
        accelerator.scale_up_bytes_per_s,
        out,
        c.scale_up_share,
        c.scale_out_share,
        c.scale_up_latency_s,
        c.scale_out_latency_s,
    )
    wide = choose_datatype(accelerator, "bf16" if datatype in NARROW else datatype)
    rows = {"tensor": 1.0, "row": c.row_scaling_share, "block": 1.0}[software.scaling]
    return Machine(
        accelerator.id,
        datatype,
        speed(accelerator.peak_flops(datatype), share * (c.narrow_share * rows if datatype in NARROW else 1)),
        speed(accelerator.peak_flops(wide), _matmul_share(accelerator, wide, software, c)),
        fabric,
        out * c.shard_adapters,
        accelerator.driver_memory_bytes,
        _attention_flops(accelerator, accelerator.peak_flops(wide), software, c),
        accelerator.get("pcie_bytes_per_s") or PLAIN_HOST_BYTES_PER_S,
    )


def _matmul_share(accelerator: Accelerator, datatype: str, software: Software, c: TrainingConstants) -> float:
    """Share of the peak that the largest product reaches: what the shape of the units allows, or the power.

    At its power limit an accelerator lowers its clock; since voltage falls with it, speed falls by about the root of the power.
    Products in 32 bits leave the tensor cores idle, and stay below it.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.planner.training.software import find_software
    >>> c = read_training_constants()
    >>> names = ("a100-sxm", "h100-sxm", "b200-sxm", "rtx-4090")
    >>> a100, h100, b200, geforce = (_matmul_share(accelerator(n), "bf16", find_software("nemo"), c) for n in names)
    >>> a100 == geforce == c.matmul_share > h100 > b200      # 1.3, 2.7, 0.7 and 0.4 W for each TFLOP/s of the peak
    True
    """
    if accelerator.vendor == "Google" and accelerator.architecture not in HOT_TPUS:
        return c.matmul_share_systolic
    if datatype == "fp32":
        return c.matmul_share * (accelerator.get("power_limit_share") or 1)
    peak, power = accelerator.peak_flops(choose_datatype(accelerator)), accelerator.get("tdp_w")
    limit = accelerator.get("power_limit_share")  # parts sold below the power of their full version
    ratio = 1.0 if limit or not power else (power / peak / H100_W_PER_FLOPS) ** 0.5
    share = min(c.matmul_share, c.matmul_share_capped * ratio)
    age = 1.0 if software.tuned or accelerator.architecture not in NEW_KERNELS else c.usual_kernel_share
    return share * age * (limit or 1)


def _attention_flops(
    accelerator: Accelerator, peak_flops: float, software: Software, c: TrainingConstants
) -> tuple[float, float]:
    """FLOP/s of fused attention, forward and backward, by the generation of its kernel and of the accelerator."""
    new = accelerator.architecture in NEW_KERNELS
    if accelerator.vendor == "Google":
        shares = (c.flash_systolic_share, c.flash_systolic_share)
    elif software.attention == "native" and new:
        shares = (c.flash3_share, c.flash3_backward_share)
    else:
        ported = c.flash2_ported_share if new else 1.0
        first = software.attention == "first"
        forward, backward = (
            (c.flash_share, c.flash_backward_share) if first else (c.flash2_share, c.flash2_backward_share)
        )
        shares = (forward * ported, backward * ported)
    limit = accelerator.get("power_limit_share") or 1
    return shares[0] * peak_flops * limit, shares[1] * peak_flops * limit
