"""Few requests: replicas stand for a peak, and wait for requests at other times."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_HOUR
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Floats
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, share

PEAK = 0.95
"""The busiest hours are those above this share of all."""


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """A job that answers requests is far busier in some hours than in most, or does nothing in many."""
    if not facts.is_serving:
        return None
    observed, active = (_add_up_hours(of, facts.step_s) for of in (facts.held_s - facts.unobserved_s, facts.active_s))
    idle = _add_up_hours(facts.idle_s, facts.step_s)
    is_known = observed > 0
    if is_known.sum() < limits["least_h"]:
        return None
    busy = np.divide(active, observed, out=np.zeros_like(active), where=is_known)
    peak, mean = float(np.quantile(busy[is_known], PEAK)), float(active.sum() / observed.sum())
    idle_share = float(idle.sum() / observed.sum())
    if peak < limits["used"] or (mean > limits["swing"] * peak and idle_share < limits["idle"]):
        return None
    follows = _correlate(facts, busy, is_known)
    if follows is not None and follows < limits["follows"]:
        return None
    spare = np.repeat(np.clip(1 - busy / peak, 0, 1), _steps_per_hour(facts.step_s))[: facts.held_s.shape[1]]
    seconds = np.minimum(facts.idle_s + facts.underused_s, (facts.held_s - facts.unobserved_s) * spare)
    return Claim(
        seconds,
        0.8 * idle_share / max(idle_share, 1 - mean / peak),
        0.85 if follows is not None else 0.65,
        (
            f"{share(mean)} active on average, {share(peak)} in its busiest hours; nothing ran in {share(idle_share)} of the time",
            *(
                [f"its activity rises and falls with what it answers (correlation {follows:.2f})"]
                if follows is not None
                else []
            ),
        ),
        ("a replica cannot be less than one, and answers to peaks of seconds need some that are warm",),
        (
            "requests that wait and time to the first token at the peak; `loadfactor plan serve --store` says how many replicas"
            " that load takes",
        ),
    )


def _steps_per_hour(step_s: int) -> int:
    return max(1, S_PER_HOUR // step_s)


def _add_up_hours(values: Floats, step_s: int) -> Floats:
    """Sums over all GPUs, hour by hour; a longer step stays."""
    by_step = values.sum(0)
    return np.add.reduceat(by_step, np.arange(0, len(by_step), _steps_per_hour(step_s)))


def _correlate(facts: DiagnosedJob, busy: Floats, is_known: np.typing.NDArray[np.bool_]) -> float | None:
    """How closely activity follows what was answered, hour by hour; None where nobody tells that, or either does not change."""
    if facts.answered is None:
        return None
    answered = _add_up_hours(facts.answered[np.newaxis, :], facts.step_s)[is_known]
    if np.ptp(answered) == 0 or np.ptp(busy[is_known]) == 0:
        return None
    return float(np.corrcoef(answered, busy[is_known])[0, 1])


FEW_REQUESTS: Final = DiagnosisRule(
    "few_requests", "few requests", "scheduling", (), find,
    "Scale replicas with the requests that wait (KEDA, or an HPA on vllm:num_requests_waiting; none at night where a cold start may"
    " be waited for); put models with few requests on one GPU (MIG, time-slicing, adapters of one engine); let batch work fill"
    " the gaps.",
    {
        "least_h": Limit(6, "hours", "least observed hours", 1),
        "used": Limit(0.01, "share", "activity of the busiest hours at least", 0, 1),
        "swing": Limit(0.6, "share", "mean activity ÷ that of the busiest hours, at most", 0.01, 1),
        "idle": Limit(0.2, "share", "time without any request from which on it is one, whatever the mean", 0.01, 1),
        "follows": Limit(0.5, "correlation", "of activity and answers by hour, at least, where answers are known", 0, 1),
    },
    "economics §1.7: a duty cycle of 40 % costs 2.5 times as much; limits are ours",
)  # fmt: skip
