"""A straggler: one GPU is slower than all others, which wait for it."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.gpus_compared import is_throttling
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """One GPU works while the others wait, or does far less than they do; the others are alike."""
    if len(facts.devices) < limits["gpus"]:
        return None
    working = facts.working
    value = facts.by_gpu("sm_activity", working)
    if np.isnan(value).any() or is_throttling(facts, value):
        return None
    order = np.argsort(value)
    ends = ((order[-1], order[:-1]), (order[0], order[1:]))
    for place, others in ends:
        middle, spread = float(np.median(value[others])), float(np.ptp(value[others]))
        far = abs(value[place] - middle)
        if middle > limits["used"] and far >= max(limits["distance"], 2.5 * spread):
            top = max(value[place], middle)
            seconds = claim_steps(facts, working)
            if seconds is None or facts.works[place].sum() * facts.step_s < limits["used"]:
                return None
            lost = far / top
            return Claim(
                np.minimum(seconds, lost * facts.held_s),
                0.4,
                0.9,
                (
                    f"{facts.devices[place]}: SM active {share(float(value[place]))}, the other {len(others)} GPUs"
                    f" {share(middle)},"
                    f" alike within {share(spread)}",
                ),
                ("the program may give this rank other work (rank 0 that logs and saves)",),
                ("traces of all ranks: who comes last in collectives",),
            )
    return None


STRAGGLER: Final = DiagnosisRule(
    "straggler", "straggler", "hardware", ("sm_activity",), find,
    "Drain the GPU's node and run the job without it; look for throttling, XIDs and a slow disk there;"
    " else give this rank less work.",
    {
        "gpus": Limit(3, "GPUs", "least GPUs of a job of which one can be told", 3),
        "distance": Limit(0.1, "share", "least difference of SM activity to the others", 0.01, 1),
        "used": Limit(0.05, "share", "SM activity under which a GPU is not used at all", 0, 1),
    },
    "economics §5: one rank's busy time ≥ 1.1 × the median while others wait",
)  # fmt: skip
