"""An alert: a rule's condition that holds, or held, for one group; and a transition, which receivers are sent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal

from loadfactor.insight.causes import Cause

State = Literal["pending", "firing", "resolved"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True)
class Alert:
    """One interval in which the condition of a rule held for a group.

    `by`: the dimensions of the group, none for the fleet. `start_ms`: since when the condition holds; `fired_ms`: when it had held
    for long enough; `end_ms`: when it ended. `value` in `unit` is the latest that was judged bad: None where it is no number.
    `evidence` are facts with their numbers, in sentences; `ended_because` says how it ended.
    """

    rule: str
    by: Mapping[str, str]
    severity: Severity
    cause: Cause
    state: State
    start_ms: int
    fired_ms: int | None = None
    end_ms: int | None = None
    value: float | None = None
    unit: str = ""
    evidence: tuple[str, ...] = ()
    ended_because: str = ""
    holder: Mapping[str, str] = field(default_factory=dict)
    """In whose name: job, user, team of the group, where one is known."""

    @property
    def group(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Rule and group: of each, one alert lives at a time."""
        return self.rule, tuple(sorted(self.by.items()))

    @property
    def fingerprint(self) -> str:
        """Names this interval of this rule and group, the same in every process that judges the same data."""
        return sha256(repr((self.group, self.start_ms)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Transition:
    """An alert that fired or was resolved, at the end of the step that showed it."""

    alert: Alert
    at_ms: int

    @property
    def key(self) -> str:
        """Names the transition: a receiver that keeps these takes each one once."""
        return f"{self.alert.fingerprint}-{self.alert.state}"


def write_alert(alert: Alert) -> str:
    """An alert as JSON."""
    return json.dumps(asdict(alert) | {"by": dict(alert.by), "holder": dict(alert.holder)})


def read_alert(text: str) -> Alert:
    """The alert that was written."""
    row: dict[str, Any] = json.loads(text)
    return Alert(**{**row, "evidence": tuple(row["evidence"])})
