"""What a lever finds: the facts of a window, what the levers before it left, and the runs and GPUs they took out of it."""

from collections.abc import Iterable
from functools import cached_property
from math import fsum

from loadfactor.books.losses.facts import LossFacts
from loadfactor.books.losses.idle import HeldRun, IdleStretch
from loadfactor.insight.levers.remainder import Remainder


class Situation:
    """The books as levers find them, one after another."""

    def __init__(self, facts: LossFacts) -> None:
        self.facts = facts
        self.left = Remainder(facts.waterfall, facts.nodes)
        self.spared_runs: set[tuple[str, object]] = set()
        self.spared_gpus: set[tuple[str, str]] = set()
        self.sizes: dict[tuple[str | None, str | None], tuple[int, ...]] = {}

    @cached_property
    def job_hours(self) -> dict[str, float]:
        """GPU-hours that each job held."""
        out: dict[str, float] = {}
        for run in self.facts.runs:
            out[run.job] = out.get(run.job, 0.0) + run.gpu_hours
        return out

    def spared_share(self, job: str) -> float:
        """The share of a job's held time in runs that were taken out."""
        whole = self.job_hours.get(job, 0.0)
        spared = sum(r.gpu_hours for r in self.facts.runs if r.job == job and (r.job, r.attempt) in self.spared_runs)
        return spared / whole if whole else 0.0

    def free_hours(self, nodes: Iterable[str | None]) -> float:
        """GPU-hours of some nodes that nobody held, before any lever."""
        chosen = set(nodes)
        return fsum(node.unallocated_hours for node in self.facts.nodes if node.node in chosen)

    @cached_property
    def idle(self) -> list[IdleStretch]:
        """Stretches in which all GPUs of a job were idle, found once: without the runs and GPUs that were taken out before."""
        return self.facts.find_idle(self._list_idle_runs(), sorted(self.spared_gpus)) if self._list_idle_runs() else []

    def _list_idle_runs(self) -> list[HeldRun]:
        runs = [run for run in self.facts.runs if (run.job, run.attempt) not in self.spared_runs]
        return [run for run in runs if self.left.left_of(run.job, ("idle",)) > 0]
