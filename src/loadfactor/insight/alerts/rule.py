"""A rule as it is declared: a condition, by what, for how long, how severe, and what to ask and to look at when it fires."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loadfactor.insight.alerts.alert import Severity
from loadfactor.insight.alerts.evidence import Evidence, Need, Verdicts
from loadfactor.insight.causes import Cause

Limits = Mapping[str, float]
"""The thresholds of a rule by name, in the units that its declaration says."""


@dataclass(frozen=True)
class Limit:
    """A threshold, which settings may change: its value and unit, what it limits, and the range that makes sense."""

    value: float
    unit: str
    meaning: str
    low: float = 0.0
    high: float = float("inf")


@dataclass(frozen=True)
class Threshold:
    """A condition on a metric over a window that ends with the step: it lies on this side of `limit`.

    It is clear again only at `clears_at`, so that a value near the limit does not fire again and again. Where less than
    `least_coverage` of what the metric speaks of was known, nothing can be told.
    """

    metric: str
    side: Literal["below", "above"]
    limit: float
    clears_at: float
    window_s: float
    least_coverage: float = 0.5

    def needs(self, by: tuple[str, ...]) -> tuple[Need, ...]:
        """What it reads."""
        return (Need(self.metric, by, self.window_s),)


@dataclass(frozen=True)
class Compound:
    """A condition that is no single metric: what it reads by steps, its thresholds, and what says of which groups it holds."""

    find: Callable[[Evidence, Limits], Verdicts]
    reads: tuple[Need, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def needs(self, _by: tuple[str, ...]) -> tuple[Need, ...]:
        """What it reads."""
        return self.reads


@dataclass(frozen=True)
class Rule:
    """One rule. `by`: the dimensions of its groups, none for the fleet. `for_s`: how long the condition holds before it fires.

    `meaning` is one sentence; `ask_first` the question to ask first; `look_next` what to look at then.
    """

    name: str
    condition: Threshold | Compound
    by: tuple[str, ...]
    for_s: float
    severity: Severity
    cause: Cause
    meaning: str
    ask_first: str
    look_next: str
    is_shipped: bool = True

    @property
    def needs(self) -> tuple[Need, ...]:
        """What its condition reads by steps."""
        return self.condition.needs(self.by)

    @property
    def runbook(self) -> str:
        """Where the documentation says what to do: of a rule that settings add, how such a rule is written."""
        return f"docs/alerts.md#{self.name if self.is_shipped else 'rules-of-your-own'}"
