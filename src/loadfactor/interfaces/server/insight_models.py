"""The shapes of diagnoses and savings, as the server's OpenAPI document describes them; the command line prints the same."""

from pydantic import BaseModel, Field

from loadfactor.insight.causes import Cause
from loadfactor.insight.levers.lever import Level


class RangeAnswer(BaseModel):
    """From the least to the most."""

    low: float
    high: float


class FindingAnswer(BaseModel):
    """One cause of lost GPU time of a job, or of a pool where `job` is null. Ranges of several findings overlap."""

    cause: str
    title: str
    class_: Cause = Field(alias="class")
    job: str | None
    share: RangeAnswer = Field(description="of the GPU-seconds that were held")
    gpu_hours: RangeAnswer
    cost: RangeAnswer | None = Field(description="null where no price is known")
    sureness: str
    sureness_value: float
    evidence: list[str]
    against: list[str]
    measure_next: list[str]
    action: str
    pool: str | None


class CannotTellAnswer(BaseModel):
    """A cause that is neither found nor excluded, because these signals were not measured."""

    cause: str
    title: str
    missing: list[str]


class DiagnosedJobAnswer(BaseModel):
    """What a job held and lost, and why. `at_stake_…` is the union of what its findings claim: never more than was lost."""

    job: str
    gpus: int
    start_ms: int = Field(description="milliseconds since 1970, UTC")
    end_ms: int
    step_s: int
    held_gpu_hours: float
    unobserved_gpu_hours: float
    idle_gpu_hours: float
    underused_gpu_hours: float
    lost_gpu_hours: float
    lost_cost: float | None
    at_stake_gpu_hours: RangeAnswer
    at_stake_cost: RangeAnswer | None
    findings: list[FindingAnswer]
    cannot_tell: list[CannotTellAnswer]
    activity: list[float | None] = Field(description="of its GPUs, step by step")
    can_tell: bool


class CauseTotalAnswer(BaseModel):
    """A cause added up over jobs."""

    cause: str
    title: str
    class_: Cause = Field(alias="class")
    jobs: int
    gpu_hours: RangeAnswer
    cost: RangeAnswer | None


class DiagnosisAnswer(BaseModel):
    """The jobs that lost most, each with its findings. `scheduling`: GPUs that were free beside waiting jobs."""

    of: str
    jobs: list[DiagnosedJobAnswer]
    causes: list[CauseTotalAnswer]
    scheduling: list[FindingAnswer]
    not_looked_at: int
    not_looked_at_gpu_hours: float
    currency: str


class HolderAnswer(BaseModel):
    """Whom to ask; both null: who runs the cluster."""

    team: str | None
    user: str | None
    share: float


class LeverAnswer(BaseModel):
    """What a lever would have saved beyond those before it; money is null where no price is known."""

    lever: str
    title: str
    saved: float | None
    saved_per_month: float | None
    gpu_hours: float
    confidence: float
    confidence_word: Level
    effort: Level
    risk: Level
    risk_of: str
    ask: list[HolderAnswer]
    evidence: list[str]
    action: str


class UnknownHoursAnswer(BaseModel):
    """GPU-hours of which nobody knows whether they were lost."""

    unobserved: float
    uncounted: float
    unpriced: float


class GroupSavingAnswer(BaseModel):
    """The same by team or user."""

    by: dict[str, str | None]
    lost: float | None
    saved: float | None
    lost_gpu_hours: float
    gpu_hours: float
    levers: dict[str, float]


class PriceLeverAnswer(BaseModel):
    """What another price would have saved of what the levers left."""

    lever: str
    title: str
    saved: float | None
    gpu_hours: float
    evidence: list[str]
    action: str
    saved_range: RangeAnswer | None
    confidence: float
    missing: list[str]
    confidence_word: Level


class WorkPerCostAnswer(BaseModel):
    """Units of work for one unit of money, before and after."""

    unit: str
    before: float
    after: float
    change: float


class FollowUpAnswer(BaseModel):
    """A lever that was pulled: saved beside promised, over `days` before and after."""

    lever: str
    done: str
    team: str | None
    days: float
    promised_per_month: float | None
    saved_per_month: float | None
    judged_by: str | None
    verdict: str
    work: list[WorkPerCostAnswer]


class SavingsAnswer(BaseModel):
    """Levers in the order in which they were applied: `saved_at_most` is their sum, and never more than `lost`."""

    levers: list[LeverAnswer]
    currency: str
    lost: float | None
    saved_at_most: float | None
    lost_gpu_hours: float
    saved_gpu_hours: float
    window_hours: float
    basis: str
    unknown: UnknownHoursAnswer
    rows: list[GroupSavingAnswer]
    price_levers: list[PriceLeverAnswer]
    followed: list[FollowUpAnswer]
