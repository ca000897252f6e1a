"""What `loadfactor.toml` says of rules of alerts: the tables [[alert]], each of which changes a rule or adds one."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from loadfactor.base.quantities import parse_duration_s
from loadfactor.settings.table import SettingsTable

Amount = float | str
"""A threshold: a number in the unit of what it limits, or a text with its unit, "85 °C" or "40 %"."""


class AlertTable(SettingsTable):
    """A rule of alerts as it is changed (`rule`), or a new one (`name` and `metric`). What is not said stays as it is."""

    rule: str | None = Field(default=None, min_length=1, description="Name of the shipped rule that it changes.")
    name: str | None = Field(default=None, min_length=1, max_length=80, description="Name of a rule that it adds.")
    enabled: bool = Field(default=True, description="false: the rule is not judged.")
    metric: str | None = Field(default=None, description="Metric that a new rule watches.")
    by: tuple[str, ...] | None = Field(default=None, description="Dimensions it is split by; none for the fleet.")
    below: Amount | None = Field(default=None, description="It fires while the metric lies below this.")
    above: Amount | None = Field(default=None, description="It fires while the metric lies above this.")
    clears_at: Amount | None = Field(default=None, description="It is resolved when the metric is back here.")
    limits: dict[str, Amount] = Field(default={}, description="Thresholds of a shipped rule, by name.")
    window: str | None = Field(default=None, description="Over how long the metric is worked out: 30min.")
    hold: str | None = Field(default=None, alias="for", description="How long it holds before it fires: 1h, or 0s.")
    least_coverage: float | None = Field(
        default=None, gt=0, le=1, description="Share of its data that must be known for it to be judged."
    )
    severity: Literal["info", "warning", "critical"] | None = Field(default=None, description="How severe it is.")
    cause: str | None = Field(
        default=None, description="Its class, one of seven: I/O, hardware, user error and others."
    )
    meaning: str = Field(default="", max_length=500, description="One sentence that says what it means.")
    ask_first: str = Field(default="", max_length=500, description="The question to ask first.")
    look_next: str = Field(default="", max_length=500, description="What to look at next.")

    @field_validator("window", "hold")
    @classmethod
    def _long(cls, text: str | None) -> str | None:
        if text is not None and text.strip() not in ("0", "0s"):
            parse_duration_s(text)
        return text

    @property
    def window_s(self) -> float | None:
        """Seconds over which the metric is worked out."""
        return None if self.window is None else _seconds(self.window)

    @property
    def for_s(self) -> float | None:
        """Seconds for which the condition holds before it fires."""
        return None if self.hold is None else _seconds(self.hold)

    @property
    def label(self) -> str:
        """Which rule it speaks of."""
        return self.rule or self.name or ""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.rule is None) == (self.name is None):
            raise ValueError("say `rule`, a shipped rule that it changes, or `name`, a new one; one of the two")
        if self.name is not None and (self.metric is None or (self.below is None) == (self.above is None)):
            raise ValueError(f"the new rule {self.name!r} needs `metric` and one of `below` and `above`")
        if self.below is not None and self.above is not None:
            raise ValueError("a rule has one threshold: say `below` or `above`")
        if self.rule is not None and self.metric is not None:
            raise ValueError("the metric of a shipped rule stays; give a rule on another one a `name` of its own")
        return self


def _seconds(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0s") else parse_duration_s(text)


def _tell_apart(tables: tuple[AlertTable, ...]) -> tuple[AlertTable, ...]:
    seen: set[Any] = set()
    for table in tables:
        if table.label in seen:
            raise ValueError(f"two tables speak of the rule {table.label!r}; keep one")
        seen.add(table.label)
    return tables


AlertTables = Annotated[tuple[AlertTable, ...], AfterValidator(_tell_apart)]
"""Tables [[alert]], each of another rule."""
