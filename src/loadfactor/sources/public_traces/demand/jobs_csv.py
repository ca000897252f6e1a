"""How is your own demand written down? A CSV with one row a job, or one row an hour.

Jobs: `submit_s` (seconds) or `submit_utc` (ISO 8601 with a zone), `gpus`, `duration_s`; also `limit_s`, `priority`, `team`.
Hours: `hour` (or any first column) and `gpus`; rows are consecutive hours.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from loadfactor.errors import SourceError
from loadfactor.sources.public_traces.demand.trace import DemandTrace, Floats, JobTrace, Trace
from loadfactor.units import NS_PER_S, S_PER_HOUR

SUBMIT = ("submit_s", "submit_utc", "submit", "submit_time")
GPUS = ("gpus", "num_gpu", "num_gpus")
DURATION = ("duration_s", "duration")


def reads(header: Sequence[str]) -> bool:
    """True for a header with GPUs and either durations or hours."""
    return _column(header, GPUS) is not None and (
        _column(header, DURATION) is not None or header[0] in ("hour", "time_utc")
    )


def parse(frame: pd.DataFrame, name: str) -> Trace:
    """Jobs, or hourly demand. Raises SourceError naming the row that cannot be."""
    frame.columns = [str(c).strip() for c in frame.columns]
    header = list(frame.columns)
    gpus = _numbers(frame, _column(header, GPUS) or "gpus", name)
    duration_column = _column(header, DURATION)
    if duration_column is None:
        return DemandTrace(name, float(S_PER_HOUR), gpus)
    submit_column = _column(header, SUBMIT)
    if submit_column is None:
        raise SourceError(f"{name}: no column says when a job was submitted; call it submit_s or submit_utc")
    return JobTrace(
        name,
        submit_s=_instants(frame, submit_column, name),
        gpus=gpus,
        duration_s=_numbers(frame, duration_column, name),
        limit_s=_numbers(frame, "limit_s", name) if "limit_s" in header else None,
        priority=_numbers(frame, "priority", name) if "priority" in header else None,
        team=frame["team"].astype(str).to_numpy(dtype=np.str_) if "team" in header else None,
    )


def _column(header: Sequence[str], names: Sequence[str]) -> str | None:
    return next((n for n in names if n in header), None)


def _numbers(frame: pd.DataFrame, column: str, name: str) -> Floats:
    values = np.asarray(pd.to_numeric(frame[column], errors="coerce"), dtype=np.float64)
    if np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        raise SourceError(f"{name}, row {row + 2}: {column} is {frame[column].iloc[row]!r}, not a number")
    return values


def _instants(frame: pd.DataFrame, column: str, name: str) -> Floats:
    """Seconds as they are; texts must be instants with a zone."""
    if pd.api.types.is_numeric_dtype(frame[column]):
        return _numbers(frame, column, name)
    for row, text in enumerate(frame[column]):
        if not _has_zone(str(text)):
            raise SourceError(
                f"{name}, row {row + 2}: {column} {text!r} has no time zone; write 2026-03-01T09:00:00Z or seconds"
            )
    instants = pd.to_datetime(frame[column], errors="coerce", utc=True, format="ISO8601")
    if instants.isna().any():
        row = int(instants.isna().to_numpy().argmax())
        raise SourceError(f"{name}, row {row + 2}: {column} {frame[column].iloc[row]!r} is not an ISO 8601 time")
    since_1970_ns = np.asarray(instants.astype("datetime64[ns, UTC]").astype("int64"), dtype=np.float64)
    return since_1970_ns / NS_PER_S


def _has_zone(text: str) -> bool:
    time = text.strip()[10:]
    return time.endswith("Z") or "+" in time or "-" in time
