"""Sizes of a cluster under one history of jobs: waits, utilization and cost of each.

What a size costs: its GPUs for every hour, and the waiting. Hardware falls per used hour as the cluster shrinks, waiting rises, so
the sum is U-shaped and has a smallest value; left of it jobs wait too long, right of it GPUs stand empty.

Paid GPU-hours of a size are its GPUs over the span of submissions plus the work still to do when the last job came, as if that
were done on a full cluster: so a cluster far too small costs what its work costs, and one far too large pays for its idleness.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from loadfactor.base.units import S_PER_HOUR
from loadfactor.planner.sizing.closed_forms import estimate_wait_s
from loadfactor.planner.sizing.cluster import Cluster, SchedulingPolicy, simulate
from loadfactor.planner.sizing.cluster.jobs import Floats, Jobs
from loadfactor.planner.sizing.cluster.outcome import Outcome

MOST_SIZES = 50


@dataclass(frozen=True)
class SizeCost:
    """What an hour of a GPU costs, and what it costs that a job waits an hour for one GPU of its gang: both explicit."""

    price_per_gpu_hour: float
    delay_cost_per_gpu_hour: float


@dataclass(frozen=True)
class SizePoint:
    """One size of cluster: simulated waits over all jobs, how full it was, and costs per hour of the history."""

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
        return next(point for point in self.points if point.gpus == gpus)


def demand_step_s(jobs: Jobs) -> float:
    """The interval in which demand is counted: an hour, longer where that would make more than a hundred thousand intervals."""
    return max(float(S_PER_HOUR), jobs.span_s / 100_000)


def count_demand(jobs: Jobs) -> Floats:
    """GPUs wanted in each interval while jobs were submitted, if none waited: the demand every plan of these jobs uses.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> count_demand(make_jobs([0, 7200], [2, 4], [3600, 36_000])).tolist()
    [2.0, 0.0]
    """
    step_s = demand_step_s(jobs)
    return jobs.concurrent_gpus(step_s)[: max(1, ceil(jobs.span_s / step_s))]


def choose_sizes(jobs: Jobs, gpus_per_node: int = 8) -> tuple[int, ...]:
    """Whole nodes from below the offered load (but never below the largest job) to beyond the peak, at most 50 sizes.

    >>> from loadfactor.planner.sizing.cluster.jobs import draw_poisson_jobs
    >>> choose_sizes(draw_poisson_jobs(2000, 0.01, 2000.0, gpus=(1, 8), gpu_shares=(0.5, 0.5)))[:3]
    (56, 64, 72)
    """
    largest = float(jobs.gpus.max())
    offered = jobs.offered_gpus
    demand = jobs.concurrent_gpus(demand_step_s(jobs))
    low = ceil(max(largest, 0.6 * offered, 1) / gpus_per_node)
    high = max(low + 4, ceil(min(float(demand.max()) * 1.1, 4 * max(offered, largest)) / gpus_per_node))
    step = max(1, ceil((high - low + 1) / MOST_SIZES))
    return tuple(node * gpus_per_node for node in range(low, high + 1, step))


def simulate_size(
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
        closed_form_wait_s=estimate_wait_s(jobs, gpus),
        hardware_cost_per_hour=cost.price_per_gpu_hour * paid_gpu_hours / span_h,
        delay_cost_per_hour=cost.delay_cost_per_gpu_hour * waited_gpu_hours / span_h,
        used_gpus=outcome.busy_gpu_s / S_PER_HOUR / span_h,
    )
    return point, outcome


def sweep_sizes(
    jobs: Jobs,
    sizes: Sequence[int],
    cost: SizeCost,
    policy: SchedulingPolicy | None = None,
    gpus_per_node: int = 8,
    on_point: Callable[[SizePoint], None] = lambda _: None,
) -> SizeCurve:
    """Simulate every size; `on_point` hears of each as it is done.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> jobs = make_jobs([0, 0, 7200], [8, 8, 8], [3600, 3600, 3600])
    >>> curve = sweep_sizes(jobs, (8, 16), SizeCost(price_per_gpu_hour=2.0, delay_cost_per_gpu_hour=1.0))
    >>> [(p.gpus, p.hardware_cost_per_hour, p.delay_cost_per_hour) for p in curve.points]  # 24 GPU-hours of work in two hours
    [(8, 24.0, 4.0), (16, 40.0, 0.0)]
    """
    points = []
    for gpus in sorted(set(sizes)):
        point, _ = simulate_size(jobs, gpus, cost, policy or SchedulingPolicy(), gpus_per_node)
        points.append(point)
        on_point(point)
    return SizeCurve(tuple(points), jobs.offered_gpus)


def find_gpus_without_nodes(jobs: Jobs, at: SizePoint, policy: SchedulingPolicy) -> int:
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
