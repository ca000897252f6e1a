"""Levers: what to change, and what each would have saved of what was lost, one after another in the order of `LEVERS`."""

from typing import Final

from loadfactor.insight.levers import autoscale_down, cap_retries, checkpoint_oftener, right_size_jobs, share_gpus
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
from loadfactor.insight.levers.idle_levers import CULL_NOTEBOOKS, RECLAIM_IDLE, RELEASE_AT_END
from loadfactor.insight.levers.lever import LossLever

LEVERS: Final[tuple[LossLever, ...]] = (
    cap_retries.LEVER,
    right_size_jobs.LEVER,
    CULL_NOTEBOOKS,
    RELEASE_AT_END,
    RECLAIM_IDLE,
    share_gpus.LEVER,
    SCALE_REPLICAS,
    FEED_GPUS,
    LARGER_BATCH,
    MIXED_PRECISION,
    FUSE_KERNELS,
    OVERLAP_COMMUNICATION,
    REPLACE_SLOW_GPUS,
    SMALLER_GPU,
    checkpoint_oftener.LEVER,
    autoscale_down.LEVER,
    SMALLER_CLUSTER,
    PACK_NODES,
    POOL_CLUSTERS,
)
"""In the order in which they are applied: what one took, the next cannot save. What concerns whole runs and GPUs comes first, then
stretches of time, then what diagnoses found in the rest, then the nodes that nobody holds."""
