"""The history of jobs in the books, a row a job as it was submitted and held: what a plan of the cluster's size starts from."""

from dataclasses import dataclass
from typing import Any

import ibis

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.ledger.labels import drop_repeats

Expr = Any


@dataclass(frozen=True)
class JobHistory:
    """Jobs that ended, in order of submission. Arrays of the same length; `team` is empty where it is not known.

    `installed_gpus` is how many the books list at their end, None where they list none.
    """

    submit_s: Any
    gpus: Any
    duration_s: Any
    team: Any
    installed_gpus: int | None
    still_held: int
    not_waited: int


def list_jobs(allocations: Expr) -> Expr:
    """One row for each time a job held GPUs: submitted_ms (else eligible, else the start), from_ms, to_ms, gpus, team, asked.

    Besides job_id, and where that was as far as rows say: pool, node and device_id, the first of several.

    Rows of one start (a gang named GPU by GPU) are one job; a requeued job that starts again is another.
    """
    gpus = ibis.coalesce(allocations.gpus, 1.0) * ibis.coalesce(allocations.share, 1.0)
    asked = ibis.coalesce(allocations.submitted_utc, allocations.eligible_utc)
    rows = allocations.mutate(held_gpus=gpus, asked_utc=asked)
    jobs = rows.group_by("job_id", "attempt", "from_utc").aggregate(
        gpus=rows.held_gpus.sum(),
        to_ms=rows.to_utc.max(),
        asked_utc=rows.asked_utc.min(),
        team=rows.team.max(),
        pool=rows.pool.min(),
        node=rows.node.min(),
        device_id=rows.device_id.min(),
    )
    return jobs.select(
        submitted_ms=ibis.least(ibis.coalesce(jobs.asked_utc, jobs.from_utc), jobs.from_utc),
        from_ms=jobs.from_utc,
        to_ms=jobs.to_ms,
        gpus=jobs.gpus,
        team=ibis.coalesce(jobs.team, ""),
        asked=jobs.asked_utc.notnull(),
        job_id=jobs.job_id,
        pool=jobs.pool,
        node=jobs.node,
        device_id=jobs.device_id,
    )


def job_history(books: Books) -> JobHistory:
    """The jobs of the books that ended. Jobs still held are counted and left out; raises InputError where none ended."""
    frame = list_jobs(drop_repeats(books.table("allocations"))).to_pandas()
    ended = frame[frame.to_ms.notna() & (frame.to_ms > frame.from_ms)]
    ended = ended.sort_values(["submitted_ms", "from_ms", "to_ms", "gpus", "team"])
    if len(ended) < 2:
        raise InputError(
            f"the books in {books.store.folder} hold too few jobs that ended ({len(ended)}); "
            "import a scheduler's accounting, or give a CSV"
        )
    devices = books.table("devices")
    standing = devices.filter(devices.to_utc.isnull() | (devices.to_utc >= books.store.span()[1]))
    installed = int(standing.device_id.nunique().execute())
    return JobHistory(
        submit_s=ended.submitted_ms.to_numpy(float) / MS_PER_S,
        gpus=ended.gpus.to_numpy(float),
        duration_s=(ended.to_ms - ended.from_ms).to_numpy(float) / MS_PER_S,
        team=ended.team.to_numpy(str),
        installed_gpus=installed or None,
        still_held=int(frame.to_ms.isna().sum()),
        not_waited=int((~ended.asked).sum()),
    )
