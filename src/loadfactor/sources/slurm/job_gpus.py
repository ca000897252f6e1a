"""GPUs of each job of a table: how many it held and asked for, as numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.tres import NO_GPUS, GpuCount, count_gpus

UNSIZED: Final = (
    "jobs hold shards of GPUs, and no node list says how many make a GPU: not booked (import scontrol show node)"
)
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ShardSizes:
    """Shards, and MPS percentages, that make a GPU, by what they are called; empty where no node list says it."""

    per_gpu: Mapping[str, float] = field(default_factory=dict)

    def size(self, name: str, count: float) -> float:
        """GPUs of so many shards; NaN where nobody says how many make one."""
        return count / self.per_gpu[name] if self.per_gpu.get(name) else float("nan")


@dataclass(frozen=True)
class JobGpus:
    """By row of a table of jobs. `share` is NaN for whole GPUs, `held` NaN for shards of unknown size."""

    held: Numbers
    share: Numbers
    asked: Numbers  # whole GPUs


def measure_gpus(jobs: pa.Table, sizes: ShardSizes, label: str) -> JobGpus:
    """The GPUs of each job. SourceError names the line of a text that counts none."""

    def read(name: str, number: Callable[[GpuCount], float]) -> Numbers:
        return _spread(jobs, name, number, label)

    def gpus(count: GpuCount) -> float:
        if count.gpus or not (count.shards or count.mps):
            return count.gpus
        return sizes.size("shard", count.shards) if count.shards else sizes.size("mps", count.mps)

    def whole(count: GpuCount) -> float:
        return count.whole if count.gpus else gpus(count)

    def share(count: GpuCount) -> float:
        return float("nan") if count.share is None else count.share

    return JobGpus(read("held", gpus), read("held", share), read("asked", whole))


def _spread(jobs: pa.Table, name: str, number: Callable[[GpuCount], float], label: str) -> Numbers:
    """A number of each text of a column, worked out once for each distinct text."""
    encoded = jobs[name].combine_chunks().dictionary_encode()
    numbers = np.zeros(len(encoded.dictionary) + 1)
    for at, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            numbers[at] = number(count_gpus(text))
        except ValueError as error:
            raise refuse(jobs, name, text, label, str(error)) from None
    out: Numbers = numbers[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)]
    return out


def refuse(jobs: pa.Table, name: str, text: str, label: str, why: str) -> SourceError:
    """The error about a text of a column, naming the first line that has it."""
    line = jobs["line"][jobs[name].to_pylist().index(text)].as_py()
    at = label if line is None else f"{label}, line {line}"
    return SourceError(f"{at}: {quote(text)} {why}")


def note_unsized(notes: Notes, label: str, gpus: JobGpus, lines: Any) -> None:
    """Say how many jobs hold shards of unknown size."""
    unsized = np.isnan(gpus.held) | np.isnan(gpus.asked)
    if unsized.any():
        notes.add(label, UNSIZED, int(unsized.sum()), lines[int(unsized.argmax())].as_py())


def find_grant(tres: str | None, placed: Mapping[str, float], per_node: str | None, nodes: int) -> str | None:
    """What scontrol and slurmrestd say of a job's GPUs as one text: TRES, else GPUs by node, else so many a node.

    ValueError where a text counts none.

    >>> find_grant("cpu=8", {}, "gres/gpu:h100:4", 2), find_grant("cpu=8,gres/gpu=1", {}, None, 1), find_grant("cpu=1", {}, None, 1)
    ('gres/gpu=8.0', 'cpu=8,gres/gpu=1', 'cpu=1')
    """
    if count_gpus(tres) != NO_GPUS:
        return tres
    total = sum(placed.values()) or count_gpus(per_node).whole * nodes
    return f"gres/gpu={total}" if total else tres
