"""Lever: ask for as many GPUs as the job uses. A GPU that did nothing while another of the job worked was not needed."""

from typing import Final

from loadfactor.books.losses.facts import JobGpu
from loadfactor.insight.levers.lever import HIGH, LeverResult, LossLever
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours

UNUSED_BELOW: Final = 0.01
USED_FROM: Final = 0.5
LEAST_OBSERVED: Final = 0.8
"""Of the time that the job held the GPU: of one that was seen less, nobody knows that it did nothing."""


def find(situation: Situation) -> LeverResult:
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
    largest = "; ".join(said for _, said in sorted(jobs, reverse=True)[:3])
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


LEVER = LossLever(
    "right_size_jobs", "Ask for the GPUs that jobs use", "low", "low", "a phase that needs them later", find
)
