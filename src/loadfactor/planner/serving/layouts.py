"""Layouts worth looking at: every width the network can be split to inside a scale-up domain, experts spread or split.

What is given may go beyond: pipeline stages, and groups of attention ranks over several domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from loadfactor.base.errors import PlanError
from loadfactor.base.units import BITS_PER_BYTE
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.models import Network

# Bits per stored weight, scales included, and the datatype its products are computed in where the accelerator has it.
WEIGHT_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.5, "int4": 4.25}
NARROW = ("fp8", "int8", "fp4", "int4")
BOARD_GPUS = 8  # accelerators up to which attention ranks share dense matrices and gather each other's tokens


@dataclass(frozen=True)
class ReplicaLayout:
    """One replica: `gpus` accelerators in `pipeline` stages, each with its share of the layers.

    Of a stage every `attention_dp`-th part holds its own copy of the attention weights. Experts are spread over
    `expert_parallel` ranks of a stage, each splitting its experts over the rest; a network without experts is split over all.
    """

    gpus: int = 1
    attention_dp: int = 1
    expert_parallel: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.pipeline < 1 or self.gpus % self.pipeline:
            raise PlanError(
                f"pipeline must divide the {self.gpus} GPUs of a replica, got {self.pipeline}; 1 always works"
            )
        for name in ("attention_dp", "expert_parallel"):
            share = getattr(self, name)
            if share < 1 or self.stage_gpus % share:
                where = "replica" if self.pipeline == 1 else "stage"
                raise PlanError(
                    f"{name} must divide the {self.stage_gpus} GPUs of a {where}, got {share}; 1 always works"
                )

    @property
    def stage_gpus(self) -> int:
        return self.gpus // self.pipeline

    @property
    def attention_tp(self) -> int:
        """Over how many accelerators one copy of the attention is split."""
        return self.stage_gpus // self.attention_dp

    @property
    def is_wide(self) -> bool:
        """True for groups of attention ranks beyond a board: they exchange tokens with experts alone, and share nothing else."""
        return self.attention_dp > 1 and self.stage_gpus > BOARD_GPUS

    @property
    def dense_split(self) -> int:
        """Over how many accelerators dense MLPs, shared experts and the logits are split."""
        return self.attention_tp if self.is_wide else self.stage_gpus

    def __str__(self) -> str:
        parts = [f"{self.gpus} GPU" + ("s" if self.gpus > 1 else "")]
        if self.attention_tp > 1:
            parts.append(f"TP {self.attention_tp}")
        if self.attention_dp > 1:
            parts.append(f"attention DP {self.attention_dp}")
        if self.expert_parallel > 1:
            parts.append(f"EP {self.expert_parallel}")
        if self.pipeline > 1:
            parts.append(f"PP {self.pipeline}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Precision:
    """How narrow each part is kept: bits per weight, and bytes per cached number."""

    name: str
    attention_bits: float
    mlp_bits: float
    expert_bits: float
    kv_bytes_per_value: float

    def bits(self, part: str) -> float:
        """Bits per weight of one of `Network.parts`; embeddings, head, norms and routers stay at 16."""
        own = {"attention": self.attention_bits, "mlp": self.mlp_bits, "shared_experts": self.mlp_bits}
        return {**own, "experts": self.expert_bits}.get(part, 16.0)


def choose_precision(network: Network, name: str | None = None, kv_bytes_per_value: float | None = None) -> Precision:
    """The precision called `name`; None takes what the network's own configuration stores.

    Checkpoints of four bits with experts narrow the experts alone: their attention and shared parts stay at what the network was
    published in (8 bits for networks published in FP8, else 16). The cache is one byte a number once weights are narrow, else two.

    >>> from loadfactor.catalog.models import network
    >>> choose_precision(network("gpt-oss-120b"), "fp4").attention_bits
    16.0
    """
    stored = network.quantization
    precision = (
        (name or (_stored_name(network) if stored else "bf16")).lower().replace("nvfp4", "fp4").replace("mxfp4", "fp4")
    )
    if precision not in WEIGHT_BITS:
        raise PlanError(f"precision {name!r} is not known; there are {', '.join(WEIGHT_BITS)}")
    bits = WEIGHT_BITS[precision]
    attention = mlp = bits
    if bits < 8 and network.experts is not None:
        native = stored.weight_bits if stored and stored.weight_bits >= 8 else 16.0
        attention = mlp = native
    if stored and "attention" in stored.kept and bits < 16:
        attention = 16.0
    kv = kv_bytes_per_value or (1.0 if precision in NARROW else 2.0)
    return Precision(precision, attention, mlp, bits if network.experts else mlp, kv)


def _stored_name(network: Network) -> str:
    assert network.quantization is not None
    bits, method = network.quantization.weight_bits, network.quantization.method
    if bits >= 8:
        return "int8" if "int8" in method else "fp8"
    return "fp4" if "fp4" in method else "int4"


def compute_datatype(bits: float, name: str, accelerator: Accelerator) -> str:
    """In which datatype products with weights of `bits` are computed: the weights' own where the chip has it, else a wider one."""
    if bits >= 16:
        wide = "bf16"
    elif bits >= 8:
        wide = "int8" if name == "int8" else "fp8"
    else:
        wide = "fp4" if name == "fp4" else "bf16"
    if accelerator.get(f"peak_{wide}_flops") is not None:
        return wide
    return "bf16" if accelerator.get("peak_bf16_flops") is not None else "fp16"


def fullest_stage(network: Network, layout: ReplicaLayout) -> float:
    """Layers of the fullest pipeline stage over the mean.

    >>> from loadfactor.catalog.models import network
    >>> fullest_stage(network("llama-3.1-405b"), ReplicaLayout(32, pipeline=4))  # 32 of 126 layers
    1.0158730158730158
    """
    return -(-network.layers // layout.pipeline) * layout.pipeline / network.layers


def weight_bytes(network: Network, kept: Precision) -> float:
    return sum(count * kept.bits(part) / BITS_PER_BYTE for part, count in network.parts.items())


WIDTHS = (1, 2, 4, 8, 16, 32, 64)
RACK_WIDTHS = (24, 28, 36, 40, 48, 56, 72)  # attention ranks of groups that are no powers of two
MOST_GROUP = 72  # attention ranks looked at beyond a domain
MOST_STAGES = 16  # pipeline stages looked at for a number of GPUs


@dataclass(frozen=True)
class FixedLayout:
    """Given degrees of the layout of a replica; those left empty are searched."""

    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    attention_dp: tuple[int, ...] = ()
    gpus: int | None = None

    def excludes(self, gpus: int) -> bool:
        """Whether another number of GPUs is given."""
        return self.gpus is not None and gpus != self.gpus


EVERY_LAYOUT = FixedLayout()


def list_widths(network: Network, chip: Accelerator) -> list[int]:
    most = max(chip.scale_up_gpus, BOARD_GPUS)
    return [w for w in WIDTHS if w <= most and network.heads % w == 0]


def list_layouts(network: Network, chip: Accelerator, fixed: FixedLayout = EVERY_LAYOUT) -> list[ReplicaLayout]:
    """Tensor parallel at every width; with experts also expert parallel, and with copies of the attention (for latent caches).

    Inside a domain where nothing is given. Pipeline stages, and groups of attention ranks beyond a domain, only where given:
    there is no measurement of them to choose by.
    """
    found = []
    for stages, tensor, copies in product(
        _stages(network, chip, fixed), (fixed.tp or list_widths(network, chip)), _copies(network, chip, fixed)
    ):
        if network.heads % tensor or stages > network.layers or fixed.excludes(stages * tensor * copies):
            continue
        stage = tensor * copies
        if copies > 1 and not fixed.attention_dp and tensor > 1:
            continue
        for ranks in fixed.ep or _expert_ranks(network, stage, copies):
            if stage % ranks == 0 and (ranks == 1 or _has_experts_for(network, ranks)):
                found.append(ReplicaLayout(stage * stages, copies, ranks, stages))
    return found


def _stages(network: Network, chip: Accelerator, fixed: FixedLayout) -> Sequence[int]:
    """Pipeline stages to look at: those given, or what a given number of GPUs leaves beyond a domain."""
    if fixed.pp:
        return fixed.pp
    if fixed.gpus is None or fixed.gpus <= max(chip.scale_up_gpus, BOARD_GPUS):
        return (1,)
    widths = fixed.tp or list_widths(network, chip)
    return sorted({1} | {fixed.gpus // w for w in widths if fixed.gpus % w == 0 and fixed.gpus // w <= MOST_STAGES})


def _copies(network: Network, chip: Accelerator, fixed: FixedLayout) -> Sequence[int]:
    """Numbers of attention ranks to look at: with experts, as many as GPUs."""
    if fixed.attention_dp:
        return fixed.attention_dp
    if network.experts is None:
        return (1,)
    most = max(chip.scale_up_gpus, BOARD_GPUS)
    if fixed.gpus is not None or fixed.ep:
        most = max(most, MOST_GROUP)
    return sorted({1, *(w for w in (*WIDTHS, *RACK_WIDTHS) if w <= most)})


def _expert_ranks(network: Network, stage: int, copies: int) -> Sequence[int]:
    """Expert-parallel ranks of a stage: none, or as many as GPUs."""
    if network.experts is None or stage == 1:
        return (1,)
    return (stage,) if copies > 1 else (1, stage)


def _has_experts_for(network: Network, ranks: int) -> bool:
    """Whether so many ranks have an expert each: on boards exactly alike, in wide groups the busiest twice."""
    if network.experts is None:
        return False
    count = network.experts.count
    return count % ranks == 0 or (ranks > BOARD_GPUS and count >= ranks)


def explain_no_layout(network: Network, chip: Accelerator, fixed: FixedLayout) -> str:
    name, able = network.name, ", ".join(map(str, list_widths(network, chip)))
    wrong = [t for t in fixed.tp if network.heads % t]
    if wrong:
        return f"{name} has {network.heads} heads, which {wrong[0]} tensor ranks cannot share; --tp {able} can"
    deep = [p for p in fixed.pp if p > network.layers]
    if deep:
        return f"{name} has {network.layers} layers, fewer than {deep[0]} pipeline stages; give a smaller --pp"
    if network.experts is None and max((*fixed.ep, 1)) > 1:
        return f"{name} has no experts to spread; leave --ep out"
    if network.experts is not None and min(fixed.ep or (1,)) > network.experts.count:
        return f"{name} has {network.experts.count} experts, fewer than {min(fixed.ep)} ranks; give a smaller --ep"
    if fixed.ep and fixed.tp and fixed.attention_dp:
        stage = fixed.tp[0] * fixed.attention_dp[0]
        return f"--ep {fixed.ep[0]} does not divide the {stage} GPUs of a stage (--tp × --attention-dp); {stage} does"
    if fixed.gpus is not None:
        return (
            f"no layout of {name} has {fixed.gpus} GPUs a replica with what is given: tensor ranks ({able}) × attention ranks × "
            "pipeline stages; give another number, or --pp"
        )
    return f"no layout of {name} has what is given together; leave --ep or --attention-dp out"
