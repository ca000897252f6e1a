"""Decoder of your own demand: a CSV with one row a job, or one row an hour.

Jobs: `submit_s` (seconds) or `submit_utc` (ISO 8601 with a zone), `gpus`, `duration_s`; also `limit_s`, `priority`, `team`.
Hours: `hour` (or any first column) and `gpus`; rows are consecutive hours.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from loadfactor.errors import SourceError
from loadfactor.sources.demand import Demand, DemandTrace, Floats, JobTrace
from loadfactor.sources.parsing.times.columns import InstantColumn
from loadfactor.units import MS_PER_S, S_PER_HOUR

SUBMIT = ("submit_s", "submit_utc", "submit", "submit_time")
GPUS = ("gpus", "num_gpu", "num_gpus")
DURATION = ("duration_s", "duration")
FIRST_ROW = 2  # the header is line 1


def matches(header: Sequence[str]) -> bool:
    """True for a header with GPUs and either durations or hours."""
    return _find_column(header, GPUS) is not None and (
        _find_column(header, DURATION) is not None or header[0] in ("hour", "time_utc")
    )


def decode(frame: pd.DataFrame, name: str) -> Demand:
    """Jobs, or hourly demand. Raises SourceError naming the row that cannot be."""
    frame.columns = [str(c).strip() for c in frame.columns]
    header = list(frame.columns)
    gpus = _read_numbers(frame, _find_column(header, GPUS) or "gpus", name)
    duration_column = _find_column(header, DURATION)
    if duration_column is None:
        return DemandTrace(name, float(S_PER_HOUR), gpus)
    submit_column = _find_column(header, SUBMIT)
    if submit_column is None:
        raise SourceError(f"{name}: no column says when a job was submitted; call it submit_s or submit_utc")
    return JobTrace(
        name,
        submit_s=_read_times(frame, submit_column, name),
        gpus=gpus,
        duration_s=_read_numbers(frame, duration_column, name),
        limit_s=_read_numbers(frame, "limit_s", name) if "limit_s" in header else None,
        priority=_read_numbers(frame, "priority", name) if "priority" in header else None,
        team=frame["team"].astype(str).to_numpy(dtype=np.str_) if "team" in header else None,
    )


def _find_column(header: Sequence[str], names: Sequence[str]) -> str | None:
    return next((n for n in names if n in header), None)


def _read_numbers(frame: pd.DataFrame, column: str, name: str) -> Floats:
    values = np.asarray(pd.to_numeric(frame[column], errors="coerce"), dtype=np.float64)
    if np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        raise SourceError(f"{name}, row {row + FIRST_ROW}: {column} is {frame[column].iloc[row]!r}, not a number")
    return values


def _read_times(frame: pd.DataFrame, column: str, name: str) -> Floats:
    """Seconds as they are; texts must be instants with a zone."""
    if pd.api.types.is_numeric_dtype(frame[column]):
        return _read_numbers(frame, column, name)
    cells = pa.array(frame[column].astype(object).where(frame[column].notna(), None), pa.string())
    if cells.null_count:
        raise SourceError(f"{name}, row {cells.is_null().index(True).as_py() + FIRST_ROW}: {column} is empty")
    times = InstantColumn(name, column, None, remedy="write 2026-03-01T09:00:00Z or seconds")
    at_ms = times.from_text(cells, FIRST_ROW).to_numpy()
    return np.asarray(at_ms / MS_PER_S, dtype=np.float64)
