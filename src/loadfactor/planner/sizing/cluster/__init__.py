"""What would this cluster do with this work? A trace-driven simulation of jobs, gangs, nodes, queue order and preemption.

    outcome = simulate(jobs, Cluster.of(nodes=8, gpus_per_node=8), Policy(order="fifo", backfill="easy"))
    outcome.wait_s, outcome.utilization_share, outcome.pending_while_idle_share

A gang starts on all its GPUs at once or not at all. One of up to a node's size runs within one node; a larger one takes whole
nodes and one more for its remainder. `Cluster.pooled(n)` has no nodes: any free GPU will do, which shows what nodes cost.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadfactor.errors import PlanError
from loadfactor.planner.sizing.cluster.jobs import MILLI, Ints, Jobs
from loadfactor.planner.sizing.cluster.outcome import Outcome

Order = Literal["fifo", "shortest", "priority"]
Backfill = Literal["none", "easy", "any"]
Preempt = Literal["none", "shortest remaining", "shortest remaining gpu time", "least attained", "priority"]


@dataclass(frozen=True)
class Cluster:
    """GPUs of each node."""

    node_gpus: tuple[int, ...]

    def __post_init__(self) -> None:
        """A cluster has nodes with GPUs."""
        if not self.node_gpus or min(self.node_gpus) < 1:
            raise PlanError("a cluster needs at least one node, and every node at least one GPU")

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(self.node_gpus)

    @classmethod
    def of(cls, nodes: int, gpus_per_node: int = 8) -> "Cluster":
        """Equal nodes.

        >>> Cluster.of(nodes=3).gpus
        24
        """
        if nodes < 1 or gpus_per_node < 1:
            raise PlanError(f"a cluster needs at least one node and one GPU a node, got {nodes} and {gpus_per_node}")
        return cls((gpus_per_node,) * nodes)

    @classmethod
    def of_gpus(cls, gpus: int, gpus_per_node: int = 8) -> "Cluster":
        """So many GPUs in nodes of one size; what is left over makes a smaller node.

        >>> Cluster.of_gpus(20).node_gpus
        (8, 8, 4)
        """
        if gpus < 1 or gpus_per_node < 1:
            raise PlanError(f"a cluster needs at least 1 GPU, got {gpus} in nodes of {gpus_per_node}")
        rest = gpus % gpus_per_node
        return cls((gpus_per_node,) * (gpus // gpus_per_node) + ((rest,) if rest else ()))

    @classmethod
    def pooled(cls, gpus: int) -> "Cluster":
        """GPUs without nodes: any free ones make a gang."""
        return cls((gpus,))

    @property
    def largest_job_gpus(self) -> int:
        """The largest gang that fits an empty cluster."""
        largest = max(self.node_gpus)
        whole = self.node_gpus.count(largest)
        rest = max((n for n in self.node_gpus if n < largest), default=0)
        return whole * largest + rest


@dataclass(frozen=True)
class Policy:
    """How the queue is worked off.

    `order`: first come, shortest first, or by priority (then first come). `backfill`: "none" lets nobody pass the first in
    line, "easy" lets those pass who do not delay it, "any" starts whoever fits and may starve large gangs. `preempt` deals the
    GPUs out anew at every event (or every `interval_s`), stopping jobs that keep their progress and pay `restart_s` when they
    start again; "least attained" puts jobs into queues by the GPU-time they had, with edges at `queue_edges_gpu_s`. `spread`
    puts gangs on the emptiest node instead of the fullest. `turn_away` loses what cannot start at once.
    """

    order: Order = "fifo"
    backfill: Backfill = "easy"
    preempt: Preempt = "none"
    spread: bool = False
    turn_away: bool = False
    interval_s: float = 0.0
    restart_s: float = 0.0
    queue_edges_gpu_s: tuple[float, ...] = (3_600.0,)
    backfill_depth: int = 100


SCHEDULERS: dict[str, tuple[Policy, str]] = {
    "slurm": (Policy(), "first come, backfill that does not delay the first in line"),
    "fifo": (Policy(backfill="none"), "strictly first come, nobody passes"),
    "any": (Policy(backfill="any"), "whoever fits starts, as most Kubernetes queues do; large gangs may starve"),
    "shortest": (Policy(order="shortest"), "shortest time limit first, with backfill"),
    "priority": (Policy(order="priority"), "highest priority first, with backfill, nobody is stopped"),
    "preempt": (
        Policy(preempt="priority", restart_s=300.0),
        "higher priority stops lower, which restarts after 5 min of extra work",
    ),
    "srtf": (Policy(preempt="shortest remaining", restart_s=60.0), "shortest remaining time first, stopping others"),
    "fair": (
        Policy(preempt="least attained", restart_s=60.0),
        "least GPU-time so far first, stopping others (Tiresias)",
    ),
}
PREEMPT_RULES = {"shortest remaining": 0, "shortest remaining gpu time": 1, "least attained": 2, "priority": 3}


def simulate(jobs: Jobs, cluster: Cluster, policy: Policy | None = None) -> Outcome:
    """Run the jobs through the cluster. Deterministic. Raises PlanError for a job larger than the cluster.

    One 8-GPU job of an hour behind another on one node waits an hour:

    >>> from loadfactor.planner.sizing.cluster.jobs import jobs_of
    >>> simulate(jobs_of([0, 0], [8, 8], [3600, 3600]), Cluster.of(nodes=1)).wait_s.tolist()
    [0.0, 3600.0]
    """
    from loadfactor.planner.sizing.cluster import backfilled, queued, rescheduled  # numba takes a second to import

    policy = policy or Policy()
    _check(jobs, cluster, policy)
    nodes = np.array(cluster.node_gpus, dtype=np.int64)
    need = np.where(jobs.gpus >= 1, jobs.gpus, 0).astype(np.int64)
    milli = np.where(jobs.gpus < 1, np.ceil(jobs.gpus * MILLI - 1e-9), 0).astype(np.int64)
    start = np.full(len(jobs), np.nan)
    if policy.preempt != "none":
        end, executed = np.full(len(jobs), np.nan), np.zeros(len(jobs))
        starts = np.zeros(len(jobs), np.int64)
        tally = rescheduled.run(
            jobs.submit_s,
            need,
            milli,
            jobs.duration_s,
            jobs.priority,
            nodes,
            PREEMPT_RULES[policy.preempt],
            policy.interval_s,
            policy.restart_s,
            np.array(policy.queue_edges_gpu_s, dtype=np.float64),
            start,
            end,
            executed,
            starts,
        )
        return Outcome(jobs, cluster.gpus, start, end, executed, starts, tally)
    rank = np.empty(len(jobs), np.int64)
    rank[_order(jobs, policy)] = np.arange(len(jobs))
    if policy.backfill == "easy" and not policy.turn_away:
        tally = backfilled.run(
            jobs.submit_s,
            need,
            milli,
            jobs.duration_s,
            jobs.limit_s,
            rank,
            nodes,
            policy.spread,
            policy.backfill_depth,
            start,
        )
    else:
        sizes, size_of, counts = np.unique(need * MILLI + milli, return_inverse=True, return_counts=True)
        tally = queued.run(
            jobs.submit_s,
            need,
            milli,
            jobs.duration_s,
            rank,
            size_of.astype(np.int64),
            sizes // MILLI,
            sizes % MILLI,
            np.concatenate(([0], np.cumsum(counts)[:-1])),
            nodes,
            queued.LOSS if policy.turn_away else queued.STRICT if policy.backfill == "none" else queued.SKIP,
            policy.spread,
            start,
        )
    started = ~np.isnan(start)
    return Outcome(
        jobs,
        cluster.gpus,
        start,
        start + jobs.duration_s,
        np.where(started, jobs.duration_s, 0.0),
        started.astype(np.int64),
        tally,
    )


def _order(jobs: Jobs, policy: Policy) -> Ints:
    arrival = np.arange(len(jobs))
    if policy.order == "shortest":
        return np.lexsort((arrival, jobs.limit_s))
    if policy.order == "priority":
        return np.lexsort((arrival, -jobs.priority))
    return arrival


def _check(jobs: Jobs, cluster: Cluster, policy: Policy) -> None:
    largest = int(np.argmax(jobs.gpus))
    if jobs.gpus[largest] > cluster.largest_job_gpus:
        raise PlanError(
            f"job {largest} asks for {jobs.gpus[largest]:g} GPUs, the cluster can give {cluster.largest_job_gpus} at once; "
            f"take {jobs.gpus[largest]:g} GPUs or more"
        )
    if policy.interval_s < 0 or policy.restart_s < 0 or policy.backfill_depth < 1:
        raise PlanError("a policy's interval and restart must not be negative and its backfill depth must be positive")
    if (
        list(policy.queue_edges_gpu_s) != sorted(set(policy.queue_edges_gpu_s))
        or min(policy.queue_edges_gpu_s, default=1) <= 0
    ):
        raise PlanError("queue_edges_gpu_s must rise from above 0")
