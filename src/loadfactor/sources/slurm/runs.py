"""Rows with one job id: several runs of a job that was requeued, several sayings of one run, or another job with a used id.

Slurm gives a requeued job a new submit time and keeps its id; ids come again when the counter wraps or a controller lost its state.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.sources.slurm.job_table import OPEN_STATES, REQUEUED_STATES
from loadfactor.sources.slurm.notes import Notes
from loadfactor.tables.schema import ALWAYS

MISSING_RUNS: Final = "jobs whose runs before a requeue are missing: export with --duplicates (-D)"
_LATER: Final = ALWAYS[1]
_PLACES: Final = ("placed", "indices")
"""What one command says of a run, and another one, which knows its end, does not."""
_ASKED: Final = (
    "job_id",
    "cluster",
    "user",
    "account",
    "job_name",
    "state",
    "submitted",
    "started",
    "ended",
    "restarts",
    *_PLACES,
)
Row = dict[str, Any]


def find_repeated(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys that come more than once, in order."""
    ordered = np.sort(keys)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def number_single_runs(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Jobs whose id comes once, with the column `attempt`: how often it was requeued, null where nobody says it."""
    restarts = jobs["restarts"].fill_null(0).to_numpy()
    if (missing := int((restarts > 0).sum())) > 0:
        notes.add(label, MISSING_RUNS, missing, jobs["line"][int((restarts > 0).argmax())].as_py())
    return jobs.append_column("attempt", jobs["restarts"].cast(pa.float64()))


def number_runs(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Rows of ids that come more than once as the runs they are, with the column `attempt`; each run once.

    Of two rows of one run the one that knows its end counts. A run is an attempt of the same job where the one before it ended in a
    requeue, or was of the same user, account and name and ended within a day before; else it is another job with the same id, which
    is called `id@` and when it was submitted (or its cluster, where that differs).
    """
    rows: list[Row] = jobs.select(_ASKED).to_pylist()
    for number, row in enumerate(rows):
        row["row"] = number
    for of_job in _group_by_id(rows):
        named = {row["cluster"] for row in of_job} - {None}
        for row in of_job:  # not every command says the cluster
            row["cluster"] = row["cluster"] if len(named) > 1 else None
    rows.sort(key=lambda r: (r["job_id"], r["cluster"] or "", *_when(r), r["row"]))
    kept: list[Row] = []
    for job_id, group in groupby(rows, key=lambda r: str(r["job_id"])):
        for number, runs in enumerate(_split_jobs(_drop_sayings(list(group)))):
            _count_attempts(runs)
            name = job_id
            if number:
                cluster = runs[0]["cluster"] if runs[0]["cluster"] != kept[-1]["cluster"] else None
                name = f"{job_id}@{cluster or _say(runs[0]) or number + 1}"
            if runs[-1]["attempt"] >= len({r["attempt"] for r in runs}):
                notes.add(label, MISSING_RUNS, 1, jobs["line"][runs[-1]["row"]].as_py())
            for run in runs:
                run["job_id"] = name
            kept += runs
    out = jobs.take(pa.array([run["row"] for run in kept], pa.int64()))
    out = out.set_column(out.column_names.index("job_id"), "job_id", pa.array([r["job_id"] for r in kept], pa.string()))
    for name in _PLACES:
        out = out.set_column(out.column_names.index(name), name, pa.array([run[name] for run in kept], pa.string()))
    return out.append_column("attempt", pa.array([float(run["attempt"]) for run in kept], pa.float64()))


def _group_by_id(rows: list[Row]) -> Iterator[list[Row]]:
    by_id: dict[str, list[Row]] = {}
    for row in rows:
        by_id.setdefault(row["job_id"], []).append(row)
    yield from by_id.values()


def _when(row: Row) -> tuple[int, int, int]:
    """When a run was submitted, began and ended; never is later than any time."""
    begun = row["started"] if row["started"] is not None else _LATER
    submitted = row["submitted"] if row["submitted"] is not None else begun
    return submitted, begun, row["ended"] if row["ended"] is not None else _LATER


def _drop_sayings(rows: list[Row]) -> list[Row]:
    """Each run once; one that is told of before it started counts only where nobody tells more."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row["cluster"], row["submitted"], row["started"])
        known = best.get(key)
        if known is None or known["state"] in OPEN_STATES or known["ended"] is None:
            best[key] = row
        if known is not None:
            best[key] |= {name: row[name] or known[name] for name in _PLACES}
    begun = {(r["cluster"], r["submitted"]) for r in best.values() if r["started"] is not None}
    return [r for r in best.values() if r["started"] is not None or (r["cluster"], r["submitted"]) not in begun]


def _split_jobs(runs: list[Row]) -> Iterator[list[Row]]:
    """Runs of one id by the job they are of."""
    job: list[Row] = []
    for run in runs:
        if job and not _follows(job[-1], run):
            yield job
            job = []
        job.append(run)
    if job:
        yield job


def _follows(before: Row, run: Row) -> bool:
    """Whether a run is of the same job as the one before it."""
    if before["cluster"] != run["cluster"]:
        return False
    if before["submitted"] is not None and before["submitted"] == run["submitted"]:
        return True
    if before["restarts"] is not None and run["restarts"] is not None:
        return bool(run["restarts"] > before["restarts"])
    if before["state"] in REQUEUED_STATES:
        return True
    alike = all(before[name] == run[name] for name in ("user", "account", "job_name"))
    ended = before["ended"] if before["ended"] is not None else before["started"] or before["submitted"]
    return alike and ended is not None and _when(run)[0] - ended <= MS_PER_DAY


def _count_attempts(runs: list[Row]) -> None:
    """Put the number of each run of a job into it: what Slurm counted, else their order; a resized job goes on in the same one."""
    for number, run in enumerate(runs):
        before = runs[number - 1] if number else None
        if run["restarts"] is not None:
            run["attempt"] = run["restarts"]
        elif before is None:
            run["attempt"] = 0
        else:
            goes_on = before["submitted"] is not None and before["submitted"] == run["submitted"]
            run["attempt"] = before["attempt"] + (not goes_on)


def _say(run: Row) -> str | None:
    """When a job was submitted, or else started, as its id says it; None where neither is known."""
    if _when(run)[0] == _LATER:
        return None
    return f"{datetime.fromtimestamp(_when(run)[0] / MS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
