"""How far a run is from those that the constants were fitted to, in one word, and the range about its prediction by that."""

from collections.abc import Mapping, Sequence
from typing import Final

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import FittedRuns, read_constants, read_left_out_errors
from loadfactor.planner.hardware.distance import Distance, name_distance
from loadfactor.planner.training.job import TrainingJob

MEANINGS: Final[Mapping[Distance, str]] = {
    "measured nearby": "runs of this stack on this hardware, about as large, are among what was fitted, or one of yours was given",
    "same stack": "runs of this stack on this hardware are, of another size, length, width or method",
    "other stack": "runs on this hardware are, of other software or another kind of network",
    "never seen": "no run on this hardware is among what was fitted",
}
"""What each distance says, from the nearest on."""
NEAR = 2.0  # times as many GPUs, tokens in a sequence and weights as the most that was measured, or as few as the least


def name_stack(framework: str) -> str:
    """Frameworks that share kernels and exchange by one name.

    >>> name_stack("nemo"), name_stack("torchtune")
    ('megatron', 'torchtune')
    """
    return str(read_constants("frameworks.toml")[framework].get("stack", framework))


def describe_runs(file: str, jobs: Sequence[tuple[TrainingJob, int]]) -> list[FittedRuns]:
    """Jobs, each with its GPUs, as groups of what they have in common."""
    groups: dict[tuple[str, str, str, bool, bool, bool], list[tuple[float, float, float]]] = {}
    for job, gpus in jobs:
        sizes = (float(gpus), float(job.seq), float(job.network.parameters))
        groups.setdefault(_name_kind(job), []).append(sizes)
    ends = {
        key: [(min(sizes), max(sizes)) for sizes in zip(*all_sizes, strict=True)] for key, all_sizes in groups.items()
    }
    return [FittedRuns(file, *key, gpus, seq, parameters) for key, (gpus, seq, parameters) in ends.items()]


def _name_kind(job: TrainingJob) -> tuple[str, str, str, bool, bool, bool]:
    return (
        name_stack(job.software.framework),
        accelerator(job.machine.name).architecture,
        job.software.attention,
        job.network.experts is not None,
        job.adapters is not None,
        job.machine.narrow,
    )


def find_distance(job: TrainingJob, gpus: int, fitted: Sequence[FittedRuns] | None = None) -> Distance:
    """How near the nearest of the runs is that were fitted: those of the constants that come with the program, or those given.

    >>> from loadfactor.catalog.models import network
    >>> from loadfactor.planner.training.machine import build_machine
    >>> from loadfactor.planner.training.software import find_software
    >>> def name(model: str, card: str, framework: str, gpus: int) -> str:
    ...     one = find_software(framework)
    ...     return find_distance(TrainingJob(network(model), 8192, 512, build_machine(accelerator(card)), one), gpus)
    >>> name("llama-3.1-70b", "h100-sxm", "nemo", 512), name("llama-3.1-70b", "h100-sxm", "nemo", 100_000)
    ('measured nearby', 'same stack')
    >>> name("llama-3.1-70b", "h100-sxm", "internevo", 512), name("llama-3.1-70b", "mi300x", "megatron", 512)
    ('other stack', 'never seen')
    """
    known = read_left_out_errors().fitted if fitted is None else fitted
    stack, architecture, attention, experts, adapters, narrow = _name_kind(job)
    here = [one for one in known if one.architecture == architecture]
    alike = [one for one in here if (one.stack, one.experts) == (stack, experts)]
    if job.network.linear is not None:  # no run with layers of fixed state was fitted
        alike = []
    nearby = any(
        (one.attention, one.adapters, one.narrow) == (attention, adapters, narrow) and _is_near(job, gpus, one)
        for one in alike
    )
    return name_distance(nearby or job.calibration.step_range is not None, bool(alike), bool(here))


def _is_near(job: TrainingJob, gpus: int, one: FittedRuns) -> bool:
    sizes = ((gpus, one.gpus), (job.seq, one.seq), (job.network.parameters, one.parameters))
    return all(least / NEAR <= size <= most * NEAR for size, (least, most) in sizes)


def find_range(job: TrainingJob, gpus: int) -> tuple[float, float]:
    """Factors on predicted seconds between which four of five runs as far from what was fitted lie."""
    return read_left_out_errors().ranges[name_network_kind(job)][find_distance(job, gpus)]


def name_network_kind(job: TrainingJob) -> str:
    """What ranges are kept apart by beside distance."""
    return "experts" if job.network.experts else "dense"
