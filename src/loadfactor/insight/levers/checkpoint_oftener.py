"""Lever: checkpoints at the interval that loses least (Daly's), for jobs that lost work when they were interrupted."""

from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.insight.levers.lever import LOW, MEDIUM, LeverResult, LossLever
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_duration, say_hours, say_times
from loadfactor.planner.hardware.checkpoint import plan_checkpoints

CHECKPOINT_S: Final = 60.0
"""How long a checkpoint is taken to stop a job that reports none."""


def find(situation: Situation) -> LeverResult:
    """Lost work above what is lost, checkpoints included, at the best interval for the job's own time between interruptions."""
    taken: list[TakenLoss] = []
    sentences = []
    intervals = []
    is_measured = True
    for lost in situation.facts.lost_work:
        left = situation.left.left_of(lost.job, ("lost_work",))
        held_s = sum(run.to_ms - run.from_ms for run in situation.runs_of.get(lost.job, ())) / MS_PER_S
        if left <= 0 or held_s <= 0:
            continue
        checkpoint_s = CHECKPOINT_S if lost.checkpoint_s is None else lost.checkpoint_s
        plan = plan_checkpoints(checkpoint_s, held_s / lost.times, 0.0)
        parts = situation.left.take(
            lost.job, "lost_work", left - situation.job_hours[lost.job] * (1 - plan.efficiency_share)
        )
        if not parts:
            continue
        taken += parts
        is_measured &= lost.checkpoint_s is not None
        known = "assumed" if lost.checkpoint_s is None else "measured"
        intervals.append(f"{say_duration(plan.interval_s)} for {lost.job}")
        sentences.append(
            f"{lost.job} lost work {say_times(lost.times)} in {say_duration(held_s)}, {say_hours(left)} in all; a"
            f" checkpoint every {say_duration(plan.interval_s)}, of {checkpoint_s:.0f} s"
            f" as {known}, loses {1 - plan.efficiency_share:.1%} of its time."
        )
    action = f"Checkpoint every {', '.join(intervals[:3])}; asynchronously, to local disk first, where that is at hand."
    return LeverResult(tuple(taken), tuple(sentences[:3]), action, MEDIUM if is_measured else LOW)


LEVER = LossLever(
    "checkpoint_oftener", "Checkpoint at the best interval", "low", "low", "storage that is too slow", find
)
