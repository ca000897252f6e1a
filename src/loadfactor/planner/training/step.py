"""Seconds of one training step, term by term; the terms sum to the step. One layout or arrays of many."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loadfactor.planner.hardware.kernels import (
    Real,
    all_gather_s,
    all_reduce_s,
    dispatch_s,
    matmul_s,
    members_per_domain,
    reduce_scatter_s,
    ring_bytes_per_s,
    ring_latency_s,
    send_s,
    streaming_s,
)
from loadfactor.planner.training.job import (
    VALUE_BYTES,
    TrainingJob,
    missing_layers,
    rank_parameters,
    rank_trained,
    shard_ranks,
    stage_layers,
)
from loadfactor.planner.training.layer import LayerSeconds, awaited_kernels, kernels_per_layer, mean_layer_seconds
from loadfactor.planner.training.layout import FULL, SELECTIVE, TrainingLayout

LAST_BUCKET = 0.05  # of an exchange over data ranks: the last gradients have no backward left to hide behind


def tensor_exchange_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Two all-reduces of the T·h activations forward and two backward; inside a domain a part hides behind the products.

    Where every product reduces the gradient of what it reads by itself, a gated MLP has one more.
    """
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES
    more = np.where(x.sequence_parallel, 0, job.software.reduces_by_product & job.network.gated_mlp)
    whole = np.where(x.tensor > 1, (4 + more) * all_reduce_s(size, x.tensor, 1.0, job.machine.fabric), 0.0)
    inside = job.software.tp_overlap & (x.tensor <= job.machine.fabric.domain_gpus)
    return whole * np.where(inside, 1 - job.constants.tensor_overlap_share, 1.0)


def context_exchange_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Keys and values passed round the ring of context ranks, once forward and twice (with gradients) backward.

    All-to-all (DeepSpeed-Ulysses, arXiv:2309.14509 section 3.2): queries, keys and values of a rank's tokens go to the ranks that
    have their heads, what comes out goes back, and their gradients the other way.
    """
    n = job.network
    if job.software.context_by == "all-to-all":
        moved = n.heads * (n.query_dim + n.value_dim) + 2 * n.kv_heads * n.head_dim
        sent = x.micro_batch * job.seq / x.context * moved / x.tensor * VALUE_BYTES
        return np.where(x.context > 1, 2 * dispatch_s(sent, 1, x.context, x.tensor, job.machine.fabric), 0.0)
    values = 2 * n.kv_heads * n.head_dim if n.latent is None else n.heads * (n.query_dim + n.value_dim)
    size = x.micro_batch * job.seq * values / np.minimum(x.tensor, n.kv_heads) * VALUE_BYTES
    return np.where(x.context > 1, 3 * all_gather_s(size, x.context, x.tensor, job.machine.fabric), 0.0)


def expert_exchange_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Tokens to their k experts and back, forward and backward: four exchanges of T·h values, averaged over all layers."""
    e = job.network.experts
    if e is None:
        return 0.0
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES / x.tensor
    stride = np.where(x.expert > x.data, x.expert_tensor, x.tensor * x.context)
    once = dispatch_s(size, e.per_token, x.expert, stride, job.machine.fabric, e.most_nodes)
    share: Real = np.where(x.expert > 1, 4 * once, 0.0) * (job.network.moe_layers / job.network.layers)
    return share


def pipeline_send_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Activations to the next stage and their gradients back, once a chunk and micro-batch."""
    # each tensor rank sends its own part
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES / x.tensor
    once = send_s(size, x.tensor * x.context * x.data, job.machine.fabric)
    hidden = job.software.pp_overlap & (x.interleave > 1)
    return np.where((x.pipeline > 1) & ~hidden, 2 * x.interleave * once, 0.0)


def data_exchange_s(
    job: TrainingJob, x: TrainingLayout, forward_s: Real, backward_s: Real, micro_s: Real, m: Real
) -> Real:
    """Exchange over data ranks that compute does not hide.

    ZeRO 0: gradients all-reduced once a step; 1, 2: scattered, and the updated weights gathered; 3: weights gathered for
    every forward and backward (and by the older framework once more to recompute) and gradients scattered, for every
    micro-batch, in rings whose every step costs a latency. Where weights are sharded inside a domain, the domains sum what
    their ranks hold once a step.
    """
    fabric, g = job.machine.fabric, job.software.gradient_bytes
    trained = rank_trained(job, x)
    ranks = x.data * x.context
    each = partial(_exchange_parts, job, x, ranks)
    scatter, gather = each(reduce_scatter_s, g, fabric, trained), each(all_gather_s, VALUE_BYTES, fabric, trained)
    if job.software.shards_inside:
        near = _exchange_parts(job, x, shard_ranks(job, x), all_gather_s, VALUE_BYTES, fabric, trained)
        gather = each(all_reduce_s, g, fabric, trained) - scatter + near
    elif job.software.optimizer_gathers == "broadcasts":
        gather = gather + ranks * job.constants.broadcast_s
    if job.software.dp_overlap:
        times_scattered = np.where(x.zero == 2, m, 1)  # gradients kept in pieces leave after every micro-batch
        once = times_scattered * _leave_exposed(job, scatter, backward_s) + _leave_exposed(job, gather, forward_s)
    else:
        once = np.where(x.zero == 0, each(all_reduce_s, g, fabric, trained), scatter + gather)
    return np.where(ranks > 1, np.where(x.zero == 3, _sharded_exchange_s(job, x, backward_s, micro_s, m), once), 0.0)


def _sharded_exchange_s(job: TrainingJob, x: TrainingLayout, backward_s: Real, micro_s: Real, m: Real) -> Real:
    """Exposed part of the exchange of fully sharded ranks (ZeRO-3, FSDP)."""
    ranks, trained = shard_ranks(job, x), rank_trained(job, x)
    each = partial(_exchange_parts, job, x, ranks)
    times: Real = 2 + (x.recompute == FULL) * job.software.gathers_to_recompute
    latency = stage_layers(job.network.layers, x) * ring_latency_s(ranks, x.tensor, job.machine.fabric)  # one a layer
    width = job.adapters.frozen_bytes if job.adapters else VALUE_BYTES
    gathered = times * (each(_gather_sharded_s, width, job, rank_parameters(job.network, x)) + latency)
    reduced = each(_gather_sharded_s, VALUE_BYTES, job, trained) + latency
    c = job.constants
    if not job.software.dp_overlap:
        return m * (gathered - np.minimum(gathered, micro_s) * (1 - c.prefetch_miss_share) + reduced)
    both = np.minimum(gathered + reduced, micro_s)
    exposed = m * (gathered + reduced - both * (1 - c.overlap_slowdown_share))
    copies = x.data * x.context / ranks
    own = sum(trained) * job.software.gradient_bytes / ranks
    summed = np.where(copies > 1, all_reduce_s(own, np.maximum(copies, 1), x.tensor * ranks, job.machine.fabric), 0.0)
    return exposed + (summed if job.software.sums_at_end else _leave_exposed(job, summed, backward_s))


def _exchange_parts(
    job: TrainingJob, x: TrainingLayout, ranks: Real, exchange: Any, width: float, over: Any, of: tuple[Real, Real]
) -> Real:
    """An exchange of what ranks hold outside the experts, and of the experts over those that hold the same ones."""
    outside, experts = of
    a: Real = exchange(outside * width, ranks, x.tensor, over)
    if job.network.experts is None:
        return a
    apart = x.expert_copies
    result: Real = a + exchange(experts * width, apart, x.expert_tensor * x.expert, over) * (apart > 1)
    return result


def _leave_exposed(job: TrainingJob, exchange_s: Real, behind_s: Real) -> Real:
    """Seconds not hidden behind a pass: what lasts longer, and the last piece."""
    return np.maximum(exchange_s - job.constants.data_overlap_share * behind_s, LAST_BUCKET * exchange_s)


def _gather_sharded_s(total_bytes: Real, ranks: Real, stride: Real, job: TrainingJob) -> Real:
    """An all-gather in many small pieces: across domains, older software keeps one adapter busy, however many its members share."""
    fabric = job.machine.fabric
    ring = ring_bytes_per_s(ranks, stride, fabric)
    across = (ranks > members_per_domain(ranks, stride, fabric)) & (not job.software.gathers_by_all_adapters)
    speed: Real = np.where(across, np.minimum(ring, job.machine.shard_bytes_per_s), ring)
    return (ranks - 1) / ranks * total_bytes / speed


LOSS_BYTES_PER_LOGIT = 26  # product w2, to 32 bits r2 w4, max r4, exp and sum r4 w4, gradient r4 w2
EAGER_LOSS_BYTES = 20  # more where the loss is not one kernel: copies in 32 bits, softmax and gradient apart
HOST_TRIPS = 4  # weights up for forward, recomputation and backward, gradients down
HOST_MEMORY_BYTES_PER_S = 40e9  # a GPU's share of its host's memory, where processors step the optimizer
TERMS = (
    "matmul_s",
    "attention_s",
    "elementwise_s",
    "recompute_s",
    "dequantize_s",
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
class StepTime:
    """Seconds of one step by term, arrays with one element a layout; the terms sum to `step_s`."""

    terms: Mapping[str, Any]

    @property
    def step_s(self) -> Any:
        return sum(self.terms.values())


def estimate_step(job: TrainingJob, layout: TrainingLayout) -> StepTime:
    """The seconds of one training step by term.

    1F1B pipeline of p stages, m micro-batches, v chunks a stage (arXiv:2104.04473 §2.2): the fullest stage works m times,
    and the pipeline fills and drains through the p-1 others once, 1/v of the time when interleaved:
    step = m·busiest + (p-1)·other/v + what is not hidden of the exchange over data ranks + optimizer.
    Where layers do not divide, the last stage has the fewer, so that its head stands in their place.
    On paper: 8 stages, 64 micro-batches, one chunk leave a bubble of 7/64 of the work of a stage without the head.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 64, a100, find_software("megatron", "2022-05"))
    >>> t = {name: float(np.ravel(s)[0]) for name, s in estimate_step(job, TrainingLayout(8, 8, recompute=FULL)).terms.items()}
    >>> work = sum(s for n, s in t.items() if n not in ("bubble_s", "head_s", "data_s", "optimizer_s", "overhead_s"))
    >>> round(t["bubble_s"] / work, 6) == round(7 / 64, 6)
    True
    """
    x = layout.as_arrays()
    m = x.micro_batches(job.global_batch)
    held = stage_layers(job.network.layers, x)
    layer = mean_layer_seconds(job, x)
    full = np.where(x.recompute == FULL, x.recompute_share, 0.0)  # of the layers
    again = full * (layer.forward - (0.0 if job.software.reruns_whole_layers else layer.matmul_down))
    again = np.where(x.recompute == SELECTIVE, _selected_s(job, layer), again)
    reran = np.where((x.recompute == SELECTIVE) & (job.software.recomputes == "products"), 0.5, full)
    tensor = tensor_exchange_s(job, x) * (1 + reran / 2)
    expert = expert_exchange_s(job, x) * (1 + full / 2)
    if job.software.hides_experts:
        expert = np.maximum(expert - layer.forward - layer.backward, 0.0)
    behind = layer.attention_forward + layer.attention_backward if job.software.context_by == "ring" else 0.0
    context = np.maximum(context_exchange_s(job, x) - behind, 0.0)
    device = layer.forward + layer.backward + again + tensor + expert + context
    forward_kernels, backward_kernels = kernels_per_layer(job, x)
    kernels = forward_kernels * (1 + full) + backward_kernels
    if job.adapters:
        kernels = kernels + job.adapters.kernels(job.network) * (3 + full)
    launch = np.maximum(
        kernels * job.machine.matmul.launch_s - device, awaited_kernels(job, x) * job.machine.matmul.launch_s
    )
    send, head = pipeline_send_s(job, x), _head_s(job, x)
    head = np.maximum(head - missing_layers(job.network.layers, x) * (device + launch), 0.0)
    terms = {
        "matmul_s": m * held * (layer.matmul_forward + layer.matmul_backward),
        "attention_s": m * held * (layer.attention_forward + layer.attention_backward),
        "elementwise_s": m * held * (layer.elementwise_forward + layer.elementwise_backward) + _accumulate_s(job, x, m),
        "recompute_s": m * held * again,
        "dequantize_s": m * (2 + full) * _dequantize_s(job, x),
        "head_s": m * head,
        "launch_s": m * held * launch,
        "tensor_s": m * held * tensor,
        "context_s": m * held * context,
        "expert_s": m * held * expert,
        "pipeline_send_s": m * send,
        "bubble_s": ((job.network.layers - held) * (device + launch) + (x.pipeline - 1) * send) / x.interleave,
        "data_s": data_exchange_s(job, x, held * layer.forward, held * layer.backward, held * device + head, m),
        "optimizer_s": _optimizer_s(job, x),
        "overhead_s": job.constants.step_overhead_s + 0.0 * m,
    }
    domains = np.maximum(x.gpus / job.machine.fabric.domain_gpus, 1)
    waiting = job.constants.straggler_share * np.sqrt(2 * np.log(domains))  # the largest of n alike times
    terms["overhead_s"] = terms["overhead_s"] + waiting * sum(terms.values())
    factor = job.calibration.step_factor
    return StepTime({name: factor * term for name, term in terms.items()})


def estimate_forward(job: TrainingJob, layout: TrainingLayout) -> Real:
    """Seconds of a forward pass alone over a step's batch, as the logarithms of probabilities take it: no gradient, no optimizer.

    Half of a step's exchange over tensor and expert ranks and a third of its logits are forward; weights that are sharded are
    gathered once for each micro-batch, behind it.
    """
    x = layout.as_arrays()
    m, held, layer = x.micro_batches(job.global_batch), stage_layers(job.network.layers, x), mean_layer_seconds(job, x)
    expert = expert_exchange_s(job, x) / 2
    if job.software.hides_experts:
        expert = np.maximum(expert - layer.forward, 0.0)
    device = layer.forward + tensor_exchange_s(job, x) / 2 + expert + context_exchange_s(job, x) / 3
    launch = np.maximum(kernels_per_layer(job, x)[0] * job.machine.matmul.launch_s - device, 0.0)
    micro = held * (device + launch) + _head_s(job, x) / 3 + pipeline_send_s(job, x) / 2
    filled = m * micro + (job.network.layers - held) * (device + launch) / x.interleave
    width = job.adapters.frozen_bytes if job.adapters else VALUE_BYTES
    gathered = _exchange_parts(
        job, x, shard_ranks(job, x), _gather_sharded_s, width, job, rank_parameters(job.network, x)
    )
    exposed = np.where((x.zero == 3) & (x.data * x.context > 1), np.maximum(m * gathered - filled, 0.0), 0.0)
    result: Real = job.calibration.step_factor * (filled + exposed)
    return result


def _selected_s(job: TrainingJob, layer: LayerSeconds) -> Real:
    """Seconds that selective recomputation runs again in a layer; a flash kernel recomputes the attention core in any case."""
    if not job.software.flash_attention:
        return layer.attention_forward
    return layer.matmul_forward / 2 + layer.elementwise_forward if job.software.recomputes == "products" else 0.0


def _head_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Logits forward and backward and the loss, on the last stage, for one micro-batch."""
    n = job.network
    tokens = x.micro_batch * job.seq / x.context
    products = (2 if job.adapters else 3) * matmul_s(tokens, n.vocabulary / x.tensor, n.hidden, job.machine.wide)
    moved = LOSS_BYTES_PER_LOGIT + (0 if job.software.fused else EAGER_LOSS_BYTES)
    if not job.software.gathers_logits:
        return products + streaming_s(moved * tokens * n.vocabulary / x.tensor, job.machine.matmul)
    exchange = all_gather_s(VALUE_BYTES * tokens * n.vocabulary, x.tensor, 1.0, job.machine.fabric)
    return (
        products
        + np.where(x.tensor > 1, exchange, 0.0)
        + streaming_s(moved * tokens * n.vocabulary, job.machine.matmul)
    )


def _accumulate_s(job: TrainingJob, x: TrainingLayout, m: Real) -> Real:
    """Adding each micro-batch's weight gradients to the sum kept, as a pass of its own: read both, write one."""
    if job.software.fused_accumulation:
        return 0.0
    outside, experts = rank_trained(job, x)
    moved = 2 * job.software.gradient_bytes + VALUE_BYTES
    return m * streaming_s(moved * (outside + experts), job.machine.matmul)


def _dequantize_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Reading a rank's quantized weights and writing them in 16 bits, before each pass of a micro-batch."""
    if job.adapters is None or not job.adapters.quantized:
        return 0.0
    outside, experts = rank_parameters(job.network, x)
    return streaming_s((job.adapters.frozen_bytes + VALUE_BYTES) * (outside + experts), job.machine.matmul)


def _optimizer_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Adam over the parameters a rank owns: all of its own without ZeRO, 1/data of them with it."""
    outside, experts = rank_trained(job, x)
    owners = np.where(x.zero >= 1, shard_ranks(job, x), 1)
    owned = outside / owners + experts / np.where(x.zero >= 1, x.expert_copies, 1)
    moved = job.software.optimizer_moved_bytes * owned
    if job.software.optimizer_on_host:
        return moved / HOST_MEMORY_BYTES_PER_S + HOST_TRIPS * VALUE_BYTES * owned / job.machine.host_bytes_per_s
    return streaming_s(moved, job.machine.matmul)
