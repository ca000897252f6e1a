"""How long does one training step take, and where does the time go? Terms that sum to the step, for one layout or many."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadfactor.catalog.models import Network
from loadfactor.planner.hardware.collectives import (
    all_gather_s,
    all_reduce_s,
    dispatch_s,
    members_per_domain,
    reduce_scatter_s,
    ring_bytes_per_s,
    ring_latency_s,
    send_s,
)
from loadfactor.planner.hardware.kernels import Real, matmul_s, streaming_s
from loadfactor.planner.training.layer import (
    KERNELS_BACKWARD,
    KERNELS_FORWARD,
    VALUE_BYTES,
    LayerSeconds,
    layer_seconds,
)
from loadfactor.planner.training.layout import FULL, SELECTIVE, Layout
from loadfactor.planner.training.machine import Constants, Machine, Software

LOSS_BYTES_PER_LOGIT = 26  # product w2, to 32 bits r2 w4, max r4, exp and sum r4 w4, gradient r4 w2
OPTIMIZER_BYTES_PER_PARAMETER = (
    38  # Adam: weight, two moments r4 w4 each, gradient r4, its norm and scaling r4 w4, 16-bit copy w2
)
LAST_BUCKET = 0.05  # of an exchange over data ranks: the last gradients have no backward left to hide behind

TERMS = (
    "matmul_s",
    "attention_s",
    "elementwise_s",
    "recompute_s",
    "head_s",
    "launch_s",
    "tensor_s",
    "context_s",
    "expert_s",
    "pipeline_send_s",
    "bubble_s",
    "data_s",
    "optimizer_s",
    "overhead_s",
)


@dataclass(frozen=True)
class Job:
    """What is trained, on what: the part of a question that every layout shares."""

    network: Network
    seq: int
    global_batch: int
    machine: Machine
    software: Software
    constants: Constants


@dataclass(frozen=True)
class Step:
    """Seconds of one step by term, arrays with one element a layout; the terms sum to `step_s`."""

    terms: Mapping[str, Any]

    @property
    def step_s(self) -> Any:
        """Seconds of one step: the sum of the terms."""
        return sum(self.terms.values())


def stage_layers(layers: int, layout: Layout) -> Real:
    """Layers the fullest pipeline stage holds: layers ÷ stages, rounded up per interleaved chunk.

    >>> float(stage_layers(105, Layout(pipeline=35, interleave=3)))
    3.0
    """
    result: Real = np.ceil(layers / (layout.pipeline * layout.interleave)) * layout.interleave
    return result


def rank_parameters(network: Network, layout: Layout) -> tuple[Real, Real]:
    """Parameters on the fullest rank before any sharding over data ranks: (outside the experts, in experts).

    A stage's share of the layers and the larger of embedding and head, cut over tensor ranks; experts over expert ranks too.

    >>> from loadfactor.catalog.models import network
    >>> outside, experts = rank_parameters(network("mixtral-8x7b"), Layout(tensor=2, expert=8, data=8))
    >>> round(float(outside) / 1e9, 3), round(float(experts) / 1e9, 3)      # (46.70 - 45.10) ÷ 2 and 45.10 ÷ 2 ÷ 8
    (0.803, 2.819)
    """
    parts = network.parts
    stage = stage_layers(network.layers, layout) / network.layers
    ends = np.where(layout.pipeline > 1, max(parts["embedding"], parts["head"]), parts["embedding"] + parts["head"])
    body = network.parameters - parts["embedding"] - parts["head"] - parts["experts"]
    return (body * stage + ends) / layout.tensor, parts["experts"] * stage / (layout.tensor * layout.expert)


def step(job: Job, layout: Layout) -> Step:
    """The seconds of one training step by term.

    1F1B pipeline of p stages, m micro-batches, v chunks a stage (arXiv:2104.04473 §2.2): the fullest stage works m times,
    and the pipeline fills and drains through the p-1 others once, 1/v of the time when interleaved:
    step = m·busiest + (p-1)·other/v + what is not hidden of the exchange over data ranks + optimizer.
    On paper: 8 stages, 64 micro-batches, one chunk leave a bubble of 7/64 of the work of a stage without the head.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import MEGATRON_2022, constants, machine
    >>> a100 = machine(accelerator("a100-sxm"), "fp16")
    >>> job = Job(network("gpt3-175b"), 2048, 64, a100, MEGATRON_2022, constants())
    >>> t = {name: float(np.ravel(s)[0]) for name, s in step(job, Layout(8, 8, recompute=FULL)).terms.items()}
    >>> work = sum(s for n, s in t.items() if n not in ("bubble_s", "head_s", "data_s", "optimizer_s", "overhead_s"))
    >>> round(t["bubble_s"] / work, 6) == round(7 / 64, 6)
    True
    """
    n, c = job.network, job.constants
    x = layout.as_arrays()
    m = x.micro_batches(job.global_batch)
    held = stage_layers(n.layers, x)
    moe_share = n.moe_layers / n.layers
    kinds: list[tuple[float, LayerSeconds, bool]] = []
    if moe_share < 1:
        kinds.append((1 - moe_share, layer_seconds(n, job.seq, x, job.machine, job.software, c, moe=False), False))
    if moe_share > 0:
        kinds.append((moe_share, layer_seconds(n, job.seq, x, job.machine, job.software, c, moe=True), True))

    def mean(field: str) -> Any:
        return sum(share * getattr(seconds, field) for share, seconds, _ in kinds)

    forward, backward = mean("forward"), mean("backward")
    tensor = _tensor_s(job, x)
    skipped = mean("matmul_down") if job.software.stops_early else 0.0
    again = np.where(
        x.recompute == FULL, forward - skipped, np.where(x.recompute == SELECTIVE, _selective_s(job, mean), 0.0)
    )
    again_tensor = np.where(x.recompute == FULL, tensor / 2, 0.0)
    expert = _expert_s(job, x) * moe_share * np.where(x.recompute == FULL, 1.5, 1.0)
    if job.software.hides_experts:
        expert = np.maximum(expert - forward - backward, 0.0)
    context = np.maximum(_context_s(job, x) - mean("attention_forward") - mean("attention_backward"), 0.0)
    kernels = KERNELS_FORWARD * (1 + (x.recompute == FULL)) + KERNELS_BACKWARD
    device = forward + backward + again + tensor + again_tensor + expert + context
    launch = np.maximum(kernels * job.machine.matmul.launch_s - device, 0.0)
    send = _send_s(job, x)
    head = _head_s(job, x)
    body = held * (device + launch) + send
    bubble = (x.pipeline - 1) * body / x.interleave
    data, optimizer = _data_s(job, x, held * forward, held * backward, held * device + head, m), _optimizer_s(job, x)
    terms = {
        "matmul_s": m * held * (mean("matmul_forward") + mean("matmul_backward")),
        "attention_s": m * held * (mean("attention_forward") + mean("attention_backward")),
        "elementwise_s": m * held * (mean("elementwise_forward") + mean("elementwise_backward"))
        + _accumulate_s(job, x, m),
        "recompute_s": m * held * again,
        "head_s": m * head,
        "launch_s": m * held * launch,
        "tensor_s": m * held * (tensor + again_tensor),
        "context_s": m * held * context,
        "expert_s": m * held * expert,
        "pipeline_send_s": m * send,
        "bubble_s": bubble,
        "data_s": data,
        "optimizer_s": optimizer,
        "overhead_s": job.constants.step_overhead_s + 0.0 * m,
    }
    return Step(terms)


def _selective_s(job: Job, mean: Any) -> Any:
    """Recomputing only the attention core; a flash kernel does that anyway."""
    return 0.0 if job.software.flash_attention else mean("attention_forward")


def _tensor_s(job: Job, x: Layout) -> Real:
    """Two all-reduces of the T·h activations forward and two backward; inside a domain a part hides behind the products."""
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES
    whole = np.where(x.tensor > 1, 4 * all_reduce_s(size, x.tensor, 1.0, job.machine.fabric), 0.0)
    inside = job.software.overlaps & (x.tensor <= job.machine.fabric.domain_gpus)
    return whole * np.where(inside, 1 - job.constants.tensor_overlap_share, 1.0)


def _context_s(job: Job, x: Layout) -> Real:
    """Keys and values passed round the ring of context ranks, once forward and twice (with gradients) backward."""
    n = job.network
    values = 2 * n.kv_heads * n.head_dim if n.latent is None else n.heads * (n.query_dim + n.value_dim)
    size = x.micro_batch * job.seq * values / x.tensor * VALUE_BYTES
    return np.where(x.context > 1, 3 * all_gather_s(size, x.context, x.tensor, job.machine.fabric), 0.0)


def _expert_s(job: Job, x: Layout) -> Real:
    """Tokens to their k experts and back, forward and backward: four exchanges of T·h values a layer."""
    e = job.network.experts
    if e is None:
        return 0.0
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES / x.tensor
    once = dispatch_s(size, e.per_token, x.expert, x.tensor * x.context, job.machine.fabric)
    return np.where(x.expert > 1, 4 * once, 0.0)


def _send_s(job: Job, x: Layout) -> Real:
    """Activations to the next stage and their gradients back, once a chunk and micro-batch."""
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES
    size = size / x.tensor if job.software.scatter_gather_pipeline else size
    once = send_s(size, x.tensor * x.context * x.data, job.machine.fabric)
    hidden = job.software.overlaps & (x.interleave > 1)
    return np.where((x.pipeline > 1) & ~hidden, 2 * x.interleave * once, 0.0)


def _head_s(job: Job, x: Layout) -> Real:
    """Logits forward and backward and the loss, on the last stage, for one micro-batch."""
    n = job.network
    tokens = x.micro_batch * job.seq / x.context
    products = 3 * matmul_s(tokens, n.vocabulary / x.tensor, n.hidden, job.machine.wide)
    return products + streaming_s(LOSS_BYTES_PER_LOGIT * tokens * n.vocabulary / x.tensor, job.machine.matmul)


def _accumulate_s(job: Job, x: Layout, m: Real) -> Real:
    """Adding each micro-batch's weight gradients to the sum kept, as a pass of its own: read both, write one."""
    if job.software.fused_accumulation:
        return 0.0
    outside, experts = rank_parameters(job.network, x)
    moved = 2 * job.software.gradient_bytes + VALUE_BYTES
    return m * streaming_s(moved * (outside + experts), job.machine.matmul)


def _data_s(job: Job, x: Layout, forward_s: Real, backward_s: Real, micro_s: Real, m: Real) -> Real:
    """Exchange over data ranks that compute does not hide.

    ZeRO 0: gradients all-reduced once a step; 1, 2: scattered, and the updated weights gathered; 3: weights gathered for
    every forward and backward (and by the older framework once more to recompute) and gradients scattered, for every
    micro-batch, in rings whose every step costs a latency.
    """
    fabric, g = job.machine.fabric, job.software.gradient_bytes
    outside, experts = rank_parameters(job.network, x)
    ranks, stride = x.data * x.context, x.tensor
    apart = np.maximum(x.data / x.expert, 1) * x.context

    def each(exchange: Any, width: float, over: Any) -> Any:
        a = exchange(outside * width, ranks, stride, over)
        if job.network.experts is None:
            return a
        return a + exchange(experts * width, apart, stride * x.expert, over) * (apart > 1)

    scatter, gather = each(reduce_scatter_s, g, fabric), each(all_gather_s, VALUE_BYTES, fabric)
    if job.software.overlaps:
        hidden = job.constants.data_overlap_share
        times_scattered = np.where(x.zero == 2, m, 1)  # gradients kept in pieces leave after every micro-batch
        scatter = times_scattered * np.maximum(scatter - hidden * backward_s, LAST_BUCKET * scatter)
        gather = np.maximum(gather - hidden * forward_s, LAST_BUCKET * gather)
        once = scatter + gather
    else:
        once = np.where(x.zero == 0, each(all_reduce_s, g, fabric), scatter + gather)
    times = 2 if job.software.overlaps else 2 + (x.recompute == FULL)
    latency = stage_layers(job.network.layers, x) * ring_latency_s(ranks, stride, fabric)  # one collective a layer
    one = each(_gather_sharded_s, VALUE_BYTES, job.machine) + latency
    gathered, reduced = times * one, one
    c = job.constants
    if job.software.overlaps:
        both = np.minimum(gathered + reduced, micro_s)
        exposed = gathered + reduced - both * (1 - c.overlap_slowdown_share)
    else:
        exposed = gathered - np.minimum(gathered, micro_s) * (1 - c.prefetch_miss_share) + reduced
    return np.where(ranks > 1, np.where(x.zero == 3, m * exposed, once), 0.0)


def _gather_sharded_s(total_bytes: Real, ranks: Real, stride: Real, on: Machine) -> Real:
    """An all-gather in many small pieces: across domains it keeps one adapter busy, however many its members share."""
    ring = ring_bytes_per_s(ranks, stride, on.fabric)
    across = ranks > members_per_domain(ranks, stride, on.fabric)
    speed: Real = np.where(across, np.minimum(ring, on.shard_bytes_per_s), ring)
    return (ranks - 1) / ranks * total_bytes / speed


def _optimizer_s(job: Job, x: Layout) -> Real:
    """Adam over the parameters a rank owns: all of its own without ZeRO, 1/data of them with it."""
    outside, experts = rank_parameters(job.network, x)
    owners = np.where(x.zero >= 1, x.data * x.context, 1)
    owned = outside / owners + experts / np.maximum(owners / x.expert, 1)
    return streaming_s(OPTIMIZER_BYTES_PER_PARAMETER * owned, job.machine.matmul)
