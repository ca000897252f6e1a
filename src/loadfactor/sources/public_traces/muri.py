"""Decoder of Muri's 64-V100 scheduler experiment: submitted traces (milliseconds) and per-job results (seconds)."""

from collections.abc import Sequence

import pandas as pd

from loadfactor.base.limits import Limits
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.demand import JOB_GPUS, LENGTH_MS, LENGTH_S, TIME_MS, TIME_S, Floats, JobTrace, read_numbers


def matches(header: Sequence[str]) -> bool:
    """True for a submitted trace or a result file."""
    names = set(header)
    return {"num_gpu", "submit_time", "duration"} <= names and bool({"iteration_time", "real_executed_time"} & names)


def decode(frame: pd.DataFrame, name: str) -> JobTrace:
    """Planned jobs of a trace; or, of a result file, the time each job really ran and the wait it really had.

    A result's wait is its completion time less the time executed: preempted jobs wait more than once.
    """
    keys = [key for key in ("submit_time", "job_id") if key in frame.columns]
    rows = frame.sort_values(keys, kind="stable")

    def column(key: str, limits: Limits) -> Floats:
        return read_numbers(rows, key, name, limits)

    gpus = column("num_gpu", JOB_GPUS)
    if "real_executed_time" not in frame.columns:
        return JobTrace(name, column("submit_time", TIME_MS) / MS_PER_S, gpus, column("duration", LENGTH_MS) / MS_PER_S)
    submit_s, executed_s = column("submit_time", TIME_S), column("real_executed_time", LENGTH_S)
    return JobTrace(
        name,
        submit_s,
        gpus,
        executed_s,
        published_wait_s=column("JCT", TIME_S) - executed_s,
        published_makespan_s=float(column("end_time", TIME_S).max() - submit_s.min()),
    )
