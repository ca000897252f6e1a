"""What a rule of diagnoses is: what it reads, what it claims, its limits, and what to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Flags, Floats

__all__ = ["Claim", "Claimed", "DiagnosisRule", "Limit", "Limits", "claim_steps", "share"]

Limits = Mapping[str, float]
HIGH, MEDIUM = 0.8, 0.55
"""Sureness from which on it is called high, and medium."""
LEAST_STEPS_S = 900
"""A symptom that is there for less time is none."""


@dataclass(frozen=True)
class Claim:
    """GPU-seconds that a cause may have taken at most, GPUs × steps; `low` is the share of them that it took at least."""

    seconds: Floats
    low: float
    sureness: float
    evidence: tuple[str, ...]
    against: tuple[str, ...] = ()
    measure_next: tuple[str, ...] = ()


Claimed = Claim | None


@dataclass(frozen=True)
class DiagnosisRule:
    """A cause. Without the signals it `needs` nothing is said but that it cannot be told."""

    cause: str
    title: str
    class_: Cause
    needs: tuple[str, ...]
    find: Callable[[DiagnosedJob, Limits], Claimed]
    action: str
    limits: Mapping[str, Limit] = field(default_factory=dict)
    source: str = ""

    def judge(self, facts: DiagnosedJob) -> Claimed:
        """What it claims of a job."""
        return self.find(facts, {name: limit.value for name, limit in self.limits.items()})

    def missing(self, facts: DiagnosedJob) -> tuple[str, ...]:
        """The signals that it needs and the job does not have."""
        return tuple(name for name in self.needs if not facts.has(name))


def claim_steps(facts: DiagnosedJob, bad: Flags, of: Floats | None = None) -> Floats | None:
    """What was lost while GPUs worked in some steps, or of other seconds; None where these steps are too few."""
    working = facts.working
    bad = bad & working
    if bad.sum() * facts.step_s < LEAST_STEPS_S or bad.sum() < 0.1 * working.sum():
        return None
    seconds = facts.idle_s + facts.underused_s if of is None else of
    return np.where(bad[np.newaxis, :] & facts.works, seconds, 0.0)


def share(value: float) -> str:
    """A share in words.

    >>> share(0.123)
    '12 %'
    """
    return f"{value:.0%}".replace("%", " %") if value == value else "not known"
