"""Jobs → rows of the books: what held GPUs as `allocations`, what waits or never started as `queue_events`.

A job that was started waited as its allocation's times say; it has queue events only where they say more: why it waited. A
suspended job holds its GPUs, because Slurm keeps them allocated while its processes stand still.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.units import H_PER_YEAR, MS_PER_HOUR
from loadfactor.sources.base import Rows
from loadfactor.sources.slurm.job_gpus import JobGpus, ShardSizes, measure_gpus, note_unsized
from loadfactor.sources.slurm.job_summaries import read_summaries
from loadfactor.sources.slurm.job_table import OPEN_STATES
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.placing import place_jobs
from loadfactor.sources.slurm.tags import write_tags
from loadfactor.sources.slurm.waiting import list_events

ROWS_AT_ONCE: Final = 50_000
LONGEST_RUN_MS: Final = 10 * H_PER_YEAR * MS_PER_HOUR
NO_GPUS_AT_ALL: Final = "jobs without GPUs: not booked"
NO_END: Final = "jobs that ended, and nobody says when: not booked"
BACKWARDS: Final = "jobs that end before they start, or after ten years: not booked"
LATE_SUBMIT: Final = "jobs that were submitted after they started: their wait is unknown"
GIVEN_NONE: Final = "jobs that asked for GPUs and were given none: not booked"
ASKED_ONLY: Final = "jobs of which nobody says what they were given: what they asked for is booked"


@dataclass(frozen=True)
class JobSurroundings:
    """What an import knows besides a job's own row: shards of a GPU, the pool where no node is known, when a snapshot was taken."""

    sizes: ShardSizes = field(default_factory=ShardSizes)
    pool: str | None = None
    at_ms: int | None = None


def book_jobs(jobs: pa.Table, around: JobSurroundings, notes: Notes, label: str) -> Iterator[Rows]:
    """The rows of jobs (JOBS and `attempt`). SourceError names the line of resources or nodes that are none."""
    if not jobs.num_rows:
        return
    gpus = measure_gpus(jobs, around.sizes, label)
    note_unsized(notes, label, gpus, jobs["line"])
    notes.add(label, NO_GPUS_AT_ALL, int(((gpus.held == 0) & (gpus.asked == 0)).sum()))
    jobs = _set_right(jobs, notes, label)
    begun = jobs["started"].is_valid().to_numpy()
    has_grant = jobs["held"].is_valid().to_numpy()
    ran = begun & (has_grant | ~_is_state(jobs, ("cancelled",)))
    assumed = ran & ~has_grant & (gpus.asked > 0)
    _note(notes, label, ASKED_ONLY, assumed, jobs)
    held = np.where(assumed, gpus.asked, gpus.held)
    _note(notes, label, GIVEN_NONE, ran & (held == 0) & (gpus.asked > 0), jobs)
    open_end = jobs["ended"].is_null().to_numpy()
    nobody_knows = ran & (held > 0) & open_end & ~(_is_state(jobs, OPEN_STATES) | jobs["state"].is_null().to_numpy())
    _note(notes, label, NO_END, nobody_knows, jobs)
    length = _subtract(jobs, "ended", "started")
    backwards = ran & (held > 0) & ((length < 0) | (length > LONGEST_RUN_MS))
    _note(notes, label, BACKWARDS, backwards, jobs)
    booked = ran & (held > 0) & ~nobody_knows & ~backwards  # NaN, shards of unknown size, is not above 0
    chosen = JobGpus(held, gpus.share, gpus.asked)
    for rows in _allocate(jobs, booked, chosen, around, label, notes):
        yield Rows("allocations", rows, label)
    asked = np.where(gpus.asked > 0, gpus.asked, gpus.held)
    for rows in list_events(jobs, ~ran & (asked > 0), booked, asked, around.pool, label, notes):
        yield from (Rows("queue_events", part, label) for part in slices(rows))


def slices(rows: pa.Table) -> Iterator[pa.Table]:
    """A table in parts of a bounded number of rows."""
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        yield rows.slice(first, ROWS_AT_ONCE)


def _allocate(
    jobs: pa.Table, booked: NDArray[np.bool_], gpus: JobGpus, around: JobSurroundings, label: str, notes: Notes
) -> Iterator[pa.Table]:
    """One row a job and node."""
    if not booked.any():
        return
    kept = jobs.filter(pa.array(booked))
    held = gpus.held[booked]
    summaries = read_summaries(kept, held, gpus.share[booked], notes, label)
    places = place_jobs(summaries.place(kept, held), held, label)
    tags = write_tags(kept)
    pools = pa.array([around.pool], pa.string()).take(pa.array(np.zeros(kept.num_rows, dtype=np.int64)))
    own = {
        "job_id": kept["job_id"],
        "job_number": kept["job_number"],
        "attempt": kept["attempt"],
        "pool": pc.coalesce(pools, kept["partition"].combine_chunks()),
        "share": pa.array(gpus.share[booked], mask=np.isnan(gpus.share[booked])),
        "user": kept["user"],
        "team": kept["account"],
        "queue": kept["partition"],
        "tags": tags,
        "submitted_utc": kept["submitted"],
        "eligible_utc": kept["eligible"],
        "from_utc": kept["started"],
        "to_utc": kept["ended"],
        "end_state": kept["state"],
    }
    for first in range(0, len(places.row), ROWS_AT_ONCE):
        part = places.slice(first, ROWS_AT_ONCE)
        rows = pa.table(own).take(part.row)
        rows = rows.set_column(
            rows.column_names.index("pool"),
            "pool",
            pc.if_else(part.node.is_valid(), pa.scalar(None, pa.string()), rows["pool"]),
        )
        there = {"node": part.node, "gpus": part.gpus, "known_from": part.known_from, "gpu_indices": part.indices}
        for name, values in (there | summaries.list_columns(part)).items():
            rows = rows.append_column(name, values)
        yield rows


def _set_right(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Jobs with times that fit together: what waits has not begun, and nobody is eligible before being submitted."""
    begun, asked, able = (
        jobs["started"].combine_chunks(),
        jobs["submitted"].combine_chunks(),
        jobs["eligible"].combine_chunks(),
    )
    pending = pa.array(_is_state(jobs, ("pending",)))
    nothing = pa.scalar(None, pa.int64())
    begun = pc.if_else(pending, nothing, begun)
    late = pc.fill_null(pc.greater(asked, begun), False)
    _note(notes, label, LATE_SUBMIT, late.to_numpy(zero_copy_only=False), jobs)
    asked = pc.if_else(late, nothing, asked)
    able = pc.if_else(pc.fill_null(pc.or_(pc.greater(able, begun), late), False), nothing, able)
    able = pc.if_else(pc.fill_null(pc.greater(able, jobs["ended"].combine_chunks()), False), nothing, able)
    able = pc.if_else(pc.fill_null(pc.less(able, asked), False), asked, able)
    for name, values in (("started", begun), ("submitted", asked), ("eligible", able)):
        jobs = jobs.set_column(jobs.column_names.index(name), name, values)
    return jobs


def _is_state(jobs: pa.Table, states: tuple[str, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_in(jobs["state"], pa.array(states)).to_numpy()
    return found


def _subtract(jobs: pa.Table, later: str, earlier: str) -> NDArray[np.int64]:
    """How much later one instant is than another; 0 where one is not known."""
    apart: NDArray[np.int64] = pc.fill_null(pc.subtract(jobs[later], jobs[earlier]), 0).to_numpy()
    return apart


def _note(notes: Notes, label: str, what: str, wrong: NDArray[np.bool_], jobs: pa.Table) -> None:
    if wrong.any():
        notes.add(label, what, int(wrong.sum()), jobs["line"][int(wrong.argmax())].as_py())
