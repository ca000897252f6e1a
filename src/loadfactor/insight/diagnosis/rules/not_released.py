"""Not released: the work is done and the GPUs are still held."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_HOUR
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """The last stretch of an attempt has no activity, after some."""
    if facts.is_interactive or facts.is_serving:
        return None
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    works = facts.working
    for attempt in facts.attempts:
        active = np.flatnonzero(works[attempt.first : attempt.after])
        if len(active) and (attempt.after - attempt.first - active[-1] - 1) * facts.step_s >= limits["tail_s"]:
            steps[attempt.first + active[-1] + 1 : attempt.after] = True
    known = facts.idle_s[:, steps].sum() / max(facts.held_s[:, steps].sum(), 1)
    if not steps.any() or known < 0.5:
        return None
    hours = steps.sum() * facts.step_s / S_PER_HOUR
    return Claim(
        facts.idle_s * steps,
        0.9,
        0.95,
        (f"the GPUs were last active {hours:.1f} h before they were given back",),
        ("uploads of results, or a hang: both hold GPUs for nothing",),
        ("the log of the job after its last step",),
    )


NOT_RELEASED: Final = DiagnosisRule(
    "not_released", "held after the work ended", "scheduling", (), find,
    "End the script when training ends (no sleep, no waiting shell), upload from a job without GPUs, set"
    " a time limit and NCCL timeouts.",
    {"tail_s": Limit(1200, "s", "least time without activity at the end", 60)},
    "economics §5: last activity long before the end",
)  # fmt: skip
