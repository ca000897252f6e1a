"""What a step moves through memory between its products: norms, activations, and the copies of tokens that experts work on.

Every number here is counted from the shapes of a network; nothing is fitted.
"""

from loadfactor.catalog.models import Network
from loadfactor.planner.serving.replica_layout import ReplicaLayout

NORM_VALUES = 8  # of hidden size, a layer: two norms, each of which reads its input and the residual and writes both
ACTIVATION_VALUES = 4  # of the inner width: gate and up read, their product written and read by the next product
COPY_VALUES = 4  # of hidden size, a token and expert: gathered for the expert, its answer written, and both read again


def count_pass_values(network: Network, layout: ReplicaLayout) -> float:
    """Values that one accelerator moves for a token of a step, all layers; those of its own attention rank.

    The ranks of a tensor-parallel expert each gather every token that it works on; experts spread over ranks share them.

    >>> from loadfactor.catalog.models import network
    >>> count_pass_values(network("llama-3.1-8b"), ReplicaLayout(1))  # 32 × (8 × 4,096 + 4 × 14,336)
    2883584.0
    """
    values = float(NORM_VALUES * network.hidden * network.layers) / layout.attention_dp
    values += ACTIVATION_VALUES * network.dense_layers * network.ffn_hidden / layout.stage_gpus
    e = network.experts
    if e is None:
        return values
    split = layout.stage_gpus / layout.expert_parallel
    pairs = e.per_token / layout.expert_parallel
    each = COPY_VALUES * network.hidden + ACTIVATION_VALUES * e.ffn_hidden / split
    shared = ACTIVATION_VALUES * e.shared_ffn_hidden / layout.stage_gpus
    return values + network.moe_layers * (pairs * each + shared)
