"""What a lever finds: the facts of a window, what the levers before it left, and the runs and GPUs they took out of it."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import fsum
from typing import Final

from loadfactor.books.losses.facts import LossFacts
from loadfactor.books.losses.idle import HeldRun, IdleInterval
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.levers.remainder import Remainder

LOST: Final = ("idle", "underused")
"""What jobs are ranked by that are diagnosed."""
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
        """Stretches in which all GPUs of a job were idle, found once: without the runs and GPUs that were taken out before."""
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
            f"{len(self._picked):,} of {len(self._losing):,} jobs, {seen / whole:.0%} of the GPU-hours that they lose, were"
            " looked at"
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
