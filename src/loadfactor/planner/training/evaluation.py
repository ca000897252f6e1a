"""One layout evaluated: seconds of a step by term, bytes of memory by part, whether it fits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.step import estimate_step


@dataclass(frozen=True)
class EvaluatedLayout:
    """Seconds by term and bytes by part of one layout, and why it loses to the best one (None for the best)."""

    layout: TrainingLayout
    terms: Mapping[str, float]
    memory_parts: Mapping[str, float]
    usable_bytes: float
    why_it_loses: str | None = None

    @property
    def step_s(self) -> float:
        """Seconds of a step: the sum of its terms."""
        return sum(self.terms.values())

    @property
    def memory_bytes(self) -> float:
        """Bytes of the fullest rank: the sum of its parts."""
        return sum(self.memory_parts.values())

    @property
    def fits(self) -> bool:
        """True when the fullest rank stays within the usable memory."""
        return self.memory_bytes <= self.usable_bytes


def evaluate_layout(job: TrainingJob, layout: TrainingLayout) -> EvaluatedLayout:
    """One layout by the equations that the search uses."""
    needs = estimate_memory(job, layout)
    terms, parts = (
        {name: float(np.ravel(value)[0]) for name, value in many.items()}
        for many in (estimate_step(job, layout).terms, needs.parts)
    )
    return EvaluatedLayout(layout, terms, parts, needs.usable_bytes)
