"""A training job, which all its layouts share; adapters; and the part of the network that one rank of a layout holds."""

from dataclasses import dataclass, field
from typing import Final

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
ADAPTED: Final = 4  # products of a layer with an adapter: queries, keys, values and their output
KERNELS_PER_ADAPTER: Final = 3  # two thin products and the addition of their result


@dataclass(frozen=True)
class Adapters:
    """Adapters of a rank on the products of attention, as frameworks set them up.

    `quantized`: the frozen weights lie in 4 bits and are read through 16.
    """

    rank: int = DEFAULT_RANK
    quantized: bool = False

    def parameters(self, network: Network) -> float:
        """Weights that are trained: rank × (inputs + outputs) of every adapted product.

        >>> from loadfactor.catalog.models import network
        >>> Adapters(16).parameters(network("llama-3.1-8b"))      # as peft counts them
        13631488.0
        """
        h, kv = network.hidden, network.kv_heads * network.head_dim
        queries, values = network.heads * network.query_dim, network.heads * network.value_dim
        return float(self.rank * network.layers * sum((h + queries, h + kv, h + kv, values + h)))

    def moved_bytes_per_token(self, network: Network) -> float:
        """Bytes that adapters move for a token of one layer, forward: each reads its input and adds its output (r2 r2 w2).

        Queries, keys and values read the same input once, as they do in the product that they are added to.
        """
        outputs = network.heads * network.query_dim + 2 * network.kv_heads * network.head_dim + network.hidden
        inputs = network.hidden + network.heads * network.value_dim
        return 2.0 * inputs + 6.0 * outputs

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
