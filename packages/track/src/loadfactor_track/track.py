"""`track`: the call that begins a run."""

from __future__ import annotations

import os
from typing import Final

from .notices import say_once
from .run import TrackedRun

COUNTS: Final = ("global", "rank")


def track(
    experiment: str | None = None,
    job: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    *,
    counts: str = "global",
) -> TrackedRun:
    """A run, for `with`: what `run.step` and its sisters say is kept under `directory`, or sent to `LOADFACTOR_URL`.

    `experiment`: else `LOADFACTOR_EXPERIMENT`. `job`: else `LOADFACTOR_JOB`, the job of Slurm, the pod of Kubernetes, the user
    and the experiment. `directory`: else `LOADFACTOR_PROGRESS`, else ~/.loadfactor/progress. `counts`: "global" where the loop says
    what all ranks did together (rank 0 reports, the others write nothing); "rank" where every rank says what it did itself (their
    sum counts; steps and epochs count once). Raises nothing.
    """
    if counts not in COUNTS:
        say_once("counts", f"counts={counts!r} is neither 'global' nor 'rank'; it counts as 'global'")
        counts = "global"
    folder = directory or os.environ.get("LOADFACTOR_PROGRESS") or os.path.join("~", ".loadfactor", "progress")
    return TrackedRun({"experiment": experiment, "job": job}, os.path.expanduser(os.fspath(folder)), counts)
