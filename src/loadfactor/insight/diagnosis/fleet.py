"""Diagnoses of a team or of the fleet: the jobs that lost most, one by one, and what was not looked at."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import add_up_causes, diagnose_job
from loadfactor.insight.diagnosis.finding import CauseFinding, FleetDiagnosis, JobDiagnosis
from loadfactor.insight.diagnosis.read import read_job
from loadfactor.insight.diagnosis.scheduling import find_scheduling
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import Span

MOST_JOBS: Final = 20
Progress = Callable[[str, float], None]


def diagnose_books(
    books: Books,
    job: str | None = None,
    team: str | None = None,
    window: tuple[datetime, datetime] | None = None,
    most_jobs: int = MOST_JOBS,
    progress: Progress = lambda _what, _share: None,
    leave_out: Collection[str] = (),
) -> FleetDiagnosis:
    """Why the GPUs of a job, of a team or of all were not fuller within [start, end), by default in all of the books.

    Jobs to `leave_out` are counted among those that were not looked at.

    Raises InputError for a job or a team that the books do not know.
    """
    start, end = window or books.span
    span = (milliseconds(start), milliseconds(end))
    with books.snapshot() as snapshot:
        where = {"job": job} if job else {"team": team} if team else {}
        found = snapshot.show(("idle_gpu_hours", "underused_gpu_hours"), "job", start, end, where=where)
        currency = books.store.currency_of(books.store.manifest)
        columns = [found.column(name) for name in ("idle_gpu_hours", "underused_gpu_hours")]
    hours = {
        key[0]: sum(float(value) for value in values if isinstance(value, int | float))
        for key, values in zip(found.keys, zip(*columns, strict=True), strict=True)
        if key[0] is not None
    }
    ranked = [job] if job else [name for name in sorted(hours, key=lambda name: -hours[name]) if hours[name] > 0]
    ranked = [name for name in ranked if name != "unknown holder"]
    looked_at = [name for name in ranked if name not in leave_out][:most_jobs]
    diagnosed = diagnose_jobs(books, looked_at, span, progress)
    scheduling: tuple[CauseFinding, ...] = ()
    if not where:
        with books.snapshot() as snapshot, books.watch() as watched:
            scheduling = find_scheduling(watched, snapshot, span)
    rest = [name for name in ranked if name not in looked_at]
    return FleetDiagnosis(
        f"job {job}" if job else f"team {team}" if team else "the fleet",
        diagnosed,
        add_up_causes(diagnosed),
        scheduling,
        len(rest),
        sum(hours[name] for name in rest),
        currency,
    )


def diagnose_jobs(
    books: Books, jobs: Sequence[str], span: Span, progress: Progress = lambda _what, _share: None
) -> tuple[JobDiagnosis, ...]:
    """Why the GPUs of these jobs were not fuller within a span. Raises InputError for one that held none then."""
    diagnosed = []
    with books.watch() as watched:
        for number, job in enumerate(jobs):
            diagnosed.append(diagnose_job(read_job(watched, job, span)))
            progress("diagnosing", (number + 1) / len(jobs))
    return tuple(diagnosed)
