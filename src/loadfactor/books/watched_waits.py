"""Waits for GPUs, minute by minute, and how long jobs wait usually: kept from call to call, so that a minute costs a minute.

A wait is what `ledger/waits.py` says it is. Read anew are the jobs of which something was reported since the full hour before.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.sources.slurm.job_rows import LATER
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, Span

HISTORY_MS: Final = 14 * MS_PER_DAY
"""Usual waits follow from so many days; what was reported of a job before them is not looked at."""
RECENT_MS: Final = 6 * MS_PER_HOUR
"""Waits are kept for so long after they ended."""
NOT_YET: Final = (*LATER, "DependencyNeverSatisfied", "SchedulingGated")
"""Reasons of jobs that may not start whatever is free."""
USUAL_SHARE: Final = 0.9
_COLUMNS: Final = ("job_id", "pool", "queue", "gpus", "queued_utc", "ended_utc", "started")


@dataclass(frozen=True)
class QueuedJobs:
    """Waits, one a row: `ended_ms` lies behind all time while one lasts; `gpus` is NaN where it is not known.

    `held`: intervals in which a job could not have started: number of the row, from, to.
    """

    jobs: list[str] = field(default_factory=list)
    pools: list[str | None] = field(default_factory=list)
    queues: list[str | None] = field(default_factory=list)
    gpus: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    queued_ms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ended_ms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    started: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    held: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))

    def find_waiting(self, at_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them wait at some instants and could start: instants × waits."""
        at_ms = at_ms[:, np.newaxis]
        waits = (self.queued_ms <= at_ms) & (self.ended_ms > at_ms)
        for number, first, after in self.held.tolist():
            waits[:, number] &= ~((first <= at_ms) & (after > at_ms))[:, 0]
        return waits


@dataclass(frozen=True)
class UsualWait:
    """How long the jobs of a queue waited that started in the days before: how many, and what nine of ten did not exceed."""

    jobs: int
    p90_s: float


class WatchedWaits:
    """The waits as far as they were read."""

    def __init__(self) -> None:
        self._hour: int | None = None
        self._kept = QueuedJobs()
        self._usual: dict[int, dict[str, UsualWait]] = {}

    def read(self, session: Session, span: Span) -> QueuedJobs:
        """The waits that lasted in a span, and those that ended up to `RECENT_MS` before it."""
        hour = span[0] - span[0] % MS_PER_HOUR
        if self._hour is None or not 0 <= hour - self._hour <= MS_PER_DAY:
            self._kept = QueuedJobs()
            self._hour = self._go_on(session, (hour - HISTORY_MS, hour - RECENT_MS))
        if hour > self._hour:
            self._hour = self._go_on(session, (self._hour, hour))
        found = self._add(session, (hour, span[1]))
        if hour == span[0] and span[1] % MS_PER_HOUR == 0:  # of whole hours the next call goes on
            self._hour = self._keep(found, span[1])
        return found

    def read_usual(self, session: Session, day_ms: int) -> dict[str, UsualWait]:
        """How long jobs usually wait, by queue, else pool, as it follows from the days before the UTC day that begins then."""
        if day_ms not in self._usual:
            rows = []
            if _view_jobs(session, (day_ms - HISTORY_MS, day_ms)):
                rows = session.raw.execute(
                    f"SELECT coalesce(queue, pool, '') AS q, count(*), quantile_cont(wait_s, {USUAL_SHARE}) FROM waiting"
                    f" WHERE started AND ended_utc < {day_ms} AND ended_utc >= {day_ms - HISTORY_MS} GROUP BY q"
                ).fetchall()
                _restore(session)
            self._usual = {day: of for day, of in self._usual.items() if day >= day_ms - MS_PER_DAY}
            self._usual[day_ms] = {queue: UsualWait(jobs, p90_s) for queue, jobs, p90_s in rows}
        return self._usual[day_ms]

    def _go_on(self, session: Session, span: Span) -> int:
        """Keep the waits that last at the end of a span, or ended not long before it; its end."""
        return self._keep(self._add(session, span), span[1])

    def _keep(self, found: QueuedJobs, at_ms: int) -> int:
        self._kept = _choose(found, found.ended_ms >= at_ms - RECENT_MS)
        return at_ms

    def _add(self, session: Session, span: Span) -> QueuedJobs:
        """The waits that were kept, and those in a span of the jobs of which something is reported in it."""
        found, reported = _read(session, span)
        is_ended = self._kept.ended_ms < span[0]
        is_silent = np.array([job not in reported for job in self._kept.jobs], dtype=np.bool_)
        return _join(_choose(self._kept, is_ended | is_silent), found)


def _read(session: Session, span: Span) -> tuple[QueuedJobs, set[str]]:
    if not _view_jobs(session, span):
        return QueuedJobs(), set()
    lasting = f"coalesce(ended_utc >= {span[0]}, true)"
    session.materialize("waits", f"SELECT * FROM waiting WHERE {lasting} ORDER BY queued_utc, job_id")
    rows = session.fetch(f"SELECT {', '.join(_COLUMNS)} FROM waits")
    reported = {job for (job,) in session.raw.execute("SELECT job_id FROM active_jobs").fetchall()}
    found = QueuedJobs(
        jobs=rows["job_id"].to_pylist(),
        pools=rows["pool"].to_pylist(),
        queues=rows["queue"].to_pylist(),
        gpus=rows["gpus"].to_numpy().astype(np.float64),
        queued_ms=rows["queued_utc"].to_numpy().astype(np.int64),
        ended_ms=rows["ended_utc"].fill_null(ALWAYS[1]).to_numpy().astype(np.int64),
        started=rows["started"].to_numpy(zero_copy_only=False).astype(np.bool_),
        held=_read_held(session),
    )
    _restore(session)
    return found, reported


def _read_held(session: Session) -> NDArray[np.int64]:
    """When the waits in `waits` had a reason with which none starts."""
    named = ", ".join(quote(reason) for reason in NOT_YET)
    if not session.fetch_one(f"SELECT 1 FROM queue_events WHERE split_part(reason, ':', 1) IN ({named}) LIMIT 1"):
        return np.zeros((0, 3), dtype=np.int64)
    session.create_view("wait_reasons", recall("waits", lambda: expressions().write_waits())["wait_reasons"])
    rows = session.raw.execute(
        "WITH numbered AS (SELECT row_number() OVER (ORDER BY rowid) - 1 AS number, job_id, episode FROM waits)"
        f" SELECT number, from_utc, coalesce(to_utc, {ALWAYS[1]}) FROM wait_reasons JOIN numbered USING (job_id, episode)"
        f" WHERE reported IN ({named})"
    ).fetchall()
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _view_jobs(session: Session, span: Span) -> bool:
    """Name `waiting` the waits, as they are known at the end of a span, of the jobs with events in it, if any."""
    start, end = span
    session.view_table("all_allocations", "allocations")
    session.view_table("all_events", "queue_events")
    reported = (
        f"SELECT job_id FROM all_events WHERE at_utc >= {start} AND at_utc < {end}"
        f" UNION SELECT job_id FROM all_allocations WHERE from_utc >= {start} AND from_utc < {end}"
    )
    if not session.materialize("active_jobs", reported):
        return False
    for name, source, at in (("allocations", "all_allocations", "from_utc"), ("queue_events", "all_events", "at_utc")):
        within = f"{at} < {end} AND job_id IN (SELECT job_id FROM active_jobs)"
        session.materialize(f"chosen_{name}", f"SELECT * FROM {source} WHERE {within}")  # read several times
        session.create_view(name, f"SELECT * FROM chosen_{name}")
    session.create_view("waiting", recall("waits", lambda: expressions().write_waits())["waits"])
    return True


def _restore(session: Session) -> None:
    for name in ("allocations", "queue_events"):
        session.view_table(name, name)


def _join(first: QueuedJobs, second: QueuedJobs) -> QueuedJobs:
    return QueuedJobs(
        [*first.jobs, *second.jobs],
        [*first.pools, *second.pools],
        [*first.queues, *second.queues],
        np.concatenate([first.gpus, second.gpus]),
        np.concatenate([first.queued_ms, second.queued_ms]),
        np.concatenate([first.ended_ms, second.ended_ms]),
        np.concatenate([first.started, second.started]),
        np.concatenate([first.held, second.held + np.array([len(first.jobs), 0, 0])]),
    )


def _choose(of: QueuedJobs, chosen: NDArray[np.bool_]) -> QueuedJobs:
    places = np.flatnonzero(chosen).tolist()
    number, first, after = of.held[chosen[of.held[:, 0]]].T
    return QueuedJobs(
        [of.jobs[place] for place in places],
        [of.pools[place] for place in places],
        [of.queues[place] for place in places],
        of.gpus[chosen],
        of.queued_ms[chosen],
        of.ended_ms[chosen],
        of.started[chosen],
        np.stack([np.cumsum(chosen)[number] - 1, first, after], axis=1),
    )
