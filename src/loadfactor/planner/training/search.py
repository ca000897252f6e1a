"""Search over the legal layouts of a training job, scored by the equations that give the breakdown of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from loadfactor.catalog.models import Network
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.memory import (
    OUT_OF_MEMORY_COST,
    estimate_memory,
    estimate_risk,
    recompute_as_needed,
    usable_bytes,
)
from loadfactor.planner.training.step import estimate_step

MISSING_LAYERS = 2  # a pipeline may be this many layers short: the embedding and the head stand in for them
MISSING_SHARE = 0.05  # or this share of the layers
MOST_MISSING_SHARE = 0.2  # where the number of stages is given
SHORTEST_CONTEXT_SHARD = 1024  # tokens; below that a context rank has too little to hide its ring behind
MOST_INTERLEAVED = 32
MOST_SEQUENCES = 64  # in a micro-batch
MOST_RISK = 1 / 3  # of running out of memory, of a layout that needs no other reason to be recommended
SURE_RISK = 0.1  # of one that surely fits: the upper end of the range of peaks


@dataclass(frozen=True)
class SearchSpace:
    """Values the search may try for each field of a layout; an empty tuple allows every legal one."""

    tensor: Sequence[int] = ()
    pipeline: Sequence[int] = ()
    context: Sequence[int] = ()
    expert: Sequence[int] = ()
    micro_batch: Sequence[int] = ()
    interleave: Sequence[int] = ()
    recompute: Sequence[int] = ()
    zero: Sequence[int] = (0, 1, 2, 3)


EVERYTHING = SearchSpace()


def list_divisors(number: int) -> list[int]:
    """The divisors of a number, in order.

    >>> list_divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [d for d in range(1, number + 1) if number % d == 0]


def list_tensor_degrees(network: Network) -> list[int]:
    """Tensor ranks that cut heads, key-value heads and the MLP evenly; beyond one key-value head a rank, ranks share copies.

    >>> from loadfactor.catalog.models import network
    >>> list_tensor_degrees(network("llama-3.1-70b"))
    [1, 2, 4, 8, 16, 32, 64]
    """
    shared = network.kv_heads == 1 or network.latent is not None
    width = network.experts.ffn_hidden if network.experts else network.ffn_hidden
    kv = network.kv_heads
    return [t for t in list_divisors(network.heads) if (shared or kv % t == 0 or t % kv == 0) and width % t == 0]


def _list_aligned(network: Network, domain: int) -> list[int]:
    """Tensor ranks that tile a scale-up domain, or are tiled by it: six would straddle nodes of eight."""
    return [t for t in list_tensor_degrees(network) if domain % t == 0 or t % domain == 0 or t & (t - 1) == 0]


def list_pipeline_degrees(network: Network, gpus: int) -> list[int]:
    """Pipeline stages that the layers fill but for a few places, as the embedding and the head may take.

    >>> from loadfactor.catalog.models import network
    >>> list_pipeline_degrees(network("deepseek-v3"), 16)      # 61 layers: three of 16 stages have one less
    [1, 2, 4, 8, 16]
    """
    most = min(network.layers, gpus)
    return [p for p in range(1, most + 1) if gpus % p == 0 and is_even_enough(network.layers, p)]


def is_even_enough(layers: int, stages: int, missing_share: float = MISSING_SHARE) -> bool:
    """True where the other stages wait little for the fullest, and none is empty: one of embedding and one of head may be without.

    >>> is_even_enough(126, 16 * 8), is_even_enough(126, 16 * 9)      # 405B's embedding and head fill two of 128 places
    (True, False)
    """
    missing = -layers % stages
    return stages <= layers + MISSING_LAYERS and missing <= max(MISSING_LAYERS, missing_share * layers)


def enumerate_layouts(job: TrainingJob, gpus: int, space: SearchSpace = EVERYTHING) -> Iterator[TrainingLayout]:
    """Every legal layout of `gpus` GPUs for this job, as arrays, a few (tensor, pipeline, context) grids at a time.

    Legal: the degrees multiply to the GPUs; tensor ranks divide heads, key-value heads and the MLP; stages divide the layers;
    data ranks divide the batch; interleaving needs as many micro-batches as a multiple of the stages; experts divide over data
    ranks.
    """
    k, n = space, job.network
    longest = max(job.seq // SHORTEST_CONTEXT_SHARD, 1)
    contexts = k.context or [
        c for c in (1, 2, 4, 8, 16, 32) if c == 1 or (c <= longest and job.software.flash_attention)
    ]
    recomputes = k.recompute or ((NONE, FULL) if job.software.flash_attention else (NONE, SELECTIVE, FULL))
    by_heads = job.software.context_by == "all-to-all"
    for t in k.tensor or _list_aligned(n, job.machine.fabric.domain_gpus):
        for p in k.pipeline or list_pipeline_degrees(n, gpus):
            for c in contexts:
                data, rest = divmod(gpus, t * p * c)
                if rest or data == 0 or job.global_batch % data or (by_heads and n.heads % (t * c)):
                    continue
                share = job.global_batch // data
                micros = [b for b in (k.micro_batch or list_divisors(share)) if share % b == 0 and b <= MOST_SEQUENCES]
                ranks = data * c * t if k.expert else data  # searched are only those that are spread over data ranks
                experts = [
                    e for e in (k.expert or list_divisors(n.experts.count if n.experts else 1)) if ranks % e == 0
                ]
                chunks = k.interleave or [v for v in list_divisors(-(-n.layers // p)) if v <= MOST_INTERLEAVED]
                # stages that are given may be uneven: the fullest one is counted
                uneven = 1.0 if k.pipeline and k.interleave else MOST_MISSING_SHARE if k.pipeline else MISSING_SHARE
                chunks = [v for v in chunks if (p > 1 or v == 1) and is_even_enough(n.layers, p * v, uneven)]
                stages = list(k.zero)
                if data * c == 1:
                    stages = stages[:1]
                grid = np.meshgrid(experts, micros, chunks, recomputes, stages, indexing="ij")
                e, b, v, r, z = (g.ravel() for g in grid)
                keep = (v == 1) | ((share // b) % p == 0)
                one = np.ones(int(keep.sum()), dtype=np.int64)
                yield TrainingLayout(
                    t * one,
                    p * one,
                    data * one,
                    c * one,
                    e[keep],
                    b[keep],
                    v[keep],
                    r[keep],
                    z[keep],
                    (one * t > 1) & job.software.sequence_parallel,
                    1.0 * one,
                )


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

    def pick(self, index: Array) -> "ScoredLayouts":
        """Some of them, by positions or a mask."""
        return ScoredLayouts(self.layouts.pick(index), self.step_s[index], self.memory_bytes[index], self.fits[index])

    def join(self, other: "ScoredLayouts") -> "ScoredLayouts":
        columns = ((self.step_s, other.step_s), (self.memory_bytes, other.memory_bytes), (self.fits, other.fits))
        return ScoredLayouts(TrainingLayout.join([self.layouts, other.layouts]), *map(np.concatenate, columns))


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
    for listed in _batch_layouts(enumerate_layouts(job, gpus, space)):
        chunk = listed if space.recompute else recompute_as_needed(job, listed)
        layouts.append(chunk)
        seconds.append(estimate_step(job, chunk).step_s)
        needed.append(estimate_memory(job, chunk).total_bytes)
    if not layouts:
        empty = np.zeros(0)
        return ScoredLayouts(TrainingLayout.join([]), empty, empty, empty.astype(bool))
    all_layouts, step_s, memory_bytes = TrainingLayout.join(layouts), np.concatenate(seconds), np.concatenate(needed)
    fits = memory_bytes <= usable_bytes(job)
    order = np.lexsort((memory_bytes, np.round(step_s, 9), ~fits))
    return ScoredLayouts(all_layouts, step_s, memory_bytes, fits).pick(order)


CONSIDERED = 64  # ways whose recomputation is looked at again


def rank_by_risk(job: TrainingJob, found: ScoredLayouts, space: SearchSpace = EVERYTHING) -> ScoredLayouts:
    """The layouts that fit, least expected time first: a step, and the risk that the run stops for want of memory.

    The best of them also with the recomputation that leaves room for what memory may be mispredicted by, in each framework that it
    may be.
    """
    fitting = _order_by_risk(job, found.pick(found.fits))
    if space.recompute or not len(fitting):
        return fitting
    layouts = fitting.layouts.pick(np.arange(min(CONSIDERED, len(fitting))))
    whole = replace(layouts, recompute=FULL + 0 * layouts.recompute, recompute_share=1.0 + 0 * layouts.recompute)
    for software in job.software.alternatives or (job.software,):
        cautious = recompute_as_needed(replace(job, software=software), whole, 1 / job.peak_range[1])
        memory = estimate_memory(job, cautious)
        more = ScoredLayouts(cautious, estimate_step(job, cautious).step_s, memory.total_bytes, memory.fits)
        fitting = fitting.join(more.pick(more.fits))
    return _order_by_risk(job, fitting)


def _order_by_risk(job: TrainingJob, found: ScoredLayouts) -> ScoredLayouts:
    expected = expect_step_s(found.step_s, estimate_risk(job, found.layouts))
    return found.pick(np.argsort(expected, kind="stable"))


def expect_step_s(step_s: Any, risk: Any) -> Any:
    """Seconds of a step with the cost of running out of memory, by its risk; what may well run out must be faster by that cost.

    >>> [round(expect_step_s(10.0, risk), 2) for risk in (0.0, 0.2, 0.4)]
    [10.0, 10.3, 12.1]
    """
    return step_s * (1 + OUT_OF_MEMORY_COST * (risk + (risk > MOST_RISK)))


def find_safer(job: TrainingJob, ranked: ScoredLayouts) -> int | None:
    """Position of the best layout that surely fits, else of the one that runs out least often; None where it is the first."""
    risk = estimate_risk(job, ranked.layouts)
    sure = np.flatnonzero(risk <= SURE_RISK)
    return int(sure[0] if len(sure) else np.argmin(risk)) or None


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
