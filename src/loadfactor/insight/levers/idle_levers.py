"""Levers on stretches in which every GPU of a job is idle: notebooks, GPUs kept after the end of the work, and all others.

Each stretch belongs to one of them. What is saved is what comes later than the time that a lever waits before it acts.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.books.losses.idle import IdleInterval
from loadfactor.insight.alerts.rules.jobs import is_notebook
from loadfactor.insight.levers.lever import HIGH, MEDIUM, LeverResult, LossLever
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours, say_largest, say_times

NOTEBOOK_MIN: Final = 60
TAIL_MIN: Final = 15
IDLE_MIN: Final = 30


def _is_notebook(situation: Situation, idle: IdleInterval) -> bool:
    return is_notebook(situation.facts.purposes.get(idle.run.job))


def _is_tail(situation: Situation, idle: IdleInterval) -> bool:
    return idle.is_tail and not _is_notebook(situation, idle)


def _is_other(situation: Situation, idle: IdleInterval) -> bool:
    return not idle.is_tail and not _is_notebook(situation, idle)


def _find(
    which: Callable[[Situation, IdleInterval], bool],
    minutes: int,
    said: str,
    action: str,
    confidence: float,
    situation: Situation,
) -> LeverResult:
    taken: list[TakenLoss] = []
    hours: dict[str, float] = {}
    count = 0
    for idle in situation.idle:
        if not which(situation, idle):
            continue
        parts = situation.left.take(idle.run.job, "idle", idle.interval.gpu_hours_after(minutes * S_PER_MIN))
        if parts:
            count += 1
            hours[idle.run.job] = hours.get(idle.run.job, 0.0) + sum(part.gpu_hours for part in parts)
            taken += parts
    if not count:
        return LeverResult()
    whole = say_hours(sum(hours.values()))
    sentence = f"{said} {say_times(count)} for longer than {minutes} min, {whole} beyond that: {say_largest(hours)}."
    return LeverResult(tuple(taken), (sentence,), action.format(minutes=minutes), confidence)


CULL_NOTEBOOKS = LossLever(
    "cull_notebooks",
    "End notebooks that nobody uses",
    "low",
    "low",
    "state that was not saved",
    partial(
        _find,
        _is_notebook,
        NOTEBOOK_MIN,
        "Notebooks and interactive jobs had all their GPUs idle",
        "Cull after {minutes} min without GPU activity (jupyterhub-idle-culler --timeout=3600, Slurm: a short time limit on the"
        " interactive partition), or give interactive work a shared GPU.",
        HIGH,
    ),
)
RELEASE_AT_END = LossLever(
    "release_at_end",
    "Release GPUs when the work has ended",
    "low",
    "low",
    "a result that is still being written",
    partial(
        _find,
        _is_tail,
        TAIL_MIN,
        "Jobs kept their GPUs after their last activity",
        "Let the job end with its work: no sleep at the end, uploads in a job without GPUs, and an alert after {minutes} min.",
        HIGH,
    ),
)
RECLAIM_IDLE = LossLever(
    "reclaim_idle",
    "Take back GPUs that stand idle",
    "medium",
    "medium",
    "a job that waits for something and goes on",
    partial(
        _find,
        _is_other,
        IDLE_MIN,
        "All GPUs of a job stood idle",
        "Suspend or requeue a job after {minutes} min in which all its GPUs are idle, once it keeps checkpoints; tell its user"
        " first (an alert rule on idle GPUs).",
        MEDIUM,
    ),
)
