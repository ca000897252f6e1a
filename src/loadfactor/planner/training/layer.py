"""Seconds of one transformer layer for one micro-batch: matrix products, attention, memory-bound passes.

Forward seconds and backward seconds are kept apart by kind, so that a step can be put together for any recomputation.
Shapes: a micro-batch is b sequences of s tokens; a rank holds T = b·s/c of its tokens (c context ranks) and 1/t of every
matrix (t tensor ranks). 16-bit values. Source of the counts: arXiv:2104.04473 §3, arXiv:2205.05198 §4.
"""

from dataclasses import dataclass, fields

import numpy as np

from loadfactor.catalog.models import Network
from loadfactor.planner.hardware.kernels import KernelSpeed, Real, matmul_s, streaming_s
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout

KERNELS_FORWARD = 40  # kernels a layer starts: two norms, four products, attention, activation, residuals, copies
KERNELS_BACKWARD = 60
EXPERT_KERNELS = 40  # more where there are experts: router, sort, exchange, weighted sum; as many again backward
WIDE_HEAD = 128  # values of a head with which the speeds of attention were measured
BOARD_GPUS = 8  # of a scale-up domain that is a board; more are a rack
PRODUCTS_PER_EXPERT = 2  # each local expert's products are kernels of their own, forward; twice as many backward
EAGER_OUTSIDE_BYTES = (
    56  # more per value of the hidden state where nothing is fused: a norm in 32 bits is six passes of its own
)
EAGER_HEADS_BYTES = 26  # more per value of queries and keys: their rotation in 32 bits
EAGER_WIDTH_BYTES = 4  # more per inner value of a gated MLP: the activation and the product apart
EXPERT_BIAS_BYTES = (
    12  # per value that leaves an expert with a bias: bias times weight w2, sum r2 r2 w2, groups joined again r2 w2
)
SCORE_BYTES_FORWARD = 13  # per score of unfused attention: product w2, softmax r2 w2, dropout r2 w2+1, product r2
SCORE_BYTES_BACKWARD = 19
UNFUSED_SOFTMAX_BYTES = (
    18  # more where they are passes of their own: scale r2 w2, mask r2 w2, to 32 bits w4, back r4 w2
)
CAST_BYTES = 4
FLASH_BACKWARD_FLOPS = 2.5  # five products instead of two (arXiv:2307.08691)


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one layer and one micro-batch on one rank: forward and backward, by kind."""

    matmul_forward: Real
    matmul_backward: Real
    matmul_down: Real  # the part of matmul_forward whose output nothing in the layer keeps
    attention_forward: Real
    attention_backward: Real
    elementwise_forward: Real
    elementwise_backward: Real

    @property
    def forward(self) -> Real:
        return self.matmul_forward + self.attention_forward + self.elementwise_forward

    @property
    def backward(self) -> Real:
        return self.matmul_backward + self.attention_backward + self.elementwise_backward


def mean_layer_seconds(job: TrainingJob, layout: TrainingLayout) -> LayerSeconds:
    """The mean layer of a network whose layers partly have experts: each kind's seconds by its share of the layers."""
    moe_share = job.network.moe_layers / job.network.layers
    if moe_share in (0, 1):
        return layer_seconds(job, layout, moe=moe_share == 1)
    dense, mixed = (layer_seconds(job, layout, moe) for moe in (False, True))
    return LayerSeconds(
        *((1 - moe_share) * getattr(dense, f.name) + moe_share * getattr(mixed, f.name) for f in fields(LayerSeconds))
    )


def layer_seconds(job: TrainingJob, layout: TrainingLayout, moe: bool) -> LayerSeconds:
    """One layer with (moe) or without experts; attention is the mean over the network's kinds of layers.

    On paper, for GPT-3 (h 12,288, s 2,048, micro-batch 1, 8 tensor ranks): 24·s·h² ÷ 8 = 0.93 TFLOP forward, 3.9 ms at the
    239 TFLOP/s that the largest products reach, and somewhat more for their shapes; backward twice that.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> a100 = build_machine(accelerator("a100-sxm"), "fp16")
    >>> job = TrainingJob(network("gpt3-175b"), 2048, 1, a100, find_software("megatron", "2021-04"))
    >>> layer = layer_seconds(job, TrainingLayout(8, micro_batch=1), moe=False)
    >>> paper_s = 24 * 2048 * 12288**2 / 8 / (312e12 * job.constants.matmul_share)
    >>> bool(1.0 < layer.matmul_forward / paper_s < 1.2), bool(layer.matmul_backward == 2 * layer.matmul_forward)
    (True, True)
    """
    network, speed = job.network, job.machine.matmul
    tokens = layout.micro_batch * job.seq / layout.context
    projections = _projections_s(network, tokens, layout.tensor, speed)
    mlp, down = (
        _experts_s(job, tokens, layout) if moe else _mlp_s(network, network.ffn_hidden, tokens, layout.tensor, speed)
    )
    matmul = projections + mlp + down
    elementwise = _elementwise_s(job, tokens, layout, moe)
    again = 1 if job.adapters else 2  # frozen weights need no gradient, only the layer before them does
    return LayerSeconds(matmul, again * matmul, down, *_attention_s(job, layout), elementwise, 1.5 * elementwise)


def _projections_s(network: Network, tokens: Real, t: Real, speed: KernelSpeed) -> Real:
    """Into and out of attention, or of a state that does not grow with context (Mamba-2, gated delta net), by their layers."""
    ordinary = _attention_projections_s(network, tokens, t, speed)
    if network.linear is None:
        return ordinary
    a, share = network.linear, network.linear_layers / network.layers
    keys, values = a.key_heads * a.key_dim, a.value_heads * a.value_dim
    inward = matmul_s(tokens, (2 * keys + 2 * values + 2 * a.value_heads) / t, network.hidden, speed)
    return (1 - share) * ordinary + share * (inward + matmul_s(tokens, network.hidden, values / t, speed))


def _attention_projections_s(network: Network, tokens: Real, t: Real, speed: KernelSpeed) -> Real:
    h, a = network.hidden, network.latent
    out = matmul_s(tokens, h, network.heads * network.value_dim / t, speed)
    if a is None:
        each = network.heads / t + 2 * network.kv_heads / np.minimum(t, network.kv_heads)  # copied beyond one a rank
        return out + matmul_s(tokens, network.head_dim * each, h, speed)
    queries = network.heads * network.query_dim
    if a.q_rank is None:
        q = matmul_s(tokens, queries / t, h, speed)
    else:
        q = matmul_s(tokens, a.q_rank, h, speed) + matmul_s(tokens, queries / t, a.q_rank, speed)
    kv = matmul_s(tokens, a.kv_rank + a.rope_dim, h, speed)
    expanded = matmul_s(tokens, network.heads * (a.nope_dim + a.value_dim) / t, a.kv_rank, speed)
    return out + q + kv + expanded


def kernels_per_layer(job: TrainingJob, layout: TrainingLayout) -> tuple[Real, Real]:
    """Kernels that a mean layer starts, forward and backward.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> job = TrainingJob(network("mixtral-8x7b"), 4096, 64, build_machine(accelerator("h100-sxm")))
    >>> [float(k) for k in kernels_per_layer(job, TrainingLayout(expert=8, data=8))]
    [82.0, 104.0]
    """
    forward, backward = _expert_kernels(job, layout)
    return KERNELS_FORWARD + forward, KERNELS_BACKWARD + backward


def awaited_kernels(job: TrainingJob, layout: TrainingLayout) -> Real:
    """Kernels of a mean layer that the host starts only when the GPU has reported how many tokens each expert got.

    Until then its queue runs empty, so what these take to start is not hidden behind earlier work.
    """
    rack = job.machine.fabric.domain_gpus > BOARD_GPUS  # dispatchers written for racks keep the counts on the GPU
    if job.software.expert_sizes != "host" or rack:
        return 0.0
    return sum(_expert_kernels(job, layout))


def _expert_kernels(job: TrainingJob, layout: TrainingLayout) -> tuple[Real, Real]:
    """Of these the ones of experts; where tokens are dropped all groups are alike and one kernel has them all."""
    e, share = job.network.experts, job.network.moe_layers / job.network.layers
    if e is None:
        return 0.0, 0.0
    products = PRODUCTS_PER_EXPERT * (1 if job.software.expert_sizes == "even" else e.count / layout.expert)
    return share * (EXPERT_KERNELS + products), share * (EXPERT_KERNELS + 2 * products)


def _mlp_s(network: Network, width: Real, tokens: Real, t: Real, speed: KernelSpeed) -> tuple[Real, Real]:
    if not width:  # a layer without an MLP
        return 0.0, 0.0
    up = (2 if network.gated_mlp else 1) * width / t
    return matmul_s(tokens, up, network.hidden, speed), matmul_s(tokens, network.hidden, width / t, speed)


def _experts_s(job: TrainingJob, tokens: Real, layout: TrainingLayout) -> tuple[Real, Real]:
    """The experts of one rank, up and down: each of its count/e gets T·k·e/count tokens when routing is even; the shared too."""
    network, speed = job.network, job.machine.matmul
    e = network.experts
    assert e is not None
    local, cut = e.count / layout.expert, layout.expert_tensor
    sent = (
        tokens * cut / layout.tensor
    )  # where experts are not cut as the rest is, each tensor rank sends its part of the tokens
    up, down = _mlp_s(network, e.ffn_hidden, sent * e.per_token / local, cut, speed)
    c = job.constants
    local = local / (c.grouped_share * (c.grouped_narrow_share if job.machine.narrow else 1))
    shared = _mlp_s(network, e.shared_ffn_hidden, tokens, layout.tensor, speed) if e.shared_ffn_hidden else (0.0, 0.0)
    router = matmul_s(tokens, e.count, network.hidden, speed)
    return up * local + router + shared[0], down * local + shared[1]


def _attention_s(job: TrainingJob, layout: TrainingLayout) -> tuple[Real, Real]:
    """Scores, softmax and the product with the values: fused (flash: half of the scores are never computed) or not."""
    network, seq, on = job.network, job.seq, job.machine
    heads = network.heads / layout.tensor
    if job.software.flash_attention:
        seen = job.attended_tokens
        window = min(network.sliding_window or seen, seen)
        sliding, full = len(network.sliding_layers) / network.layers, network.full_layers / network.layers
        keys = full * seen / 2 + sliding * window * (1 - window / (2 * seen))
        rows = layout.micro_batch * seq / layout.context
        flops = 2 * rows * keys * heads * (network.query_dim + network.value_dim)
        # a ring of context ranks works on halves of its chunks, so that every rank masks as much
        piece = np.where((layout.context > 1) & (job.software.context_by == "ring"), seq / (2 * layout.context), seq)
        piece = np.minimum(piece, job.attended_tokens)
        flops = flops * (1 + job.constants.attention_half_seq / piece)
        if job.software.attention == "native":  # the narrower a head, the more exponentials for as many products
            flops = flops * (1 + job.constants.flash3_exponentials_share * max(WIDE_HEAD / network.value_dim - 1, 0))
        forward_flops, backward_flops = on.attention_flops
        return flops / forward_flops, FLASH_BACKWARD_FLOPS * flops / backward_flops
    batch = layout.micro_batch * heads / layout.context
    products = matmul_s(seq, seq, network.query_dim, on.matmul, batch)
    products = products + matmul_s(seq, network.value_dim, seq, on.matmul, batch)
    scores = batch * float(seq) ** 2
    apart = UNFUSED_SOFTMAX_BYTES if job.software.unfused_softmax else 0
    forward = products + streaming_s((SCORE_BYTES_FORWARD + apart) * scores, on.matmul)
    return forward, 2 * products + streaming_s((SCORE_BYTES_BACKWARD + apart) * scores, on.matmul)


def _elementwise_s(job: TrainingJob, tokens: Real, layout: TrainingLayout, moe: bool) -> Real:
    """Norms, residuals, dropout, activation, copies and casts, forward.

    What stands outside the tensor-parallel region is repeated by every tensor rank unless the sequence is cut there too
    (sequence parallelism).
    Bytes per token forward: norms 2·(r2 w2)·h, residual adds 2·(r2 r2 w2 [+ mask 1])·h; activation r2 w2 of the inner
    width (r4 w2 when gated); queries, keys and values copied once r2 w2. Backward moves 1.5 × that.
    Products in 8 bits have their inputs cast, r2 and w1 for the product and w1 transposed for the backward one; scales of rows
    or blocks are found first, in a pass of their own for each direction.
    """
    network, e = job.network, job.network.experts
    h, t = network.hidden, layout.tensor
    outside = (8 + 12 + 2 * job.software.dropout) * h
    width = (e.ffn_hidden * e.per_token + e.shared_ffn_hidden) if moe and e else network.ffn_hidden
    copies = np.where(
        layout.expert > 1, 4, 2
    )  # to experts and back; where they lie on several ranks, sorted by rank, too
    dispatch = copies * 4 * h * e.per_token if moe and e else 0
    if moe and e and network.linear_bias:
        dispatch += EXPERT_BIAS_BYTES * h * e.per_token
    heads = network.query_dim * network.heads + 2 * network.kv_heads * network.head_dim
    inside = (6 if network.gated_mlp else 4) * width + 4 * heads + dispatch
    if job.machine.narrow:
        cast = CAST_BYTES * (1 if job.software.scaling == "tensor" else 2)
        outside += cast * 2 * h
        inside += cast * (width + network.heads * network.value_dim)
    if not job.software.fused_norms:
        outside += EAGER_OUTSIDE_BYTES * h
    if not job.software.fused:
        inside += EAGER_HEADS_BYTES * heads + (EAGER_WIDTH_BYTES * width if network.gated_mlp else 0)
    repeated = np.where(layout.sequence_parallel, t, 1)
    moved = tokens * (outside / repeated + inside / t)
    if job.adapters:
        moved = moved + tokens * job.adapters.moved_bytes_per_token(network, job.software.fused) / t
    return streaming_s(moved, job.machine.matmul)
