"""The cause of jobs of reinforcement learning: training waits for rollouts, or each half for the other."""

from typing import Final

import numpy as np

from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Flags
from loadfactor.insight.diagnosis.rule import Claim, DiagnosisRule, Limits, share
from loadfactor.insight.diagnosis.rules.waiting import NAMES

MOSTLY: Final = 0.8
"""Of a step of the diagnosis in which the job generates, or trains: it is one of generating, or of training."""
TWICE: Final = 2.0
"""A GPU that is so many times as active while the job generates as while it trains is one of rollouts, and the other way round."""


def find_rollouts(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """The job reports how long it generates, and its GPUs are not full then; which half waits follows from when each GPU works."""
    reported = facts.sections.get("generation")
    if reported is None or not facts.held.any():
        return None
    part = float(reported[facts.held].mean())
    seconds = (facts.idle_s + facts.underused_s).clip(max=reported * facts.held_s)
    if part < limits["share"] or seconds.sum() < limits["lost"] * (reported * facts.held_s).sum():
        return None
    evidence = [f"the job says that it generates {share(part)} of its time, for which training waits"]
    generates, trains = facts.held & (reported >= MOSTLY), facts.held & (reported <= 1 - MOSTLY)
    if facts.has("any activity") and generates.any() and trains.any():
        evidence.append(_compare(facts, generates, trains))
    return Claim(seconds, tuple(evidence))


def _compare(facts: DiagnosedJob, generates: Flags, trains: Flags) -> str:
    """GPUs by when they work: all in turn, or some of them for rollouts and others for training."""
    of_rollouts, of_training = (facts.by_gpu(facts.activity, steps) for steps in (generates, trains))
    rollouts, training = of_rollouts > TWICE * of_training, of_training > TWICE * of_rollouts
    if rollouts.any() and training.any():
        first = int(rollouts.sum())
        works = "GPU works" if first == 1 else "GPUs work"
        return f"{first} {works} while it generates and {int(training.sum())} while it trains: each half waits for the other"
    name = NAMES[facts.activity]
    return (
        f"{name} {share(float(np.nanmean(of_rollouts)))} while it generates, {share(float(np.nanmean(of_training)))} while it"
        " trains"
    )


ROLLOUTS: Final = DiagnosisRule(
    "rollouts", "waits for rollouts", "communication", (), find_rollouts,  # only a job that says it generates has any
    low=0.3, confidence=0.9,
    against=("decoding keeps few multiprocessors busy by nature: what full batches leave is not lost",),
    measure_next=(
        "how long the longest responses are beside the mean (response_length of the trainer's log)",
        "what `loadfactor plan rl` says of the same lengths and GPUs",
    ),
    action="Let rollouts run one update ahead (verl fully_async_policy, NeMo RL async_grpo, OpenRLHF --async_train) with partial"
    " rollouts, cut responses earlier, fill batches of the engine; divide the GPUs as `loadfactor plan rl` does.",
    limits={
        "share": Limit(0.3, "share", "time in which the job says that it generates", 0.01, 1),
        "lost": Limit(0.2, "share", "of that time, GPUs idle or underused at least", 0.01, 1),
    },
    source="the step waits for the longest response: arXiv:2505.24298, arXiv:2504.15930",
)  # fmt: skip
