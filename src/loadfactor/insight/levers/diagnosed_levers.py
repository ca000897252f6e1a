"""Levers out of diagnoses: what input, batches, precision, kernels and communication cost the jobs that lose most.

Each takes the low end of what its causes have at stake. What a job has at stake is a union over its causes, so nothing of it is
taken twice; hours that levers before took of the job are counted against it, as if they had the same cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum
from typing import Final

from loadfactor.base.units import MIN_PER_HOUR
from loadfactor.insight.diagnosis.finding import CauseFinding, JobDiagnosis
from loadfactor.insight.levers.lever import MEDIUM, LeverResult, LossLever, Situation, say_hours, say_largest
from loadfactor.insight.levers.remainder import TakenLoss

LOOKED_FOR: Final = ("underused", "idle")
"""The losses that most causes explain."""
LEAST_GPU_HOURS: Final = 1 / MIN_PER_HOUR
"""Hours left of a job, where levers before took the rest, is no saving under a GPU-minute."""


@dataclass(frozen=True)
class _JobSaving:
    """The saving of one job, and the finding that says so."""

    job: str
    taken: tuple[TakenLoss, ...]
    finding: CauseFinding

    @property
    def gpu_hours(self) -> float:
        """All of it."""
        return fsum(part.gpu_hours for part in self.taken)


def find(situation: Situation, causes: Sequence[str], losses: Sequence[str] = LOOKED_FOR) -> LeverResult:
    """The losses that these causes took at least, of the jobs that were diagnosed."""
    found = [saving for job in situation.diagnoses if (saving := _take(situation, job, causes, losses))]
    if not found:
        return LeverResult()
    hours = {saving.job: saving.gpu_hours for saving in found}
    whole = fsum(hours.values())
    largest = max(found, key=lambda saving: saving.gpu_hours)
    titles = ", ".join(sorted({saving.finding.title for saving in found}))
    most = fsum(saving.finding.gpu_hours.high for saving in found)
    evidence = (
        f"{len(found)} of {len(situation.diagnoses)} jobs looked at: {titles}; {say_largest(hours)}.",
        f"{situation.looked_at}.",
        f"{largest.job}: {'; '.join(largest.finding.evidence)}.",
        f"Counted is the least of the diagnosis, what earlier levers took left out; at most {say_hours(most)} are at stake.",
    )
    sureness = fsum(saving.finding.sureness_value * saving.gpu_hours for saving in found) / whole
    return LeverResult(
        tuple(part for saving in found for part in saving.taken),
        evidence,
        largest.finding.action,
        min(MEDIUM, sureness),
    )


def _take(situation: Situation, job: JobDiagnosis, causes: Sequence[str], losses: Sequence[str]) -> _JobSaving | None:
    """The most that one of the causes took at least: they may be the same seconds."""
    findings = [finding for finding in job.findings if finding.cause in causes]
    if not findings:
        return None
    finding = max(findings, key=lambda each: each.gpu_hours.low)
    hours = min(finding.gpu_hours.low, job.at_stake_gpu_hours.low - situation.left.taken_of(job.job))
    taken: list[TakenLoss] = []
    for loss in losses:
        taken += situation.left.take(job.job, loss, hours - fsum(part.gpu_hours for part in taken))
    saving = _JobSaving(job.job, tuple(taken), finding)
    return saving if saving.gpu_hours >= LEAST_GPU_HOURS else None


FEED_GPUS: Final = LossLever(
    "feed_gpus", "Have data and files wait for GPUs", "medium", "low", "workers that take the node's memory",
    partial(find, causes=("input_pipeline", "host_copies", "checkpoint_stalls", "set_up")),
)  # fmt: skip
LARGER_BATCH: Final = LossLever(
    "larger_batch", "Give each step more work", "low", "medium", "another batch may converge in another way",
    partial(find, causes=("small_batch", "memory_full", "padding")),
)  # fmt: skip
MIXED_PRECISION: Final = LossLever(
    "mixed_precision", "Compute on tensor cores", "low", "medium", "numbers of fewer bits: compare the loss",
    partial(find, causes=("no_mixed_precision",), losses=("not_math",)), ("not_math",),
)  # fmt: skip
FUSE_KERNELS: Final = LossLever(
    "fuse_kernels", "Compile and fuse kernels", "medium", "low", "shapes that change are compiled anew",
    partial(find, causes=("launch_bound", "hbm_bound")),
)  # fmt: skip
OVERLAP_COMMUNICATION: Final = LossLever(
    "overlap_communication", "Hide and even out communication", "high", "medium", "another layout or placement",
    partial(find, causes=("communication", "imbalance")),
)  # fmt: skip
REPLACE_SLOW_GPUS: Final = LossLever(
    "replace_slow_gpus", "Take slow GPUs out", "low", "low", "a node less meanwhile",
    partial(find, causes=("straggler", "throttling")),
)  # fmt: skip
SCALE_REPLICAS: Final = LossLever(
    "scale_replicas", "Scale replicas with their requests", "medium", "medium", "first answers wait for a cold start",
    partial(find, causes=("few_requests",)),
)  # fmt: skip
SMALLER_GPU: Final = LossLever(
    "smaller_gpu", "Run small work on smaller GPUs", "medium", "medium", "peaks that the mean does not show",
    partial(find, causes=("wrong_gpu",)),
)  # fmt: skip
