"""Closed forms for a history of jobs: the plain queue nearest to it, staffing, losses, pooling, and GPUs held for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.sizing.cluster.jobs import Jobs
from loadfactor.planner.sizing.queueing import (
    QueueWait,
    erlang_b,
    pooled_cv,
    queue_wait,
    servers_for_wait_share,
    square_root_staffing,
    stranded_share,
    utilization_at_quantile,
)


@dataclass(frozen=True)
class Slots:
    """Jobs of mixed size seen as a plain queue: a slot is a mean gang (weighted by duration), a server runs one."""

    mean_gpus: float
    arrivals_per_s: float
    service_s: float
    arrival_cv2: float
    service_cv2: float

    @property
    def offered(self) -> float:
        """Slots busy on average."""
        return self.arrivals_per_s * self.service_s


def make_slots(jobs: Jobs) -> Slots:
    """The plain queue nearest to these jobs.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> slots = make_slots(make_jobs([0, 100, 200], [2, 4, 2], [60, 60, 60]))
    >>> round(slots.mean_gpus, 3), slots.service_s, slots.arrivals_per_s
    (2.667, 60.0, 0.015)
    """
    service_s = float(jobs.duration_s.mean())
    mean_gpus = float(jobs.gpu_s.sum() / jobs.duration_s.sum())
    return Slots(mean_gpus, len(jobs) / jobs.span_s, service_s, jobs.arrival_cv2, jobs.service_cv2)


def estimate_wait(jobs: Jobs, gpus: int) -> QueueWait | None:
    """The wait M/G/k promises for these jobs in slots; None where its queue never drains."""
    slots = make_slots(jobs)
    servers = int(gpus / slots.mean_gpus)
    if servers <= slots.offered:
        return None
    return queue_wait(slots.arrivals_per_s, slots.service_s, servers, slots.arrival_cv2, slots.service_cv2)


def estimate_wait_s(jobs: Jobs, gpus: int) -> float | None:
    wait = estimate_wait(jobs, gpus)
    return None if wait is None else wait.mean_s


@dataclass(frozen=True)
class Staffing:
    """Sizes by closed form at which at most `waiting_share` of plain, memoryless work waits; GPUs, not slots."""

    waiting_share: float
    erlang_gpus: int
    square_root_gpus: int
    teams: int
    teams_are_equal: bool
    apart_gpus: int


@dataclass(frozen=True)
class Pooling:
    """How full capacity bought for the `quantile` of demand is on average: for all teams together, and for each apart.

    Demand is taken as normal with the coefficient of variation `cv` of these jobs; teams are equal and alike to `correlation`.
    """

    quantile: float
    cv: float
    correlation: float
    together_share: float
    apart_share: float


def staff(jobs: Jobs, waiting_share: float = 0.2, teams: int = 1, team_of_job: Sequence[str] | None = None) -> Staffing:
    """Exact Erlang C and square-root staffing, and what the teams would need with clusters of their own.

    Teams are those of the jobs where `team_of_job` names them, else `teams` equal parts of the load.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> jobs = make_jobs(range(0, 1000, 5), [1] * 200, [400] * 200)  # 80 GPUs busy
    >>> found = staff(jobs, teams=10)
    >>> found.erlang_gpus, found.apart_gpus
    (91, 120)
    """
    slots = make_slots(jobs)
    loads = [slots.offered / teams] * teams
    if team_of_job is not None:
        names, place = np.unique(np.asarray(team_of_job), return_inverse=True)
        work = np.bincount(place, weights=jobs.gpu_s, minlength=len(names))
        loads = [float(share) * slots.offered for share in work / work.sum()]
    together = servers_for_wait_share(slots.offered, waiting_share)
    apart = sum(servers_for_wait_share(load, waiting_share) for load in loads)
    return Staffing(
        waiting_share,
        ceil(together * slots.mean_gpus),
        ceil(square_root_staffing(slots.offered, waiting_share) * slots.mean_gpus),
        len(loads),
        team_of_job is None,
        ceil(apart * slots.mean_gpus),
    )


def estimate_lost_share(jobs: Jobs, gpus: int) -> float:
    """Erlang B: the share of these jobs, in slots, that such a cluster would turn away if nobody could wait."""
    slots = make_slots(jobs)
    return erlang_b(slots.offered, int(gpus / slots.mean_gpus))


@dataclass(frozen=True)
class HeldGpus:
    """GPUs the same work keeps held on average: as requested, rounded up to whole GPUs, rounded up to whole instances."""

    as_asked_gpus: float
    whole_gpus: float
    whole_instances_gpus: float


def count_held_gpus(jobs: Jobs, gpus_per_node: int = 8) -> HeldGpus:
    """What sharing GPUs and packing nodes saves: the same jobs rounded up to whole GPUs, and to whole instances.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> count_held_gpus(make_jobs([0, 100], [0.5, 4], [100, 100]))
    HeldGpus(as_asked_gpus=4.5, whole_gpus=5.0, whole_instances_gpus=16.0)
    """
    whole = np.ceil(jobs.gpus)
    instances = np.ceil(jobs.gpus / gpus_per_node) * gpus_per_node
    return HeldGpus(*(float((held * jobs.duration_s).sum()) / jobs.span_s for held in (jobs.gpus, whole, instances)))


def compare_pooling(demand: LoadDuration, teams: int, correlation: float = 0.0, quantile: float = 0.99) -> Pooling:
    """Utilization of capacity bought for a quantile of demand, by one pool and by as many clusters as there are teams.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> found = compare_pooling(load_duration([80, 100, 120]), teams=16)
    >>> round(found.cv, 3), round(found.together_share, 3), round(found.apart_share, 3)
    (0.163, 0.725, 0.397)
    """
    cv = demand.sd_gpus / demand.mean_gpus
    team_cv = cv / pooled_cv(1.0, teams, correlation)
    return Pooling(
        quantile,
        cv,
        correlation,
        utilization_at_quantile(cv, quantile),
        utilization_at_quantile(team_cv, quantile),
    )


def strand_nodes(jobs: Jobs, gpus_per_node: int) -> float:
    """Share of GPUs no job can use where every node holds jobs of one size; the mean over the work of these jobs.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> strand_nodes(make_jobs([0, 0], [5, 8], [80, 50]), 8)
    0.1875
    """
    sizes, place = np.unique(np.ceil(jobs.gpus).astype(int), return_inverse=True)
    work = np.bincount(place, weights=jobs.gpu_s)
    shares = [stranded_share(gpus_per_node, int(gpus)) for gpus in sizes]
    return float(np.average(shares, weights=work))
