"""The machine that the training equations run on: datasheet peaks of an accelerator and the shares of them that software gets."""

from dataclasses import dataclass, replace

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import TrainingConstants, read_training_constants
from loadfactor.planner.hardware.collectives import Fabric
from loadfactor.planner.hardware.kernels import KernelSpeed

PLAIN_NETWORK_BYTES_PER_S = 12.5e9  # 100 Gb/s a GPU, where the catalog knows no network of an accelerator
CAPPED = ("Hopper", "Blackwell", "Ada Lovelace", "Ada", "CDNA3")  # power limit below what full tensor cores draw


@dataclass(frozen=True)
class Software:
    """What the training framework does: which attention kernel, what it hides behind compute, how wide its gradients are."""

    flash_attention: bool = True
    overlaps: bool = True  # tensor, data and pipeline communication behind compute
    stops_early: bool = True  # recomputation ends at the last saved tensor: the down-projection is not run again
    hides_experts: bool = False  # the exchange with experts runs behind another micro-batch's compute (DualPipe)
    scatter_gather_pipeline: bool = True  # each tensor rank sends 1/t of an activation to the next stage
    fused_accumulation: bool = True  # weight gradients are summed inside the product that makes them
    gradient_bytes: int = 4  # as they are exchanged
    kept_gradient_bytes: int = 4  # as the sum over micro-batches is kept
    dropout: bool = False
    gathers_by_all_adapters: bool = False  # sharded weights come in over every adapter of a node at once


MEGATRON_2021 = Software(
    flash_attention=False,
    overlaps=False,
    stops_early=False,
    fused_accumulation=False,
    gradient_bytes=2,
    dropout=True,
)
MEGATRON_2022 = replace(MEGATRON_2021, fused_accumulation=True)
MODERN = Software()
NEMO = replace(  # grad_reduce_in_fp32 = False of its performance recipes
    MODERN, gradient_bytes=2, kept_gradient_bytes=2, gathers_by_all_adapters=True
)
DUALPIPE = replace(MODERN, hides_experts=True)  # arXiv:2412.19437 section 3.2.1
SOFTWARE = {"modern": MODERN, "dualpipe": DUALPIPE, "nemo": NEMO, "megatron-2021": MEGATRON_2021}


@dataclass(frozen=True)
class Machine:
    """An accelerator in its cluster, as the equations see it.

    `matmul` is the speed in the datatype of the layers' products, `wide` in the 16-bit one of attention and the logits.
    """

    name: str
    matmul: KernelSpeed
    wide: KernelSpeed
    fabric: Fabric
    shard_bytes_per_s: float  # what gathering sharded weights across domains reaches at most
    memory_bytes: float

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


def choose_datatype(accelerator: Accelerator, wanted: str = "bf16") -> str:
    """The datatype to compute in: the one wanted, or 16-bit floats of the other kind where the accelerator has only those.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> choose_datatype(accelerator("v100-sxm"))
    'fp16'
    """
    other = {"bf16": "fp16", "fp16": "bf16"}.get(wanted)
    if accelerator.get(f"peak_{wanted}_flops") is None and other and accelerator.get(f"peak_{other}_flops"):
        return other
    return wanted


def build_machine(
    accelerator: Accelerator,
    datatype: str = "bf16",
    network_bytes_per_s: float | None = None,
    constants: TrainingConstants | None = None,
) -> Machine:
    """The machine of an accelerator computing in `datatype`; `network_bytes_per_s` per GPU overrides the reference design.

    Raises CatalogError when the catalog lacks the peak of that datatype or a link.
    """
    c = constants or read_training_constants()
    share = c.matmul_share_hopper if accelerator.architecture in CAPPED else c.matmul_share
    share *= accelerator.get("power_limit_share") or 1  # parts sold below the power of their full version
    memory = accelerator.memory_bandwidth_bytes_per_s

    def speed(peak: float) -> KernelSpeed:
        return KernelSpeed(peak, memory, share, c.matmul_half_per_ridge * peak / memory, c.memory_share, c.launch_s)

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
    wide = choose_datatype(accelerator, "bf16" if datatype in ("fp8", "fp4", "int8") else datatype)
    return Machine(
        accelerator.id,
        speed(accelerator.peak_flops(datatype)),
        speed(accelerator.peak_flops(wide)),
        fabric,
        out * c.shard_adapters,
        accelerator.driver_memory_bytes,
    )
