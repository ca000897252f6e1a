"""A rule of diagnoses: the signals it reads, its claim, its limits, and what to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from loadfactor.base.quantities import write_share
from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Flags, Floats

Limits = Mapping[str, float]
HIGH, MEDIUM = 0.8, 0.55
"""Confidence from which on it is called high, and medium."""
LEAST_STEPS_S = 900
"""A symptom of less time is none."""
LEAST_STEPS = 0.1
"""A symptom in less of the time in which GPUs work is none."""


@dataclass(frozen=True)
class Claim:
    """GPU-seconds that a cause may have taken at most, GPUs × steps, and the facts that say so.

    `low` is the share of them that it took at least, `confidence` of 0 to 1, `against` what speaks against it: each where it is
    not what the rule says.
    """

    seconds: Floats
    evidence: tuple[str, ...]
    low: float | None = None
    confidence: float | None = None
    against: tuple[str, ...] | None = None
    measure_next: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DiagnosisRule:
    """A cause. Without the signals it `needs` it is neither found nor excluded.

    `low`: the share of what it claims that it took at least; `confidence` of 0 to 1; `against`: what speaks against it, or looks
    alike; `measure_next`: what would make it surer.
    """

    cause: str
    title: str
    class_: Cause
    needs: tuple[str, ...]
    find: Callable[[DiagnosedJob, Limits], Claim | None]
    low: float
    confidence: float
    against: tuple[str, ...]
    measure_next: tuple[str, ...]
    action: str
    limits: Mapping[str, Limit] = field(default_factory=dict)
    source: str = ""

    def judge(self, facts: DiagnosedJob) -> Claim | None:
        """Its claim of a job."""
        return self.find(facts, {name: limit.value for name, limit in self.limits.items()})

    def missing(self, facts: DiagnosedJob) -> tuple[str, ...]:
        """The signals that it needs and the job does not have."""
        return tuple(name for name in self.needs if not facts.has(name))


def lost_in(facts: DiagnosedJob, bad: Flags, of: Floats | None = None) -> Floats | None:
    """GPU-seconds lost while GPUs worked in some steps, or of other seconds; None where these steps are too few."""
    working = facts.working
    bad = bad & working
    if bad.sum() * facts.step_s < LEAST_STEPS_S or bad.sum() < LEAST_STEPS * working.sum():
        return None
    seconds = facts.idle_s + facts.underused_s if of is None else of
    return np.where(bad[np.newaxis, :] & facts.works, seconds, 0.0)


def claim_steps(facts: DiagnosedJob, bad: Flags, *evidence: str, of: Floats | None = None) -> Claim | None:
    """A claim of what was lost in some steps, as `lost_in`."""
    seconds = lost_in(facts, bad, of)
    return None if seconds is None else Claim(seconds, evidence)


def list_runs(flags: Flags) -> list[tuple[int, int]]:
    """Where it begins to hold, and where no longer, [first, after).

    >>> list_runs(np.array([False, True, True, False, True]))
    [(1, 3), (4, 5)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(first), int(after)) for first, after in zip(edges[::2], edges[1::2], strict=True)]


def share(value: float) -> str:
    """A share in words.

    >>> share(0.123)
    '12 %'
    """
    return write_share(value) if value == value else "not known"
