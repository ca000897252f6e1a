"""How long jobs waited, by size, queue, team and reason, and how long one that waits now may have to.

A wait is what `ledger/waits.py` says it is. Asked are the waits that began in a window, each followed to its end: those that had
not ended then, and those that were cancelled, are censored. A wait that had begun before the window is only counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, S_PER_HOUR
from loadfactor.books.kept_waits import TOLD_BY
from loadfactor.ledger.columns import SIZES
from loadfactor.metrics.query.calendar import Window, instant
from loadfactor.metrics.query.question import Columns, Key
from loadfactor.metrics.query.reading import iso
from loadfactor.metrics.survival import CONFIDENCE, ROUNDING, Interval, estimate_rest, estimate_survival
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.quotas import OF_COHORT
from loadfactor.tables.schema import ALWAYS, IS_LISTED

BY: Final = {
    "size": "size",
    "queue": "queue",
    "reason": "reason",
    "team": "team",
    "user": "user",
    "project": "project",
    "experiment": "experiment_id",
    "purpose": "purpose",
    "pool": "pool",
}
"""Dimensions of waits, and their columns."""
ALIKE: Final = (("size", "queue", "team"), ("size", "queue"), ("size",), ())
"""Dimensions that like jobs share with the one that waits: the first of these of which enough are known."""
ENOUGH: Final = 10
"""So many jobs like it, that waited as long, must have started."""
QUANTILES: Final = (0.5, 0.9, 0.99)
MOST_WAITING: Final = 100


@dataclass(frozen=True)
class FlavorUse:
    """One flavor of a queue: its own GPUs, how many more it may borrow and of its own lend (None: without a limit), and
    those that jobs hold, of which `borrowed_gpus` are beyond its own."""

    flavor: str
    gpus: float
    borrowing_gpus: float | None
    lending_gpus: float | None
    held_gpus: float
    borrowed_gpus: float


@dataclass(frozen=True)
class QuotaUse:
    """One queue. `gpus`: its quota, all flavors together; `borrowing_gpus`: how many more it may borrow, None without a limit.

    `held_gpus` and `waiting_gpus` are those of jobs that the queue admitted or that wait for it. What jobs hold of a flavor that
    nobody says is in no `by_flavor`, unless the queue has one flavor alone.
    """

    queue: str
    cluster: str | None
    cohort: str | None
    flavors: dict[str, float]
    gpus: float
    borrowing_gpus: float | None
    held_gpus: float
    waiting_gpus: float
    waiting_jobs: int
    by_flavor: tuple[FlavorUse, ...] = ()


@dataclass(frozen=True)
class CohortUse:
    """One flavor of a cohort with all its queues, and those of cohorts under it: what they may hold together, hold, and of that
    beyond their own. GPUs that one queue borrows are another one's own: `gpus` has them once."""

    cohort: str
    cluster: str | None
    flavor: str
    gpus: float
    held_gpus: float
    borrowed_gpus: float


@dataclass(frozen=True)
class WaitGroup:
    """Waits of one group. Quantiles in seconds, of jobs and of the GPUs they requested; None where not reached."""

    by: dict[str, str | None]
    waits: int
    started: int
    waiting: int
    cancelled: int
    gpu_hours_waited: float
    wait_s_p50: Interval
    wait_s_p90: Interval
    wait_s_p99: Interval
    wait_s_p50_gpu_weighted: Interval
    wait_s_p90_gpu_weighted: Interval
    wait_s_p99_gpu_weighted: Interval


@dataclass(frozen=True)
class ReasonTime:
    """GPU-hours waited for a reason, by so many waits; None is time for which no reason was reported."""

    reason: str | None
    gpu_hours_waited: float
    waits: int | None


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits at the end of the window."""

    job: str
    gpus: float
    queue: str | None
    team: str | None
    reason: str | None
    waited_s: float


@dataclass(frozen=True)
class Waits:
    """The waits that began in a window. `waiting_since_before`: those that had begun before it and had not ended.

    `longest_waiting` are some of those that wait at its end, the longest first; `quotas` are those of all queues then,
    `cohorts` the same of the cohorts that queues are in.
    """

    window: dict[str, str]
    confidence: float
    all: WaitGroup
    rows: tuple[WaitGroup, ...]
    reasons: tuple[ReasonTime, ...]
    longest_waiting: tuple[WaitingJob, ...]
    waiting_since_before: int
    quotas: tuple[QuotaUse, ...] = ()
    cohorts: tuple[CohortUse, ...] = ()


@dataclass(frozen=True)
class WaitEstimate:
    """Estimate from jobs like one that waits: `n` of them waited longer than it has, `started` of these started.

    `alike` is what they have in common with it; `rest_s_…` how much longer they waited, None where not reached or unknown.
    """

    job: str
    gpus: float
    size: str
    queue: str | None
    team: str | None
    reason: str | None
    at: str
    waited_s: float
    alike: tuple[str, ...]
    n: int
    started: int
    confidence: float
    rest_s_p50: Interval
    rest_s_p90: Interval


def check_by(by: Sequence[str]) -> tuple[str, ...]:
    """Check the dimensions of waits. Raises InputError naming those that there are not."""
    for name in by:
        if name not in BY:
            raise no_such("dimension of waits", name, BY)
    return tuple(dict.fromkeys(by))


def find_waits(session: Session, window: Window, by: Sequence[str], where: Mapping[str, str]) -> Waits:
    """The waits of a window by group, in order of their names, and the reasons for them; `session` has `waits` and their reasons.

    Raises InputError for a dimension or filter that is none.
    """
    by = check_by(by)
    _view_waits(session, window, where)
    rows = [_measure(dict(zip(by, key, strict=True)), waits) for key, waits in _list_groups(session, by)]
    ((_, whole),) = _list_groups(session, ())
    end = window.end_ms
    (before,) = session.fetch_one(
        f"SELECT count(*) FROM waits WHERE queued_utc < {window.start_ms} AND {_filter(session, where)}"
        f" AND (ended_utc IS NULL OR ended_utc >= {window.start_ms})"
    )
    in_all = _measure({}, whole)
    return Waits(
        {"from": iso(instant(window.start_ms)), "to": iso(instant(end))},
        CONFIDENCE,
        in_all,
        tuple(sorted(rows, key=_rank)),
        tuple(_list_reasons(session, end, in_all.gpu_hours_waited)),
        tuple(_list_waiting(session)),
        before,
        *list_quotas(session, end),
    )


def estimate_wait(session: Session, window: Window, job: str) -> WaitEstimate:
    """How much longer a job will wait that waits at the end of a window, stated from the waits that began in it.

    Raises InputError where the books know no such job, or it does not wait.
    """
    _view_waits(session, window, {})
    columns = ("queued_utc", "ended_utc", "started", "coalesce(gpus, 1)", "size", "queue", "team", "reason")
    found = session.fetch_one(
        f"SELECT {', '.join(columns)} FROM waits WHERE job_id = {quote(job)} AND queued_utc < {window.end_ms}"
        " ORDER BY queued_utc DESC LIMIT 1"
    )
    if not found:
        raise InputError(f"the books know of no wait of a job {job!r}; `loadfactor waits` lists who waits")
    queued, ended, started, gpus, size, queue, team, reason = found
    if ended is not None and ended < window.end_ms:
        did = "started" if started else "was cancelled"
        raise InputError(f"job {job!r} does not wait: it {did} at {iso(instant(ended))}")
    waited_s = (window.end_ms - queued) / MS_PER_S
    own = {"size": size, "queue": queue, "team": team}
    for alike in ALIKE:
        same = [f"{BY[name]} IS NOT DISTINCT FROM {_write(own[name])}" for name in alike]
        ((_, waits),) = _list_groups(session, (), " AND ".join([f"job_id <> {quote(job)}", *same]))
        curve = estimate_rest(waits["waited_s"], waits["started"], waited_s)
        if curve.ended >= ENOUGH:
            break
    p50, p90 = (curve.quantile(q).less(waited_s) for q in (0.5, 0.9))
    at = iso(instant(window.end_ms))
    return WaitEstimate(
        job, gpus, size, queue, team, reason, at, waited_s, alike, curve.n, curve.ended, CONFIDENCE, p50, p90
    )


def _view_waits(session: Session, window: Window, where: Mapping[str, str]) -> None:
    end = window.end_ms
    session.create_view(
        "window_waits",
        f"""SELECT *, coalesce(gpus, 1) AS requested, coalesce(ended_utc < {end}, false) AS is_over,
              (least(coalesce(ended_utc, {end}), {end}) - queued_utc) / {MS_PER_S:f} AS waited_s
            FROM waits WHERE queued_utc >= {window.start_ms} AND queued_utc < {end} AND {_filter(session, where)}""",
    )


def _list_groups(session: Session, by: Sequence[str], where: str = "true") -> Iterator[tuple[Key, Columns]]:
    """The requested waits by group, as columns; one group, maybe of none, where nothing splits them."""
    keys = ", ".join(BY[name] for name in by)
    grouped, ordered = (f" {words} BY {keys}" if keys else "" for words in ("GROUP", "ORDER"))
    counts = session.raw.execute(
        f"SELECT {keys or 'NULL'}, count(*) FROM window_waits WHERE {where}{grouped}{ordered}"
    ).fetchall()
    columns = session.fetch_columns(
        "SELECT waited_s, started AND is_over AS started, NOT started AND is_over AS cancelled, requested"
        f" FROM window_waits WHERE {where}{ordered}"
    )
    ends = np.cumsum([count for *_, count in counts])[:-1]
    parts = {name: np.split(column, ends) for name, column in columns.items()}
    for number, (*key, _) in enumerate(counts):
        yield tuple(key[: len(by)]), {name: of[number] for name, of in parts.items()}


def _measure(by: dict[str, str | None], waits: Columns) -> WaitGroup:
    """Sums of a group's waits, and the estimate of how long they last."""
    waited_s, started, requested = (waits[name] for name in ("waited_s", "started", "requested"))
    curves = (estimate_survival(waited_s, started), estimate_survival(waited_s, started, requested))
    cancelled = int(np.count_nonzero(waits["cancelled"]))
    hours = float(np.sum(np.sort(waited_s * requested))) / S_PER_HOUR
    return WaitGroup(
        by,
        len(waited_s),
        curves[0].ended,
        len(waited_s) - curves[0].ended - cancelled,
        cancelled,
        hours,
        *(curve.quantile(q) for curve in curves for q in QUANTILES),
    )


def _rank(group: WaitGroup) -> list[tuple[bool, Any]]:
    """Groups in order of their names, sizes in order of GPUs; what is not known last."""
    sizes = list(SIZES)
    return [
        (value is None, sizes.index(value) if name == "size" and value else value) for name, value in group.by.items()
    ]


def _list_reasons(session: Session, end: int, gpu_hours: float) -> Iterator[ReasonTime]:
    """GPU-hours waited by reason, the most first, and the rest, for which none was reported."""
    rows = session.raw.execute(
        f"""SELECT reported, sum(requested * (least(coalesce(to_utc, {end}), {end}) - from_utc)) / {MS_PER_HOUR} AS hours,
              count(DISTINCT (job_id, episode))
            FROM wait_reasons JOIN window_waits USING (job_id, episode) WHERE from_utc < {end}
            GROUP BY reported ORDER BY hours DESC, reported"""
    ).fetchall()
    yield from (ReasonTime(*row) for row in rows)
    rest = gpu_hours - sum(hours for _, hours, _ in rows)
    if rest > ROUNDING * max(1.0, gpu_hours):
        yield ReasonTime(None, rest, None)


def _filter(session: Session, where: Mapping[str, str]) -> str:
    """SQL: a wait passes the filters. Raises InputError for one that no wait passes."""
    tests = ["true"]
    for name, value in where.items():
        (column,) = (BY[known] for known in check_by([name]))
        known = [v for (v,) in session.raw.execute(f"SELECT DISTINCT {column} FROM waits").fetchall() if v is not None]
        if value not in known:
            raise no_such(name, value, sorted(known), f"`loadfactor waits --by {name}` lists them")
        tests.append(f"{column} = {quote(value)}")
    return " AND ".join(tests)


def _list_waiting(session: Session) -> Iterator[WaitingJob]:
    rows = session.raw.execute(
        "SELECT job_id, requested, queue, team, reason, waited_s FROM window_waits WHERE NOT is_over"
        f" ORDER BY waited_s DESC, job_id LIMIT {MOST_WAITING}"
    ).fetchall()
    yield from (WaitingJob(*row) for row in rows)


def _write(text: str | None) -> str:
    return "NULL" if text is None else quote(text)


def list_quotas(session: Session, at_ms: int) -> tuple[tuple[QuotaUse, ...], tuple[CohortUse, ...]]:
    """The quotas that hold just before an instant, by queue and by cohort; `session` has `waits`.

    The queue of a job is the cluster queue in its tags. What ended in that very instant still counts, as for waits.
    """
    for name in ("quotas", *TOLD_BY):
        session.view_table(name, name)
    there = f"from_utc < {at_ms} AND coalesce(to_utc, {ALWAYS[1]}) >= {at_ms}"
    place = "json_extract_string(tags, '$.cluster_queue') AS queue, coalesce(json_extract_string(tags, '$.cluster'), '') AS cluster"
    quotas = session.raw.execute(
        f"""
        SELECT queue, coalesce(cluster, ''), max(cohort) AS cohort, coalesce(flavor, '') AS flavor, sum(gpus),
          CASE WHEN count(borrowing_gpus) = count(*) THEN sum(borrowing_gpus) END,
          CASE WHEN count(lending_gpus) = count(*) THEN sum(lending_gpus) END
        FROM quotas WHERE {there} GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    if not quotas:
        return (), ()
    held = session.raw.execute(
        f"""
        SELECT {place}, coalesce(json_extract_string(tags, '$.flavor'), '') AS flavor, sum(coalesce(gpus, 1) * coalesce(share, 1))
        FROM allocations WHERE {there} AND {IS_LISTED} GROUP BY ALL"""
    ).fetchall()
    waiting = session.raw.execute(
        f"""
        WITH stated AS (SELECT job_id, arg_max(tags, at_utc) AS tags FROM queue_events WHERE at_utc < {at_ms} GROUP BY job_id)
        SELECT {place}, sum(coalesce(gpus, 1)), count(*) FROM waits JOIN stated USING (job_id)
        WHERE queued_utc < {at_ms} AND coalesce(ended_utc, {ALWAYS[1]}) >= {at_ms} GROUP BY ALL"""
    ).fetchall()
    rows: dict[tuple[str, str], list[tuple[str | None, FlavorUse]]] = {}
    holds = {(queue, cluster, flavor): gpus for queue, cluster, flavor, gpus in held}
    for queue, cluster, cohort, flavor, gpus, borrowing, lending in quotas:
        use = _use(flavor, gpus, borrowing, lending, holds.get((queue, cluster, flavor), 0.0))
        rows.setdefault((cluster, queue), []).append((cohort, use))
    waits = {(cluster, queue): (gpus, jobs) for queue, cluster, gpus, jobs in waiting}
    found = []
    for (cluster, queue), of in sorted(rows.items()):
        if not queue.startswith(OF_COHORT):
            total = sum(gpus for (name, place, _), gpus in holds.items() if (name, place) == (queue, cluster))
            found.append(_add_up(queue, cluster, of, total, *waits.get((cluster, queue), (0.0, 0))))
    return tuple(found), tuple(_list_cohorts(rows, found))


def _use(flavor: str, gpus: float, borrowing: float | None, lending: float | None, held: float) -> FlavorUse:
    return FlavorUse(flavor, gpus, borrowing, lending, held, max(0.0, held - gpus))


def _add_up(
    queue: str, cluster: str, of: list[tuple[str | None, FlavorUse]], held: float, waiting: float, jobs: int
) -> QuotaUse:
    flavors = [use for _, use in of]
    if len(flavors) == 1:
        only = flavors[0]
        flavors = [_use(only.flavor, only.gpus, only.borrowing_gpus, only.lending_gpus, held)]
    borrowing = [use.borrowing_gpus for use in flavors]
    return QuotaUse(
        queue,
        cluster or None,
        next((cohort for cohort, _ in of if cohort), None),
        {use.flavor: use.gpus for use in flavors},
        sum(use.gpus for use in flavors),
        None if None in borrowing else sum(gpus or 0.0 for gpus in borrowing),
        held,
        waiting,
        jobs,
        tuple(flavors),
    )


def _list_cohorts(
    rows: dict[tuple[str, str], list[tuple[str | None, FlavorUse]]], queues: Iterable[QuotaUse]
) -> Iterator[CohortUse]:
    """Quota and use of each cohort, a queue's GPUs in its cohort and in all above it."""
    above = {
        (cluster, name.removeprefix(OF_COHORT)): next((cohort for cohort, _ in of if cohort), None)
        for (cluster, name), of in rows.items()
        if name.startswith(OF_COHORT)
    }
    added: dict[tuple[str, str, str], list[float]] = {}

    def add(cluster: str, cohort: str | None, use: FlavorUse) -> None:
        seen = set()
        while cohort and cohort not in seen:
            seen.add(cohort)
            sums = added.setdefault((cluster, cohort, use.flavor), [0.0, 0.0, 0.0])
            for place, gpus in enumerate((use.gpus, use.held_gpus, use.borrowed_gpus)):
                sums[place] += gpus
            cohort = above.get((cluster, cohort))

    for queue in queues:
        for use in queue.by_flavor:
            add(queue.cluster or "", queue.cohort, use)
    for cluster, cohort in above:
        for _, use in rows[cluster, f"{OF_COHORT}{cohort}"]:
            if use.gpus:
                add(cluster, cohort, use)
    for (cluster, cohort, flavor), sums in sorted(added.items()):
        yield CohortUse(cohort, cluster or None, flavor, *sums)
