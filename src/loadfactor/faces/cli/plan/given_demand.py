"""Which demand is meant? A file, or the jobs in the books."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadfactor.errors import InputError

if TYPE_CHECKING:  # imported when asked: `loadfactor --help` answers at once
    from loadfactor.sources.demand import Demand

StoreOption = Annotated[Path | None, typer.Option("--store", help="Take the jobs from the books in this folder.")]


def given_demand(path: Path | None, store: Path | None) -> "Demand":
    """The trace in the file, or the history of the books; exactly one must be given."""
    if (path is None) == (store is None):
        raise InputError("give the demand once: a CSV file of jobs or hours, or --store with the folder of your books")
    from loadfactor.sources.demand import JobTrace
    from loadfactor.sources.demand_files import read_demand

    if path is not None:
        return read_demand(path)
    import numpy as np

    from loadfactor.books.job_history import job_history
    from loadfactor.faces.cli.books_request import StoreRequest

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
