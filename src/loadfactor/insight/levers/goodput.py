"""The lever on checkpoints: what the best interval between them is worth to the runs of the books, be it longer or shorter.

The time between failures, the length of a checkpoint, the interval and the restart are those of the job, where the books have
them; Daly's interval and the share of kept work are those of `plan train` (planner/hardware/checkpoint.py).
"""

from typing import Final

from loadfactor.base.quantities import write_share
from loadfactor.base.units import H_PER_DAY, MS_PER_S, S_PER_HOUR
from loadfactor.books.losses.facts import Goodput
from loadfactor.insight.levers.lever import (
    LOW,
    MEDIUM,
    LeverResult,
    LossLever,
    Situation,
    say_duration,
    say_times,
)
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.planner.hardware.checkpoint import CheckpointPlan, efficiency_share, job_mtbf_s, plan_checkpoints

CHECKPOINT_S: Final = 60.0
"""How long a checkpoint is taken to stop a job that reports none."""
GPU_MTBF_H: Final = 50_677.0
"""Hours between failures of a GPU, for a job that saw none: 419 in 54 days on 16,384 H100 (Llama 3)."""
LEAST_HELD_S: Final = 2 * S_PER_HOUR
"""A run that held GPUs for less begins anew; one failure in it is no rate."""
LEAST_GAIN: Final = 0.005
"""Of a job's time: less is not worth another interval."""


def find_goodput(situation: Situation) -> LeverResult:
    """Time whose work was lost above what is lost at the best interval, and stops for checkpoints that come oftener than that."""
    taken: list[TakenLoss] = []
    found: list[tuple[float, str, str]] = []
    is_measured = True
    for job in situation.facts.goodput:
        held_s = sum(run.to_ms - run.from_ms for run in situation.runs_of.get(job.job, ())) / MS_PER_S
        hours = situation.job_hours.get(job.job, 0.0)
        if held_s < LEAST_HELD_S or hours <= 0:
            continue
        mtbf_s = (
            held_s / job.losses if job.losses else job_mtbf_s(GPU_MTBF_H, max(1, round(hours * S_PER_HOUR / held_s)))
        )
        best = plan_checkpoints(CHECKPOINT_S if job.checkpoint_s is None else job.checkpoint_s, mtbf_s, 0.0)
        parts = [*_take_lost(situation, job, best), *_take_stops(situation, job, best, hours)]
        if not parts:
            continue
        taken += parts
        is_measured &= job.checkpoint_s is not None and job.losses > 0
        gained = sum(part.gpu_hours for part in parts)
        found.append((gained, f"{say_duration(best.interval_s)} for {job.job}", _say(job, best, held_s, hours)))
    found.sort(key=lambda one: -one[0])
    action = (
        f"Checkpoint every {', '.join(words for _, words, _ in found[:3])}; asynchronously, to local disk first, where that is at"
        " hand."
    )
    return LeverResult(
        tuple(taken), tuple(sentence for *_, sentence in found[:3]), action, MEDIUM if is_measured else LOW
    )


def _take_lost(situation: Situation, job: Goodput, best: CheckpointPlan) -> list[TakenLoss]:
    """Work that would not have been lost, and in proportion what was underused or not math of the time that made it."""
    share = job.lost_share - (1 - best.efficiency_share)
    if share <= 0:
        return []
    left = situation.left
    parts = left.take(job.job, "lost_work", left.first_of(job.job, "lost_work") * share / job.lost_share)
    for loss in ("underused", "not_math"):
        parts += left.take(job.job, loss, left.first_of(job.job, loss) * share)
    return parts


def _take_stops(situation: Situation, job: Goodput, best: CheckpointPlan, hours: float) -> list[TakenLoss]:
    """Time that a job stands still for checkpoints which come oftener than at the best interval, less the work that fewer risk.

    What levers before took of its idle time may be the same time, and counts against it.
    """
    if job.every_s is None or job.checkpoint_s is None:
        return []
    interval_s = job.every_s - job.checkpoint_s
    if not 0 < interval_s < best.interval_s:
        return []
    gain = best.efficiency_share - efficiency_share(interval_s, job.checkpoint_s, best.mtbf_s, 0.0)
    if gain < LEAST_GAIN:
        return []
    left = situation.left
    before = left.first_of(job.job, "idle") - left.left_of(job.job, ("idle",))
    return left.take(job.job, "idle", hours * gain - before)


def _say(job: Goodput, best: CheckpointPlan, held_s: float, hours: float) -> str:
    """What a job loses now, and what it would at the best interval; in shares of its time."""
    known = "assumed" if job.checkpoint_s is None else "measured"
    per_day = job.losses / (hours / H_PER_DAY)
    if job.losses:
        failed = (
            f"{job.job} lost work {say_times(job.losses)} in {say_duration(held_s)}, {write_share(job.lost_share)} of it,"
            f" {per_day:.3g} times a GPU-day"
        )
    else:
        failed = f"{job.job} lost no work in {say_duration(held_s)}, and is taken to fail every {best.mtbf_s / S_PER_HOUR:,.0f} h"
    now = []
    if job.every_s is not None and job.checkpoint_s is not None:
        now.append(f"it checkpoints every {say_duration(job.every_s)}")
        kept = 1 - job.lost_share - job.checkpoint_s / job.every_s
        if job.restart_s is not None:
            kept -= job.losses * job.restart_s / held_s
            now.append(f"works again {say_duration(job.restart_s)} after a loss")
        now.append(f"keeps {write_share(max(kept, 0.0))} of its time")
    elif job.restart_s is not None:
        now.append(f"it works again {say_duration(job.restart_s)} after a loss")
    says = f"; {', '.join(now)}" if now else ""
    return (
        f"{failed}{says}. A checkpoint every {say_duration(best.interval_s)}, of {best.checkpoint_s:.0f} s as {known}, loses"
        f" {write_share(1 - best.efficiency_share, 1)} of its time beside restarts."
    )


CHECKPOINT_OFTENER = LossLever(
    "checkpoint_oftener",
    "Checkpoint at the best interval",
    "low",
    "low",
    "storage that is too slow",
    find_goodput,
    ("lost_work", "underused", "not_math", "idle"),
)
