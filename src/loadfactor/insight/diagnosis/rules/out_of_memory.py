"""Out of memory: attempts end because memory does."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limits


def find(facts: DiagnosedJob, _limits: Limits) -> Claimed:
    """The scheduler, the driver or the job says that memory ran out."""
    ended = [
        a for a in facts.attempts if a.end_state == "out_of_memory" or _has_any(facts.out_of_memory, a.first, a.after)
    ]
    ended = [a for a in ended if a.end_state in ("failed", "out_of_memory")]
    if not ended:
        return None
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    for attempt in ended:
        steps[attempt.first : attempt.after] = True
    return Claim(
        (facts.held_s - facts.unobserved_s) * steps,
        0.5,
        0.95,
        (f"{len(ended)} of {len(facts.attempts)} attempts ended out of memory",),
        ("work before the last checkpoint was kept, where there was one",),
        ("peak memory by step: does it grow (a leak), or is one batch too large?",),
    )


def _has_any(steps: tuple[int, ...], first: int, after: int) -> bool:
    return any(first <= step <= after for step in steps)


OUT_OF_MEMORY: Final = DiagnosisRule(
    "out_of_memory", "out of memory", "model and batch", (), find,
    "Halve the batch and accumulate gradients; activation checkpointing;"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; bucket long samples.",
)  # fmt: skip
