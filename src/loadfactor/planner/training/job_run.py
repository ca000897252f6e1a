"""What a real run did with the time that it held GPUs, beside a plan of the same steps."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.planner.training.flops import MODEL, training_flops_per_token
from loadfactor.planner.training.training_plan import TrainingPlan


@dataclass(frozen=True)
class JobRun:
    """Seconds of wall-clock time, and what came out; `stepping_s` is what steps covered, sections inside them left out.

    `sections_s`: by what the job did instead. `before_s`, `between_s`, `after_s`: before the first step of each stretch that it
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
