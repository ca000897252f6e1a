"""Options of `plan train`: network, GPUs, tokens, what is fixed of the layout, software, price and failures."""

from dataclasses import dataclass
from typing import Literal

from loadfactor.base.limits import COST, GPU_COUNT, GPU_HOUR_PRICE, PAUSE_S, TOKEN_COUNT, WAIT_H
from loadfactor.base.request import Request, option
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.planner.hardware.workload import ACCELERATOR, MARGINAL
from loadfactor.planner.training.calibration import read_measured
from loadfactor.planner.training.job import DEFAULT_RANK, Adapters, AdapterTargets
from loadfactor.planner.training.layout import RECOMPUTE
from loadfactor.planner.training.machine import DATATYPES
from loadfactor.planner.training.search import SearchSpace
from loadfactor.planner.training.software import Software, choose_software, read_month, read_trait
from loadfactor.planner.training.training_plan import ProjectNeeds, Reliability

MOST_SEQUENCES, MOST_TOKENS = 1_000_000, 1e18
MOST_RUNS, MOST_RETRY_PERCENT, MOST_PADDING_PERCENT, MOST_GPU_HOURS = 1_000_000, 10_000, 99, 1e12
MOST_REPAIR_H = 8_760  # a year
FREE = "Searched where not given."
GPU_MTBF, USUAL_GPU_MTBF_H = "Hours between failures of one GPU.", 50_677
CHECKPOINT, USUAL_CHECKPOINT_S = "Seconds that a checkpoint stops the run.", 60
RESTART, USUAL_RESTART_S = "Seconds from a failure to training again.", 600
REPAIR, USUAL_REPAIR_H = "Hours until a node that failed is back.", 24
Recompute = Literal["none", "selective", "full"]
Framework = Literal[
    "megatron", "nemo", "deepseek", "composer", "torchtitan", "torchtune", "transformers", "fsdp", "deepspeed",
    "internevo", "maxtext", "axtlearn", "pytorch",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(Request):
    """A question about a training run on one or several numbers of GPUs."""

    model: str = option("A network of the catalog, or a Hugging Face config.json.", short="-m")
    gpus: tuple[int, ...] = option(
        "How many GPUs; several (8,64,512) draw the scaling curve.", short="-g", within=GPU_COUNT
    )
    accelerator: str = option("An accelerator of the catalog.", ACCELERATOR, short="-a")
    cluster: str | None = option("A cluster of the catalog: its accelerator and its network.", None)
    tokens: float = option("Tokens to train on, as 15T.", 1e12, at_least=1, at_most=MOST_TOKENS)
    seq: int | None = option(
        "Tokens in a sequence; 8,192 or all the network can see if not given.", None, within=TOKEN_COUNT
    )
    global_batch: int | None = option(
        "Sequences in a step; about 4 M tokens if not given.", None, at_least=1, at_most=MOST_SEQUENCES
    )
    scaling: Literal["strong", "weak"] = option("strong: the batch stays; weak: it grows with the GPUs.", "strong")
    datatype: Literal[
        "bf16", "fp16", "fp8", "fp8-rowwise", "fp8-blockwise", "mxfp8", "fp4", "nvfp4", "int8", "tf32", "fp32"
    ] = option(
        "Datatype of the matrix products. fp8 has one scale a tensor, fp8-rowwise one a row; fp8-blockwise, mxfp8, fp4 and"
        " nvfp4 one a block.",
        "bf16",
    )
    method: Literal["full", "lora", "qlora"] = option(
        "full: all weights are trained; lora: adapters alone; qlora: adapters beside weights of 4 bits.", "full"
    )
    adapter_rank: int = option("Rank of the adapters.", DEFAULT_RANK, at_least=1, at_most=4096)
    adapter_targets: AdapterTargets = option(
        "Products of a layer that have adapters: attention's, or all.", "attention"
    )
    tp: tuple[int, ...] = option(f"Tensor-parallel ranks. {FREE}", (), within=GPU_COUNT)
    pp: tuple[int, ...] = option(f"Pipeline stages. {FREE}", (), within=GPU_COUNT)
    cp: tuple[int, ...] = option(f"Context-parallel ranks. {FREE}", (), within=GPU_COUNT)
    ep: tuple[int, ...] = option(f"Expert-parallel ranks. {FREE}", (), within=GPU_COUNT)
    context_by: Literal["ring", "all-to-all"] = option(
        "How context ranks see each other's tokens: keys and values round a ring, or heads by all-to-all.", "ring"
    )
    micro_batch: tuple[int, ...] = option(f"Sequences in a micro-batch. {FREE}", (), at_least=1, at_most=MOST_SEQUENCES)
    interleave: tuple[int, ...] = option(
        f"Chunks of layers that a pipeline stage holds. {FREE}", (), at_least=1, at_most=10_000
    )
    recompute: tuple[Recompute, ...] = option(f"Activation recomputation. {FREE}", ())
    zero: tuple[int, ...] = option(f"ZeRO stage (3: FSDP). {FREE}", (), at_least=0, at_most=3)
    framework: Framework | None = option(
        "Framework that trains. Not given, the plan is Megatron's, and its range reaches to what PyTorch does by itself.",
        None,
    )
    release: str | None = option("Month of the framework's release, as 2024-09; its newest if not given.", None)
    traits: tuple[str, ...] = option(
        "What the framework does otherwise, as tp_overlap=no,attention=native; docs/plan-a-training-run.md lists them.",
        (),
    )
    measured: tuple[str, ...] = option(
        "A measured run on the first number of GPUs, as step=1.92s,layout=tp4/pp2/mb1/zero1: it moves the constants.",
        (),
    )
    measured_peak: str | None = option("Most memory that the fullest GPU of that run took, as 71GiB.", None)
    network_gb_per_s: float | None = option("Network between nodes, GB/s per GPU.", None, at_least=0.001, at_most=1e6)
    price_per_gpu_hour: float | None = option(
        "Price of a GPU-hour; the catalog's dated one if not given.", None, within=GPU_HOUR_PRICE
    )
    gpu_mtbf_h: float = option(GPU_MTBF, USUAL_GPU_MTBF_H, within=WAIT_H)
    checkpoint_s: float = option(CHECKPOINT, USUAL_CHECKPOINT_S, within=PAUSE_S)
    restart_s: float = option(RESTART, USUAL_RESTART_S, within=PAUSE_S)
    repair_h: float = option(REPAIR, USUAL_REPAIR_H, at_least=0, at_most=MOST_REPAIR_H)

    runs: int = option("Runs of the project that have to succeed.", 1, at_least=1, at_most=MOST_RUNS)
    retry_percent: float = option(
        "GPU-hours of runs that fail, of those that succeed.", 0, at_least=0, at_most=MOST_RETRY_PERCENT
    )
    padding_percent: float = option(
        "Tokens of padding, of those that a run works on; they come on top of --tokens.",
        0,
        at_least=0,
        at_most=MOST_PADDING_PERCENT,
    )
    evaluation_gpu_hours: float = option(
        "GPU-hours of evaluation in the whole project.", 0, at_least=0, at_most=MOST_GPU_HOURS
    )
    marginal: bool = option(MARGINAL, False)
    storage_cost: float = option("Storage of the whole project.", 0, within=COST)
    staff_cost: float = option("Staff of the whole project.", 0, within=COST)

    def __post_init__(self) -> None:
        """Refuse a month or a trait that is none."""
        super().__post_init__()
        if self.release is not None:
            object.__setattr__(self, "release", read_month(self.release))
        for trait in self.traits:
            read_trait(trait)
        read_measured(self.measured, self.measured_peak)

    @property
    def needs(self) -> ProjectNeeds:
        return ProjectNeeds(
            self.runs,
            self.retry_percent,
            self.padding_percent,
            self.evaluation_gpu_hours,
            self.storage_cost,
            self.staff_cost,
        )

    @property
    def space(self) -> SearchSpace:
        return SearchSpace(
            self.tp,
            self.pp,
            self.cp,
            self.ep,
            self.micro_batch,
            self.interleave,
            tuple(RECOMPUTE.index(name) for name in self.recompute),
            self.zero or SearchSpace.zero,
        )

    def choose_software(self, card: Accelerator) -> Software:
        """The traits of the framework on this accelerator, with what `traits` says otherwise."""
        scales = DATATYPES.get(self.datatype, (self.datatype, "tensor"))[1]
        found = choose_software(card, self.framework, self.release)
        return found.having({"scaling": scales, "context_by": self.context_by, **dict(map(read_trait, self.traits))})

    @property
    def adapters(self) -> Adapters | None:
        return (
            None if self.method == "full" else Adapters(self.adapter_rank, self.method == "qlora", self.adapter_targets)
        )

    @property
    def reliability(self) -> Reliability:
        return Reliability(self.gpu_mtbf_h, self.checkpoint_s, self.restart_s, self.repair_h)
