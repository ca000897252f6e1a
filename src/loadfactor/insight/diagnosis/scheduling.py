"""Findings of a fleet, not of a job: GPUs that stand free while jobs wait, because of order and limits, or of fragmentation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.watched import Watched
from loadfactor.books.watched_waits import QueuedJobs, WatchedWaits
from loadfactor.insight.diagnosis.finding import CauseFinding, Range
from loadfactor.metrics import metric
from loadfactor.metrics.metric import Sum
from loadfactor.metrics.query.answer import work_out
from loadfactor.metrics.query.calendar import instant
from loadfactor.tables.schema import Span


@dataclass(frozen=True)
class FreeBesideWaits:
    """GPUs that were free in one step although jobs waited: `fitting` could have been given to them, `stranded` were scattered."""

    fitting: int
    stranded: int


def match_free_gpus(free: Sequence[int], sizes: Sequence[int], waiting: Sequence[int]) -> FreeBesideWaits:
    """Of nodes with these free GPUs and sizes, and waiting jobs of so many GPUs, in their order.

    >>> match_free_gpus([3, 5, 8], [8, 8, 8], [8, 8])  # the second one would fit into 3 + 5
    FreeBesideWaits(fitting=8, stranded=8)
    >>> match_free_gpus([3, 5], [8, 8], [4, 4])  # 5 of 8: one job fits, the other one would fit into 3 + 1
    FreeBesideWaits(fitting=4, stranded=4)
    >>> match_free_gpus([1], [8], [4])  # simply full
    FreeBesideWaits(fitting=0, stranded=0)
    """
    largest = max(sizes, default=0)
    left = [0] * (largest + 1)  # nodes by how many of their GPUs are left; those with the most are whole
    for gpus in free:
        left[gpus] += 1
    fitting, unplaced, too_large = 0, [], largest * len(free) + 1
    for gpus in waiting:
        if gpus < too_large and _place(left, gpus):
            fitting += gpus
        else:
            too_large = min(too_large, gpus)  # what is left only becomes less
            unplaced.append(gpus)
    rest, stranded = sum(gpus * nodes for gpus, nodes in enumerate(left)), 0
    for gpus in unplaced:
        if gpus <= rest:
            rest -= gpus
            stranded += gpus
    return FreeBesideWaits(fitting, stranded)


def _place(left: list[int], gpus: int) -> bool:
    """Take GPUs for a job out of the nodes: of the fullest one with room, or of whole ones. False where it does not fit."""
    largest = len(left) - 1
    whole, part = divmod(gpus - 1, largest)
    if whole and left[largest] <= whole:
        return False
    room = largest if whole else next((n for n in range(gpus, largest + 1) if left[n]), None)
    if room is None:
        return False
    left[largest] -= whole
    left[0] += whole
    left[room] -= 1
    left[room - part - 1] += 1
    return True


STEP_MS: Final = 15 * MS_PER_MIN
"""GPUs count as free, and jobs as waiting, that are so for a whole step: a scheduler needs its minutes."""
LEAST_SHARE: Final = 0.001
"""Less of what a pool paid is not worth a line."""
_ROUNDING: Final = 1e-6
_SURENESS: Final = 0.7
Pool = str | None


@dataclass(frozen=True)
class PoolCause:
    """A cause in a pool, in words; `low` is the part of it that a change brings at least."""

    cause: str
    title: str
    low: float
    seen: str
    against: str
    measure_next: str
    action: str


FREE_BESIDE_WAITS: Final = PoolCause(
    "free_while_jobs_wait",
    "GPUs free while jobs wait that would fit",
    0.3,
    "GPUs were free for at least one waiting job",
    "limits of teams, reservations and nodes that are kept for somebody are meant so",
    "why they wait: `loadfactor waits --by reason`",
    "Backfill (Slurm: SchedulerType=sched/backfill, bf_continue, time limits on all jobs), pool the quotas of teams"
    " with preemption, and look for wrong constraints",
)
FRAGMENTATION: Final = PoolCause(
    "fragmentation",
    "fragmentation",
    0.3,
    "GPUs were free, scattered over nodes so that a waiting job of that size did not fit",
    "jobs that may be spread over several nodes would have fitted: the books do not know which may",
    "which small jobs lie on nodes that are nearly free: `loadfactor show allocated_gpu_hours --by node,job`",
    "Pack small jobs (Slurm: CR_Pack_Nodes, LLN=NO; Kubernetes: MostAllocated scoring), keep nodes for large ones, ask for"
    " sizes that divide a node (4 of 8, not 5), MIG for what needs less than one",
)


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a pool in one step: GPUs that are free, and all."""

    free: list[int]
    sizes: list[int]


def find_scheduling(watched: Watched, snapshot: Snapshot, span: Span) -> tuple[CauseFinding, ...]:
    """GPUs that stood free beside waiting jobs in a span, pool by pool; nothing where no wait or no free GPU is known."""
    start = span[0] // STEP_MS * STEP_MS
    end = -(-span[1] // STEP_MS) * STEP_MS
    waits = watched.list_waits((start, end), WatchedWaits())
    if not len(waits.gpus):
        return ()
    fitting, stranded = _Total(), _Total()
    for at, pools in _read_nodes(watched, (start, end)):
        queued = _list_waiting(waits, at, list(pools))
        for pool, nodes in pools.items():
            if not queued.get(pool) or not sum(nodes.free):
                continue
            found = match_free_gpus(nodes.free, nodes.sizes, [gpus for gpus, _ in queued[pool]])
            jobs = [job for _, job in queued[pool]]
            fitting.add(pool, at, found.fitting, jobs)
            stranded.add(pool, at, found.stranded, jobs)
    names = ("paid_gpu_hours", "unallocated_gpu_hours", "unallocated_cost")
    shown = snapshot.show(names, "pool", instant(span[0]), instant(span[1]))
    columns = [shown.column(name) for name in names]
    known = {
        key[0]: tuple(value if isinstance(value, int | float) else None for value in row)
        for key, row in zip(shown.keys, zip(*columns, strict=True), strict=True)
    }
    found_all = [*_describe(fitting, known, FREE_BESIDE_WAITS), *_describe(stranded, known, FRAGMENTATION)]
    return tuple(sorted(found_all, key=lambda finding: -finding.gpu_hours.high))


class _Total:
    """GPU-milliseconds of a cause by pool, the steps in which it was seen, the most GPUs at once, and the jobs that waited."""

    def __init__(self) -> None:
        self.gpu_ms: dict[Pool, int] = {}
        self.steps: dict[Pool, int] = {}
        self.most: dict[Pool, tuple[int, int]] = {}
        self.jobs: dict[Pool, dict[str, None]] = {}

    def add(self, pool: Pool, at: int, gpus: int, jobs: list[str]) -> None:
        """So many GPUs in a step."""
        if gpus:
            self.gpu_ms[pool] = self.gpu_ms.get(pool, 0) + gpus * STEP_MS
            self.steps[pool] = self.steps.get(pool, 0) + 1
            self.most[pool] = max(self.most.get(pool, (0, at)), (gpus, at))
            self.jobs.setdefault(pool, {}).update(dict.fromkeys(jobs))


def _read_nodes(watched: Watched, span: Span) -> Iterator[tuple[int, dict[Pool, _Nodes]]]:
    """Step by step the nodes of each pool, as far as they are there for all of it."""
    metrics = [metric("unallocated_gpu_hours"), metric("paid_gpu_hours")]
    kinds = [of.kind for of in metrics if isinstance(of.kind, Sum)]
    chunk_ms = watched.find_chunk_ms(STEP_MS)
    for at in range(span[0], span[1], chunk_ms):
        rows = watched.read_held_steps(metrics, ("node", "pool"), (at, min(at + chunk_ms, span[1])), STEP_MS)
        named = rows.codes["node"] >= 0
        cells = np.stack([rows.step, rows.codes["node"], rows.codes["pool"]])[:, named]
        found, which = np.unique(cells, axis=1, return_inverse=True)
        sums = {part: of.T[named] for part, of in rows.sums.items()}
        free, paid = (
            np.bincount(which.reshape(-1), work_out(kind, sums)[0][:, 0], found.shape[1]) * MS_PER_HOUR / STEP_MS
            for kind in kinds
        )
        steps: dict[int, dict[Pool, _Nodes]] = {n: {} for n in range(rows.steps)}
        for (step, _, code), gpus, size in zip(found.T.tolist(), free.tolist(), paid.tolist(), strict=True):
            nodes = steps[step].setdefault(rows.names["pool"][code] if code >= 0 else None, _Nodes([], []))
            nodes.free.append(int(gpus + _ROUNDING))
            nodes.sizes.append(round(size))
        for step, pools in steps.items():
            yield at + step * STEP_MS, pools


def _list_waiting(waits: QueuedJobs, at: int, pools: list[Pool]) -> dict[Pool, list[tuple[int, str]]]:
    """GPUs and names of the jobs that wait all of a step, by pool, the longest wait first."""
    whole_step = waits.find_waiting(np.array([at, at + STEP_MS - 1])).all(0)
    rows = np.flatnonzero(whole_step & (waits.gpus >= 1))
    only = pools[0] if len(pools) == 1 else None
    found: dict[Pool, list[tuple[int, str]]] = {}
    for row in rows[np.argsort(waits.queued_ms[rows], kind="stable")].tolist():
        pool = waits.pools[row] if waits.pools[row] in pools else only
        found.setdefault(pool, []).append((int(waits.gpus[row]), waits.jobs[row]))
    return found


def _describe(
    total: _Total, known: Mapping[str | None, tuple[float | None, ...]], of: PoolCause
) -> Iterator[CauseFinding]:
    """A finding for each pool in which it is worth a line."""
    for pool, gpu_ms in total.gpu_ms.items():
        paid, free, cost = known.get(pool, (None, None, None))
        hours = min(gpu_ms / MS_PER_HOUR, free or 0.0)
        if not paid or not free or hours < LEAST_SHARE * paid:
            continue
        gpus, at = total.most[pool]
        jobs = list(total.jobs[pool])
        price = None if cost is None else cost / free
        yield CauseFinding(
            of.cause,
            of.title,
            "scheduling",
            None,
            Range(of.low * hours / paid, hours / paid),
            Range(of.low * hours, hours),
            None if price is None else Range(of.low * hours * price, hours * price),
            "medium",
            _SURENESS,
            (
                f"{of.seen} in {total.steps[pool] * STEP_MS / MS_PER_HOUR:,.4g} h, {_count(gpus, 'GPU')} at most"
                f" ({instant(at):%Y-%m-%d %H:%M} UTC); {_count(len(jobs), 'job')} waited then: {', '.join(jobs[:3])}"
                f"{' and others' if len(jobs) > 3 else ''}",
            ),
            (of.against,),
            (of.measure_next,),
            of.action,
            pool=pool or "no pool",
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
