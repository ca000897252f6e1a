"""The shapes of the server's answers, as its OpenAPI document describes them.

`describe_shape` reads the shape of an answer that is a dataclass from that class; the classes here are of answers that are none.
"""

from dataclasses import is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from loadfactor.base.health import HealthReason
from loadfactor.interfaces.pages.lists import MetricEntry
from loadfactor.interfaces.render.json import names_of


@cache
def describe_shape(kind: type) -> type[BaseModel]:
    """The model of a dataclass as its JSON has it: fields and public properties, a name like `class_` without its underscore."""
    hints: dict[str, Any] = get_type_hints(kind)
    for name, member in vars(kind).items():
        if isinstance(member, property):
            hints[name] = get_type_hints(member.fget)["return"]
    fields: dict[str, Any] = {
        name: (_replace_dataclasses(hints[name]), Field(alias=name.rstrip("_"))) for name in names_of(kind)
    }
    return create_model(kind.__name__, __doc__=kind.__doc__, **fields)


def _replace_dataclasses(hint: Any) -> Any:
    """A type with the models of the dataclasses in it; a tuple of one kind is a list, as in JSON."""
    if is_dataclass(hint) and isinstance(hint, type):
        return describe_shape(hint)
    parts = tuple(_replace_dataclasses(part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return list[parts[0]]  # type: ignore[valid-type]
    if get_origin(hint) in (list, dict):
        return get_origin(hint)[parts]
    if isinstance(hint, UnionType):
        return reduce(or_, parts)
    return hint


def _list_of(name: str, shape: type[BaseModel]) -> type[BaseModel]:
    fields: dict[str, Any] = {name: (list[shape], ...)}  # type: ignore[valid-type]
    return create_model(f"{name.capitalize()}Answer", **fields)


class ErrorAnswer(BaseModel):
    """An error in one line: the problem, where it is, and what to do next."""

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


class CoverageEntry(BaseModel):
    """How much of what a metric speaks of was known."""

    metric: str
    by: dict[str, str | None]
    from_: str = Field(alias="from")
    to: str
    coverage: float | None
    activity_basis: str | None


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


class DeviceAnswer(BaseModel):
    """One GPU, for as long as it stayed where it was."""

    device: str
    node: str | None
    accelerator: str | None
    pool: str | None
    share: float | None
    from_: str | None = Field(alias="from")
    to: str | None


class ImportAnswer(BaseModel):
    """One import, as `loadfactor imports --format json` prints it."""

    number: int
    source: str
    paths: list[str]
    rows: dict[str, int]
    model_config = ConfigDict(extra="allow")


class ReceiptAnswer(BaseModel):
    """Receipt of an import, as `loadfactor import --format json` prints it."""

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


class ClockHealth(BaseModel):
    """The clock of the server beside the newest time that its store recorded; `ahead_s` is negative if it is behind."""

    now_utc: str
    newest_trusted_utc: str | None
    ahead_s: float
    deletions: str


class HealthAnswer(BaseModel):
    """How the server does. `status` is that of the most severe reason; notes leave it ok."""

    status: Literal["ok", "degraded", "failing"]
    reasons: list[describe_shape(HealthReason)]  # type: ignore[valid-type]
    sources: list[SourceHealth]
    lag_s: float
    clock: ClockHealth
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
    """A silence to set, for a rule, a group, or both: names, or patterns with * and ?. For how long, or until when, and why."""

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


ReadingsAnswer = _list_of("readings", ReadingAnswer)
CoverageAnswer = _list_of("coverage", CoverageEntry)
MetricsAnswer = _list_of("metrics", describe_shape(MetricEntry))
JobsAnswer = _list_of("jobs", JobAnswer)
DevicesAnswer = _list_of("devices", DeviceAnswer)
ImportsAnswer = _list_of("imports", ImportAnswer)
SilencesAnswer = _list_of("silences", SilenceAnswer)
