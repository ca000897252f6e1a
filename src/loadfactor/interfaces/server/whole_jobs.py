"""What the largest jobs of now did and cost since they began, told again after a while, in bounded time."""

from datetime import datetime, timedelta
from time import monotonic
from typing import Final, NamedTuple

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.server.exposition import MetricFamily, name_gauge
from loadfactor.interfaces.server.gauge_splits import OF_WHOLE_JOBS, ORDER
from loadfactor.metrics.query.calendar import instant, milliseconds

WHOLE: Final = "whole"
MOST_JOBS: Final = 50
FRESH_S: Final = 600.0
MOST_WORK_S: Final = 3.0
"""So long may be worked on them at once; the other jobs follow the next time."""


class _Told(NamedTuple):
    at: datetime
    values: dict[str, float]


class WholeJobs:
    """The totals of jobs, kept for a while. For one thread at a time."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def measure(self, snapshot: Snapshot, now: datetime, currency: str) -> list[MetricFamily]:
        """The gauges of the jobs that held most in the last hour, as far as they were worked out."""
        jobs = _find_largest(snapshot, now)
        self._told = {job: told for job, told in self._told.items() if job in jobs}
        due = [job for job in jobs if job not in self._told or (now - self._told[job].at).total_seconds() >= FRESH_S]
        due.sort(key=lambda job: job in self._told)  # what is not known at all comes first
        end = monotonic() + MOST_WORK_S
        begun = _find_starts(snapshot, due)
        for job in due:
            if monotonic() > end:
                break
            if job in begun:
                found = snapshot.show(list(OF_WHOLE_JOBS), (), begun[job], now, where={"job": job})
                self._told[job] = _Told(now, {r.metric: r.value for r in found if isinstance(r.value, float)})
        return [
            MetricFamily(
                name_gauge(metric, currency, ("job",), WHOLE),
                f"{metric.meaning} Since the job began.",
                "gauge",
                [({"job_id": job}, t.values[metric.name]) for job, t in self._told.items() if metric.name in t.values],
            )
            for metric in OF_WHOLE_JOBS
        ]


def _find_largest(snapshot: Snapshot, now: datetime) -> list[str]:
    """The jobs that held most GPU-hours in the last hour, the largest first."""
    try:
        found = snapshot.show(ORDER, "job", now - timedelta(seconds=S_PER_HOUR), now)
    except InputError:  # the books know nothing of that hour
        return []
    largest = found.arrange(ORDER, descending=True, limit=MOST_JOBS + 1)
    return [job for (job,) in largest.keys if job is not None][:MOST_JOBS]


def _find_starts(snapshot: Snapshot, jobs: list[str]) -> dict[str, datetime]:
    """The hours, no earlier than the books begin, in which these jobs held a GPU first: a window from there cuts no hour."""
    if not jobs:
        return {}
    rows = snapshot.view("allocations")
    rows = rows.filter(rows.job_id.isin(jobs)).group_by("job_id").aggregate(first=rows.from_utc.min())
    first = milliseconds(snapshot.span[0])
    found = snapshot.fetch(rows).to_pylist()
    return {row["job_id"]: instant(max(first, row["first"]) // MS_PER_HOUR * MS_PER_HOUR) for row in found}
