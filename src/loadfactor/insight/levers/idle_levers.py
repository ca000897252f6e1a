"""Levers on intervals in which every GPU of a job is idle: notebooks, GPUs kept after the end of the work, and all others.

Each interval belongs to one of them. What is saved is what comes later than the time that a lever waits before it acts.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.books.losses.facts import JobGpu
from loadfactor.books.losses.idle import IdleInterval
from loadfactor.insight.alerts.rules.jobs import is_notebook
from loadfactor.insight.levers.lever import (
    HIGH,
    MEDIUM,
    LeverResult,
    LossLever,
    Situation,
    say_hours,
    say_largest,
    say_times,
)
from loadfactor.insight.levers.remainder import OF_HOLDERS, TakenLoss

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
    subject: str,
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
    sentence = f"{subject} {say_times(count)} for longer than {minutes} min, {whole} beyond that: {say_largest(hours)}."
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
    ("idle",),
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
    ("idle",),
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
    ("idle",),
)


UNUSED_BELOW: Final = 0.01
USED_FROM: Final = 0.5
LEAST_OBSERVED: Final = 0.8
"""Of the time that the job held the GPU: of one that was seen less, nobody knows that it did nothing."""


def find_oversized(situation: Situation) -> LeverResult:
    """The idle and underused time of GPUs that their job never used."""
    taken: list[TakenLoss] = []
    jobs: list[tuple[float, str]] = []
    for job, gpus in sorted(situation.facts.job_gpus.items()):
        unused = [gpu for gpu in gpus if _is_unused(gpu)]
        kept = 1 - situation.spared_share(job)
        if not unused or kept <= 0 or max(map(_activity, gpus)) < USED_FROM:
            continue
        parts = [
            part
            for gpu in unused
            for loss, hours in (("idle", gpu.idle), ("underused", gpu.busy - gpu.active))
            for part in situation.left.take(job, loss, hours * kept)
        ]
        situation.spared_gpus.update((job, gpu.device) for gpu in unused)
        taken += parts
        hours = sum(part.gpu_hours for part in parts)
        jobs.append(
            (hours, f"{job} used {len(gpus) - len(unused)} of {len(gpus)} GPUs ({say_hours(hours)} for nothing)")
        )
    if not jobs:
        return LeverResult()
    largest = "; ".join(text for _, text in sorted(jobs, reverse=True)[:3])
    return LeverResult(
        tuple(taken),
        (f"{len(jobs)} jobs held GPUs that did nothing while another one worked: {largest}.",),
        "Ask for the GPUs that are used (--gpus, --gpus-per-node, nvidia.com/gpu), or start as many processes as there are GPUs"
        " (torchrun --nproc-per-node, CUDA_VISIBLE_DEVICES).",
        HIGH,
    )


def _activity(gpu: JobGpu) -> float:
    observed = gpu.idle + gpu.busy
    return gpu.active / observed if observed else 0.0


def _is_unused(gpu: JobGpu) -> bool:
    observed = gpu.idle + gpu.busy
    held = observed + gpu.unobserved
    return held > 0 and observed >= LEAST_OBSERVED * held and _activity(gpu) < UNUSED_BELOW


RIGHT_SIZE_JOBS = LossLever(
    "right_size_jobs", "Ask for the GPUs that jobs use", "low", "low", "a phase that needs them later", find_oversized
)


RUNS_ALLOWED: Final = 3
"""The first run and two retries."""


def find_retries(situation: Situation) -> LeverResult:
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


CAP_RETRIES = LossLever(
    "cap_retries",
    "Stop jobs that fail again and again",
    "low",
    "low",
    "a job that would have run at last",
    find_retries,
    OF_HOLDERS,
)


LAG_MIN: Final = 30
"""Minutes of every free interval that are paid all the same: until the node is given back, and until it is there again."""


def find_free_nodes(situation: Situation) -> LeverResult:
    """Free time of whole nodes beyond the lag, while nobody waited for their pool."""
    taken: list[TakenLoss] = []
    hours: dict[str, float] = {}
    count = 0
    for free in situation.facts.free:
        parts = situation.left.take_of_nodes(
            "unallocated", free.interval.gpu_hours_after(LAG_MIN * S_PER_MIN), (free.node,)
        )
        if parts:
            count += 1
            pool = "the pool without a name" if free.pool is None else f"pool {free.pool}"
            hours[pool] = hours.get(pool, 0.0) + sum(part.gpu_hours for part in parts)
            taken += parts
    if not count:
        return LeverResult()
    return LeverResult(
        tuple(taken),
        (
            f"Whole nodes stood free {say_times(count)} for longer than {LAG_MIN} min while nobody waited,"
            f" {say_hours(sum(hours.values()))} beyond that: {say_largest(hours)}.",
        ),
        f"Scale down what is rented after a node was free for some minutes (Slurm: SuspendTime=600; Cluster Autoscaler:"
        f" --scale-down-unneeded-time=10m); {LAG_MIN} min of every stretch are counted as paid. What is owned or committed cannot"
        " be given back: lend it, or run fewer nodes.",
        MEDIUM,
    )


AUTOSCALE_DOWN = LossLever(
    "autoscale_down",
    "Scale down while nobody waits",
    "medium",
    "low",
    "jobs wait until nodes start",
    find_free_nodes,
    ("unallocated",),
)
