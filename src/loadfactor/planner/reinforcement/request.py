"""Options of `plan rl`: network, GPUs, prompts and responses, who may run ahead of whom, rewards, what is fixed of both halves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loadfactor.base.errors import PlanError
from loadfactor.base.limits import CLUSTER_GPUS, GPU_COUNT, GPU_HOUR_PRICE, PAUSE_S, TOKEN_COUNT, WAIT_H
from loadfactor.base.request import Request, option
from loadfactor.planner.hardware import EngineName
from loadfactor.planner.hardware.workload import ACCELERATOR, MARGINAL
from loadfactor.planner.serving.layouts import FixedLayout
from loadfactor.planner.serving.request import WeightPrecision
from loadfactor.planner.training.request import (
    CHECKPOINT,
    FREE,
    GPU_MTBF,
    MOST_REPAIR_H,
    MOST_SEQUENCES,
    REPAIR,
    RESTART,
    USUAL_CHECKPOINT_S,
    USUAL_GPU_MTBF_H,
    USUAL_REPAIR_H,
    USUAL_RESTART_S,
    Framework,
    Recompute,
    TrainingRequest,
)
from loadfactor.planner.training.training_plan import Reliability

Placement = Literal["colocated", "apart"]
Forward = Literal["policy", "reference"]
MOST_RESPONSES = 100_000  # of a step
MOST_STEPS, MOST_STALENESS, MOST_WORKERS, MOST_EPOCHS = 10_000_000, 1000, 1_000_000, 100


@dataclass(frozen=True, kw_only=True)
class RlRequest(Request):
    """A question about reinforcement learning of a network on so many GPUs."""

    model: str = option("A network of the catalog, or a Hugging Face config.json.", short="-m")
    gpus: int = option("How many GPUs, of rollouts and training together.", short="-g", within=CLUSTER_GPUS)
    accelerator: str = option("An accelerator of the catalog.", ACCELERATOR, short="-a")
    prompts: int = option("Prompts in a step.", 64, at_least=1, at_most=MOST_RESPONSES)
    responses: int = option("Responses to each prompt.", 16, at_least=1, at_most=MOST_RESPONSES)
    prompt_tokens: float = option("Mean prompt, tokens.", 512, within=TOKEN_COUNT)
    response_tokens: float = option("Mean response, tokens.", 2048, within=TOKEN_COUNT)
    response_p99: float | None = option(
        "Tokens that 99 of 100 responses stay within; a log-normal with a deviation as large as its mean if not given.",
        None,
        within=TOKEN_COUNT,
    )
    response_most: int = option("Tokens at which a response is cut.", 8192, within=TOKEN_COUNT)
    trace: Path | None = option(
        "Prompts and responses of a trace instead: Azure CSV, Mooncake JSON lines or a ServeGen folder.", None
    )
    staleness: int = option(
        "Updates that the weights of a rollout may be behind; 0: synchronous.", 0, at_least=0, at_most=MOST_STALENESS
    )
    partial_rollouts: bool = option("Responses go on with new weights, in place of being waited for.", False)
    placement: Placement | None = option(
        "colocated: all GPUs do both in turn; apart: each does one. The better one if not given.", None
    )
    rollout_gpus: int | None = option(
        "GPUs of rollouts, the others train; searched if not given.", None, within=GPU_COUNT
    )
    batch: int | None = option(
        "Responses of an optimizer step; all of a step if not given.", None, at_least=1, at_most=MOST_SEQUENCES
    )
    epochs: int = option("Times that each response is trained on.", 1, at_least=1, at_most=MOST_EPOCHS)
    forwards: tuple[Forward, ...] = option(
        "Forward passes before training: of the policy that trains, of a reference.", ("policy", "reference")
    )
    critic: bool = option("Train a critic of the same network, as PPO does.", False)
    reward_s: float = option("Seconds in which a reward is worked out for a response.", 0.0, within=PAUSE_S)
    reward_workers: int = option("Rewards worked out at a time.", 256, at_least=1, at_most=MOST_WORKERS)
    reward_model: str | None = option("A network that judges responses, on the GPUs of rollouts.", None)
    engine: EngineName = option("Engine of rollouts.", "vllm")
    precision: WeightPrecision | None = option("Weights of rollouts; as they are trained when left out.", None)
    rollout_tp: tuple[int, ...] = option(f"Tensor-parallel ranks of a rollout replica. {FREE}", (), within=GPU_COUNT)
    rollout_ep: tuple[int, ...] = option(f"Expert-parallel ranks of a rollout replica. {FREE}", (), within=GPU_COUNT)
    datatype: Literal["bf16", "fp16", "fp8", "fp8-blockwise", "mxfp8"] = option("Datatype of training.", "bf16")
    tp: tuple[int, ...] = option(f"Tensor-parallel ranks of training. {FREE}", (), within=GPU_COUNT)
    pp: tuple[int, ...] = option(f"Pipeline stages of training. {FREE}", (), within=GPU_COUNT)
    cp: tuple[int, ...] = option(f"Context-parallel ranks of training. {FREE}", (), within=GPU_COUNT)
    ep: tuple[int, ...] = option(f"Expert-parallel ranks of training. {FREE}", (), within=GPU_COUNT)
    micro_batch: tuple[int, ...] = option(
        f"Packed sequences of training in a micro-batch. {FREE}", (), at_least=1, at_most=MOST_SEQUENCES
    )
    interleave: tuple[int, ...] = option(
        f"Chunks of layers that a pipeline stage of training holds. {FREE}", (), at_least=1, at_most=10_000
    )
    recompute: tuple[Recompute, ...] = option(f"Activation recomputation in training. {FREE}", ())
    zero: tuple[int, ...] = option(f"ZeRO stage of training (3: FSDP). {FREE}", (), at_least=0, at_most=3)
    framework: Framework | None = option("Framework that trains; see plan train.", None)
    traits: tuple[str, ...] = option("What the framework does otherwise; see plan train.", ())
    network_gb_per_s: float | None = option("Network between nodes, GB/s per GPU.", None, at_least=0.001, at_most=1e6)
    switch_s: float = option(
        "Seconds in which engine and trainer change places or take new weights, beside moving them.",
        0.0,
        within=PAUSE_S,
    )
    framework_factor: float | None = option(
        "Seconds of both halves in the framework over those of each alone; fitted to published runs if not given.",
        None,
        at_least=0.1,
        at_most=100,
    )
    price_per_gpu_hour: float | None = option(
        "Price of a GPU-hour; the catalog's dated one if not given.", None, within=GPU_HOUR_PRICE
    )
    steps: int = option("Steps of the run.", 1000, at_least=1, at_most=MOST_STEPS)
    measured: tuple[str, ...] = option(
        "A measured step on these GPUs in this way, as rollout=212s,train=140s, or a log of verl, OpenRLHF or DeepSpeed-Chat.",
        (),
    )
    gpu_mtbf_h: float = option(GPU_MTBF, USUAL_GPU_MTBF_H, within=WAIT_H)
    checkpoint_s: float = option(CHECKPOINT, USUAL_CHECKPOINT_S, within=PAUSE_S)
    restart_s: float = option(RESTART, USUAL_RESTART_S, within=PAUSE_S)
    repair_h: float = option(REPAIR, USUAL_REPAIR_H, at_least=0, at_most=MOST_REPAIR_H)
    marginal: bool = option(MARGINAL, False)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        super().__post_init__()
        whole = self.whole_batch
        if whole > MOST_RESPONSES:
            raise PlanError(f"a step has at most {MOST_RESPONSES:,} responses, got {whole:,}; give fewer --prompts")
        if self.batch is not None and (self.batch > whole or whole % self.batch):
            raise PlanError(f"--batch {self.batch} does not divide the {whole:,} responses of a step; leave it out")
        if self.staleness and self.placement == "colocated":
            raise PlanError("--staleness is for halves that are apart: leave --placement colocated out")
        if self.rollout_gpus is not None and self.placement == "colocated":
            raise PlanError("--rollout-gpus is for halves that are apart: leave --placement colocated out")
        if self.rollout_gpus is not None and self.rollout_gpus >= self.gpus:
            raise PlanError(f"--rollout-gpus {self.rollout_gpus} leave none of {self.gpus} for training; give fewer")
        if self.trace is None and self.response_tokens > self.response_most:
            raise PlanError(
                f"--response-tokens {self.response_tokens:g} is more than where they are cut, --response-most {self.response_most}"
            )
        if self.response_p99 is not None and self.response_p99 < self.response_tokens:
            raise PlanError("--response-p99 is at least the mean, --response-tokens")
        self.describe_training(1, 1024)  # what it refuses

    @property
    def whole_batch(self) -> int:
        """Responses of a step."""
        return self.prompts * self.responses

    @property
    def reliability(self) -> Reliability:
        return Reliability(self.gpu_mtbf_h, self.checkpoint_s, self.restart_s, self.repair_h)

    @property
    def rollout_layout(self) -> FixedLayout:
        return FixedLayout(tp=self.rollout_tp, ep=self.rollout_ep)

    def describe_training(self, gpus: int, seq: int) -> TrainingRequest:
        """The training half as `plan train` takes it: sequences of `seq` tokens into which responses are packed."""
        return TrainingRequest(
            model=self.model,
            gpus=(gpus,),
            accelerator=self.accelerator,
            seq=seq,
            global_batch=1,
            datatype=self.datatype,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            ep=self.ep,
            micro_batch=self.micro_batch,
            interleave=self.interleave,
            recompute=self.recompute,
            zero=self.zero,
            framework=self.framework,
            traits=("skips_other_documents=yes", *self.traits),
            network_gb_per_s=self.network_gb_per_s,
        )
