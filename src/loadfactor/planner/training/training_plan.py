"""What would a training run be like on N GPUs? The best layout with its time, memory and money, and those that lose to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadfactor.planner.hardware.checkpoint import CheckpointPlan, job_mtbf_s, plan_checkpoints
from loadfactor.planner.training.layout import Layout
from loadfactor.planner.training.limits import check_request, nothing_fits, nothing_legal
from loadfactor.planner.training.memory import memory
from loadfactor.planner.training.reasons import why_it_loses
from loadfactor.planner.training.search import Found, Knobs, distinct, pareto, search
from loadfactor.planner.training.step import Job, step
from loadfactor.planner.training.utilization import Utilization, utilization
from loadfactor.units import S_PER_DAY, S_PER_HOUR, TOKENS_PER_MTOK

RIVALS = 6  # other ways to cut the job that are shown beside the best


@dataclass(frozen=True)
class Reliability:
    """How often a GPU fails and what that costs: hours between failures of one, seconds of a checkpoint and of a restart."""

    gpu_mtbf_h: float
    checkpoint_s: float
    restart_s: float


@dataclass(frozen=True)
class Candidate:
    """One layout, evaluated: seconds by term, bytes by part, whether it fits, and why it loses to the best (empty for it)."""

    layout: Layout
    terms: Mapping[str, float]
    memory_parts: Mapping[str, float]
    usable_bytes: float
    loses: str = ""

    @property
    def step_s(self) -> float:
        """Seconds of a step: the sum of its terms."""
        return sum(self.terms.values())

    @property
    def memory_bytes(self) -> float:
        """Bytes of the fullest rank: the sum of its parts."""
        return sum(self.memory_parts.values())

    @property
    def fits(self) -> bool:
        """True when the fullest rank has room."""
        return self.memory_bytes <= self.usable_bytes


@dataclass(frozen=True)
class TrainingPlan:
    """A run of `tokens` tokens on `gpus` GPUs in the best layout found, and what it was chosen from."""

    gpus: int
    job: Job
    tokens: float
    best: Candidate
    rivals: Sequence[Candidate]
    too_large: Sequence[Candidate]  # faster, but without room
    pareto: Sequence[Candidate]
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


def candidate(job: Job, layout: Layout, best: "Candidate | None" = None) -> Candidate:
    """One layout evaluated by the equations the search uses, and why it loses to `best`."""
    terms = {name: float(np.ravel(value)[0]) for name, value in step(job, layout).terms.items()}
    needs = memory(job, layout)
    parts = {name: float(np.ravel(value)[0]) for name, value in needs.parts.items()}
    one = Candidate(layout, terms, parts, needs.usable_bytes)
    return one if best is None else Candidate(layout, terms, parts, needs.usable_bytes, why_it_loses(job, one, best))


def plan_training(
    job: Job,
    gpus: int,
    tokens: float,
    reliability: Reliability,
    knobs: Knobs | None = None,
    price_per_gpu_hour: float | None = None,
) -> TrainingPlan:
    """The plan for `gpus` GPUs. Raises PlanError naming the constraint and the nearest thing that works."""
    check_request(job, gpus, knobs)
    found = search(job, gpus, knobs)
    if not len(found):
        raise nothing_legal(job, gpus, knobs)
    if not found.fits.any():
        raise nothing_fits(job, gpus, knobs, found)
    best = candidate(job, found.layouts.pick(0))
    step_s = best.step_s
    return TrainingPlan(
        gpus,
        job,
        tokens,
        best,
        [candidate(job, found.layouts.pick(i), best) for i in distinct(found, RIVALS + 1)[1:]],
        _too_large(job, found, best),
        [candidate(job, found.layouts.pick(i)) for i in pareto(found)],
        len(found),
        int(found.fits.sum()),
        utilization(job.network, job.seq, job.global_batch, best.layout, job.machine, step_s),
        plan_checkpoints(reliability.checkpoint_s, job_mtbf_s(reliability.gpu_mtbf_h, gpus), reliability.restart_s),
        price_per_gpu_hour,
    )


def _too_large(job: Job, found: Found, best: Candidate) -> list[Candidate]:
    """Ways to cut that would be faster and have no room: what more memory would buy."""
    picked = [i for i in distinct(found, 2, fitting=False) if found.step_s[i] < best.step_s]
    return [candidate(job, found.layouts.pick(i), best) for i in picked]
