"""Reasons for GPUs that are idle while jobs wait, from a cluster's own counts, minute by minute, without its job log.

Each interval with GPUs pending and idle at once gets one reason, the first that suffices:

- gang: fewer GPUs are idle than a pending job asks for on average (small and large jobs looked at apart);
- fragmentation: enough are idle, but the running small jobs may lie so that no node (or not enough nodes) is free for the gang;
  packing them would start it, because ⌈s/g⌉ nodes hold s small GPUs and whole nodes hold the large jobs;
- order: the idle GPUs would have held the gang however the small jobs lie: the queue's order or something not counted here.

Fragmentation is an upper bound (the counts do not say where jobs lie), order a lower one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from loadfactor.base.errors import PlanError
from loadfactor.planner.sizing.cluster.jobs import Floats


@dataclass(frozen=True)
class StateCounts:
    """Counts per interval; "large" means at least one whole node (`node_gpus`)."""

    total_gpus: Floats
    running_large_gpus: Floats
    running_small_gpus: Floats
    running_small_jobs: Floats
    pending_large_gpus: Floats
    pending_large_jobs: Floats
    pending_small_gpus: Floats
    pending_small_jobs: Floats
    node_gpus: int = 8

    @property
    def idle_gpus(self) -> Floats:
        """GPUs held by nobody."""
        return self.total_gpus - self.running_large_gpus - self.running_small_gpus


@dataclass(frozen=True)
class IdleReasons:
    """Shares of all intervals; the three reasons add up to `pending_while_idle_share`."""

    pending_share: float
    pending_while_idle_share: float
    gang_share: float
    fragmentation_share: float
    order_share: float
    mean_idle_gpus: float
    mean_gang_gpus: float

    @property
    def explained_share(self) -> float | None:
        """How much of the pending-while-idle time gang size and fragmentation account for; None when there was none."""
        if self.pending_while_idle_share == 0:
            return None
        return (self.gang_share + self.fragmentation_share) / self.pending_while_idle_share


def explain_idle(state: StateCounts) -> IdleReasons:
    """Classify every interval.

    Two nodes of 8: one gang of 8 runs, then 5 and 2 single-GPU jobs beside it, while a gang of 8 waits: first 3 idle GPUs are
    too few; then, a large job gone and two small jobs left on two nodes, 14 idle GPUs hold no free node.

    >>> def a(*values): return np.array(values, float)
    >>> found = explain_idle(StateCounts(a(16, 16), a(8, 0), a(5, 2), a(5, 2), a(8, 8), a(1, 1), a(0, 0), a(0, 0)))
    >>> found.gang_share, found.fragmentation_share, found.order_share
    (0.5, 0.5, 0.0)
    """
    if state.node_gpus < 1:
        raise PlanError(f"a node has at least 1 GPU, got {state.node_gpus}")
    idle = state.idle_gpus
    pending = state.pending_large_gpus + state.pending_small_gpus > 0
    both = pending & (idle > 0)
    large_gang = _mean_gang(state.pending_large_gpus, state.pending_large_jobs)
    small_gang = _mean_gang(state.pending_small_gpus, state.pending_small_jobs)
    enough_large, enough_small = idle >= large_gang, idle >= small_gang
    gang = both & ~enough_large & ~enough_small
    # nodes not held by large jobs, and how many of them small jobs can touch at most
    other_nodes = (state.total_gpus - state.running_large_gpus) // state.node_gpus
    touched = np.minimum(state.running_small_jobs, other_nodes)
    fits_large_anyhow = enough_large & (other_nodes - touched >= np.ceil(large_gang / state.node_gpus))
    fits_small_anyhow = enough_small & (idle > other_nodes * (np.ceil(np.where(enough_small, small_gang, 1)) - 1))
    order = both & ~gang & (fits_large_anyhow | fits_small_anyhow)
    fragmentation = both & ~gang & ~order
    gangs = np.fmin(large_gang, small_gang)[both]
    return IdleReasons(
        pending_share=float(pending.mean()),
        pending_while_idle_share=float(both.mean()),
        gang_share=float(gang.mean()),
        fragmentation_share=float(fragmentation.mean()),
        order_share=float(order.mean()),
        mean_idle_gpus=float(idle[both].mean()) if both.any() else 0.0,
        mean_gang_gpus=float(gangs.mean()) if both.any() else 0.0,
    )


def _mean_gang(gpus: ArrayLike, jobs: ArrayLike) -> Floats:
    """GPUs per pending job, infinite where none is pending."""
    gpus, jobs = np.asarray(gpus, np.float64), np.asarray(jobs, np.float64)
    return np.where(jobs > 0, gpus / np.maximum(jobs, 1), np.inf)
