"""Plan of a training run on N GPUs: the best layout with its time, memory and cost, and the layouts that lose to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadfactor.planner.hardware.checkpoint import CheckpointPlan, job_mtbf_s, plan_checkpoints
from loadfactor.planner.training.evaluation import EvaluatedLayout, evaluate_layout
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.reasons import explain_loss
from loadfactor.planner.training.refusals import check_request, explain_no_legal_layout, explain_nothing_fits
from loadfactor.planner.training.search import (
    ScoredLayouts,
    SearchSpace,
    find_pareto_front,
    pick_distinct,
    search_layouts,
)
from loadfactor.planner.training.utilization import Utilization, compute_utilization
from loadfactor.units import S_PER_DAY, S_PER_HOUR, TOKENS_PER_MTOK

RIVALS = 6  # other ways to cut the job that are shown beside the best


@dataclass(frozen=True)
class Reliability:
    """How often a GPU fails and what that costs: hours between failures of one, seconds of a checkpoint and of a restart."""

    gpu_mtbf_h: float
    checkpoint_s: float
    restart_s: float


@dataclass(frozen=True)
class TrainingPlan:
    """A run of `tokens` tokens on `gpus` GPUs in the best layout found, and what it was chosen from."""

    gpus: int
    job: TrainingJob
    tokens: float
    best: EvaluatedLayout
    rivals: Sequence[EvaluatedLayout]
    too_large: Sequence[EvaluatedLayout]  # faster, but does not fit
    pareto: Sequence[EvaluatedLayout]
    layouts_scored: int
    layouts_fitting: int
    use: Utilization
    checkpoints: CheckpointPlan
    price_per_gpu_hour: float | None

    @property
    def steps(self) -> float:
        """Optimizer steps the token budget takes."""
        return self.tokens / (self.job.global_batch * self.job.seq)

    @property
    def steady_s(self) -> float:
        """Seconds of uninterrupted training."""
        return self.steps * self.best.step_s

    @property
    def wall_s(self) -> float:
        """Seconds with failures, restarts and checkpoints."""
        return self.steady_s / self.checkpoints.efficiency_share

    @property
    def days(self) -> float:
        """Days with failures, restarts and checkpoints."""
        return self.wall_s / S_PER_DAY

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held, and paid."""
        return self.wall_s * self.gpus / S_PER_HOUR

    @property
    def cost(self) -> float | None:
        """Dollars for the GPU-hours; None without a price."""
        return None if self.price_per_gpu_hour is None else self.gpu_hours * self.price_per_gpu_hour

    @property
    def cost_per_mtok(self) -> float | None:
        """Dollars per million tokens trained on; None without a price."""
        return None if self.cost is None else self.cost * TOKENS_PER_MTOK / self.tokens

    @property
    def paid_mfu_share(self) -> float:
        """MFU over every paid hour: steady MFU times the share of time that is kept work."""
        return self.use.mfu_share * self.checkpoints.efficiency_share


def plan_training(
    job: TrainingJob,
    gpus: int,
    tokens: float,
    reliability: Reliability,
    knobs: SearchSpace | None = None,
    price_per_gpu_hour: float | None = None,
) -> TrainingPlan:
    """The plan for `gpus` GPUs. Raises PlanError naming the constraint and the nearest thing that works."""
    check_request(job, gpus, knobs)
    found = search_layouts(job, gpus, knobs)
    if not len(found):
        raise explain_no_legal_layout(job, gpus, knobs)
    if not found.fits.any():
        raise explain_nothing_fits(job, gpus, knobs, found)
    best = evaluate_layout(job, found.layouts.pick(0))
    step_s = best.step_s
    return TrainingPlan(
        gpus,
        job,
        tokens,
        best,
        [_evaluate_rival(job, found.layouts.pick(i), best) for i in pick_distinct(found, RIVALS + 1)[1:]],
        _list_too_large(job, found, best),
        [evaluate_layout(job, found.layouts.pick(i)) for i in find_pareto_front(found)],
        len(found),
        int(found.fits.sum()),
        compute_utilization(job.network, job.seq, job.global_batch, best.layout, job.machine, step_s),
        plan_checkpoints(reliability.checkpoint_s, job_mtbf_s(reliability.gpu_mtbf_h, gpus), reliability.restart_s),
        price_per_gpu_hour,
    )


def _evaluate_rival(job: TrainingJob, layout: TrainingLayout, best: EvaluatedLayout) -> EvaluatedLayout:
    one = evaluate_layout(job, layout)
    return replace(one, why_it_loses=explain_loss(job, one, best))


def _list_too_large(job: TrainingJob, found: ScoredLayouts, best: EvaluatedLayout) -> list[EvaluatedLayout]:
    """Layouts that would be faster but do not fit: what more memory would buy."""
    picked = [i for i in pick_distinct(found, 2, fitting=False) if found.step_s[i] < best.step_s]
    return [_evaluate_rival(job, found.layouts.pick(i), best) for i in picked]
