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
