"""Quotas of queues beside what is held under them and who waits for them, at the end of a window."""

from dataclasses import dataclass

from loadfactor.store.session import Session
from loadfactor.tables import ALWAYS, LABELS


@dataclass(frozen=True)
class QuotaUse:
    """One queue. `gpus`: its quota, all flavors together; `borrowing_gpus`: how many more it may borrow, None without a limit.

    `held_gpus` and `waiting_gpus` are those of jobs that the queue admitted or that wait for it.
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


def list_quotas(session: Session, at_ms: int) -> tuple[QuotaUse, ...]:
    """The quotas that hold just before an instant, by queue; `session` has `waits`, `allocations` and `queue_events`.

    The queue of a job is the cluster queue in its tags. What ended in that very instant still counts, as for waits.
    """
    session.view_table("quotas", "quotas")
    there = f"from_utc < {at_ms} AND coalesce(to_utc, {ALWAYS[1]}) >= {at_ms}"
    place = "json_extract_string(tags, '$.cluster_queue') AS queue, coalesce(json_extract_string(tags, '$.cluster'), '') AS cluster"
    rows = session.raw.execute(
        f"""
        WITH flavors AS (
          SELECT queue, coalesce(cluster, '') AS cluster, max(cohort) AS cohort, coalesce(flavor, '') AS flavor,
            sum(gpus) AS gpus, CASE WHEN count(borrowing_gpus) = count(*) THEN sum(borrowing_gpus) END AS borrowing
          FROM quotas WHERE {there} GROUP BY ALL),
        quota AS (
          SELECT queue, cluster, max(cohort) AS cohort, map(list(flavor ORDER BY flavor), list(gpus ORDER BY flavor)) AS flavors,
            sum(gpus) AS gpus, CASE WHEN count(borrowing) = count(*) THEN sum(borrowing) END AS borrowing
          FROM flavors GROUP BY queue, cluster),
        held AS (
          SELECT {place}, sum(coalesce(gpus, 1) * coalesce(share, 1)) AS gpus FROM allocations
          WHERE {there} AND known_from IS DISTINCT FROM '{LABELS}' GROUP BY ALL),
        told AS (SELECT job_id, arg_max(tags, at_utc) AS tags FROM queue_events WHERE at_utc < {at_ms} GROUP BY job_id),
        waiting AS (
          SELECT {place}, sum(coalesce(gpus, 1)) AS gpus, count(*) AS jobs FROM waits JOIN told USING (job_id)
          WHERE queued_utc < {at_ms} AND coalesce(ended_utc, {ALWAYS[1]}) >= {at_ms} GROUP BY ALL)
        SELECT q.queue, nullif(q.cluster, ''), q.cohort, q.flavors, q.gpus, q.borrowing,
          coalesce(h.gpus, 0), coalesce(w.gpus, 0), coalesce(w.jobs, 0)
        FROM quota q LEFT JOIN held h ON h.queue = q.queue AND h.cluster = q.cluster
          LEFT JOIN waiting w ON w.queue = q.queue AND w.cluster = q.cluster
        ORDER BY q.cluster, q.queue"""
    ).fetchall()
    return tuple(QuotaUse(*row) for row in rows)
