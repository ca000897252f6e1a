"""Runs of jobs that ended badly, one after another: what a limit of retries would have spared."""

from dataclasses import dataclass
from typing import Any, Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.waterfall import FAILED
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

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
