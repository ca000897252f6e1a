"""GPUs of one job beside each other: whether they differ, and whether throttling explains it."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Floats
from loadfactor.insight.diagnosis.rule import LEAST_STEPS_S

ALIKE: Final = 0.15
"""GPUs of a job whose SM activity differs by more wait for each other."""
USED: Final = 0.05
"""SM activity under which a GPU is not used at all, and waits for nobody."""
_THROTTLED: Final = 0.1
_AT_THE_TIME: Final = 0.1
_LEFT: Final = 0.5
"""Throttling explains a difference where so much of it at most is left among those that are throttled, and among the others."""


def differ(facts: DiagnosedJob) -> bool:
    """Whether GPUs of a job that are used do unequal work: then they wait for each other."""
    value = facts.by_gpu("sm_activity", facts.working)
    used = value[value >= USED]
    return bool(len(used) > 1 and np.ptp(used) > ALIKE)


def is_throttling(facts: DiagnosedJob, value: Floats) -> bool:
    """Whether some GPUs are throttled, which do what they can, and the others wait for them: which is the cause then."""
    if "throttled_share" not in facts.signals:
        return False
    throttled = facts.by_gpu("throttled_share", facts.working)
    if not np.ptp(throttled) > _THROTTLED:
        return False
    hot = throttled > (throttled.min() + throttled.max()) / 2
    calm = facts.working & ~np.logical_or.reduce(facts.signals["throttled_share"][hot] > _AT_THE_TIME, axis=0)
    if calm.sum() * facts.step_s >= LEAST_STEPS_S and np.ptp(facts.by_gpu("sm_activity", calm)) > _LEFT * np.ptp(value):
        return False  # they differ as much while none of them is throttled
    return bool(max(np.ptp(value[hot]), np.ptp(value[~hot])) <= _LEFT * np.ptp(value))
