"""Quotas of queues beside what is held under them and who waits for them, at the end of a window, by flavor and by cohort."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loadfactor.store.session import Session
from loadfactor.tables.quotas import OF_COHORT
from loadfactor.tables.schema import ALWAYS, LABELS


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


def list_quotas(session: Session, at_ms: int) -> tuple[tuple[QuotaUse, ...], tuple[CohortUse, ...]]:
    """The quotas that hold just before an instant, by queue and by cohort; `session` has `waits`, `allocations` and `queue_events`.

    The queue of a job is the cluster queue in its tags. What ended in that very instant still counts, as for waits.
    """
    session.view_table("quotas", "quotas")
    there = f"from_utc < {at_ms} AND coalesce(to_utc, {ALWAYS[1]}) >= {at_ms}"
    place = "json_extract_string(tags, '$.cluster_queue') AS queue, coalesce(json_extract_string(tags, '$.cluster'), '') AS cluster"
    quotas = session.raw.execute(
        f"""
        SELECT queue, coalesce(cluster, ''), max(cohort) AS cohort, coalesce(flavor, '') AS flavor, sum(gpus),
          CASE WHEN count(borrowing_gpus) = count(*) THEN sum(borrowing_gpus) END,
          CASE WHEN count(lending_gpus) = count(*) THEN sum(lending_gpus) END
        FROM quotas WHERE {there} GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    held = session.raw.execute(
        f"""
        SELECT {place}, coalesce(json_extract_string(tags, '$.flavor'), '') AS flavor, sum(coalesce(gpus, 1) * coalesce(share, 1))
        FROM allocations WHERE {there} AND known_from IS DISTINCT FROM '{LABELS}' GROUP BY ALL"""
    ).fetchall()
    waiting = session.raw.execute(
        f"""
        WITH told AS (SELECT job_id, arg_max(tags, at_utc) AS tags FROM queue_events WHERE at_utc < {at_ms} GROUP BY job_id)
        SELECT {place}, sum(coalesce(gpus, 1)), count(*) FROM waits JOIN told USING (job_id)
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
    """All flavors of a queue."""
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
    """What the queues of each cohort have and hold, a queue's GPUs in its cohort and in all above it."""
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
