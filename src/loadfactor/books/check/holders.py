"""Holders of GPUs: more than there was to hold, unknown ones, and those that are inferred."""

from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.check.finding import ROUNDING, Examined, Finding
from loadfactor.tables.schema import EVEN_SPLIT, LABELS

UNATTRIBUTED_REMEDY: Final = "import allocations, use an exporter with job labels, or import the log with --job JOB"


def find_excess(books: Examined) -> Iterator[Finding]:
    """Allocations that ask for more than there was."""
    session = books.session
    start, end = session.span()
    for name in ("allocations", "devices"):
        session.view_table(name, name)
    asked = session.raw.execute(
        f"""WITH asking AS (
              SELECT *, greatest(from_utc, {start}) AS since, least(coalesce(to_utc, {end}), {end}) AS until
              FROM allocations WHERE from_utc < {end} AND known_from IS DISTINCT FROM '{LABELS}'
            ), again AS (  -- a run that overlapping logs name twice on one GPU asks once
              SELECT *, if(device_id IS NULL, NULL, max(until) OVER (
                PARTITION BY device_id, job_id, attempt ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
              )) AS before FROM asking
            )
            SELECT coalesce(sum(coalesce(gpus, 1) * coalesce(a.share, 1) * coalesce(d.share, 1)
              * greatest(0, until - greatest(since, coalesce(before, since)))), 0) / {MS_PER_HOUR}
            FROM again a LEFT JOIN (SELECT device_id, min(share) AS share FROM devices GROUP BY ALL) d USING (device_id)"""
    ).fetchone()
    excess = (asked or (0.0,))[0] - books.total("allocated_gpu_hours")
    if excess > ROUNDING * max(1.0, (asked or (0.0,))[0]):
        yield Finding(
            "missing",
            "allocations ask for more than was installed, because they overlap or name GPUs not installed then",
            "check the times of allocations and devices; overlapping holders share what there was",
            gpu_hours=excess,
        )


def find_unattributed(books: Examined) -> Iterator[Finding]:
    """Time with an unknown holder, and how to say who held it."""
    unattributed, paid = books.total("unattributed_gpu_hours"), books.total("paid_gpu_hours")
    if unattributed > ROUNDING * paid:
        yield Finding(
            "missing",
            "time with an unknown holder, because no allocation speaks of these GPUs or they work unallocated",
            UNATTRIBUTED_REMEDY,
            **books.amounts("unattributed_gpu_hours", "unattributed_cost"),
        )


def find_inferred_holders(books: Examined) -> Iterator[Finding]:
    """Holders that nobody listed as they are: read from labels of samples, or estimated."""
    session = books.session
    session.view_table("allocations", "allocations")
    listed = f"FROM allocations WHERE known_from IS DISTINCT FROM '{LABELS}'"
    labelled, split = session.fetch_one(
        f"""SELECT
              count(DISTINCT job_id) FILTER (known_from = '{LABELS}' AND job_id NOT IN (
                SELECT job_id {listed} UNION SELECT coalesce(job_number, job_id) {listed})),
              count(DISTINCT job_id) FILTER (known_from = '{EVEN_SPLIT}')
            FROM allocations"""
    )
    if labelled:
        yield Finding(
            "note",
            f"jobs that only labels of samples name: {labelled:,}; who held their GPUs is inferred",
            "import what a scheduler says, where there is one",
        )
    if split:
        yield Finding(
            "note",
            f"jobs of several nodes whose GPUs were split evenly over these: {split:,}; how many were on which node is an estimate",
            "collect labels of samples, or import what the scheduler says of single nodes",
        )
