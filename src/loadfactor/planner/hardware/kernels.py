"""Seconds of one GPU kernel, from its shape and the accelerator, and of collectives and sends between GPUs.

Every argument may be a number or an array of them (one element a layout or a batch size): the same equation draws the
breakdown of one plan and scores a hundred thousand. Nothing here knows training from serving.

A group of `ranks` whose members are `stride` GPUs apart lies partly inside scale-up domains (NVLink) and partly across them
(the network). A ring runs at the speed of its slowest link: inside the domain `scale_up`, across domains the adapters of all
the members that share a domain together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Real = float | npt.NDArray[Any]  # a number or an array of them


@dataclass(frozen=True)
class KernelSpeed:
    """Speed that an accelerator reaches in a kernel: its datasheet peaks and the shares of them real kernels get.

    `matmul_share` of `peak_flops` is what the largest matrix product reaches; a product loses half of its speed along a
    dimension of `matmul_half_dim`. `memory_share` of `memory_bytes_per_s` is what a streaming kernel reaches.
    `launch_s` is what the host needs to start one kernel.
    """

    peak_flops: float
    memory_bytes_per_s: float
    matmul_share: float
    matmul_half_dim: float
    memory_share: float
    launch_s: float


def matmul_efficiency(m: Real, n: Real, k: Real, speed: KernelSpeed) -> Real:
    """Share of peak FLOP/s that an [m,k]×[k,n] product reaches while it is bound by arithmetic.

    matmul_share / ((1 + d/m)(1 + d/n)(1 + d/k)): tiles at the edges and the first loads of every tile cost as much as `d`
    more rows, columns and inner steps would; symmetric, so the two products of the backward pass cost the same.

    >>> a100 = KernelSpeed(312e12, 2.039e12, 0.8, 64, 0.85, 5e-6)
    >>> round(float(matmul_efficiency(64, 1e9, 1e9, a100)), 3)     # one dimension at the half point
    0.4
    """
    d = speed.matmul_half_dim
    return speed.matmul_share / ((1 + d / m) * (1 + d / n) * (1 + d / k))


def matmul_s(
    m: Real, n: Real, k: Real, speed: KernelSpeed, batch: Real = 1, weight_bytes: float = 2, value_bytes: float = 2
) -> Real:
    """Seconds of `batch` products [m,k]×[k,n]: arithmetic or memory traffic, whichever takes longer.

    2·m·n·k FLOPs against m·k and m·n values and k·n weights moved once. Decoding one token (m = 1) is bound by the weights.

    >>> a100 = KernelSpeed(312e12, 2e12, 0.8, 0, 1.0, 5e-6)
    >>> float(matmul_s(8192, 8192, 8192, a100)) == 2 * 8192**3 / (0.8 * 312e12)
    True
    >>> round(float(matmul_s(1, 4096, 4096, a100)) * 1e6, 2)       # 33.6 MB of weights and 16 kB of values at 2 TB/s
    16.79
    """
    arithmetic_s = 2.0 * m * n * k / (speed.peak_flops * matmul_efficiency(m, n, k, speed))
    moved_bytes = (m * k + m * n) * value_bytes + k * n * weight_bytes
    result: Real = batch * np.maximum(arithmetic_s, moved_bytes / (speed.memory_bytes_per_s * speed.memory_share))
    return result


def streaming_s(moved_bytes: Real, speed: KernelSpeed) -> Real:
    """Seconds of a memory-bound pass (norm, softmax, dropout, optimizer) that reads and writes this many bytes in all.

    >>> streaming_s(1.7e12, KernelSpeed(312e12, 2e12, 0.8, 64, 0.85, 5e-6))
    1.0
    """
    return moved_bytes / (speed.memory_bytes_per_s * speed.memory_share)


RING_HOP_S = 1.5e-6  # one step of a ring inside a domain: a flag and a copy over NVLink


@dataclass(frozen=True)
class Fabric:
    """The two links a GPU has, bytes/s per GPU and direction, the shares of them that collectives reach, and latencies."""

    domain_gpus: int
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    scale_up_share: float
    scale_out_share: float
    scale_up_latency_s: float
    scale_out_latency_s: float

    @property
    def up_bytes_per_s(self) -> float:
        """Speed of a collective inside the domain, bytes/s per GPU."""
        return self.scale_up_bytes_per_s * self.scale_up_share

    @property
    def out_bytes_per_s(self) -> float:
        """Speed of a collective through one GPU's share of the adapters, bytes/s."""
        return self.scale_out_bytes_per_s * self.scale_out_share


def members_per_domain(ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """How many members of a group lie in one scale-up domain.

    >>> hgx = Fabric(8, 300e9, 25e9, 1, 1, 0, 0)
    >>> [int(members_per_domain(32, s, hgx)) for s in (1, 2, 8, 64)]
    [8, 4, 1, 1]
    """
    result: Real = np.clip(np.floor(fabric.domain_gpus / stride), 1, ranks)
    return result


def ring_bytes_per_s(ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """Speed of a ring through the group: NVLink if it fits in a domain, else the adapters its members in a domain share.

    >>> hgx = Fabric(8, 300e9, 25e9, 1, 1, 0, 0)
    >>> [float(ring_bytes_per_s(n, s, hgx)) / 1e9 for n, s in ((8, 1), (16, 1), (4, 8))]
    [300.0, 200.0, 25.0]
    """
    inside = members_per_domain(ranks, stride, fabric)
    across = np.minimum(fabric.up_bytes_per_s, inside * fabric.out_bytes_per_s)
    result: Real = np.where(ranks > inside, across, fabric.up_bytes_per_s)
    return result


def _latency_s(ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """One way through the group by a tree: its depth inside a domain and across domains, each at that link's latency."""
    inside = members_per_domain(ranks, stride, fabric)
    domains = np.ceil(ranks / inside)
    result: Real = (
        np.ceil(np.log2(np.maximum(inside, 1))) * fabric.scale_up_latency_s
        + np.ceil(np.log2(np.maximum(domains, 1))) * fabric.scale_out_latency_s
    )
    return result


def ring_latency_s(ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """Seconds of the steps of a ring through every rank, however little is sent: one hop a rank, the long ones between domains.

    Matters for large groups that gather little at a time (fully sharded data parallelism); a tree has no such cost.

    >>> round(float(ring_latency_s(16, 1, Fabric(8, 300e9, 25e9, 1, 1, 5e-6, 20e-6))) * 1e6, 1)     # 14 short hops, 2 long
    61.0
    """
    inside = members_per_domain(ranks, stride, fabric)
    domains = np.ceil(ranks / inside)
    result: Real = (ranks - domains) * RING_HOP_S + np.where(domains > 1, domains, 0) * fabric.scale_out_latency_s
    return result


def all_gather_s(total_bytes: Real, ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """Seconds until every rank of the group has all `total_bytes`, of which each held 1/ranks: (n-1)/n·bytes ÷ ring.

    >>> float(all_gather_s(8e9, 8, 1, Fabric(8, 300e9, 25e9, 1, 1, 0, 0)) * 300)      # 7 of 8 GB arrive
    7.0
    """
    return (ranks - 1) / ranks * total_bytes / ring_bytes_per_s(ranks, stride, fabric) + _latency_s(
        ranks, stride, fabric
    )


def reduce_scatter_s(total_bytes: Real, ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """Seconds until each rank holds its 1/ranks of the sum of everybody's `total_bytes`: the gather run backwards."""
    return all_gather_s(total_bytes, ranks, stride, fabric)


def all_reduce_s(total_bytes: Real, ranks: Real, stride: Real, fabric: Fabric) -> Real:
    """Seconds until every rank has the sum of everybody's `total_bytes`: a reduce-scatter, then a gather.

    2(n-1)/n·bytes ÷ ring: tensor parallelism of 8 over NVLink, then of 16 over the network (economics §1.9's cliff).

    >>> hgx = Fabric(8, 240e9, 25e9, 1, 1, 0, 0)
    >>> round(float(all_reduce_s(50e6, 8, 1, hgx)) * 1e3, 3), round(float(all_reduce_s(50e6, 2, 8, hgx)) * 1e3, 3)
    (0.365, 2.0)
    """
    return 2 * all_gather_s(total_bytes, ranks, stride, fabric)


def dispatch_s(
    token_bytes: Real, copies: int, ranks: Real, stride: Real, fabric: Fabric, most_domains: int | None = None
) -> Real:
    """Seconds to send every token (`token_bytes` of a rank in all) to `copies` random members: experts, or back from them.

    A token crosses to each other domain at most once, (D-1)(1-(1-1/D)^copies) times on average over D domains, and is handed
    on inside it (hierarchical dispatch, as DeepEP does). Network and scale-up link work at the same time.
    `most_domains`: routing keeps a token to this many of them, its own or others.

    >>> hgx = Fabric(8, 400e9, 50e9, 1, 1, 0, 0)
    >>> round(float(dispatch_s(50e6, 8, 64, 1, hgx)) * 1e3, 3)      # 8 nodes: 4.6 copies of 50 MB at 50 GB/s
    4.595
    >>> round(float(dispatch_s(50e6, 8, 8, 1, hgx)) * 1e3, 3)       # one node: 7 of 8 copies over NVLink
    0.875
    """
    inside = members_per_domain(ranks, stride, fabric)
    domains = np.maximum(ranks / inside, 1)
    crossing = (domains - 1) * (1 - (1 - 1 / domains) ** copies)
    if most_domains:
        crossing = np.minimum(crossing, most_domains * (domains - 1) / domains)
    up_s = token_bytes * copies * (inside - 1) / inside / fabric.up_bytes_per_s
    result: Real = np.maximum(up_s, token_bytes * crossing / fabric.out_bytes_per_s) + _latency_s(ranks, stride, fabric)
    return result


def send_s(sent_bytes: Real, stride: Real, fabric: Fabric) -> Real:
    """Seconds to send to the GPU `stride` further on: over NVLink while that is in the same domain, else the network.

    >>> hgx = Fabric(8, 300e9, 25e9, 1, 1, 0, 0)
    >>> float(send_s(25e9, 8, hgx)), float(send_s(300e9, 4, hgx))
    (1.0, 1.0)
    """
    far = stride >= fabric.domain_gpus
    speed = np.where(far, fabric.out_bytes_per_s, fabric.up_bytes_per_s)
    result: Real = sent_bytes / speed + np.where(far, fabric.scale_out_latency_s, fabric.scale_up_latency_s)
    return result
