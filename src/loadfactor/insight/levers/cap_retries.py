"""Lever: stop jobs that fail again and again. A loop is runs of one user and job name that fail within a day of each other."""

from typing import Final

from loadfactor.insight.levers.lever import HIGH, LeverResult, LossLever
from loadfactor.insight.levers.remainder import OF_HOLDERS, TakenLoss
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours, say_largest

RUNS_ALLOWED: Final = 3
"""The first run and two retries."""


def find(situation: Situation) -> LeverResult:
    """All that was lost in failed runs after the third of a loop."""
    runs = {(run.job, run.attempt): run for run in situation.facts.runs}
    taken: list[TakenLoss] = []
    held: dict[str, float] = {}
    count = 0
    for failed in situation.facts.failed_runs:
        run = runs.get((failed.job, failed.attempt))
        if failed.number <= RUNS_ALLOWED or run is None:
            continue
        share = run.gpu_hours / situation.job_hours[run.job]
        for loss in OF_HOLDERS:
            taken += situation.left.take(run.job, loss, situation.left.first_of(run.job, loss) * share)
        situation.spared_runs.add((run.job, run.attempt))
        held[failed.name] = held.get(failed.name, 0.0) + run.gpu_hours
        count += 1
    if not count:
        return LeverResult()
    known = sum(part.gpu_hours for part in taken)
    return LeverResult(
        tuple(taken),
        (
            f"{count} runs failed after {RUNS_ALLOWED} of their kind had failed: {say_largest(held)}.",
            f"They held {say_hours(sum(held.values()))}, of which {say_hours(known)} are known to be lost: work whose FLOPs nobody"
            " counts is not among them.",
        ),
        f"Limit retries to {RUNS_ALLOWED - 1} (Slurm: no --requeue or a check of SLURM_RESTART_COUNT; Kubernetes: backoffLimit:"
        f" {RUNS_ALLOWED - 1}), and try a change on one GPU first.",
        HIGH,
    )


LEVER = LossLever(
    "cap_retries", "Stop jobs that fail again and again", "low", "low", "a job that would have run at last", find
)
