"""Search over the legal layouts of a training job, scored by the equations that give the breakdown of a step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.memory import estimate_memory, recompute_as_needed
from loadfactor.planner.training.search_space import EVERYTHING, SearchSpace, enumerate_layouts
from loadfactor.planner.training.step import estimate_step

CHUNK = 8192  # layouts scored at once: their arrays stay in the processor's cache, and memory stays bounded
MEMORY_STEP = 0.999  # of the memory of the layout before it on the front, at most
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ScoredLayouts:
    """Every legal layout that was scored, fastest first: seconds of a step, bytes of the fullest rank, whether it fits."""

    layouts: TrainingLayout
    step_s: Array
    memory_bytes: Array
    fits: Array

    def __len__(self) -> int:
        return len(self.step_s)


def _batch_layouts(layouts: Iterator[TrainingLayout]) -> Iterator[TrainingLayout]:
    waiting: list[TrainingLayout] = []
    size = 0
    for one in layouts:
        waiting.append(one)
        size += len(one)
        if size >= CHUNK:
            yield TrainingLayout.join(waiting)
            waiting, size = [], 0
    if size:
        yield TrainingLayout.join(waiting)


def search_layouts(job: TrainingJob, gpus: int, space: SearchSpace = EVERYTHING) -> ScoredLayouts:
    """Every legal layout scored, those that fit before those that do not, the fastest first.

    Where the space leaves recomputation open, a layout that needs it has it for as few layers of a stage as memory allows.
    """
    layouts, seconds, needed = [], [], []
    usable = 0.0
    for listed in _batch_layouts(enumerate_layouts(job, gpus, space)):
        chunk = listed if space.recompute else recompute_as_needed(job, listed)
        layouts.append(chunk)
        seconds.append(estimate_step(job, chunk).step_s)
        needs = estimate_memory(job, chunk)
        needed.append(needs.total_bytes)
        usable = needs.usable_bytes
    if not layouts:
        empty = np.zeros(0)
        return ScoredLayouts(TrainingLayout.join([]), empty, empty, empty.astype(bool))
    all_layouts, step_s, memory_bytes = TrainingLayout.join(layouts), np.concatenate(seconds), np.concatenate(needed)
    fits = memory_bytes <= usable
    order = np.lexsort((memory_bytes, np.round(step_s, 9), ~fits))
    return ScoredLayouts(all_layouts.pick(order), step_s[order], memory_bytes[order], fits[order])


def pick_distinct(found: ScoredLayouts, most: int, fitting: bool = True) -> list[int]:
    """Positions of the best layout of each way to cut the job (its degrees and whether it is fully sharded), fastest first.

    Thousands of layouts differ only in what hardly matters; a person compares ways to cut.
    """
    seen: set[tuple[int, ...]] = set()
    picked: list[int] = []
    x = found.layouts
    for i in range(len(found)):
        if bool(found.fits[i]) != fitting:
            continue
        key = (*(int(a[i]) for a in (x.tensor, x.pipeline, x.expert, x.context > 1)), int(x.zero[i] == 3))
        twin = (
            picked
            and found.step_s[i] == found.step_s[picked[-1]]
            and found.memory_bytes[i] == found.memory_bytes[picked[-1]]
        )
        if key not in seen:
            seen.add(key)
            if twin:  # the same work cut along another name: context ranks in place of data ranks
                continue
            picked.append(i)
            if len(picked) == most:
                break
    return picked


def find_pareto_front(found: ScoredLayouts) -> list[int]:
    """Positions of the fitting layouts that no other beats in both time and memory, fastest first.

    On a fixed number of GPUs cost is proportional to time, so this is the front of time, memory and cost.
    """
    front, least = [], np.inf
    for i in np.flatnonzero(found.fits):
        if found.memory_bytes[i] < least * MEMORY_STEP:
            front.append(int(i))
            least = found.memory_bytes[i]
    return front
