"""Decoder of Muri's 64-V100 scheduler experiment: submitted traces (milliseconds) and per-job results (seconds)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from loadfactor.sources.demand import Floats, JobTrace
from loadfactor.units import MS_PER_S


def matches(header: Sequence[str]) -> bool:
    """True for a submitted trace or a result file."""
    names = set(header)
    return {"num_gpu", "submit_time", "duration"} <= names and bool({"iteration_time", "real_executed_time"} & names)


def decode(frame: pd.DataFrame, name: str) -> JobTrace:
    """Planned jobs of a trace; or, of a result file, the time each job really ran and the wait it really had.

    A result's wait is its completion time less the time executed: preempted jobs wait more than once.
    """
    rows = frame.sort_values(["submit_time", "job_id"], kind="stable")

    def column(key: str) -> Floats:
        return np.asarray(rows[key], dtype=np.float64)

    if "real_executed_time" not in frame.columns:
        return JobTrace(name, column("submit_time") / MS_PER_S, column("num_gpu"), column("duration") / MS_PER_S)
    return JobTrace(
        name,
        column("submit_time"),
        column("num_gpu"),
        column("real_executed_time"),
        published_wait_s=column("JCT") - column("real_executed_time"),
        published_makespan_s=float(column("end_time").max() - column("submit_time").min()),
    )
