"""Lever: several small jobs on one GPU, by replay: who used little of a GPU and of its memory takes a part of one.

The runs of a pool are put, in the order of their starts, on the first shared GPU that has a part free. No run is moved, so a
shared GPU is paid until the last of its runs ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import fsum
from typing import Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.losses.pool_jobs import LoneJob
from loadfactor.insight.levers.lever import LOW, LeverResult, LossLever, Situation, say_hours
from loadfactor.insight.levers.remainder import TakenLoss

LEAST_OBSERVED: Final = 0.8
LOSSES: Final = ("idle", "underused")


@dataclass(frozen=True)
class GpuPart:
    """A part of a GPU: so many of them on one, and the shares of its processors and its memory that each has."""

    name: str
    on_one: int
    active_share: float
    memory_share: float


PARTS: Final = (
    GpuPart("a seventh (1g)", 7, 1 / 7, 1 / 8),
    GpuPart("a third (2g)", 3, 2 / 7, 1 / 4),
    GpuPart("a half (3g)", 2, 3 / 7, 1 / 2),
)
"""The instances that MIG cuts an A100, H100, H200 or B200 into, smallest first (NVIDIA MIG User Guide, supported profiles).
Time-slicing needs the same room in memory."""


def find_shareable(situation: Situation) -> LeverResult:
    """The savings of shared GPUs: of the idle and inactive time of jobs that held one GPU and used a part of it."""
    taken: list[TakenLoss] = []
    sentences = []
    held = {job: fsum(situation.left.first_of(job, loss) for loss in LOSSES) for job in situation.job_hours}
    for (pool, part), jobs in _group(situation.facts.lone_jobs).items():
        spans = [
            (run.from_ms, run.to_ms)
            for run in situation.facts.runs
            if run.job in jobs and (run.job, run.attempt) not in situation.spared_runs
        ]
        alone_ms, shared_ms = sum(end - start for start, end in spans), share_time(spans, part.on_one)
        if shared_ms >= alone_ms:
            continue
        spared = 1 - shared_ms / alone_ms
        parts = [part for job in sorted(jobs) for part in _take(situation, job, held[job], spared)]
        taken += parts
        sentences.append(
            f"{len(jobs)} jobs of {pool} would fit into {part.name} of a GPU each: {alone_ms / MS_PER_HOUR:,.0f} GPU-hours alone,"
            f" {shared_ms / MS_PER_HOUR:,.0f} in a replay that shares GPUs; {say_hours(fsum(p.gpu_hours for p in parts))} of"
            " that idle or inactive until now."
        )
    return LeverResult(
        tuple(taken),
        tuple(sentences),
        "Cut some GPUs into instances (nvidia-smi mig -cgi 1g.10gb,… -C; Slurm: Gres=gpu:1g.10gb:7; Kubernetes:"
        " nvidia.com/mig-1g.10gb through the GPU operator), or share them by time (replicas in the device plugin, MPS)."
        " Activity is a mean: busy minutes take longer.",
        LOW,
    )


def _take(situation: Situation, job: str, lost: float, spared: float) -> list[TakenLoss]:
    """This share of the time that a job held after the levers before, out of what it still loses of it."""
    gone = lost - situation.left.left_of(job, LOSSES)
    hours = max(0.0, situation.job_hours[job] - gone) * (1 - situation.spared_share(job)) * spared
    idle = situation.left.take(job, "idle", hours)
    return [*idle, *situation.left.take(job, "underused", hours - fsum(part.gpu_hours for part in idle))]


def _group(jobs: Iterable[LoneJob]) -> dict[tuple[str, GpuPart], set[str]]:
    """Jobs by pool and the smallest part of a GPU that holds them."""
    out: dict[tuple[str, GpuPart], set[str]] = {}
    for job in jobs:
        fitting = [p for p in PARTS if job.active_share <= p.active_share and job.memory_share <= p.memory_share]
        if fitting and job.observed_share >= LEAST_OBSERVED:
            pool = " ".join(name for name in (job.pool, job.accelerator) if name) or "the cluster"
            out.setdefault((pool, fitting[0]), set()).add(job.job)
    return dict(sorted(out.items(), key=lambda item: (item[0][0], -item[0][1].on_one)))


def share_time(spans: Sequence[tuple[int, int]], on_one: int) -> int:
    """How long GPUs are held when spans are put on the first GPU that has one of its parts free.

    >>> share_time([(0, 10), (2, 4), (3, 12), (20, 30)], 2)  # 0 to 10 with 2 to 4, 3 to 12, and 20 to 30
    29
    """
    ends: list[tuple[int, int]] = []
    residents: dict[int, int] = {}
    until: dict[int, int] = {}
    roomy: list[int] = []  # GPUs that may have a part free, the one that was taken first on top
    held = 0
    for number, (start, end) in enumerate(sorted(spans)):
        while ends and ends[0][0] <= start:
            gpu = heappop(ends)[1]
            residents[gpu] -= 1
            heappush(roomy, gpu)
        while roomy and not 0 < residents[roomy[0]] < on_one:
            heappop(roomy)
        gpu = roomy[0] if roomy else number
        if gpu == number:
            residents[gpu], until[gpu] = 0, start
            heappush(roomy, gpu)
        held += max(0, end - until[gpu])
        until[gpu] = max(until[gpu], end)
        residents[gpu] += 1
        heappush(ends, (end, gpu))
    return held


SHARE_GPUS = LossLever(
    "share_gpus",
    "Share GPUs among small jobs",
    "medium",
    "medium",
    "busy minutes of one slow the others down, and memory must be enough",
    find_shareable,
)
