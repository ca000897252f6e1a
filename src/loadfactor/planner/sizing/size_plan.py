"""Which size should this cluster have? The size curve, the size to choose, and the judgement on the next GPU, in one answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from loadfactor.errors import PlanError
from loadfactor.planner.economics.base_and_peak import own_and_rent_cost_per_hour, own_and_rent_gpus
from loadfactor.planner.economics.load_duration import LoadDuration, load_duration
from loadfactor.planner.economics.marginal import MarginalGpu, marginal_gpu
from loadfactor.planner.sizing.cluster import SchedulingPolicy
from loadfactor.planner.sizing.cluster.jobs import Floats, Jobs
from loadfactor.planner.sizing.cluster.outcome import BatchMeans, Outcome, batch_means
from loadfactor.planner.sizing.cluster_size import (
    HeldGpus,
    SizeCost,
    SizeCurve,
    SizePoint,
    Staffing,
    gpus_without_nodes,
    lost_share,
    shares_and_instances,
    size_curve,
    size_point,
    sizes_to_try,
    staffing,
)
from loadfactor.units import S_PER_HOUR

LEAST_JOBS_FOR_INTERVAL = 200  # ten jobs in each of twenty batches


@dataclass(frozen=True)
class SizeQuestion:
    """What is asked beside the jobs. `have_gpus` is today's cluster; `sizes` the ones to try; dollars are per GPU-hour."""

    cost: SizeCost
    policy: SchedulingPolicy = SchedulingPolicy()  # noqa: RUF009  frozen
    gpus_per_node: int = 8
    have_gpus: int | None = None
    sizes: Sequence[int] = ()
    teams: int = 1
    team_of_job: Sequence[str] | None = None
    rent_price: float | None = None
    api_price: float | None = None
    value: float | None = None
    yearly_growth_share: float = 0.0
    life_years: int = 4


@dataclass(frozen=True)
class SizePlan:
    """The answer. `chosen` is the cheapest size, `have` today's; `outcome` is the simulation of the chosen size.

    `mean_wait` is its mean wait after a warm-up, with a 95 % interval from batch means, None for too few jobs; `lost_share` is
    Erlang B's. `base_gpus` is how many to keep when every peak is rented instead of waited for; None where nothing can be rented.
    """

    curve: SizeCurve
    chosen: SizePoint
    have: SizePoint | None
    outcome: Outcome
    demand: LoadDuration
    demand_series: Floats
    staffing: Staffing
    lost_share: float
    mean_wait: BatchMeans | None
    held: HeldGpus
    without_nodes_gpus: int
    next_gpu: MarginalGpu
    last_gpu: MarginalGpu
    base_gpus: int | None
    base_cost_per_used_gpu_hour: float | None

    @property
    def smaller_is_cheaper(self) -> bool:
        """True when today's cluster is larger than the cheapest size."""
        return self.have is not None and self.have.gpus > self.chosen.gpus


def plan_size(
    jobs: Jobs,
    question: SizeQuestion,
    on_sizes: Callable[[int], None] = lambda _: None,
    on_point: Callable[[SizePoint], None] = lambda _: None,
) -> SizePlan:
    """Sweep the sizes and judge the next and the last GPU; `on_sizes` hears how many sizes there are, `on_point` of each.

    >>> from loadfactor.planner.sizing.cluster.workload import poisson_jobs
    >>> jobs = poisson_jobs(500, 0.01, 1600.0, gpus=(1, 8), gpu_shares=(0.5, 0.5), seed=3)
    >>> plan = plan_size(jobs, SizeQuestion(SizeCost(2.0, 2.0), have_gpus=160))
    >>> plan.smaller_is_cheaper, plan.curve.offered_gpus < plan.chosen.gpus < 160
    (True, True)
    """
    if len(jobs) < 2 or jobs.span_s == 0:
        raise PlanError("a size needs a history: at least two jobs submitted at different times")
    if question.have_gpus is not None and question.have_gpus < jobs.gpus.max():
        raise PlanError(
            f"you have {question.have_gpus} GPUs, but a job asks for {jobs.gpus.max():g}; take {jobs.gpus.max():g} or more"
        )
    tried = question.sizes or sizes_to_try(jobs, question.gpus_per_node)
    sizes = sorted({*tried, *(() if question.have_gpus is None else (question.have_gpus,))})
    if sizes[-1] <= jobs.offered_gpus:
        least = (int(jobs.offered_gpus) // question.gpus_per_node + 1) * question.gpus_per_node
        raise PlanError(
            f"the jobs keep {jobs.offered_gpus:.1f} GPUs busy, more than any size tried (up to {sizes[-1]}): "
            f"their queue grows without end; try {least} or more"
        )
    on_sizes(len(sizes))
    curve = size_curve(jobs, sizes, question.cost, question.policy, question.gpus_per_node, on_point)
    chosen = curve.cheapest
    _, outcome = size_point(jobs, chosen.gpus, question.cost, question.policy, question.gpus_per_node)
    step_s = max(float(S_PER_HOUR), jobs.span_s / 100_000)
    series = jobs.concurrent_gpus(step_s)[: max(1, ceil(jobs.span_s / step_s))]
    demand = load_duration(series)
    today = chosen.gpus if question.have_gpus is None else question.have_gpus

    def judge(gpu: int) -> MarginalGpu:
        return marginal_gpu(
            demand,
            gpu,
            question.cost.price_per_gpu_hour,
            rent_price_per_used_hour=question.rent_price,
            api_price_per_used_hour=question.api_price,
            value_per_used_hour=question.value,
            yearly_growth_share=question.yearly_growth_share,
            life_years=question.life_years,
        )

    own_cost, rent_price = question.cost.price_per_gpu_hour, question.rent_price
    base = None if rent_price is None else own_and_rent_gpus(demand, own_cost, rent_price)
    base_cost = (
        None
        if base is None or rent_price is None
        else own_and_rent_cost_per_hour(demand, base, own_cost, rent_price) / demand.mean_gpus
    )
    return SizePlan(
        curve=curve,
        chosen=chosen,
        have=None if question.have_gpus is None else curve.at(question.have_gpus),
        outcome=outcome,
        demand=demand,
        demand_series=series,
        staffing=staffing(jobs, teams=question.teams, team_of_job=question.team_of_job),
        lost_share=lost_share(jobs, chosen.gpus),
        mean_wait=batch_means(outcome.wait_s) if len(jobs) >= LEAST_JOBS_FOR_INTERVAL else None,
        held=shares_and_instances(jobs, question.gpus_per_node),
        without_nodes_gpus=gpus_without_nodes(jobs, chosen, question.policy),
        next_gpu=judge(today + 1),
        last_gpu=judge(today),
        base_gpus=base,
        base_cost_per_used_gpu_hour=base_cost,
    )
