"""Decoder of your own demand: a CSV with one row a job, or one row an hour.

Jobs: `submit_s` (seconds) or `submit_utc` (ISO 8601 with a zone), `gpus`, `duration_s`; also `limit_s`, `priority`, `team`.
Hours: `hour` (or any first column) and `gpus`; rows are consecutive hours.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.sources.demand import (
    FIRST_ROW,
    GPUS,
    JOB_GPUS,
    LENGTH_S,
    PRIORITY,
    TIME_S,
    Demand,
    DemandTrace,
    Floats,
    JobTrace,
    read_numbers,
)
from loadfactor.sources.parsing.times import InstantColumn

SUBMIT = ("submit_s", "submit_utc", "submit", "submit_time")

GPUS_COLUMNS = ("gpus", "num_gpu", "num_gpus")

DURATION = ("duration_s", "duration")


def matches(header: Sequence[str]) -> bool:
    """True for a header with GPUs and either durations or hours."""
    return _find_column(header, GPUS_COLUMNS) is not None and (
        _find_column(header, DURATION) is not None or header[0] in ("hour", "time_utc")
    )


def decode(frame: pd.DataFrame, name: str) -> Demand:
    """Jobs, or hourly demand. Raises SourceError naming the row that cannot be."""
    frame.columns = [str(c).strip() for c in frame.columns]
    header = list(frame.columns)
    gpus_column, duration_column = _find_column(header, GPUS_COLUMNS) or "gpus", _find_column(header, DURATION)
    if duration_column is None:
        return DemandTrace(name, float(S_PER_HOUR), read_numbers(frame, gpus_column, name, GPUS))
    submit_column = _find_column(header, SUBMIT)
    if submit_column is None:
        raise SourceError(f"{name}: no column says when a job was submitted; call it submit_s or submit_utc")
    return JobTrace(
        name,
        submit_s=_read_times(frame, submit_column, name),
        gpus=read_numbers(frame, gpus_column, name, JOB_GPUS),
        duration_s=read_numbers(frame, duration_column, name, LENGTH_S),
        limit_s=read_numbers(frame, "limit_s", name, LENGTH_S) if "limit_s" in header else None,
        priority=read_numbers(frame, "priority", name, PRIORITY) if "priority" in header else None,
        team=frame["team"].astype(str).to_numpy(dtype=np.str_) if "team" in header else None,
    )


def _find_column(header: Sequence[str], names: Sequence[str]) -> str | None:
    return next((n for n in names if n in header), None)


def _read_times(frame: pd.DataFrame, column: str, name: str) -> Floats:
    """Seconds as they are; texts must be instants with a zone."""
    if pd.api.types.is_numeric_dtype(frame[column]):
        return read_numbers(frame, column, name, TIME_S)
    cells = pa.array(frame[column].astype(object).where(frame[column].notna(), None), pa.string())
    if cells.null_count:
        raise SourceError(f"{name}, row {cells.is_null().index(True).as_py() + FIRST_ROW}: {column} is empty")
    times = InstantColumn(name, column, None, remedy="write 2026-03-01T09:00:00Z or seconds")
    at_ms = times.from_text(cells, FIRST_ROW).to_numpy()
    return np.asarray(at_ms / MS_PER_S, dtype=np.float64)
