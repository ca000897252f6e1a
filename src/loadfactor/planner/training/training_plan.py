"""Plan of a training run on N GPUs: the best layout and what loses to it, the whole project, and a real run beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loadfactor.base.errors import PlanError
from loadfactor.base.units import PERCENT, S_PER_DAY, S_PER_HOUR, TOKENS_PER_MTOK
from loadfactor.catalog.constants import read_left_out_errors
from loadfactor.catalog.prices import ChosenPrice
from loadfactor.planner.hardware.checkpoint import (
    LEAST_EFFICIENCY_SHARE,
    CheckpointPlan,
    count_spares,
    job_mtbf_s,
    plan_checkpoints,
)
from loadfactor.planner.hardware.distance import Distance
from loadfactor.planner.training.distance import find_distance, find_range
from loadfactor.planner.training.explanations import (
    EvaluatedLayout,
    check_request,
    evaluate_layout,
    explain_loss,
    explain_no_legal_layout,
    explain_nothing_fits,
    list_open_recomputation,
)
from loadfactor.planner.training.flops import MODEL, compute_utilization, training_flops_per_token
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.search import (
    EVERYTHING,
    ScoredLayouts,
    SearchSpace,
    find_pareto_front,
    find_safer,
    pick_distinct,
    rank_by_risk,
    search_layouts,
)

LONGEST_D = 100_000
RIVALS = 6  # other ways to cut the job that are shown beside the best


@dataclass(frozen=True)
class Reliability:
    """How often a GPU fails and what that costs: hours between failures of one, seconds of a checkpoint and of a restart, hours
    until a node is repaired.
    """

    gpu_mtbf_h: float
    checkpoint_s: float
    restart_s: float
    repair_h: float = 24.0

    def plan(self, gpus: int) -> tuple[CheckpointPlan, int]:
        """How a run on all these GPUs survives their failures, and the spare nodes with which it is whole 99 of 100 hours.

        PlanError where it does not survive them.
        """
        mtbf_s = job_mtbf_s(self.gpu_mtbf_h, gpus)
        checkpoints = plan_checkpoints(self.checkpoint_s, mtbf_s, self.restart_s)
        if checkpoints.efficiency_share < LEAST_EFFICIENCY_SHARE:
            raise PlanError(
                f"one of {gpus} GPUs fails every {mtbf_s:.3g} s, too often for the work to survive; "
                "give a larger --gpu-mtbf-h, or a smaller --checkpoint-s or --restart-s"
            )
        return checkpoints, count_spares(mtbf_s, self.repair_h * S_PER_HOUR)


@dataclass(frozen=True)
class TrainingPlan:
    """A run of `tokens` tokens on `gpus` GPUs in the best layout found, and what it was chosen from.

    Speeds and shares are those of uninterrupted training, as `Utilization` describes them.
    """

    gpus: int
    job: TrainingJob = field(repr=False)
    tokens: float
    best: EvaluatedLayout
    rivals: Sequence[EvaluatedLayout]
    safer: EvaluatedLayout | None  # the best that surely fits, or nearly; None where that is the best
    too_large: Sequence[EvaluatedLayout]  # faster, but does not fit
    pareto: Sequence[EvaluatedLayout]
    open_recomputation: Sequence[
        EvaluatedLayout
    ]  # the best layout with other recomputation that errors may make the better one
    layouts_scored: int
    layouts_fitting: int
    tokens_per_s: float
    model_flops_per_gpu_per_s: float
    hardware_flops_per_gpu_per_s: float
    mfu_share: float
    hfu_share: float
    causal_mfu_share: float
    checkpoints: CheckpointPlan = field(repr=False)
    spare_nodes: int
    """Nodes beside those of the run with which it is whole in 99 of 100 hours, while failed ones are repaired."""
    price_per_gpu_hour: float | None
    currency: str
    framework_range: tuple[float, float] = (1.0, 1.0)
    """Factors on the predicted time of the frameworks that it may be, where nobody named it."""
    price_range: tuple[float, float] = (1.0, 1.0)
    """Factors on the price between which the catalog lists it."""

    @property
    def global_batch(self) -> int:
        return self.job.global_batch

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def step_s(self) -> float:
        return self.best.step_s

    @property
    def goodput_share(self) -> float:
        """Share of the time that is kept work."""
        return self.checkpoints.efficiency_share

    @property
    def checkpoint_interval_s(self) -> float:
        """Seconds of work between checkpoints."""
        return self.checkpoints.interval_s

    @property
    def steps(self) -> float:
        """Optimizer steps the token budget takes."""
        return self.tokens / (self.global_batch * self.seq)

    @property
    def steady_s(self) -> float:
        """Seconds of uninterrupted training."""
        return self.steps * self.step_s

    @property
    def wall_s(self) -> float:
        """Seconds with failures, restarts and checkpoints."""
        return self.steady_s / self.goodput_share

    @property
    def days(self) -> float:
        """Days with failures, restarts and checkpoints."""
        return self.wall_s / S_PER_DAY

    @property
    def time_range(self) -> tuple[float, float]:
        """Factors on the predicted time between which four of five published runs lie that are as far from what was fitted.

        After a measured step what layouts of one job differ by. Where nobody named the framework, from the lower end of the
        fastest that it may be to the upper of the slowest.
        """
        if self.job.calibration.step_range is not None:
            return self.job.calibration.step_range
        low, high = find_range(self.job, self.gpus)
        fastest, slowest = self.framework_range
        return low * fastest, high * slowest

    @property
    def distance(self) -> Distance:
        """How far the run is from those that the constants were fitted to."""
        return find_distance(self.job, self.gpus)

    @property
    def days_range(self) -> tuple[float, float]:
        """Days, from the lower to the upper end of that range."""
        low, high = self.time_range
        return self.days * low, self.days * high

    @property
    def cost_range(self) -> tuple[float, float] | None:
        """Cost, from the lower to the upper end of that range and of the listed price; None without a price."""
        (low, high), (cheap, dear) = self.time_range, self.price_range
        return None if self.cost is None else (self.cost * low * cheap, self.cost * high * dear)

    @property
    def open_rivals(self) -> Sequence[EvaluatedLayout]:
        """Other ways to cut the job that are slower by less than errors of two layouts of one job lie apart."""
        close = self.step_s * (1 + read_left_out_errors().layout_spread)
        return [one for one in self.rivals if one.step_s < close]

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held, and paid."""
        return self.wall_s * self.gpus / S_PER_HOUR

    @property
    def cost(self) -> float | None:
        """Cost of the GPU-hours; None without a price."""
        return None if self.price_per_gpu_hour is None else self.gpu_hours * self.price_per_gpu_hour

    @property
    def cost_per_mtok(self) -> float | None:
        """Cost of a million tokens trained on; None without a price."""
        return None if self.cost is None else self.cost * TOKENS_PER_MTOK / self.tokens

    @property
    def paid_mfu_share(self) -> float:
        """MFU over every paid hour: steady MFU times the share of time that is kept work."""
        return self.mfu_share * self.goodput_share


def plan_run(
    job: TrainingJob,
    gpus: int,
    tokens: float,
    reliability: Reliability,
    space: SearchSpace = EVERYTHING,
    price: ChosenPrice | None = None,
) -> TrainingPlan:
    """The plan for `gpus` GPUs. Raises PlanError naming the constraint and the nearest thing that works."""
    check_request(job, gpus, space)
    found = search_layouts(job, gpus, space)
    if not len(found):
        raise explain_no_legal_layout(job, gpus, space)
    if not found.fits.any():
        raise explain_nothing_fits(job, gpus, space, found)
    ranked = rank_by_risk(job, found, space)
    best, safer = evaluate_layout(job, ranked.layouts.pick(0)), find_safer(job, ranked)
    checkpoints, spare_nodes = reliability.plan(gpus)
    plan = TrainingPlan(
        gpus=gpus,
        job=job,
        tokens=tokens,
        best=best,
        rivals=[_evaluate_rival(job, ranked.layouts.pick(i), best) for i in pick_distinct(ranked, RIVALS + 1)[1:]],
        safer=None if safer is None else _evaluate_rival(job, ranked.layouts.pick(safer), best),
        too_large=_list_too_large(job, found, best),
        pareto=[evaluate_layout(job, found.layouts.pick(i)) for i in find_pareto_front(found)],
        open_recomputation=() if space.recompute else list_open_recomputation(job, best),
        layouts_scored=len(found),
        layouts_fitting=int(found.fits.sum()),
        **vars(compute_utilization(job, best.layout, best.step_s)),
        checkpoints=checkpoints,
        spare_nodes=spare_nodes,
        price_per_gpu_hour=price.per_gpu_hour if price else None,
        currency=price.currency if price else "USD",
        framework_range=_compare_alternatives(job, best),
        price_range=price.range if price else (1.0, 1.0),
    )
    if plan.days > LONGEST_D:
        raise PlanError(
            f"{tokens:,.3g} tokens take {plan.days:,.3g} days on {gpus:,} GPUs, more than {LONGEST_D:,}; "
            "give more --gpus or fewer --tokens"
        )
    return plan


def _compare_alternatives(job: TrainingJob, best: EvaluatedLayout) -> tuple[float, float]:
    others = [evaluate_layout(replace(job, software=one), best.layout) for one in job.software.alternatives]
    factors = [1.0, *(one.step_s / best.step_s for one in others)]
    return min(factors), max(factors)


def _evaluate_rival(job: TrainingJob, layout: TrainingLayout, best: EvaluatedLayout) -> EvaluatedLayout:
    one = evaluate_layout(job, layout)
    return replace(one, why_it_loses=explain_loss(job, one, best))


def _list_too_large(job: TrainingJob, found: ScoredLayouts, best: EvaluatedLayout) -> list[EvaluatedLayout]:
    picked = [i for i in pick_distinct(found, 2, fitting=False) if found.step_s[i] < best.step_s]
    return [_evaluate_rival(job, found.layouts.pick(i), best) for i in picked]


@dataclass(frozen=True)
class ProjectNeeds:
    """Needs of a project beside one run: how many runs have to succeed, and what else is paid.

    `retry_percent`: GPU-hours of runs that fail, of those that succeed. `padding_percent`: tokens that are padding, of those that
    a run works on. `storage_cost` and `staff_cost` are of the whole project, in the currency of the plan's price.
    """

    runs: int = 1
    retry_percent: float = 0.0
    padding_percent: float = 0.0
    evaluation_gpu_hours: float = 0.0
    storage_cost: float = 0.0
    staff_cost: float = 0.0

    @property
    def work_share(self) -> float:
        return 1 - self.padding_percent / PERCENT


@dataclass(frozen=True)
class PlannedProject:
    """A project's cost by part, in the order they are paid; the parts sum to `cost`. None without a price of a GPU-hour."""

    needs: ProjectNeeds
    gpu_hours: Mapping[str, float]
    costs: Mapping[str, float] | None
    cost: float | None
    cost_range: tuple[float, float] | None
    """From the lower to the upper end of the runs' time and of the listed price; evaluation's hours, storage and staff as given."""


def cost_project(plan: TrainingPlan, needs: ProjectNeeds) -> PlannedProject:
    """The cost of a project whose successful runs are each as `plan`, which works on real tokens and padding.

    On paper: 10 runs of 100 GPU-hours at $2, a fifth of them padding, 30 % of retries, 50 GPU-hours of evaluation, $300 and
    $5,000: 1,600 + 400 + 600 + 100 + 300 + 5,000 = $8,000 (tests/planner/training/test_search_and_projects.py).
    """
    runs_h = needs.runs * plan.gpu_hours
    hours = {
        "runs": runs_h * needs.work_share,
        "padding": runs_h * (1 - needs.work_share),
        "retries": runs_h * needs.retry_percent / PERCENT,
        "evaluation": needs.evaluation_gpu_hours,
    }
    price = plan.price_per_gpu_hour
    if price is None:
        return PlannedProject(needs, hours, None, None, None)
    costs = {name: h * price for name, h in hours.items()} | {"storage": needs.storage_cost, "staff": needs.staff_cost}
    total = sum(costs.values())
    uncertain = costs["runs"] + costs["padding"] + costs["retries"]
    fixed = needs.storage_cost + needs.staff_cost
    low, high = (
        fixed + dear * (costs["evaluation"] + slow * uncertain)
        for slow, dear in zip(plan.time_range, plan.price_range, strict=True)
    )
    return PlannedProject(needs, hours, costs, total, (low, high))


@dataclass(frozen=True)
class JobRun:
    """Seconds of wall-clock time, and what came out; `stepping_s` is what steps covered, sections inside them left out.

    `sections_s`: by what the job did instead. `before_s`, `between_s`, `after_s`: before the first step of each interval that it
    held GPUs for, between steps, after the last. They and `stepping_s` add up to `wall_s`.
    """

    job: str
    gpus: int
    accelerator: str
    wall_s: float
    stepping_s: float
    sections_s: Mapping[str, float]
    before_s: float
    between_s: float
    after_s: float
    steps: float
    lost_share: float
    tokens: float

    @property
    def step_s(self) -> float:
        return self.stepping_s / self.steps

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.stepping_s


@dataclass(frozen=True)
class TimeShare:
    """One part of the time that a run held GPUs for."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True)
class PlannedRun:
    """A run and the plan for its network, layout and GPUs; `mfu_share` while it stepped, `held_mfu_share` of all its time."""

    run: JobRun
    plan: TrainingPlan

    @property
    def error(self) -> float:
        """(planned − measured) ÷ measured seconds of a step."""
        return self.plan.step_s / self.run.step_s - 1

    @property
    def mfu_share(self) -> float:
        """Measured MFU while it stepped, counted as the plan counts."""
        return self._mfu(self.run.stepping_s)

    @property
    def held_mfu_share(self) -> float:
        """Measured MFU over all the time that it held GPUs."""
        return self._mfu(self.run.wall_s)

    @property
    def time(self) -> tuple[TimeShare, ...]:
        """Where the time went; the parts add up to what it held GPUs for."""
        return split_time(self.run, self.plan.step_s)

    def _mfu(self, seconds: float) -> float:
        flops = self.run.tokens * training_flops_per_token(self.plan.job.network, self.plan.job.seq, MODEL)
        return flops / (seconds * self.run.gpus * self.plan.job.machine.matmul.peak_flops)


def split_time(run: JobRun, planned_step_s: float) -> tuple[TimeShare, ...]:
    """The time that a run held GPUs for, by where it went, as it would have gone by the plan first.

    >>> run = JobRun("j", 8, "h100-sxm", 100, 60, {"checkpoint": 10.0}, 15, 5, 10, 30, 0.2, 1e6)
    >>> [round(part.seconds, 9) for part in split_time(run, 1.5)]
    [36.0, 12.0, 12.0, 10.0, 15, 5, 10]
    """
    kept_s = run.stepping_s * (1 - run.lost_share)
    planned_s = run.steps * (1 - run.lost_share) * planned_step_s
    slower = "slower" if kept_s >= planned_s else "faster"
    parts = (
        ("kept steps as planned", planned_s),
        (f"kept steps {slower} than planned", kept_s - planned_s),
        ("steps that were lost", run.stepping_s * run.lost_share),
        *((kind.replace("_", " "), seconds) for kind, seconds in run.sections_s.items()),
        ("before the first step", run.before_s),
        ("between steps", run.between_s),
        ("after the last step", run.after_s),
    )
    return tuple(TimeShare(name, seconds, seconds / run.wall_s) for name, seconds in parts)
