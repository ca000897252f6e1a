"""Levers: what to change, and what each would have saved of what was lost, one after another in the order of `LEVERS`."""

from typing import Final

from loadfactor.insight.levers.cluster_levers import PACK_NODES, POOL_CLUSTERS, SMALLER_CLUSTER
from loadfactor.insight.levers.diagnosed_levers import (
    FEED_GPUS,
    FUSE_KERNELS,
    LARGER_BATCH,
    MIXED_PRECISION,
    OVERLAP_COMMUNICATION,
    REPLACE_SLOW_GPUS,
    SCALE_REPLICAS,
    SMALLER_GPU,
)
from loadfactor.insight.levers.goodput import CHECKPOINT_OFTENER
from loadfactor.insight.levers.idle_levers import (
    AUTOSCALE_DOWN,
    CAP_RETRIES,
    CULL_NOTEBOOKS,
    RECLAIM_IDLE,
    RELEASE_AT_END,
    RIGHT_SIZE_JOBS,
)
from loadfactor.insight.levers.lever import LossLever
from loadfactor.insight.levers.share_gpus import SHARE_GPUS

LEVERS: Final[tuple[LossLever, ...]] = (
    CAP_RETRIES,
    RIGHT_SIZE_JOBS,
    CULL_NOTEBOOKS,
    RELEASE_AT_END,
    RECLAIM_IDLE,
    SHARE_GPUS,
    SCALE_REPLICAS,
    FEED_GPUS,
    LARGER_BATCH,
    MIXED_PRECISION,
    FUSE_KERNELS,
    OVERLAP_COMMUNICATION,
    REPLACE_SLOW_GPUS,
    SMALLER_GPU,
    CHECKPOINT_OFTENER,
    AUTOSCALE_DOWN,
    SMALLER_CLUSTER,
    PACK_NODES,
    POOL_CLUSTERS,
)
"""In the order in which they are applied: what one took, the next cannot save. What concerns whole runs and GPUs comes first, then
intervals of time, then what diagnoses found in the rest, then the nodes that nobody holds."""
