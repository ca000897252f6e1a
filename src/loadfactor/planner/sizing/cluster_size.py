"""How many GPUs can we keep full? Waits, utilization and cost of every size of cluster under one history of jobs.

What a size costs: its GPUs for every hour, and the waiting. Hardware falls per used hour as the cluster shrinks, waiting rises, so
the sum is U-shaped and has a smallest value; left of it jobs wait too long, right of it GPUs stand empty.

Paid GPU-hours of a size are its GPUs over the span of submissions plus the work still to do when the last job came, as if that
were done on a full cluster: so a cluster far too small costs what its work costs, and one far too large pays for its idleness.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from loadfactor.errors import PlanError
from loadfactor.planner.sizing.cluster import Cluster, SchedulingPolicy, simulate
from loadfactor.planner.sizing.cluster.jobs import Jobs
from loadfactor.planner.sizing.cluster.outcome import Outcome
from loadfactor.planner.sizing.queueing import erlang_b, queue_wait, servers_for_wait_share
from loadfactor.planner.sizing.staffing import square_root_staffing
from loadfactor.units import S_PER_HOUR

MOST_SIZES = 50


@dataclass(frozen=True)
class SizeCost:
    """What an hour of a GPU costs, and what it costs that a job waits an hour for one GPU of its gang: both explicit."""

    price_per_gpu_hour: float
    delay_cost_per_gpu_hour: float

    def __post_init__(self) -> None:
        """A free cluster has no best size."""
        if self.price_per_gpu_hour <= 0:
            raise PlanError(f"a GPU-hour must cost something, got {self.price_per_gpu_hour:g}")
        if self.delay_cost_per_gpu_hour < 0:
            raise PlanError(
                f"the cost of delay must not be negative, got {self.delay_cost_per_gpu_hour:g}; 0 lets everybody wait"
            )


@dataclass(frozen=True)
class SizePoint:
    """One size of cluster: simulated waits over all jobs, how full it was, and dollars per hour of the history."""

    gpus: int
    utilization_share: float
    mean_wait_s: float
    gpu_weighted_wait_s: float
    p50_wait_s: float
    p90_wait_s: float
    p99_wait_s: float
    closed_form_wait_s: float | None
    hardware_cost_per_hour: float
    delay_cost_per_hour: float
    used_gpus: float

    @property
    def cost_per_hour(self) -> float:
        """Hardware and waiting together."""
        return self.hardware_cost_per_hour + self.delay_cost_per_hour

    @property
    def cost_per_used_gpu_hour(self) -> float:
        """The same per GPU-hour of work done."""
        return self.cost_per_hour / self.used_gpus

    @property
    def hardware_cost_per_used_gpu_hour(self) -> float:
        """What the GPUs alone cost per GPU-hour of work done: price over utilization."""
        return self.hardware_cost_per_hour / self.used_gpus


@dataclass(frozen=True)
class SizeCurve:
    """Every size tried, smallest first."""

    points: tuple[SizePoint, ...]
    offered_gpus: float

    @property
    def cheapest(self) -> SizePoint:
        """The size with the smallest cost of hardware and waiting; the smaller one at a tie."""
        return min(self.points, key=lambda p: p.cost_per_hour)

    def at(self, gpus: int) -> SizePoint:
        """The point of one size; raises PlanError naming the sizes there are."""
        for point in self.points:
            if point.gpus == gpus:
                return point
        raise PlanError(f"{gpus} GPUs were not tried; there is {', '.join(str(p.gpus) for p in self.points)}")


def sizes_to_try(jobs: Jobs, gpus_per_node: int = 8, also: Sequence[int] = ()) -> tuple[int, ...]:
    """Whole nodes from below the offered load (but never below the largest job) to beyond the peak, at most 50 sizes.

    >>> from loadfactor.planner.sizing.cluster.workload import poisson_jobs
    >>> sizes_to_try(poisson_jobs(2000, 0.01, 2000.0, gpus=(1, 8), gpu_shares=(0.5, 0.5)))[:3]
    (56, 64, 72)
    """
    if gpus_per_node < 1:
        raise PlanError(f"a node has at least 1 GPU, got {gpus_per_node}")
    largest = float(jobs.gpus.max())
    offered = jobs.offered_gpus
    wanted = jobs.concurrent_gpus(max(S_PER_HOUR, jobs.span_s / 100_000))
    low = ceil(max(largest, 0.6 * offered, 1) / gpus_per_node)
    high = max(low + 4, ceil(min(float(wanted.max()) * 1.1, 4 * max(offered, largest)) / gpus_per_node))
    step = max(1, ceil((high - low + 1) / (MOST_SIZES - len(also))))
    sizes = {node * gpus_per_node for node in range(low, high + 1, step)}
    return tuple(sorted(sizes | set(also)))


def size_point(
    jobs: Jobs, gpus: int, cost: SizeCost, policy: SchedulingPolicy, gpus_per_node: int
) -> tuple[SizePoint, Outcome]:
    """Simulate one size."""
    outcome = simulate(jobs, Cluster.of_gpus(gpus, gpus_per_node), policy)
    span_h = jobs.span_s / S_PER_HOUR
    after_span_gpu_hours = outcome.busy_gpu_s / S_PER_HOUR - outcome.utilization_share * gpus * span_h
    paid_gpu_hours = gpus * span_h + after_span_gpu_hours
    waited_gpu_hours = float(np.nansum(outcome.wait_s * jobs.gpus)) / S_PER_HOUR
    p50, p90, p99 = outcome.wait_quantiles_s()
    point = SizePoint(
        gpus=gpus,
        utilization_share=outcome.busy_gpu_s / S_PER_HOUR / paid_gpu_hours,
        mean_wait_s=outcome.mean_wait_s,
        gpu_weighted_wait_s=outcome.gpu_weighted_wait_s,
        p50_wait_s=p50,
        p90_wait_s=p90,
        p99_wait_s=p99,
        closed_form_wait_s=closed_form_wait_s(jobs, gpus),
        hardware_cost_per_hour=cost.price_per_gpu_hour * paid_gpu_hours / span_h,
        delay_cost_per_hour=cost.delay_cost_per_gpu_hour * waited_gpu_hours / span_h,
        used_gpus=outcome.busy_gpu_s / S_PER_HOUR / span_h,
    )
    return point, outcome


def size_curve(
    jobs: Jobs,
    sizes: Sequence[int],
    cost: SizeCost,
    policy: SchedulingPolicy | None = None,
    gpus_per_node: int = 8,
    on_point: Callable[[SizePoint], None] = lambda _: None,
) -> SizeCurve:
    """Simulate every size; `on_point` hears of each as it is done.

    >>> from loadfactor.planner.sizing.cluster.jobs import jobs_of
    >>> jobs = jobs_of([0, 0, 7200], [8, 8, 8], [3600, 3600, 3600])
    >>> curve = size_curve(jobs, (8, 16), SizeCost(price_per_gpu_hour=2.0, delay_cost_per_gpu_hour=1.0))
    >>> [(p.gpus, p.hardware_cost_per_hour, p.delay_cost_per_hour) for p in curve.points]  # 24 GPU-hours of work in two hours
    [(8, 24.0, 4.0), (16, 40.0, 0.0)]
    """
    if not sizes:
        raise PlanError("give at least one size of cluster to try")
    points = []
    for gpus in sorted(set(sizes)):
        point, _ = size_point(jobs, gpus, cost, policy or SchedulingPolicy(), gpus_per_node)
        points.append(point)
        on_point(point)
    return SizeCurve(tuple(points), jobs.offered_gpus)


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


def slots_of(jobs: Jobs) -> Slots:
    """The plain queue nearest to these jobs.

    >>> from loadfactor.planner.sizing.cluster.jobs import jobs_of
    >>> slots = slots_of(jobs_of([0, 100, 200], [2, 4, 2], [60, 60, 60]))
    >>> round(slots.mean_gpus, 3), slots.service_s, slots.arrivals_per_s
    (2.667, 60.0, 0.015)
    """
    service_s = float(jobs.duration_s.mean())
    mean_gpus = float(jobs.gpu_s.sum() / jobs.duration_s.sum())
    return Slots(mean_gpus, len(jobs) / jobs.span_s, service_s, jobs.arrival_cv2, jobs.service_cv2)


def closed_form_wait_s(jobs: Jobs, gpus: int) -> float | None:
    """The mean wait M/G/k promises for these jobs in slots; None where its queue never drains."""
    slots = slots_of(jobs)
    servers = int(gpus / slots.mean_gpus)
    if servers <= slots.offered:
        return None
    return queue_wait(slots.arrivals_per_s, slots.service_s, servers, slots.arrival_cv2, slots.service_cv2).mean_s


@dataclass(frozen=True)
class Staffing:
    """Sizes by closed form at which at most `waiting_share` of plain, memoryless work waits; GPUs, not slots."""

    waiting_share: float
    erlang_gpus: int
    square_root_gpus: int
    teams: int
    teams_are_equal: bool
    apart_gpus: int


def staffing(
    jobs: Jobs, waiting_share: float = 0.2, teams: int = 1, team_of_job: Sequence[str] | None = None
) -> Staffing:
    """Exact Erlang C and square-root staffing, and what the teams would need with clusters of their own.

    Teams are those of the jobs where `team_of_job` names them, else `teams` equal parts of the load.

    >>> from loadfactor.planner.sizing.cluster.jobs import jobs_of
    >>> jobs = jobs_of(range(0, 1000, 5), [1] * 200, [400] * 200)  # 80 GPUs busy
    >>> found = staffing(jobs, teams=10)
    >>> found.erlang_gpus, found.apart_gpus
    (91, 120)
    """
    if teams < 1:
        raise PlanError(f"there is at least 1 team, got {teams}")
    slots = slots_of(jobs)
    loads = [slots.offered / teams] * teams
    if team_of_job is not None:
        if len(team_of_job) != len(jobs):
            raise PlanError(f"{len(jobs)} jobs have {len(team_of_job)} teams; name one team a job")
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


def lost_share(jobs: Jobs, gpus: int) -> float:
    """Erlang B: the share of these jobs, in slots, that such a cluster would turn away if nobody could wait."""
    slots = slots_of(jobs)
    return erlang_b(slots.offered, int(gpus / slots.mean_gpus))


@dataclass(frozen=True)
class HeldGpus:
    """GPUs the same work keeps held on average: as asked, rounded up to whole GPUs, rounded up to whole instances."""

    as_asked_gpus: float
    whole_gpus: float
    whole_instances_gpus: float


def shares_and_instances(jobs: Jobs, gpus_per_node: int = 8) -> HeldGpus:
    """What sharing GPUs and packing nodes saves: the same jobs rounded up to whole GPUs, and to whole instances.

    >>> from loadfactor.planner.sizing.cluster.jobs import jobs_of
    >>> shares_and_instances(jobs_of([0, 100], [0.5, 4], [100, 100]))
    HeldGpus(as_asked_gpus=4.5, whole_gpus=5.0, whole_instances_gpus=16.0)
    """
    whole = np.ceil(jobs.gpus)
    instances = np.ceil(jobs.gpus / gpus_per_node) * gpus_per_node
    return HeldGpus(*(float((held * jobs.duration_s).sum()) / jobs.span_s for held in (jobs.gpus, whole, instances)))


def gpus_without_nodes(jobs: Jobs, at: SizePoint, policy: SchedulingPolicy) -> int:
    """The fewest GPUs, free to form any gang, at which jobs wait no longer (by GPU) than at this size with nodes."""
    low, high = max(1, int(np.ceil(jobs.gpus.max()))), at.gpus
    while low < high:
        middle = (low + high) // 2
        if (
            simulate(jobs, Cluster.pooled(middle), policy).gpu_weighted_wait_s
            <= at.gpu_weighted_wait_s * (1 + 1e-9) + 1e-6
        ):
            high = middle
        else:
            low = middle + 1
    return high
