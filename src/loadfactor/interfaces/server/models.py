"""The shapes of the server's answers, as its OpenAPI document describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ErrorAnswer(BaseModel):
    """What is wrong, where, and what to do next, in one line."""

    error: str


class ReadingAnswer(BaseModel):
    """One reading, as `loadfactor show --format json` prints it."""

    metric: str
    unit: str
    value: float | list[float] | None = Field(description="null where nothing of it was known")
    by: dict[str, str | None]
    currency: str | None
    from_: str = Field(alias="from", description="ISO 8601, UTC")
    to: str
    coverage: float | None = Field(
        description="the share of what it speaks of that was known; null where nothing is needed"
    )
    activity_basis: str | None
    cost_basis: str | None


class ReadingsAnswer(BaseModel):
    """The readings asked for."""

    readings: list[ReadingAnswer]


class CoverageEntry(BaseModel):
    """How much of what a metric speaks of was known."""

    metric: str
    by: dict[str, str | None]
    from_: str = Field(alias="from")
    to: str
    coverage: float | None
    activity_basis: str | None


class CoverageAnswer(BaseModel):
    """The coverage of metrics."""

    coverage: list[CoverageEntry]


class MetricAnswer(BaseModel):
    """The declaration of a metric."""

    name: str
    unit: str
    title: str
    meaning: str
    better: str
    topic: str


class MetricsAnswer(BaseModel):
    """All metrics."""

    metrics: list[MetricAnswer]


class JobAnswer(BaseModel):
    """One time a job held GPUs."""

    job: str
    attempt: float | None
    user: str | None
    team: str | None
    project: str | None
    experiment: str | None
    purpose: str | None
    gpus: float
    submitted: str | None
    from_: str = Field(alias="from")
    to: str | None = Field(description="null while it is held")
    end_state: str | None


class JobsAnswer(BaseModel):
    """Jobs in the order of their starts."""

    jobs: list[JobAnswer]


class DeviceAnswer(BaseModel):
    """One GPU, for as long as it stayed where it was."""

    device: str
    node: str | None
    accelerator: str | None
    pool: str | None
    share: float | None
    from_: str | None = Field(alias="from")
    to: str | None


class DevicesAnswer(BaseModel):
    """GPUs in the order of their names."""

    devices: list[DeviceAnswer]


class ImportAnswer(BaseModel):
    """One import, as `loadfactor imports --format json` prints it."""

    number: int
    source: str
    paths: list[str]
    rows: dict[str, int]
    model_config = ConfigDict(extra="allow")


class ImportsAnswer(BaseModel):
    """All imports, in order."""

    imports: list[ImportAnswer]


class ReceiptAnswer(BaseModel):
    """What an import brought, as `loadfactor import --format json` prints it."""

    source: str
    rows: dict[str, int]
    gaps: list[dict[str, Any]]
    already: bool
    number: int | None


class SourceHealth(BaseModel):
    """How one source does."""

    name: str
    status: str
    last_sample: str | float | None
    error: str | None
    model_config = ConfigDict(extra="allow")


class HealthAnswer(BaseModel):
    """How the server does."""

    status: str
    sources: list[SourceHealth]
    lag_s: float
    model_config = ConfigDict(extra="allow")


class AlertAnswer(BaseModel):
    """One alert. `silence` is the id of the silence that hides it from receivers."""

    id: str
    rule: str
    by: dict[str, str]
    from_: str = Field(alias="from", description="since when its condition holds")
    fired: str | None = Field(description="when it had held for long enough; null while it is pending")
    to: str | None = Field(description="null while it lasts")
    state: str
    severity: str
    cause: str
    value: float | None
    unit: str
    evidence: list[str]
    holder: dict[str, str] = Field(description="in whose name: job, user, team, node, where one is known")
    ended_because: str
    meaning: str
    ask_first: str
    look_next: str
    runbook: str
    silenced: bool
    silence: str | None


class AlertsAnswer(BaseModel):
    """Alerts, the most severe first, and the instant up to which was judged."""

    judged: str | None
    alerts: list[AlertAnswer]


class SilenceRequest(BaseModel):
    """What to silence: a rule, a group, or both; names, or patterns with * and ?. For how long, or until when, and why."""

    model_config = ConfigDict(extra="forbid")

    rule: str = Field(default="", max_length=200)
    by: dict[str, str] = Field(default={}, max_length=16)
    for_: str | None = Field(default=None, alias="for", max_length=64, description="2h, 30min, 7d")
    until: str | None = Field(default=None, max_length=64)
    reason: str = Field(default="", max_length=500)
    who: str = Field(default="", max_length=200)


class SilenceAnswer(BaseModel):
    """One silence. `rule` is null where it is of every rule."""

    id: str
    rule: str | None
    by: dict[str, str]
    from_: str = Field(alias="from")
    until: str
    reason: str
    who: str
    active: bool


class SilencesAnswer(BaseModel):
    """Silences, in the order they were made."""

    silences: list[SilenceAnswer]
