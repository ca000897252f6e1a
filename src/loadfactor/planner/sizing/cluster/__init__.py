"""Simulation of a cluster under a history of jobs: gangs, nodes, queue order, backfill and preemption.

    outcome = simulate(jobs, Cluster.of(nodes=8, gpus_per_node=8), SchedulingPolicy(order="fifo", backfill="easy"))
    outcome.wait_s, outcome.utilization_share, outcome.pending_while_idle_share

A gang starts on all its GPUs at once or not at all. One of up to a node's size runs within one node; a larger one takes whole
nodes and one more for its remainder. `Cluster.pooled(n)` has no nodes: any free GPU will do, which shows what nodes cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.planner.sizing.cluster.jobs import MILLI, Floats, Ints, Jobs
from loadfactor.planner.sizing.cluster.state import ClusterStatistics, JobArrays, start_state

SIZE_EDGES = (0, *(2**power for power in range(11)), 10**9)  # GPUs


@dataclass(frozen=True)
class Outcome:
    """One simulation. Arrays run along the jobs; `start_s` is NaN for a job that was turned away."""

    jobs: Jobs
    gpus: int
    start_s: Floats
    end_s: Floats
    held_s: Floats
    starts: Ints
    statistics: ClusterStatistics

    @property
    def wait_s(self) -> Floats:
        """Seconds each job stood in the queue, before its first start and after being stopped."""
        stopped_s = np.where(self.starts > 1, self.end_s - self.start_s - self.held_s, 0.0)
        return self.start_s - self.jobs.submit_s + np.maximum(stopped_s, 0.0)

    @property
    def turned_away_share(self) -> float:
        return float(np.isnan(self.start_s).mean())

    @property
    def makespan_s(self) -> float:
        return float(np.nanmax(self.end_s) - self.jobs.submit_s[0])

    @property
    def busy_gpu_s(self) -> float:
        """GPU-seconds held, added up over the simulated clock; equals Σ gpus × seconds held."""
        return self.statistics.all_busy_gpu_s

    @property
    def utilization_share(self) -> float:
        """Share of all GPUs held between the first and the last submission; the emptying afterwards is not counted."""
        span_s = self.jobs.span_s
        return self.statistics.busy_gpu_s / (self.gpus * span_s) if span_s > 0 else 1.0

    @property
    def pending_share(self) -> float:
        return self._time_share(self.statistics.pending_s)

    @property
    def pending_while_idle_share(self) -> float:
        """Share of that time in which somebody waited while a GPU was free: the three reasons below add up to it."""
        return self._time_share(self.statistics.blocked_s)

    @property
    def gang_share(self) -> float:
        """…because fewer GPUs were free than the smallest waiting gang asks for."""
        return self._time_share(self.statistics.gang_s)

    @property
    def fragmented_share(self) -> float:
        """…because enough were free, but not on the nodes a gang needs."""
        return self._time_share(self.statistics.fragmented_s)

    @property
    def order_share(self) -> float:
        """…because a job would have fitted but the queue's order or a reservation held it."""
        return self._time_share(self.statistics.order_s)

    @property
    def fragmented_gpu_hours(self) -> float:
        """GPU-hours that stood free while a waiting gang would have fitted into as many GPUs on other nodes."""
        return self.statistics.fragmented_gpu_s / S_PER_HOUR

    def wait_quantiles_s(self, quantiles: Sequence[float] = (0.5, 0.9, 0.99)) -> tuple[float, ...]:
        """Waits that these shares of jobs do not exceed."""
        return tuple(float(q) for q in np.nanquantile(self.wait_s, quantiles))

    @property
    def mean_wait_s(self) -> float:
        return float(np.nanmean(self.wait_s))

    @property
    def gpu_weighted_wait_s(self) -> float:
        """Mean wait, each job counted by its GPUs."""
        known = ~np.isnan(self.wait_s)
        return float(np.average(self.wait_s[known], weights=self.jobs.gpus[known]))

    def by_size(self) -> tuple["SizeClass", ...]:
        """Waits of jobs of like size: a share of a GPU, 1, 2, 3–4, 5–8, 9–16, … GPUs."""
        classes = []
        wait = self.wait_s
        for low, high in pairwise(SIZE_EDGES):
            mine = (self.jobs.gpus > low) & (self.jobs.gpus <= high) if low else self.jobs.gpus < 1
            if low == 0:
                ones = self.jobs.gpus == 1
                classes += [_size_class("under 1", mine, wait), _size_class("1", ones, wait)]
            else:
                classes.append(_size_class(str(high) if high - low == 1 else f"{low + 1}–{high}", mine, wait))
        return tuple(c for c in classes if c.jobs)

    def _time_share(self, seconds: float) -> float:
        return seconds / self.jobs.span_s if self.jobs.span_s > 0 else 0.0


@dataclass(frozen=True)
class SizeClass:
    """Jobs of like size: how many, and the waits that half, nine tenths and 99 % of them do not exceed, seconds."""

    gpus: str
    jobs: int
    p50_s: float
    p90_s: float
    p99_s: float


def _size_class(name: str, mine: NDArray[np.bool_], wait: Floats) -> SizeClass:
    known = wait[mine & ~np.isnan(wait)]
    if len(known) == 0:
        return SizeClass(name, 0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.quantile(known, (0.5, 0.9, 0.99))
    return SizeClass(name, len(known), float(p50), float(p90), float(p99))


@dataclass(frozen=True)
class BatchMeans:
    """A steady-state mean with its 95 % confidence half-width."""

    mean: float
    half_width: float


def average_batches(values: Floats, batches: int = 20, warm_up_share: float = 0.1) -> BatchMeans:
    """The mean of a simulated series after its warm-up, with a confidence interval from the means of consecutive batches.

    Waits of neighbouring jobs are alike, so their own spread would promise too much; means of long batches hardly are.

    >>> average_batches(np.tile([1.0, 3.0], 1000))
    BatchMeans(mean=2.0, half_width=0.0)
    """
    kept = values[int(len(values) * warm_up_share) :]
    size = len(kept) // batches
    means = kept[: size * batches].reshape(batches, size).mean(axis=1)
    student_95 = 1.96 + 2.6 / (batches - 1)  # within 1 % of Student's t for 10 or more batches
    return BatchMeans(float(means.mean()), float(student_95 * means.std(ddof=1) / np.sqrt(batches)))


Order = Literal["fifo", "shortest", "priority"]
Backfill = Literal["none", "easy", "any"]
Preempt = Literal["none", "shortest remaining", "shortest remaining gpu time", "least attained", "priority"]


@dataclass(frozen=True)
class SchedulingPolicy:
    """How the queue is worked off.

    `order`: first come, shortest first, or by priority (then first come). `backfill`: "none" lets nobody pass the first in
    line, "easy" lets those pass who do not delay it, "any" starts whoever fits and may starve large gangs. `preempt` assigns all
    GPUs again at every event (or every `interval_s`), stopping jobs that keep their progress and pay `restart_s` when they
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
    queue_edges_gpu_s: tuple[float, ...] = (float(S_PER_HOUR),)
    backfill_depth: int = 100


SCHEDULERS: dict[str, tuple[SchedulingPolicy, str]] = {
    "slurm": (SchedulingPolicy(), "first come, backfill that does not delay the first in line"),
    "fifo": (SchedulingPolicy(backfill="none"), "strictly first come, nobody passes"),
    "any": (
        SchedulingPolicy(backfill="any"),
        "whoever fits starts, as most Kubernetes queues do; large gangs may starve",
    ),
    "shortest": (SchedulingPolicy(order="shortest"), "shortest time limit first, with backfill"),
    "priority": (SchedulingPolicy(order="priority"), "highest priority first, with backfill, nobody is stopped"),
    "preempt": (
        SchedulingPolicy(preempt="priority", restart_s=300.0),
        "higher priority stops lower, which restarts after 5 min of extra work",
    ),
    "srtf": (
        SchedulingPolicy(preempt="shortest remaining", restart_s=60.0),
        "shortest remaining time first, stopping others",
    ),
    "srsf": (
        SchedulingPolicy(preempt="shortest remaining gpu time", restart_s=60.0),
        "shortest remaining GPU-time first, stopping others",
    ),
    "fair": (
        SchedulingPolicy(preempt="least attained", restart_s=60.0),
        "least GPU-time so far first, stopping others (Tiresias)",
    ),
}


__all__ = ["SCHEDULERS", "Cluster", "SchedulingPolicy", "simulate"]


@dataclass(frozen=True)
class Cluster:
    """GPUs of each node."""

    node_gpus: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.node_gpus or min(self.node_gpus) < 1:
            raise PlanError("a cluster needs at least one node, and every node at least one GPU")

    @property
    def gpus(self) -> int:
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
        rest = gpus % gpus_per_node
        return cls((gpus_per_node,) * (gpus // gpus_per_node) + ((rest,) if rest else ()))

    @classmethod
    def pooled(cls, gpus: int) -> "Cluster":
        return cls((gpus,))

    @property
    def largest_job_gpus(self) -> int:
        """The largest gang that fits an empty cluster."""
        largest = max(self.node_gpus)
        whole = self.node_gpus.count(largest)
        rest = max((n for n in self.node_gpus if n < largest), default=0)
        return whole * largest + rest


def simulate(jobs: Jobs, cluster: Cluster, policy: SchedulingPolicy | None = None) -> Outcome:
    """Run the jobs through the cluster. Deterministic. Raises PlanError for a job larger than the cluster.

    One 8-GPU job of an hour behind another on one node waits an hour:

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> simulate(make_jobs([0, 0], [8, 8], [3600, 3600]), Cluster.of(nodes=1)).wait_s.tolist()
    [0.0, 3600.0]
    """
    policy = policy or SchedulingPolicy()
    _check(jobs, cluster, policy)
    rank = np.empty(len(jobs), np.int64)
    rank[_order(jobs, policy)] = np.arange(len(jobs))
    arrays = JobArrays(
        submit_s=jobs.submit_s,
        need=np.where(jobs.gpus >= 1, jobs.gpus, 0).astype(np.int64),
        milli=np.where(jobs.gpus < 1, np.ceil(jobs.gpus * MILLI - 1e-9), 0).astype(np.int64),
        duration_s=jobs.duration_s,
        limit_s=jobs.limit_s,
        rank=rank,
        priority=jobs.priority,
    )
    if policy.preempt != "none":
        return _simulate_preemption(jobs, cluster, policy, arrays)

    from loadfactor.planner.sizing.cluster import backfilled, queued  # numba takes a second to import

    state = start_state(arrays, cluster.node_gpus)
    if policy.backfill == "easy" and not policy.turn_away:
        line = backfilled.empty_line(arrays, state)
        backfilled.run(arrays, state, line, policy.backfill_depth, policy.spread)
    else:
        mode = queued.LOSS if policy.turn_away else queued.STRICT if policy.backfill == "none" else queued.SKIP
        queued.run(arrays, state, queued.empty_queues(arrays), mode, policy.spread)
    started = ~np.isnan(state.start_s)
    return Outcome(
        jobs=jobs,
        gpus=cluster.gpus,
        start_s=state.start_s,
        end_s=state.start_s + jobs.duration_s,
        held_s=np.where(started, jobs.duration_s, 0.0),
        starts=started.astype(np.int64),
        statistics=ClusterStatistics(*state.statistics[0].item()),
    )


def _simulate_preemption(jobs: Jobs, cluster: Cluster, policy: SchedulingPolicy, arrays: JobArrays) -> Outcome:

    from loadfactor.planner.sizing.cluster import rescheduled  # numba takes a second to import

    rules = {
        "shortest remaining": rescheduled.REMAINING,
        "shortest remaining gpu time": rescheduled.REMAINING_GPU_TIME,
        "least attained": rescheduled.ATTAINED,
        "priority": rescheduled.PRIORITY,
    }
    state = start_state(arrays, cluster.node_gpus)
    progress = rescheduled.no_progress(arrays, state)
    edges = np.array(policy.queue_edges_gpu_s, dtype=np.float64)
    preemption = rescheduled.Preemption(rules[policy.preempt], float(policy.interval_s), float(policy.restart_s), edges)
    rescheduled.run(arrays, state, progress, preemption)
    statistics = ClusterStatistics(*state.statistics[0].item())
    return Outcome(jobs, cluster.gpus, state.start_s, progress.end_s, progress.executed_s, progress.starts, statistics)


def _order(jobs: Jobs, policy: SchedulingPolicy) -> Ints:
    arrival = np.arange(len(jobs))
    if policy.order == "shortest":
        return np.lexsort((arrival, jobs.limit_s))
    if policy.order == "priority":
        return np.lexsort((arrival, -jobs.priority))
    return arrival


def _check(jobs: Jobs, cluster: Cluster, policy: SchedulingPolicy) -> None:
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
