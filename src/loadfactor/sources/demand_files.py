"""Files of demand that a plan is made from: jobs, a cluster's state, or GPUs by the hour; recognized by their header.

    demand = read_demand(Path("jobs.csv"))     # a JobTrace, a StateTrace or a DemandTrace: plain arrays, and what was left out

`DEMAND_FORMATS` lists what is understood, in the order the header is tried.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_CLUSTER_GPUS, MOST_GPUS, Limits, shorten
from loadfactor.base.units import (
    BYTES_PER_MIB,
    H_PER_YEAR,
    MILLIGPUS_PER_GPU,
    MS_PER_S,
    S_PER_DAY,
    S_PER_HOUR,
    S_PER_MIN,
)
from loadfactor.sources.base import Input
from loadfactor.sources.demand import Demand, DemandTrace, Floats, JobTrace, StateTrace
from loadfactor.sources.files import open_input
from loadfactor.sources.parsing.text_blocks import EmptyInputError, join_pieces, split_blocks
from loadfactor.sources.parsing.times import InstantColumn

FIRST_ROW: Final = 2  # the header is line 1
_LONGEST_S: Final = 100 * H_PER_YEAR * S_PER_HOUR
_LATEST_S: Final = 1e11  # the year 5138, counted from 1970
JOB_GPUS: Final = Limits(at_least=1 / MILLIGPUS_PER_GPU, at_most=MOST_CLUSTER_GPUS)
GPUS: Final = Limits(at_least=0, at_most=MOST_GPUS)
JOBS: Final = Limits(at_least=0, at_most=1e9)
LENGTH_S: Final = Limits(at_least=0.001, at_most=_LONGEST_S)
LENGTH_MS: Final = Limits(at_least=1, at_most=_LONGEST_S * MS_PER_S)
TIME_S: Final = Limits(at_least=-_LATEST_S, at_most=_LATEST_S)
TIME_MS: Final = Limits(at_least=-_LATEST_S * MS_PER_S, at_most=_LATEST_S * MS_PER_S)
PRIORITY: Final = Limits(at_least=-1e15, at_most=1e15)
_LIMIT_BYTES: Final = 512 * BYTES_PER_MIB  # some 10 million jobs; the file is held in memory
SPARSE_SHARE = 0.005  # a beginning with fewer of the pods than this, over more of the time than LONG_SHARE, is left out
LONG_SHARE = 0.25
SUBMIT = ("submit_s", "submit_utc", "submit", "submit_time")
GPUS_COLUMNS = ("gpus", "num_gpu", "num_gpus")
DURATION = ("duration_s", "duration")


def read_numbers(frame: pd.DataFrame, column: str, name: str, limits: Limits, may_be_empty: bool = False) -> Floats:
    """The numbers of a column. Raises SourceError naming the file, the row, the column and the range."""
    if column not in frame.columns:
        raise SourceError(f"{name} has no column {column}; is it a whole file of this kind?")
    written = frame[column]
    if isinstance(written, pd.DataFrame):
        raise SourceError(f"{name} has two columns {column}; leave one")
    values = np.asarray(pd.to_numeric(written, errors="coerce"), dtype=np.float64)
    checked = np.flatnonzero(written.notna()) if may_be_empty else np.arange(len(values))
    numbers = values[checked]
    if numbers.size and not (limits.admit(float(numbers.min())) and limits.admit(float(numbers.max()))):
        place = next(place for place in checked if not limits.admit(float(values[place])))
        raise SourceError(
            f"{name}, row {int(frame.index[place]) + FIRST_ROW}: {column} must be a number {limits.words}, "
            f"got {shorten(str(written.iloc[place]))}"
        )
    return values


@dataclass(frozen=True)
class DemandFormat:
    """One form of demand: whether a header is of it, and what makes the demand from the rows (and a name for messages)."""

    matches: Callable[[Sequence[str]], bool]
    decode: Callable[[pd.DataFrame, str], Demand]


def read_demand(path: Path) -> Demand:
    """The demand in a CSV file (plain or .gz). Raises SourceError naming the header and what can be read."""
    if path.is_dir():
        raise SourceError(f"{path} is a folder; name one CSV file of demand in it")
    if not path.exists():
        raise SourceError(f"there is no file {path}")
    return decode_demand(open_input(path))


def decode_demand(source: Input) -> Demand:
    """The demand in a CSV. Raises SourceError naming the header and what can be read."""
    label, name = source.label, source.name or source.label
    try:
        blocks = (block.data for block in split_blocks(source))
        text = join_pieces(label, blocks, _LIMIT_BYTES, "give fewer jobs, or hours instead of jobs").decode()
    except EmptyInputError:
        text = ""
    header = [cell.strip() for cell in next(csv.reader([text.split("\n", 1)[0]]), [])]
    for form in DEMAND_FORMATS:
        if form.matches(header):
            try:
                frame = pd.read_csv(io.StringIO(text), skipinitialspace=True)
            except (pd.errors.ParserError, ValueError) as error:
                why = " ".join(str(error).rpartition("C error: ")[2].split())
                raise SourceError(f"{label} is no table with one row a line: {why}") from None
            if not isinstance(frame.index, pd.RangeIndex):
                raise SourceError(f"{label}: its rows have more cells than its header; write one column a comma")
            if frame.empty:
                raise SourceError(f"{label} has a header but no rows")
            return form.decode(frame, name)
    raise SourceError(
        f"{label}: cannot tell demand from the columns {', '.join(header[:8]) or 'of an empty file'}; "
        "give submit_s, gpus, duration_s (one row a job) or hour, gpus (one row an hour)"
    )


def _matches_openb(header: Sequence[str]) -> bool:
    return {"num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"} <= set(header)


def _decode_openb(frame: pd.DataFrame, name: str) -> JobTrace:
    """GPU pods that were scheduled and ended, from the day the trace is dense.

    The pod list begins with months that hold a handful of pods; a demand over them would be near zero, so they are left out, and
    the note says how many and how long.
    """
    read_numbers(frame, "num_gpu", name, GPUS)
    read_numbers(frame, "gpu_milli", name, Limits(at_least=0, at_most=MILLIGPUS_PER_GPU))
    read_numbers(frame, "creation_time", name, TIME_S)
    for column in ("deletion_time", "scheduled_time"):
        read_numbers(frame, column, name, TIME_S, may_be_empty=True)
    pods = frame[frame["num_gpu"] > 0]
    never = pods["scheduled_time"].isna()
    ended = pods[~never & (pods["deletion_time"] > pods["scheduled_time"])].sort_values("creation_time", kind="stable")
    if ended.empty:
        raise SourceError(f"{name}: no GPU pod was scheduled and ended")
    created = ended["creation_time"].to_numpy(dtype=np.float64)
    dense_from = created[int(len(created) * SPARSE_SHARE)]
    head = created < dense_from
    notes = [f"{int(never.sum())} pods never scheduled"]
    if head.any() and dense_from - created[0] > LONG_SHARE * (created[-1] - created[0]):
        notes.append(f"{int(head.sum())} pods of the sparse first {dense_from / S_PER_DAY:.0f} days")
        ended = ended[~head]
        created = created[~head]
    scheduled = ended["scheduled_time"].to_numpy(dtype=np.float64)
    whole = ended["num_gpu"].to_numpy(dtype=np.float64)
    share = ended["gpu_milli"].to_numpy(dtype=np.float64) / MILLIGPUS_PER_GPU
    return JobTrace(
        name,
        submit_s=created,
        gpus=np.where(whole == 1, share, whole),
        duration_s=ended["deletion_time"].to_numpy(dtype=np.float64) - scheduled,
        published_wait_s=scheduled - created,
        left_out=tuple(notes),
    )


def _matches_muri(header: Sequence[str]) -> bool:
    names = set(header)
    return {"num_gpu", "submit_time", "duration"} <= names and bool({"iteration_time", "real_executed_time"} & names)


def _decode_muri(frame: pd.DataFrame, name: str) -> JobTrace:
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


def _matches_helios(header: Sequence[str]) -> bool:
    return {"total_gpu_num", "running_gpu_num", "pending_gpu_num", "pending_gpu_num_noless_8"} <= set(header)


def _decode_helios(frame: pd.DataFrame, name: str) -> StateTrace:

    def column(key: str) -> Floats:
        return read_numbers(frame, key, name, JOBS if "job" in key else GPUS)

    return StateTrace(
        name,
        float(S_PER_MIN),
        8,
        total_gpus=column("total_gpu_num"),
        running_large_gpus=column("running_gpu_num_noless_8"),
        running_small_gpus=column("running_gpu_num_less_8"),
        running_small_jobs=column("running_job_num_less_8"),
        pending_large_gpus=column("pending_gpu_num_noless_8"),
        pending_large_jobs=column("pending_job_num_noless_8"),
        pending_small_gpus=column("pending_gpu_num_less_8"),
        pending_small_jobs=column("pending_job_num_less_8"),
    )


def _matches_own(header: Sequence[str]) -> bool:
    return _find_column(header, GPUS_COLUMNS) is not None and (
        _find_column(header, DURATION) is not None or header[0] in ("hour", "time_utc")
    )


def _decode_own(frame: pd.DataFrame, name: str) -> Demand:
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


DEMAND_FORMATS: Final = (
    DemandFormat(_matches_openb, _decode_openb),
    DemandFormat(_matches_muri, _decode_muri),
    DemandFormat(_matches_helios, _decode_helios),
    DemandFormat(_matches_own, _decode_own),
)
