"""The demand a plan is made for: a file, or the jobs in the books."""

from pathlib import Path
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError

if TYPE_CHECKING:
    from loadfactor.planner.sizing.cluster.jobs import Jobs
    from loadfactor.sources.demand import Demand, JobTrace


def find_demand(path: Path | None, store: Path | None) -> "Demand":
    """The trace in the file, or the history of the books; exactly one must be given."""
    if (path is None) == (store is None):
        raise InputError("give the demand once: a CSV file of jobs or hours, or --store with the folder of your books")
    from loadfactor.sources.demand_files import read_demand

    return read_demand(path) if path is not None else _read_books(store)


def read_jobs(trace: "JobTrace") -> "Jobs":
    """The jobs of a trace as the simulation takes them."""
    from loadfactor.planner.sizing.cluster.jobs import make_jobs

    return make_jobs(trace.submit_s, trace.gpus, trace.duration_s, trace.limit_s, trace.priority)


def _read_books(store: Path | None) -> "JobTrace":
    import numpy as np

    from loadfactor.books.job_history import job_history
    from loadfactor.interfaces.requests import StoreRequest
    from loadfactor.sources.demand import JobTrace

    history = job_history(StoreRequest(store=store).books)
    notes = []
    if history.still_held:
        notes.append(f"{history.still_held} jobs still held")
    if history.not_waited:
        notes.append(f"{history.not_waited} jobs without a submission time, taken as submitted when they started")
    # the simulator holds whole GPUs or one share of one: anything between is rounded up
    gpus = np.where(history.gpus > 1, np.ceil(history.gpus - 1e-9), history.gpus)
    known = history.team if (history.team != "").any() else None
    return JobTrace(
        f"books in {store}",
        history.submit_s,
        gpus,
        history.duration_s,
        team=known,
        have_gpus=history.installed_gpus,
        left_out=tuple(notes),
    )
