"""Set-up: GPUs wait until the program begins."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Every attempt begins with a stretch without activity."""
    if facts.is_interactive or facts.is_serving:
        return None
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    works = facts.working
    for attempt in facts.attempts:
        active = np.flatnonzero(works[attempt.first : attempt.after])
        if len(active) and active[0] * facts.step_s >= limits["set_up_s"]:
            steps[attempt.first : attempt.first + active[0]] = True
    if not steps.any() or facts.idle_s[:, steps].sum() < 0.5 * facts.held_s[:, steps].sum():
        return None
    minutes = steps.sum() * facts.step_s / S_PER_MIN
    return Claim(
        facts.idle_s * steps,
        0.5,
        0.9,
        (f"{minutes:.0f} min pass before the first activity, in {len(facts.attempts)} attempts",),
        ("loading a large checkpoint takes its time, too",),
        ("sections of kind start_up and compile (`loadfactor.track`)",),
    )


SET_UP: Final = DiagnosisRule(
    "set_up", "set-up", "I/O", (), find,
    "An image with all dependencies, data staged before GPUs are asked for, compile caches kept (TORCHINDUCTOR_CACHE_DIR).",
    {"set_up_s": Limit(600, "s", "least time before the first activity", 60)},
    "ICSE'24: ≥ 10 min before the first kernel",
)  # fmt: skip
