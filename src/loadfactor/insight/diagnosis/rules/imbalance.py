"""Imbalance: ranks have unequal work, all the time."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.gpus_compared import is_throttling
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """GPUs of a job differ, several of them on either side of the middle."""
    working = facts.working
    if len(facts.devices) < limits["gpus"] or not working.any():
        return None
    value = facts.by_gpu("sm_activity", working)
    if np.isnan(value).any() or value.min() < limits["used"] or is_throttling(facts, value):
        return None
    low, high = (float(np.partition(value, n)[n]) for n in (1, len(value) - 2))
    if np.ptp(value) < limits["spread"] or high - low < limits["inner"] * np.ptp(value):
        return None
    seconds = claim_steps(facts, working)
    if seconds is None:
        return None
    lost = np.clip(1 - value / value.max(), 0, 1)[:, np.newaxis] * facts.held_s
    return Claim(
        np.minimum(seconds, lost),
        0.4,
        0.8,
        (
            f"SM active from {share(float(value.min()))} to {share(float(value.max()))} over {len(value)} GPUs;"
            f" without both ends {share(low)} to {share(high)}",
        ),
        ("stages of a pipeline differ by design at its ends",),
        ("time of a step by rank",),
    )


IMBALANCE: Final = DiagnosisRule(
    "imbalance", "unequal ranks", "communication", ("sm_activity",), find,
    "Divide work by cost, not by count: length-bucketed batches, layers by time over pipeline stages,"
    " capacity factor for experts.",
    {
        "gpus": Limit(4, "GPUs", "least GPUs of a job", 4),
        "spread": Limit(0.15, "share", "difference of SM activity over all GPUs", 0.01, 1),
        "inner": Limit(0.25, "share", "part of it that is left without one GPU at either end: else one GPU is the cause", 0, 1),
        "used": Limit(0.05, "share", "SM activity under which a GPU is not used at all", 0, 1),
    },
)  # fmt: skip
