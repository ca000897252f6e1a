"""A training job, which all its layouts share; adapters; and the part of the network that one rank of a layout holds."""

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from loadfactor.catalog.constants import TrainingConstants, read_training_constants
from loadfactor.catalog.models import Network
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.machine import Machine
from loadfactor.planner.training.software import Software

DEFAULT_RANK: Final = 16
QUANTIZED_BYTES: Final = (
    0.516  # NF4: 4 bits, and a scale of 8 bits for 64 weights that itself has one of 32 bits for 256 of these
)
KERNELS_PER_ADAPTER: Final = 3  # two thin products and the addition of their result
EAGER_INPUT_BYTES: Final = 7  # of each adapter by itself: dropout r2 w2+1, product r2
EAGER_OUTPUT_BYTES: Final = 12  # product w2, scaling r2 w2, sum r2 r2 w2
AdapterTargets = Literal["attention", "all"]


@dataclass(frozen=True)
class Adapters:
    """Adapters of a rank on the products of attention, or on all of a layer.

    `quantized`: the frozen weights lie in 4 bits and are read through 16.
    """

    rank: int = DEFAULT_RANK
    quantized: bool = False
    targets: AdapterTargets = "attention"

    def products(self, network: Network) -> tuple[tuple[float, tuple[float, ...]], ...]:
        """Widths of the inputs of a layer's adapted products, and of what each of those that read one input puts out.

        >>> from loadfactor.catalog.models import network
        >>> Adapters(targets="all").products(network("llama-3.1-8b"))
        ((4096, (4096, 1024, 1024)), (4096, (4096,)), (4096, (14336, 14336)), (14336, (4096,)))
        """
        h, kv, ffn = network.hidden, network.kv_heads * network.head_dim, network.ffn_hidden
        queries, values = network.heads * network.query_dim, network.heads * network.value_dim
        attention = ((h, (queries, kv, kv)), (values, (h,)))
        if self.targets == "attention":
            return attention
        return (*attention, (h, (ffn, ffn) if network.gated_mlp else (ffn,)), (ffn, (h,)))

    def kernels(self, network: Network) -> int:
        """Kernels that the adapters of a layer start, forward."""
        return KERNELS_PER_ADAPTER * sum(len(outputs) for _, outputs in self.products(network))

    def parameters(self, network: Network) -> float:
        """Weights that are trained: rank × (inputs + outputs) of every adapted product.

        >>> from loadfactor.catalog.models import network
        >>> Adapters(16).parameters(network("llama-3.1-8b"))      # as peft counts them
        13631488.0
        """
        return float(
            self.rank * network.layers * sum(into + out for into, outputs in self.products(network) for out in outputs)
        )

    def moved_bytes_per_token(self, network: Network, fused: bool) -> float:
        """Bytes that adapters move for a token of one layer, forward: each reads its input and adds its output (r2 r2 w2).

        Those of one input read it once, as the products do that they are added to; where nothing is fused, each has its own dropout
        and scaling.
        """
        pairs = self.products(network)
        outputs = sum(sum(outputs) for _, outputs in pairs)
        if fused:
            return 2.0 * sum(into for into, _ in pairs) + 6.0 * outputs
        return EAGER_INPUT_BYTES * sum(into * len(outs) for into, outs in pairs) + EAGER_OUTPUT_BYTES * outputs

    @property
    def frozen_bytes(self) -> float:
        """Bytes of a frozen weight."""
        return QUANTIZED_BYTES if self.quantized else 2.0


VALUE_BYTES = 2  # a weight or activation in 16 bits


@dataclass(frozen=True)
class Calibration:
    """What a measured run says of predictions: factors on them, and the ranges about them in which four of five lie.

    `step_range` is None where no step was measured: then it is what sources that were left out are off by; `peak_range` where no
    peak was: then it is what peaks of the framework are off by.
    """

    step_factor: float = 1.0
    step_range: tuple[float, float] | None = None
    peak_factor: float = 1.0
    peak_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class TrainingJob:
    """A network, its machine and software: `global_batch` sequences of `seq` tokens a step."""

    network: Network
    seq: int
    global_batch: int
    machine: Machine
    software: Software = field(default_factory=Software)
    constants: TrainingConstants = field(default_factory=read_training_constants)
    adapters: Adapters | None = None
    """Adapters that are trained in place of the network's weights; None: all weights are trained."""
    calibration: Calibration = Calibration()
    document_tokens: int | None = None
    """Tokens of the documents that are packed into a sequence; None: one document fills it."""

    @property
    def peak_range(self) -> tuple[float, float]:
        """Factors on predicted peaks between which four of five lie."""
        return self.calibration.peak_range or self.software.peak_range

    @property
    def attended_tokens(self) -> int:
        """Tokens that attention works on at a time: a sequence, or a packed document where the framework tells them apart."""
        if not self.software.skips_other_documents or self.document_tokens is None:
            return self.seq
        return min(self.document_tokens, self.seq)


def stage_layers(layers: int, layout: TrainingLayout) -> Real:
    """Layers the fullest pipeline stage holds: layers ÷ stages, rounded up per interleaved chunk.

    >>> float(stage_layers(105, TrainingLayout(pipeline=35, interleave=3)))
    3.0
    """
    result: Real = np.ceil(layers / (layout.pipeline * layout.interleave)) * layout.interleave
    return result


def missing_layers(layers: int, layout: TrainingLayout) -> Real:
    """Layers that the last stage lacks beside the fullest: what a network has too few of for all stages alike, its share at most.

    >>> float(missing_layers(61, TrainingLayout(pipeline=16))), float(missing_layers(126, TrainingLayout(pipeline=8, interleave=8)))
    (3.0, 2.0)
    """
    held = stage_layers(layers, layout)
    result: Real = np.minimum(held * layout.pipeline - layers, held)
    return result


def shard_ranks(job: TrainingJob, layout: TrainingLayout) -> Real:
    """Ranks that sharded weights, gradients and states are cut over: all data and context ranks, or those of one domain."""
    ranks: Real = layout.data * layout.context
    if not job.software.shards_inside:
        return ranks
    result: Real = np.clip(job.machine.fabric.domain_gpus // layout.tensor, 1, ranks)
    return result


def rank_trained(job: TrainingJob, layout: TrainingLayout) -> tuple[Real, Real]:
    """The same of those that are trained: of adapters, the part of a stage and of a tensor rank."""
    if job.adapters is None:
        return rank_parameters(job.network, layout)
    stage = stage_layers(job.network.layers, layout) / job.network.layers
    return job.adapters.parameters(job.network) * stage / layout.tensor, 0.0 * stage


def rank_parameters(network: Network, layout: TrainingLayout) -> tuple[Real, Real]:
    """Parameters on the fullest rank before any sharding over data ranks: (outside the experts, in experts).

    A stage's share of the layers and the larger of embedding and head, cut over tensor ranks; experts over expert ranks too.

    >>> from loadfactor.catalog.models import network
    >>> outside, experts = rank_parameters(network("mixtral-8x7b"), TrainingLayout(tensor=2, expert=8, data=8))
    >>> round(float(outside) / 1e9, 3), round(float(experts) / 1e9, 3)      # (46.70 - 45.10) ÷ 2 and 45.10 ÷ 2 ÷ 8
    (0.803, 2.819)
    """
    parts = network.parts
    stage = stage_layers(network.layers, layout) / network.layers
    ends = np.where(layout.pipeline > 1, max(parts["embedding"], parts["head"]), parts["embedding"] + parts["head"])
    body = network.parameters - parts["embedding"] - parts["head"] - parts["experts"]
    return (body * stage + ends) / layout.tensor, parts["experts"] * stage / (layout.expert_tensor * layout.expert)
