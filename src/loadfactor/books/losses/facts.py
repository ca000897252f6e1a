"""Facts that levers read of one window: the waterfall by holder and node, GPUs of jobs, runs, idle and free intervals."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.books.losses.idle import (
    FreeInterval,
    HeldRun,
    IdleInterval,
    find_free,
    find_idle,
    list_runs,
    list_waits,
)
from loadfactor.books.losses.pool_jobs import (
    JobEnergy,
    JobNeed,
    LoneJob,
    PoolHistory,
    list_job_energy,
    list_job_needs,
    list_lone_jobs,
    list_pools,
)
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.waterfall import ASKED, FAILED, FleetWaterfall
from loadfactor.books.window_ledger import WindowLedger
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.metrics.query.calendar import Window, milliseconds
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.metrics.query.reading import Readings
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

OTHER_BASES: Final = ("contracted", "list")
"""Price bases for a model that has none in the basis of the books, in this order: none is lower than it would be."""


def list_prices(session: Session, basis: str, at_ms: int) -> dict[str, float]:
    """The lowest price per GPU-hour of each accelerator of the catalog, by its id: in a basis, else contracted, else listed.

    Rows of one GPU, and those in another currency than that of the books, are left out.
    """
    session.view_table("prices", "prices")
    rows = session.raw.execute(
        f"""SELECT basis, accelerator, min(price_per_gpu_hour) FROM prices
            WHERE accelerator IS NOT NULL AND device_id IS NULL AND price_per_gpu_hour IS NOT NULL
              AND coalesce(from_utc < {at_ms}, true) AND coalesce(to_utc >= {at_ms}, true)
              AND coalesce(currency, {quote(session.currency)}) = {quote(session.currency)}
            GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    bases = (basis, *OTHER_BASES)
    found: dict[str, tuple[int, float]] = {}
    for of, name, price in rows:
        known = find_accelerator(name)
        if known is not None and of in bases:
            rank = bases.index(of), price
            found[known.id] = min(rank, found.get(known.id, rank))
    return {name: price for name, (_, price) in found.items()}


@dataclass(frozen=True)
class Goodput:
    """What a job says of its failures and checkpoints; None where it does not say it.

    `losses`: times that it lost work, `lost_share`: how much of what it made, by FLOPs, else tokens, samples or steps;
    `restart_s`: from a loss until it worked again, on average, waits for GPUs included; `checkpoint_s`: mean length of a
    checkpoint; `every_s`: median time from one to the next.
    """

    job: str
    losses: int
    lost_share: float
    restart_s: float | None
    checkpoint_s: float | None
    every_s: float | None


MADE: Final = ["model_flop", "train_token", "train_sample", "step"]
"""Units by which lost work is compared with all of it, in this order."""


def list_goodput(session: Session, window: Span) -> list[Goodput]:
    """The jobs that lost work or report checkpoints; steps that loss scaling skipped are no loss of work."""
    for name in ("progress", "job_sections"):
        session.view_table(name, name)
    within = f"from_utc < {window[1]} AND to_utc > {window[0]}"
    rows = session.raw.execute(
        f"""WITH ends AS (SELECT DISTINCT job_id, from_utc, to_utc FROM progress
                          WHERE kept = false AND coalesce(cause, '') <> 'loss_scale' AND {within}),
                 again AS (SELECT ends.job_id, ends.from_utc, min(starts.from_utc - ends.to_utc) AS after_ms
                           FROM ends ASOF LEFT JOIN (SELECT DISTINCT job_id, from_utc FROM progress) AS starts
                             ON starts.job_id = ends.job_id AND starts.from_utc >= ends.to_utc GROUP BY ALL),
                 lost AS (SELECT job_id, count(*) AS losses, avg(after_ms) / {MS_PER_S} AS restart_s FROM again GROUP BY job_id),
                 amounts AS (SELECT job_id, list_position({MADE}, unit) AS place, sum(amount) FILTER (kept = false) AS gone,
                                    sum(amount) AS made
                             FROM progress WHERE list_contains({MADE}, unit) AND coalesce(cause, '') <> 'loss_scale' AND {within}
                             GROUP BY ALL),
                 shares AS (SELECT job_id, arg_min(gone / made, place) AS lost_share
                            FROM amounts WHERE gone > 0 GROUP BY job_id),
                 saved AS (SELECT job_id, to_utc - from_utc AS length_ms,
                                  from_utc - lag(from_utc) OVER (PARTITION BY job_id, attempt ORDER BY from_utc) AS gap_ms
                           FROM job_sections WHERE kind = 'checkpoint' AND {within}),
                 stalls AS (SELECT job_id, avg(length_ms) / {MS_PER_S} AS checkpoint_s, median(gap_ms) / {MS_PER_S} AS every_s
                            FROM saved GROUP BY job_id)
            SELECT job_id, coalesce(losses, 0), coalesce(lost_share, 0), restart_s, checkpoint_s, every_s
            FROM lost FULL JOIN stalls USING (job_id) LEFT JOIN shares USING (job_id) ORDER BY job_id"""
    ).fetchall()
    return [Goodput(*row) for row in rows]


WITHIN_MS: Final = MS_PER_DAY
"""Failures of one loop begin within so long of each other."""


@dataclass(frozen=True)
class FailedRun:
    """A run that failed; `number` counts it in its loop, from 1: failures of one user and job name without a success between."""

    job: str
    attempt: Any
    user: str | None
    name: str
    number: int
    end_state: str


def list_failed_runs(session: Session, window: Span) -> list[FailedRun]:
    """The failed runs that ended in a window, loop by loop in order; a loop may begin a day earlier.

    Runs are of one loop that are attempts of one job, or jobs of one user and job name.
    """
    session.view_table("allocations", "allocations")
    rows = session.raw.execute(
        f"""SELECT job_id, attempt, max("user") AS who, coalesce(max(json_extract_string(tags, '$.job_name')), job_id) AS name,
                   min(from_utc) AS since, max(to_utc) AS until, coalesce(lower(max(end_state)), '')
            FROM allocations WHERE to_utc IS NOT NULL AND from_utc < {window[1]} AND to_utc > {window[0] - WITHIN_MS}
            GROUP BY job_id, attempt ORDER BY since, job_id, attempt"""
    ).fetchall()
    out = []
    loops: dict[
        tuple[str | None, str], tuple[int, int]
    ] = {}  # when the last failure of a loop began, and how many there were
    for job, attempt, user, name, since, until, state in rows:
        key = (user, job if user is None else name)
        if state not in FAILED:
            loops.pop(key, None)
            continue
        before, count = loops.get(key, (since, 0))
        count = count + 1 if since - before <= WITHIN_MS else 1
        loops[key] = (since, count)
        if until > window[0]:
            out.append(FailedRun(job, attempt, user, name, count, state))
    return out


HOLDER: Final = ("job", "team", "user")
"""By what losses of holders are stated."""
OF_NODES: Final = tuple(m for m in ASKED if m.name in ("unallocated", "down", "unallocated_cost", "down_cost"))


@dataclass(frozen=True)
class NodeLoss:
    """GPU-hours of a node that nobody held, and what they cost as far as prices are known."""

    node: str | None
    unallocated_hours: float
    down_hours: float
    unallocated_cost: float
    down_cost: float


class JobGpu(NamedTuple):
    """Time of one GPU while a job held it, GPU-hours; `active` is its activity while it was busy."""

    job: str
    device: str
    idle: float
    busy: float
    unobserved: float
    active: float


OF_GPUS: Final = tuple(m for m in ASKED if m.name in JobGpu._fields)


class LossFacts:
    """Losses of one window. For one thread, inside one session."""

    def __init__(self, session: Session, idle_below: float, start: datetime | None, end: datetime | None) -> None:
        self._session, self._idle_below = session, idle_below
        self.snapshot = Snapshot(session, idle_below)
        first, last = (milliseconds(at) for at in self.snapshot.span)
        self._window = start, end
        self.window: Span = (
            first if start is None else max(first, milliseconds(start)),
            last if end is None else min(last, milliseconds(end)),
        )

    @property
    def hours(self) -> float:
        """How long the window is."""
        return (self.window[1] - self.window[0]) / MS_PER_HOUR

    @cached_property
    def waterfall(self) -> FleetWaterfall:
        """Where what was paid went, by job, team and user."""
        return self.snapshot.waterfall(HOLDER, *self._window)

    @cached_property
    def nodes(self) -> tuple[NodeLoss, ...]:
        """Unheld time by node."""
        found = self.snapshot.show(OF_NODES, ("node",), *self._window)
        columns = {metric.name: _read_column(found, metric.name) for metric in OF_NODES}
        named = ("unallocated", "down", "unallocated_cost", "down_cost")
        return tuple(NodeLoss(key[0], *(columns[name][row] for name in named)) for row, key in enumerate(found.keys))

    @cached_property
    def job_gpus(self) -> dict[str, list[JobGpu]]:
        """Time of each GPU of each job; jobs that are booked for no GPU in particular are not among them."""
        found = self.snapshot.show(OF_GPUS, ("job", "device"), *self._window)
        columns = (_read_column(found, name) for name in JobGpu._fields[2:])
        out: dict[str, list[JobGpu]] = {}
        for (job, device), *amounts in zip(found.keys, *columns, strict=True):
            if job is not None and job != UNKNOWN_HOLDER and device is not None:
                out.setdefault(job, []).append(JobGpu(job, device, *amounts))
        return out

    @cached_property
    def lone_jobs(self) -> list[LoneJob]:
        """Jobs that held one GPU, as far as it was seen what they used of it."""
        return list_lone_jobs(self.snapshot, *self._window)

    @cached_property
    def job_needs(self) -> list[JobNeed]:
        """Shares of time, memory and NVLink that jobs use on their GPUs, as far as they were measured."""
        return list_job_needs(self.snapshot, *self._window)

    @cached_property
    def job_energy(self) -> list[JobEnergy]:
        """Energy of the GPUs of jobs, and its cost where it is known."""
        return list_job_energy(self.snapshot, self._session.currency, *self._window)

    @cached_property
    def prices(self) -> dict[str, float]:
        """The lowest price of each accelerator at the end of the window, in the basis of the waterfall."""
        return list_prices(self._session, self.waterfall.basis, self.window[1])

    @cached_property
    def runs(self) -> list[HeldRun]:
        """The runs of jobs."""
        self._view_ledger()
        return list_runs(self._session)

    @cached_property
    def failed_runs(self) -> list[FailedRun]:
        """Runs that ended badly."""
        return list_failed_runs(self._session, self.window)

    @cached_property
    def goodput(self) -> list[Goodput]:
        """Failures and checkpoints of the jobs that say something of them."""
        return list_goodput(self._session, self.window)

    @cached_property
    def checkpoint_s(self) -> dict[str, float]:
        """How long a checkpoint of each job takes that reports some, s."""
        return {of.job: of.checkpoint_s for of in self.goodput if of.checkpoint_s is not None}

    @cached_property
    def held_gpus(self) -> list[tuple[float, float]]:
        """GPUs that jobs held, hour by hour, with the seconds of that hour that lie in the window."""
        self._view_ledger()
        held = dict(
            self._session.raw.execute(
                "SELECT hour_utc, sum(gpu_s) FROM window_ledger WHERE job_id IS NOT NULL GROUP BY hour_utc"
            ).fetchall()
        )
        first, last = self.window
        hours = range(first - first % MS_PER_HOUR, last, MS_PER_HOUR)
        seconds = [(min(hour + MS_PER_HOUR, last) - max(hour, first)) / MS_PER_S for hour in hours]
        return [(held.get(hour, 0.0) / within, within) for hour, within in zip(hours, seconds, strict=True)]

    @cached_property
    def purposes(self) -> dict[str, str]:
        """Purpose of each job, where it is known."""
        found = self.snapshot.show(OF_GPUS[:1], ("job", "purpose"), *self._window)
        return {job: purpose for job, purpose in found.keys if job and purpose}

    @cached_property
    def free(self) -> list[FreeInterval]:
        """Nodes that stood free while nobody waited."""
        waits = list_waits(self._session)
        self._view_ledger()
        return find_free(self._session, waits, self.window)

    @cached_property
    def pools(self) -> list[PoolHistory]:
        """Pools with their nodes and jobs."""
        return list_pools(self._session, self.window)

    def find_idle(self, runs: Sequence[HeldRun], without: Sequence[tuple[str, str]]) -> list[IdleInterval]:
        """Intervals in which all GPUs of these runs were idle, but for some GPUs of some jobs."""
        self._view_ledger()
        return find_idle(self._session, self._idle_below, self.window, runs, without)

    def _view_ledger(self) -> None:
        WindowLedger(self._session, self._idle_below).view(Window(*self.window), False)


def _read_column(found: Readings, name: str) -> list[float]:
    """The sums of a metric by group, 0 where there are none."""
    return [value if isinstance(value, float) else 0.0 for value in found.column(name)]


@contextmanager
def read_losses(books: Books, start: datetime | None = None, end: datetime | None = None) -> Iterator[LossFacts]:
    """Open the losses in [start, end) of the books, by default all they know. Raises InputError where they know nothing of it."""
    with books.store.read() as session:
        yield LossFacts(session, books.idle_below, start, end)
