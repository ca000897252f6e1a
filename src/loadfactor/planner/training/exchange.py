"""Seconds that data-, tensor-, context-, expert- and pipeline-parallel ranks exchange data without hiding it behind compute."""

from functools import partial
from typing import Any

import numpy as np

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
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.training.job import (
    VALUE_BYTES,
    TrainingJob,
    rank_parameters,
    rank_trained,
    shard_ranks,
    stage_layers,
)
from loadfactor.planner.training.layout import FULL, TrainingLayout

LAST_BUCKET = 0.05  # of an exchange over data ranks: the last gradients have no backward left to hide behind


def tensor_exchange_s(job: TrainingJob, x: TrainingLayout) -> Real:
    """Two all-reduces of the T·h activations forward and two backward; inside a domain a part hides behind the products."""
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES
    whole = np.where(x.tensor > 1, 4 * all_reduce_s(size, x.tensor, 1.0, job.machine.fabric), 0.0)
    hides = job.software.overlaps and job.software.overlaps_tensor
    inside = hides & (x.tensor <= job.machine.fabric.domain_gpus)
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
    size = x.micro_batch * job.seq / x.context * job.network.hidden * VALUE_BYTES
    size = size / x.tensor if job.software.scatter_gather_pipeline else size
    once = send_s(size, x.tensor * x.context * x.data, job.machine.fabric)
    hidden = job.software.overlaps & (x.interleave > 1)
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
    if job.software.overlaps:
        times_scattered = np.where(x.zero == 2, m, 1)  # gradients kept in pieces leave after every micro-batch
        once = times_scattered * _leave_exposed(job, scatter, backward_s) + _leave_exposed(job, gather, forward_s)
    else:
        once = np.where(x.zero == 0, each(all_reduce_s, g, fabric, trained), scatter + gather)
    return np.where(ranks > 1, np.where(x.zero == 3, _sharded_exchange_s(job, x, backward_s, micro_s, m), once), 0.0)


def _sharded_exchange_s(job: TrainingJob, x: TrainingLayout, backward_s: Real, micro_s: Real, m: Real) -> Real:
    """What is exposed of the exchange of fully sharded ranks (ZeRO-3, FSDP)."""
    ranks, trained = shard_ranks(job, x), rank_trained(job, x)
    each = partial(_exchange_parts, job, x, ranks)
    times = 2 if job.software.overlaps else 2 + (x.recompute == FULL)
    latency = stage_layers(job.network.layers, x) * ring_latency_s(ranks, x.tensor, job.machine.fabric)  # one a layer
    width = job.adapters.frozen_bytes if job.adapters else VALUE_BYTES
    gathered = times * (each(_gather_sharded_s, width, job, rank_parameters(job.network, x)) + latency)
    reduced = each(_gather_sharded_s, VALUE_BYTES, job, trained) + latency
    c = job.constants
    if not job.software.overlaps:
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
    """What is not hidden behind a pass: what lasts longer, and the last piece."""
    return np.maximum(exchange_s - job.constants.data_overlap_share * behind_s, LAST_BUCKET * exchange_s)


def _gather_sharded_s(total_bytes: Real, ranks: Real, stride: Real, job: TrainingJob) -> Real:
    """An all-gather in many small pieces: across domains, older software keeps one adapter busy, however many its members share."""
    fabric = job.machine.fabric
    ring = ring_bytes_per_s(ranks, stride, fabric)
    across = (ranks > members_per_domain(ranks, stride, fabric)) & (not job.software.gathers_by_all_adapters)
    speed: Real = np.where(across, np.minimum(ring, job.machine.shard_bytes_per_s), ring)
    return (ranks - 1) / ranks * total_bytes / speed
