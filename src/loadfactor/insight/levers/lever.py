"""Levers: how one is found, the situation it finds, and its result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum
from typing import Final, Literal

from loadfactor.base.quantities import write_share
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.books.losses.facts import LossFacts
from loadfactor.books.losses.idle import HeldRun, IdleInterval
from loadfactor.insight.diagnosis.finding import JobDiagnosis, Range
from loadfactor.insight.levers.remainder import Remainder, TakenLoss

LOST: Final = ("idle", "underused")
"""The losses by which jobs are ranked that are diagnosed."""
Diagnose = Callable[[Sequence[str]], Sequence[JobDiagnosis]]


class Situation:
    """The books as levers find them, one after another."""

    def __init__(self, facts: LossFacts, diagnose: Diagnose, most_diagnosed: int) -> None:
        self.facts = facts
        self._diagnose, self._most_diagnosed = diagnose, most_diagnosed
        self.left = Remainder(facts.waterfall, facts.nodes)
        self.spared_runs: set[tuple[str, object]] = set()
        self.spared_gpus: set[tuple[str, str]] = set()
        self.sizes: dict[tuple[str | None, str | None], tuple[int, ...]] = {}

    @cached_property
    def runs_of(self) -> dict[str, list[HeldRun]]:
        """The runs of each job."""
        out: dict[str, list[HeldRun]] = {}
        for run in self.facts.runs:
            out.setdefault(run.job, []).append(run)
        return out

    @cached_property
    def job_hours(self) -> dict[str, float]:
        """GPU-hours that each job held."""
        return {job: sum(run.gpu_hours for run in runs) for job, runs in self.runs_of.items()}

    def spared_share(self, job: str) -> float:
        """The share of a job's held time in runs that were taken out."""
        whole = self.job_hours.get(job, 0.0)
        spared = sum(r.gpu_hours for r in self.runs_of.get(job, ()) if (r.job, r.attempt) in self.spared_runs)
        return spared / whole if whole else 0.0

    def free_hours(self, nodes: Iterable[str | None]) -> float:
        """GPU-hours of some nodes that nobody held, before any lever."""
        chosen = set(nodes)
        return fsum(node.unallocated_hours for node in self.facts.nodes if node.node in chosen)

    @cached_property
    def idle(self) -> list[IdleInterval]:
        """Intervals in which all GPUs of a job were idle, found once: without the runs and GPUs that were taken out before."""
        return self.facts.find_idle(self._list_idle_runs(), sorted(self.spared_gpus)) if self._list_idle_runs() else []

    @cached_property
    def diagnoses(self) -> Sequence[JobDiagnosis]:
        """Why the jobs that lose most after the levers before were not fuller, found once."""
        return self._diagnose(list(self._picked))

    @cached_property
    def looked_at(self) -> str:
        """How much of the jobs that lose time was diagnosed, in words."""
        whole, seen = (fsum(of.values()) for of in (self._losing, self._picked))
        return (
            f"{len(self._picked):,} of {len(self._losing):,} jobs, {write_share(seen / whole)} of the GPU-hours that they lose,"
            " were looked at"
        )

    @cached_property
    def _picked(self) -> dict[str, float]:
        """The jobs that are diagnosed."""
        return dict(list(self._losing.items())[: self._most_diagnosed])

    @cached_property
    def _losing(self) -> dict[str, float]:
        """Jobs that lose time after the levers before, with the GPU-hours, the one that loses most first."""
        left = {job: self.left.left_of(job, LOST) for job in self.job_hours}
        return {job: left[job] for job in sorted(left, key=lambda job: (-left[job], job)) if left[job] > 0}

    def _list_idle_runs(self) -> list[HeldRun]:
        runs = [run for run in self.facts.runs if (run.job, run.attempt) not in self.spared_runs]
        return [run for run in runs if self.left.left_of(run.job, ("idle",)) > 0]


def say_hours(hours: float) -> str:
    """GPU-hours in words.

    >>> say_hours(1234.5), say_hours(0.25)
    ('1,234 GPU-hours', '0.25 GPU-hours')
    """
    return f"{hours:,.0f} GPU-hours" if hours >= 100 else f"{hours:.3g} GPU-hours"


def say_times(count: int) -> str:
    """How often.

    >>> say_times(1), say_times(1234)
    ('once', '1,234 times')
    """
    return "once" if count == 1 else f"{count:,} times"


def say_duration(seconds: float) -> str:
    """An interval: minutes up to two hours, then hours.

    >>> say_duration(300), say_duration(94_080), say_duration(0)
    ('5 min', '26.1 h', '0 min')
    """
    if seconds <= 2 * S_PER_HOUR:
        return f"{seconds / S_PER_MIN:.0f} min"
    hours = seconds / S_PER_HOUR
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"


def say_largest(hours: Mapping[str, float], most: int = 3) -> str:
    """The names with most hours, with these.

    >>> say_largest({"a": 1.0, "b": 2.5}, most=1)
    'most in b (2.5 GPU-hours)'
    """
    largest = sorted(hours.items(), key=lambda item: (-item[1], item[0]))[:most]
    return "most in " + ", ".join(f"{name} ({say_hours(amount)})" for name, amount in largest)


Level = Literal["low", "medium", "high"]
HIGH, MEDIUM, LOW = 0.9, 0.7, 0.4
"""How sure a lever can be: what was read off the books; what rests on one assumption; what rests on several."""
SURE_FROM: Final = 0.8
LIKELY_FROM: Final = 0.5


def name_confidence(confidence: float) -> Level:
    """A confidence as a word.

    >>> name_confidence(HIGH), name_confidence(MEDIUM), name_confidence(LOW)
    ('high', 'medium', 'low')
    """
    return "high" if confidence >= SURE_FROM else "medium" if confidence >= LIKELY_FROM else "low"


@dataclass(frozen=True)
class LeverResult:
    """The losses that a lever would have taken, and its evidence. `action` names concrete settings."""

    taken: tuple[TakenLoss, ...] = ()
    evidence: tuple[str, ...] = ()
    action: str = ""
    confidence: float = MEDIUM


@dataclass(frozen=True)
class LossLever:
    """One thing to change. `find` takes what it would have saved out of what the levers before it left, of these `losses`."""

    name: str
    title: str
    effort: Level
    risk: Level
    risk_of: str
    find: Callable[[Situation], LeverResult]
    losses: tuple[str, ...] = LOST


@dataclass(frozen=True)
class PriceSaving:
    """The saving of other prices in the window, for so many GPU-hours of it, and its evidence.

    `saved` is the low end of `saved_range`, where there is a range; None where it is not known for want of what is `missing`.
    `confidence` is a share of one.
    """

    lever: str
    title: str
    saved: float | None
    gpu_hours: float
    evidence: tuple[str, ...]
    action: str
    saved_range: Range | None = None
    confidence: float = MEDIUM
    missing: tuple[str, ...] = ()
    confidence_word: Level = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence_word", name_confidence(self.confidence))


@dataclass(frozen=True)
class KeptHours:
    """The time that a job held beyond what levers saved, of all it held, GPU-hours, and what it paid for an hour."""

    gpu_hours: float
    held_hours: float
    price: float
