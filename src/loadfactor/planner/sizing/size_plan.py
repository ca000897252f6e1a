"""Plan of a cluster's size from a history of jobs: waits, utilization and cost of every size, the size to choose, one GPU judged.

What a size costs: its GPUs for every hour, and the waiting. Hardware falls per used hour as the cluster shrinks, waiting rises, so
the sum is U-shaped and has a smallest value. Paid GPU-hours are the GPUs over the span of submissions plus the work still to do
when the last job came, as if that were done on a full cluster: one far too small costs what its work costs, no less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.limits import MOST_CLUSTER_GPUS
from loadfactor.base.units import H_PER_MONTH, H_PER_YEAR, PERCENT, S_PER_HOUR
from loadfactor.planner.economics.load_duration import (
    LoadDuration,
    MarginalGpu,
    choose_owned_gpus,
    cost_own_and_rent,
    judge_gpu,
    load_duration,
)
from loadfactor.planner.hardware.marginal import Marginal, list_enlargements
from loadfactor.planner.sizing.closed_forms import (
    HeldGpus,
    Pooling,
    QueueWait,
    Staffing,
    compare_pooling,
    count_held_gpus,
    estimate_lost_share,
    estimate_wait,
    estimate_wait_s,
    staff,
    strand_nodes,
)
from loadfactor.planner.sizing.cluster import (
    SCHEDULERS,
    BatchMeans,
    Cluster,
    Outcome,
    SchedulingPolicy,
    SizeClass,
    average_batches,
    simulate,
)
from loadfactor.planner.sizing.cluster.jobs import Floats, Jobs
from loadfactor.planner.sizing.request import SizeRequest

MOST_SIZES = 50


@dataclass(frozen=True)
class SizeCost:
    """Cost of an hour of a GPU, and of a job that waits an hour for one GPU of its gang: both explicit."""

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
        """Cost of the GPUs alone per GPU-hour of work done: price over utilization."""
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
    """GPUs needed in each interval while jobs were submitted, if none waited: the demand every plan of these jobs uses.

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


LEAST_JOBS_FOR_INTERVAL = 200  # ten jobs in each of twenty batches
LONGEST_HISTORY_YEARS = 10
MOST_OFFERED_OVER_PEAK = 2  # the offered load is a mean: beyond its own peak the jobs outlast their history


@dataclass(frozen=True)
class SizeQuestion:
    """The question beside the jobs. `have_gpus` is today's cluster; `sizes` the ones to try; prices are per GPU-hour."""

    cost: SizeCost
    policy: SchedulingPolicy = SchedulingPolicy()  # noqa: RUF009  frozen
    gpus_per_node: int = 8
    have_gpus: int | None = None
    sizes: Sequence[int] = ()
    teams: int = 1
    team_correlation: float = 0.0
    team_of_job: Sequence[str] | None = None
    rent_price: float | None = None
    api_price: float | None = None
    value: float | None = None
    yearly_growth_share: float = 0.0
    life_years: int = 4


@dataclass(frozen=True)
class SizePlan:
    """The answer. `cheapest` is the size to choose where jobs wait, `today` the cluster there is; costs are in `currency`.

    `mean_wait_s_after_warm_up` is the chosen size's mean wait with a 95 % interval from batch means, None for too few jobs. The
    share lost is Erlang B's, the share turned away the simulated one, if nobody could wait. `base_gpus` is how many to keep when
    every peak is rented instead of waited for; None where nothing can be rented.
    """

    trace: str
    left_out: Sequence[str]
    jobs: int
    work_gpu_hours: float
    span_s: float
    offered_gpus: float
    price_per_gpu_hour: float
    delay_cost_per_gpu_hour: float
    policy: SchedulingPolicy
    gpus_per_node: int
    cheapest: SizePoint
    today: SizePoint | None
    sizes: Sequence[SizePoint]
    waits_by_job_size: Sequence[SizeClass]
    staffing: Staffing
    pooling: Pooling
    lost_share_if_nobody_waits: float
    turned_away_share_if_nobody_waits: float
    closed_form_wait: QueueWait | None
    mean_wait_s_after_warm_up: BatchMeans | None
    held_gpus: HeldGpus
    stranded_share: float
    without_nodes_gpus: int
    base_gpus: int | None
    base_cost_per_used_gpu_hour: float | None
    next_gpu: MarginalGpu
    last_gpu: MarginalGpu
    outcome: Outcome = field(repr=False)
    demand: LoadDuration = field(repr=False)
    currency: str = "USD"
    marginal: tuple[Marginal, ...] = ()
    """What more kept GPUs bring, where requested."""

    @property
    def renting_is_cheaper(self) -> bool:
        """True where keeping the base and renting every peak costs less than any size whose jobs wait."""
        rented = self.base_cost_per_used_gpu_hour
        return rented is not None and rented < self.cheapest.cost_per_used_gpu_hour

    @property
    def smaller_is_cheaper(self) -> bool:
        return self.today is not None and self.today.gpus > self.cheapest.gpus

    @property
    def pending_while_idle_share(self) -> float:
        """Share of the time in which jobs waited beside idle GPUs of the chosen size: the three reasons below."""
        return self.outcome.pending_while_idle_share

    @property
    def gang_share(self) -> float:
        """…because every waiting gang was too large."""
        return self.outcome.gang_share

    @property
    def fragmented_share(self) -> float:
        """…because the idle GPUs lay scattered over nodes."""
        return self.outcome.fragmented_share

    @property
    def order_share(self) -> float:
        """…because of the queue's order."""
        return self.outcome.order_share

    @property
    def fragmented_gpu_hours(self) -> float:
        return self.outcome.fragmented_gpu_hours

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end."""
        return self.outcome.makespan_s


def plan_size_from_jobs(
    jobs: Jobs,
    question: SizeQuestion,
    trace: str = "",
    left_out: Sequence[str] = (),
    on_sizes: Callable[[int], None] = lambda _: None,
    on_point: Callable[[SizePoint], None] = lambda _: None,
) -> SizePlan:
    """Sweep the sizes and judge the next and the last GPU; `on_sizes` hears how many sizes there are, `on_point` of each.

    >>> from loadfactor.planner.sizing.cluster.jobs import draw_poisson_jobs
    >>> jobs = draw_poisson_jobs(500, 0.01, 1600.0, gpus=(1, 8), gpu_shares=(0.5, 0.5), seed=3)
    >>> plan = plan_size_from_jobs(jobs, SizeQuestion(SizeCost(2.0, 2.0), have_gpus=160))
    >>> plan.smaller_is_cheaper, plan.offered_gpus < plan.cheapest.gpus < 160
    (True, True)
    """
    sizes = _check_sizes(jobs, question)
    on_sizes(len(sizes))
    curve = sweep_sizes(jobs, sizes, question.cost, question.policy, question.gpus_per_node, on_point)
    chosen = curve.cheapest
    _, outcome = simulate_size(jobs, chosen.gpus, question.cost, question.policy, question.gpus_per_node)
    cluster = Cluster.of_gpus(chosen.gpus, question.gpus_per_node)
    demand = load_duration(count_demand(jobs))
    today = chosen.gpus if question.have_gpus is None else question.have_gpus
    base, base_cost = _rent_peaks(demand, question)
    staffing = staff(jobs, teams=question.teams, team_of_job=question.team_of_job)
    return SizePlan(
        trace=trace,
        left_out=left_out,
        jobs=len(jobs),
        work_gpu_hours=jobs.gpu_hours,
        span_s=jobs.span_s,
        offered_gpus=curve.offered_gpus,
        price_per_gpu_hour=question.cost.price_per_gpu_hour,
        delay_cost_per_gpu_hour=question.cost.delay_cost_per_gpu_hour,
        policy=question.policy,
        gpus_per_node=question.gpus_per_node,
        cheapest=chosen,
        today=None if question.have_gpus is None else curve.at(question.have_gpus),
        sizes=curve.points,
        waits_by_job_size=outcome.by_size(),
        staffing=staffing,
        pooling=compare_pooling(demand, staffing.teams, question.team_correlation),
        lost_share_if_nobody_waits=estimate_lost_share(jobs, chosen.gpus),
        turned_away_share_if_nobody_waits=simulate(jobs, cluster, SchedulingPolicy(turn_away=True)).turned_away_share,
        closed_form_wait=estimate_wait(jobs, chosen.gpus),
        mean_wait_s_after_warm_up=average_batches(outcome.wait_s) if len(jobs) >= LEAST_JOBS_FOR_INTERVAL else None,
        held_gpus=count_held_gpus(jobs, question.gpus_per_node),
        stranded_share=strand_nodes(jobs, question.gpus_per_node),
        without_nodes_gpus=find_gpus_without_nodes(jobs, chosen, question.policy),
        base_gpus=base,
        base_cost_per_used_gpu_hour=base_cost,
        next_gpu=judge(demand, today + 1, question),
        last_gpu=judge(demand, today, question),
        outcome=outcome,
        demand=demand,
    )


def add_gpus(jobs: Jobs, plan: SizePlan, node_gpus: int) -> tuple[Marginal, ...]:
    """GPU-hours of a month that jobs wait less on more GPUs than today's (the cheapest size where none is known), simulated."""
    cost, start = SizeCost(plan.price_per_gpu_hour, 1.0), plan.today or plan.cheapest  # an hour waited costs 1

    def run(gpus: int) -> tuple[float, float]:
        """GPU-hours waited, and what the GPUs cost, in a month."""
        point, _ = simulate_size(jobs, gpus, cost, plan.policy, plan.gpus_per_node)
        return point.delay_cost_per_hour * H_PER_MONTH, point.hardware_cost_per_hour * H_PER_MONTH

    (now, paid), found = run(start.gpus), []
    for step in list_enlargements(node_gpus, plan.price_per_gpu_hour * H_PER_MONTH, plan.currency):
        then, pays = run(start.gpus + step.gpus) if step.gpus else (now, paid)
        reason = ""
        if not step.gpus:
            reason = "they pay for no GPU"
        elif then >= now:
            reason = "jobs wait no less"
        elif pays - paid > (now - then) * plan.delay_cost_per_gpu_hour:
            reason = "to wait costs less"
        gained = max(0.0, now - then)
        found.append(
            Marginal(step.name, step.gpus, "GPU-hours not waited", now, then, gained, pays - paid, reason=reason)
        )
    return tuple(found)


def judge(demand: LoadDuration, gpu: int, question: SizeQuestion) -> MarginalGpu:
    return judge_gpu(
        demand,
        gpu,
        question.cost.price_per_gpu_hour,
        rent_price_per_used_hour=question.rent_price,
        api_price_per_used_hour=question.api_price,
        value_per_used_hour=question.value,
        yearly_growth_share=question.yearly_growth_share,
        life_years=question.life_years,
    )


def _check_sizes(jobs: Jobs, question: SizeQuestion) -> list[int]:
    _check_history(jobs)
    if question.have_gpus is not None and question.have_gpus < jobs.gpus.max():
        raise PlanError(
            f"you have {question.have_gpus} GPUs, but a job asks for {jobs.gpus.max():g}; take {jobs.gpus.max():g} or more"
        )
    tried = question.sizes or choose_sizes(jobs, question.gpus_per_node)
    sizes = sorted({*tried, *(() if question.have_gpus is None else (question.have_gpus,))})
    if sizes[-1] > MOST_CLUSTER_GPUS:
        raise PlanError(
            f"the jobs ask for up to {sizes[-1]:,} GPUs; more than {MOST_CLUSTER_GPUS:,} cannot be simulated: "
            "take a part of the history"
        )
    if sizes[-1] <= jobs.offered_gpus:
        least = (int(jobs.offered_gpus) // question.gpus_per_node + 1) * question.gpus_per_node
        raise PlanError(
            f"the jobs keep {jobs.offered_gpus:.1f} GPUs busy, more than any size tried (up to {sizes[-1]}): "
            f"their queue grows without end; try {least} or more"
        )
    return sizes


def _check_history(jobs: Jobs) -> None:
    """Raise PlanError where the submissions are too few or too close together to tell a rate: then any size follows."""
    if len(jobs) < 2 or jobs.span_s == 0:
        raise PlanError("a size needs a history: at least two jobs submitted at different times")
    known = f"{len(jobs)} jobs submitted within {jobs.span_s:,.4g} s tell too little to size a cluster"
    if jobs.span_s < S_PER_HOUR:
        raise PlanError(f"{known}; give a history of an hour or more, better of weeks")
    if jobs.span_s > LONGEST_HISTORY_YEARS * H_PER_YEAR * S_PER_HOUR:
        raise PlanError(
            f"the jobs were submitted over {jobs.span_s / S_PER_HOUR / H_PER_YEAR:,.3g} years, more than "
            f"{LONGEST_HISTORY_YEARS}; check the first and the last submission"
        )
    most = float(jobs.concurrent_gpus(demand_step_s(jobs)).max())
    if jobs.offered_gpus > MOST_OFFERED_OVER_PEAK * most:
        raise PlanError(
            f"{known}: they hold their GPUs {float(jobs.gpu_s.sum() / jobs.gpus.sum()):,.4g} s on average; "
            "give a history that is longer than its jobs"
        )


def _rent_peaks(demand: LoadDuration, question: SizeQuestion) -> tuple[int | None, float | None]:
    """(GPUs to keep, cost per used GPU-hour) when every peak is rented; None where nothing can be rented."""
    price, rent_price = question.cost.price_per_gpu_hour, question.rent_price
    if rent_price is None:
        return None, None
    base = choose_owned_gpus(demand, price, rent_price)
    return base, cost_own_and_rent(demand, base, price, rent_price) / demand.mean_gpus


def make_question(
    request: SizeRequest,
    price_per_gpu_hour: float,
    rent_price: float,
    have_gpus: int | None = None,
    team_of_job: Sequence[str] | None = None,
) -> SizeQuestion:
    """The question. `have_gpus` holds where the request names none; waiting costs as much as a GPU-hour where nothing is given."""
    delay_cost = price_per_gpu_hour if request.delay_cost is None else request.delay_cost
    policy, _ = SCHEDULERS[request.scheduler]
    return SizeQuestion(
        cost=SizeCost(price_per_gpu_hour, delay_cost),
        policy=replace(policy, interval_s=request.scheduler_interval_s, spread=request.spread),
        gpus_per_node=request.gpus_per_node,
        have_gpus=have_gpus if request.gpus is None else request.gpus,
        sizes=request.sizes,
        teams=request.teams,
        team_correlation=request.team_correlation,
        team_of_job=team_of_job,
        rent_price=rent_price,
        api_price=request.api_price_per_gpu_hour,
        value=request.value_per_gpu_hour,
        yearly_growth_share=request.growth_percent / PERCENT,
        life_years=request.life_years,
    )
