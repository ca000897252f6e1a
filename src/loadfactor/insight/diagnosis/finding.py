"""Results of a diagnosis: findings, causes whose signals are missing, and losses of a job in all."""

from dataclasses import dataclass

from loadfactor.insight.causes import Cause


@dataclass(frozen=True)
class Range:
    """From the least to the most."""

    low: float
    high: float


@dataclass(frozen=True)
class CauseFinding:
    """One cause of lost GPU time of a job, or of a pool where `job` is None.

    `share` is of the GPU-seconds that the job held, `gpu_hours` and `cost` the same in hours and money (None: no price is known).
    Ranges of several findings overlap: only `JobDiagnosis.at_stake_gpu_hours` adds them up. `sureness_value` is of 0 to 1.
    `against`: what speaks against it, or looks alike. `measure_next`: what would make it surer.
    """

    cause: str
    title: str
    class_: Cause
    job: str | None
    share: Range
    gpu_hours: Range
    cost: Range | None
    sureness: str
    sureness_value: float
    evidence: tuple[str, ...]
    against: tuple[str, ...]
    measure_next: tuple[str, ...]
    action: str
    pool: str | None = None


@dataclass(frozen=True)
class CannotTell:
    """A cause that is neither found nor excluded, because these signals were not measured."""

    cause: str
    title: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class JobDiagnosis:
    """Held and lost time of a job, and why, the cause with most at stake first.

    `lost_gpu_hours`: idle, underused, active without tensor cores (as far as measured) and the rest of attempts that failed.
    `at_stake_gpu_hours` is the union of what its findings claim, GPU-second by GPU-second: never more than was lost.
    """

    job: str
    gpus: int
    start_ms: int
    end_ms: int
    step_s: int
    held_gpu_hours: float
    unobserved_gpu_hours: float
    idle_gpu_hours: float
    underused_gpu_hours: float
    lost_gpu_hours: float
    lost_cost: float | None
    at_stake_gpu_hours: Range
    at_stake_cost: Range | None
    findings: tuple[CauseFinding, ...]
    cannot_tell: tuple[CannotTell, ...]
    activity: tuple[float | None, ...]
    """The activity of its GPUs in each step, by the best signal."""

    @property
    def can_tell(self) -> bool:
        """Whether a cause was found."""
        return bool(self.findings)


@dataclass(frozen=True)
class CauseTotal:
    """A cause added up over jobs."""

    cause: str
    title: str
    class_: Cause
    jobs: int
    gpu_hours: Range
    cost: Range | None


@dataclass(frozen=True)
class FleetDiagnosis:
    """The jobs that lost most, each with its own diagnosis, and causes added up over them.

    `scheduling`: GPUs that were free beside waiting jobs, which no job lost; of the whole fleet alone.
    `not_looked_at`: how many other jobs lost time, and the GPU-hours that they were idle or underused.
    """

    of: str
    jobs: tuple[JobDiagnosis, ...]
    causes: tuple[CauseTotal, ...]
    scheduling: tuple[CauseFinding, ...]
    not_looked_at: int
    not_looked_at_gpu_hours: float
    currency: str
