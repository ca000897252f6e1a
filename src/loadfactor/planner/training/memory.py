"""Memory of the fullest rank of a training job, part by part, and whether it fits. Arrays with one element a layout.

Activations follow arXiv:2205.05198 §4 (Korthikanti et al.), written per matrix so that grouped queries, gated MLPs and experts
count as what they are. The fullest rank is the first pipeline stage, which holds the activations of most micro-batches in
flight, or the last, which holds the logits; the larger of the two is reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadfactor.catalog.models import Network
from loadfactor.planner.training.job import (
    VALUE_BYTES,
    TrainingJob,
    rank_parameters,
    rank_trained,
    shard_ranks,
    stage_layers,
)
from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout

UNFUSED_NORM_BYTES = (
    8  # more that a norm of several kernels keeps of a value: its input in 32 bits, and what was scaled
)
UNFUSED_ROTATION_BYTES = 2  # the same of queries and keys that are turned by several kernels: what was turned
UNFUSED_GATE_BYTES = (
    2  # the same of the inner value of a gated MLP: the activation, apart from what it is multiplied with
)
GATHERED_LOGIT_BYTES = 9  # more for a logit that tensor ranks send each other: pieces, joined, and their gradients
RERUN_KEPT_SHARE = (
    0.43  # of activations, where every other product runs again: half of their outputs, attention's, the input
)
USABLE_SHARE = 0.96  # the rest is the driver, the communication library and fragmentation
OUT_OF_MEMORY_COST = 0.15
"""Of a run's time, where it runs out of memory: it begins again, in a layout that surely fits, which in published studies is about
a tenth slower."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of the fullest rank by part, and what the accelerator offers."""

    parts: Mapping[str, Any]
    usable_bytes: float

    @property
    def total_bytes(self) -> Any:
        return sum(self.parts.values())

    @property
    def fits(self) -> Any:
        return self.total_bytes <= self.usable_bytes


def out_of_memory_risk(memory_bytes: Any, usable_bytes: float, peak_range: tuple[float, float]) -> Any:
    """How probable it is that a layout predicted to take so much takes more than there is.

    Peaks over predictions are taken as log-logistic through the ends of `peak_range`, beyond which one of ten lies at each side.

    >>> [round(float(out_of_memory_risk(used, 100.0, (0.82, 1.35))), 2) for used in (50.0, 100 / 1.35, 99.7, 100 / 0.82)]
    [0.0, 0.1, 0.6, 0.9]
    """
    low, high = np.log(peak_range)
    spread = (high - low) / (2 * np.log(9))  # odds of 1 to 9 at each end
    return 1 / (1 + np.exp((np.log(usable_bytes / np.maximum(memory_bytes, 1.0)) - (low + high) / 2) / spread))


def estimate_risk(job: TrainingJob, layout: TrainingLayout) -> Any:
    """How probable it is that a layout runs out of memory; where nobody named the framework, the mean over what it may be."""
    usable = usable_bytes(job)
    others = () if job.calibration.peak_range else job.software.alternatives
    jobs = [replace(job, software=one) for one in others] or [job]
    risks = (out_of_memory_risk(estimate_memory(one, layout).total_bytes, usable, one.peak_range) for one in jobs)
    return sum(risks) / len(jobs)


def estimate_memory(job: TrainingJob, layout: TrainingLayout) -> TrainingMemory:
    """Memory of the fullest rank.

    Weights 2 bytes a parameter, gradients 4 (or 2: `Software.kept_gradient_bytes`), Adam 12, each divided by the data ranks from
    ZeRO stage 3, 2, 1 on.
    GPT-3 on 8 tensor ranks × 8 stages: 18 bytes · 175 G ÷ 64 = 45.8 GiB and the embedding (published 45.6, arXiv:2205.05198).

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 64, a100, find_software("megatron", "2022-05"))
    >>> parts = estimate_memory(job, TrainingLayout(8, 8, interleave=3)).parts
    >>> round(float(sum(parts[p] for p in ("weights_bytes", "gradients_bytes", "optimizer_bytes"))[0]) / 2**30, 1)
    46.9
    """
    x = layout.as_arrays()
    held, trained = rank_parameters(job.network, x), rank_trained(job, x)
    owners, host = shard_ranks(job, x), job.software.optimizer_on_host
    weight_bytes = job.adapters.frozen_bytes if job.adapters else VALUE_BYTES

    def kept(width: float, stage: int, of: Any = trained) -> Any:
        outside, experts = of
        sharded = x.zero >= stage
        a = outside / np.where(sharded, owners, 1)
        return width * (a + experts / np.where(sharded, x.expert_copies, 1))

    layers = stage_layers(job.network.layers, x)
    in_flight = np.minimum(x.micro_batches(job.global_batch), micro_batches_in_flight(x))
    one = activation_bytes_per_layer(job, x)
    working = np.where(
        x.recompute == FULL, activation_bytes_per_layer(job, replace(x, recompute=NONE + 0 * x.recompute)), 0.0
    )
    tokens = x.micro_batch * job.seq / x.context
    logits = tokens * job.network.vocabulary * _logit_bytes(job, x)
    first = layers * one * in_flight + np.where(x.pipeline == 1, logits, 0.0)
    last = layers * one * np.minimum(in_flight, x.interleave) / x.interleave + logits
    ends_on_last = (last > first) | (x.pipeline == 1)
    gathered = np.where(x.zero == 3, 2 * VALUE_BYTES * sum(held) / layers, 0.0)
    parts = {
        "weights_bytes": 0.0 * layers
        if host
        else kept(weight_bytes, 3, held) + (kept(VALUE_BYTES, 3) if job.adapters else 0.0),
        "gradients_bytes": 0.0 * layers if host else kept(job.software.kept_gradient_bytes, 2),
        "optimizer_bytes": 0.0 * layers if host else kept(job.software.optimizer_bytes, 1),
        "activations_bytes": np.maximum(first, last) - np.where(ends_on_last, logits, 0.0) + working,
        "logits_bytes": np.where(ends_on_last, logits, 0.0),
        "gathered_bytes": gathered,
    }
    factor = job.calibration.peak_factor
    return TrainingMemory({name: factor * part for name, part in parts.items()}, usable_bytes(job))


def _logit_bytes(job: TrainingJob, x: TrainingLayout) -> Any:
    """Bytes that the rank with the head keeps of a logit of the whole vocabulary, until its gradient is known."""
    if not job.software.gathers_logits:
        return job.software.logit_bytes / x.tensor
    return job.software.logit_bytes + np.where(x.tensor > 1, GATHERED_LOGIT_BYTES, 0)


def usable_bytes(job: TrainingJob) -> float:
    """Memory of an accelerator that a run may fill."""
    return job.machine.memory_bytes * USABLE_SHARE


def micro_batches_in_flight(x: TrainingLayout) -> Any:
    """Micro-batches' worth of its layers that the first stage of 1F1B holds: p, and p·(1 + (p-1)/(p·v)) when interleaved.

    >>> float(micro_batches_in_flight(TrainingLayout(pipeline=8, interleave=3))) / 8          # 175B of arXiv:2205.05198: 1 + 7/24
    1.2916666666666667
    """
    return np.where(x.interleave > 1, x.pipeline + (x.pipeline - 1) / x.interleave, x.pipeline)


def activation_bytes_per_layer(job: TrainingJob, x: TrainingLayout) -> Any:
    """Bytes one layer keeps of one micro-batch for its backward pass, on one rank of t tensor and c context ranks.

    Outside the tensor-parallel region: inputs of two norms and two products, 2·h each, and two dropout masks of h where dropout
    is used; cut over t only with sequence parallelism. Inside, cut over t: queries, keys, values, the input of the output
    projection and the MLP's inner values. Unfused attention keeps 5 bytes a score unless it is recomputed (selective).
    Full recomputation keeps the layer's input, of the share of the layers that it is for. For GPT this is
    s·b·h·(10 + 24/t + 5·a·s/(h·t)), arXiv:2205.05198 eq. 2:

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 64, a100, find_software("megatron", "2022-05"))
    >>> activations = float(activation_bytes_per_layer(job, TrainingLayout(8, micro_batch=4)))
    >>> activations == 2048 * 4 * 12288 * (10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8))
    True
    """
    n, e = job.network, job.network.experts
    tokens = x.micro_batch * job.seq / x.context
    cut = np.where(x.sequence_parallel, x.tensor, 1)
    outer = (8 + 2 * job.software.dropout) * n.hidden / cut
    width = (2 * n.kv_heads * n.head_dim) if n.latent is None else n.heads * (n.query_dim + n.value_dim)
    attention = float(VALUE_BYTES * (n.heads * n.query_dim + width + n.heads * n.value_dim))
    if n.linear is not None:
        share, a = n.linear_layers / n.layers, n.linear
        # what goes into the short convolution, what comes out of it, the gate, and what is projected out
        state = 4 * a.key_heads * a.key_dim + 4 * a.value_heads * a.value_dim
        attention = (1 - share) * attention + share * VALUE_BYTES * state
    gates = _inner_width(n)
    inner = (3 if n.gated_mlp else 2) * VALUE_BYTES * gates
    routed = 0.0 if e is None else n.moe_layers / n.layers * e.per_token * 2 * VALUE_BYTES * n.hidden
    scores = 0.0 if job.software.flash_attention else np.where(x.recompute == NONE, 5.0 * n.heads * job.seq, 0.0)
    kept = outer + (attention + inner + routed + scores) / x.tensor
    apart = 0.0 if job.software.fused_norms else 2 * UNFUSED_NORM_BYTES * n.hidden / cut
    if not job.software.fused:
        turned = UNFUSED_ROTATION_BYTES * (n.heads * n.query_dim + n.kv_heads * n.head_dim)
        apart = apart + (turned + (UNFUSED_GATE_BYTES * gates if n.gated_mlp else 0.0)) / x.tensor
    if job.software.recomputes == "products":
        # the outputs of every other product are made again, and all between products
        kept = np.where(x.recompute == SELECTIVE, RERUN_KEPT_SHARE * kept, kept + apart)
    else:
        kept = kept + apart
    full = np.where(x.recompute == FULL, x.recompute_share, 0.0)
    inputs = 0.0 if job.software.offloads_inputs else VALUE_BYTES * n.hidden / cut
    return tokens * (full * inputs + (1 - full) * kept)


def _inner_width(n: Network) -> float:
    """Inner values of a token in the mean layer's MLP, or in the experts that it goes to and the shared one."""
    e = n.experts
    if e is None:
        return float(n.ffn_hidden)
    return (
        n.moe_layers * (e.per_token * e.ffn_hidden + e.shared_ffn_hidden) + n.dense_layers * n.ffn_hidden
    ) / n.layers


def recompute_as_needed(job: TrainingJob, layout: TrainingLayout, room_share: float = 1.0) -> TrainingLayout:
    """Layouts with full recomputation, each for the fewest layers of a stage with which it fits; others stay as they are.

    They fit into `room_share` of the usable memory where they can.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> job = TrainingJob(network("llama-3.1-70b"), 8192, 128, build_machine(accelerator("h100-sxm")))
    >>> one = recompute_as_needed(job, TrainingLayout(8, 1, 8, recompute=FULL, sequence_parallel=True).as_arrays())
    >>> 0 < float(one.recompute_share[0]) < 1 and bool(estimate_memory(job, one).fits[0])
    True
    """
    x = layout
    if job.software.recomputes in ("all or none", "by default"):
        return x
    none = replace(x, recompute=NONE + 0 * x.recompute)
    before, after = estimate_memory(job, none), estimate_memory(job, x)
    working = activation_bytes_per_layer(job, none)
    most = before.total_bytes + working
    room_bytes = after.usable_bytes * room_share
    share = (most - room_bytes) / np.maximum(most - after.total_bytes, 1.0)
    layers = stage_layers(job.network.layers, x)
    share = np.clip(np.ceil(share * layers) / layers, 1 / layers, 1.0)
    share = np.where(
        before.total_bytes <= room_bytes, 1.0, share
    )  # where nothing has to be, all of it is another trade of time for memory
    return replace(x, recompute_share=np.where(x.recompute == FULL, share, x.recompute_share))
