"""Throttling: clocks are lowered by heat or power."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, share

MOST_NAMED: Final = 4


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """A clock event reason slows GPUs down for a part of the time."""
    throttled = facts.signals["throttled_share"]
    is_slow = facts.works & (throttled > 0.5)
    working = facts.works.sum(1)
    of_gpu = np.divide(is_slow.sum(1), working, out=np.zeros(len(working)), where=working > 0)
    hot = of_gpu >= limits["share"]
    if not hot.any():
        return None
    observed = facts.held_s - facts.unobserved_s
    is_slow &= hot[:, np.newaxis]
    # in a job that waits for its slowest GPU, all GPUs lose what one loses
    steps = is_slow.any(0) if len(facts.devices) > 1 else is_slow[0]
    seconds = limits["lost"] * observed * (facts.works & steps)
    return Claim(
        seconds,
        0.2,
        0.85,
        (
            f"{int(hot.sum())} of {len(facts.devices)} GPUs are throttled {share(float(of_gpu[hot].mean()))} of their working time:"
            f" {', '.join(np.array(facts.devices)[hot][:MOST_NAMED])}",
        ),
        ("a cap of power that somebody set is no fault: it saves energy",),
        ("SM clocks and temperatures of these GPUs beside their neighbours",),
    )


THROTTLING: Final = DiagnosisRule(
    "throttling", "throttling", "hardware", ("throttled_share",), find,
    "Clean filters and fans, move the job; `nvidia-smi -q -d PERFORMANCE` says which reason; raise the"
    " cap (`nvidia-smi -pl`) if it is set too low.",
    {
        "share": Limit(0.1, "share", "throttled time of a GPU that works", 0.01, 1),
        "lost": Limit(0.3, "share", "work lost while throttled, at most", 0.01, 1),
    },
    "economics §5: violation counters rising, clocks under 90 %",
)  # fmt: skip
