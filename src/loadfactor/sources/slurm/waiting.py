"""Queue events of jobs: of those that were never started all that is known, of others why they waited."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.sources.slurm.job_ids import expand_array
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.tags import write_tags

CUT_OFF: Final = (
    "lists of waiting tasks of arrays that Slurm cut off: the tasks that are named wait (sacct --array names all)"
)
HELD: Final = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue")
"""Reasons of jobs that somebody holds back."""
LATER: Final = ("BeginTime", "Dependency", *HELD)
"""Reasons of jobs that may not start yet, whatever their eligible time says."""


def list_events(
    jobs: pa.Table,
    waits: NDArray[np.bool_],
    booked: NDArray[np.bool_],
    gpus: NDArray[np.float64],
    pool: str | None,
    label: str,
    notes: Notes,
) -> Iterator[pa.Table]:
    """Events of jobs that were never started (`waits`), and of those `booked` whose reason is known, with the GPUs asked for."""
    explained = booked & jobs["reason"].is_valid().to_numpy()
    wanted = waits | explained
    if not wanted.any():
        return
    chosen, gpus, waits = jobs.filter(pa.array(wanted)), gpus[wanted], waits[wanted]
    own = pa.table(
        {
            "job_id": chosen["job_id"],
            "job_number": chosen["job_number"],
            "gpus": pa.array(gpus),
            "reason": chosen["reason"],
            "pool": pa.array([pool] * chosen.num_rows, pa.string()),
            "queue": chosen["partition"],
            "user": chosen["user"],
            "team": chosen["account"],
            "tags": write_tags(chosen),
        }
    )
    rows = _expand_tasks(chosen, waits, label, notes)
    pending = pc.is_in(chosen["state"], pa.array(["pending"])).to_numpy() & waits
    reasons = chosen["reason"]
    later = pc.is_in(reasons, pa.array(LATER))
    early = pending & later.to_numpy()
    held = pending & pc.is_in(reasons, pa.array(HELD)).to_numpy()
    may_start = own.set_column(own.schema.get_field_index("reason"), "reason", pc.if_else(later, None, reasons))
    again = pc.fill_null(pc.greater(chosen["attempt"], 0.0), False).to_numpy()
    for event, column, here in (
        ("submitted", "submitted", ~again),
        ("requeued", "submitted", again),
        ("held", "submitted", held),
        ("eligible", "eligible", ~early),
        ("cancelled", "ended", waits & ~pending),
    ):
        at = chosen[column].combine_chunks()
        here = here & at.is_valid().to_numpy(zero_copy_only=False)
        if here.any():
            picked = rows.filter(pa.array(here[rows["row"].to_numpy()]))
            events = (may_start if event == "eligible" else own).take(picked["row"])
            events = events.set_column(0, "job_id", picked["job_id"])
            yield events.append_column("at_utc", at.take(picked["row"].combine_chunks())).append_column(
                "event", pa.array(np.full(events.num_rows, event), pa.string())
            )


def _expand_tasks(jobs: pa.Table, waits: NDArray[np.bool_], label: str, notes: Notes) -> pa.Table:
    """One entry a job: its row and its id; a condensed line of an array is one job a task."""
    rows, ids = np.arange(jobs.num_rows), jobs["job_id"]
    condensed = waits & pc.match_substring(ids, "[").to_numpy()
    if not condensed.any():
        return pa.table({"row": rows, "job_id": ids})
    plain = pa.table({"row": rows, "job_id": ids}).filter(pa.array(~condensed))
    parts = [plain]
    for row in np.flatnonzero(condensed):
        tasks, is_cut = expand_array(ids[int(row)].as_py())
        notes.add(label, CUT_OFF, int(is_cut), jobs["line"][int(row)].as_py())
        parts.append(pa.table({"row": np.full(len(tasks), row), "job_id": tasks}))
    return pa.concat_tables(parts).combine_chunks()
