"""A crash loop: attempts fail again and again, and their work is lost."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Several attempts failed, of the job or of jobs of its user in the same day."""
    failed = [attempt for attempt in facts.attempts if attempt.end_state in ("failed", "node_fail")]
    if facts.failed_alike < limits["attempts"] or not failed or facts.out_of_memory:
        return None
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    for attempt in failed:
        steps[attempt.first : attempt.after] = True
    return Claim(
        (facts.held_s - facts.unobserved_s) * steps,
        0.6,
        0.95,
        (f"{facts.failed_alike} attempts failed within a day, {len(failed)} of this job",),
        ("work before the last checkpoint was kept, where there was one",),
        ("exit codes and the last lines of the logs",),
    )


CRASH_LOOP: Final = DiagnosisRule(
    "crash_loop", "crash loop", "user error", (), find,
    "Try on one GPU for a few steps first; cap retries at 2; stop on errors that no retry mends (imports, paths, shapes).",
    {"attempts": Limit(3, "attempts", "least failures within a day", 2)},
    "economics §5: ≥ 3 failed attempts in 24 h",
)  # fmt: skip
