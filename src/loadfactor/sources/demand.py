"""Demand for GPUs as plain arrays: jobs, the state of a cluster, or GPUs wanted over time; and what was left out of the file."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_CLUSTER_GPUS, MOST_GPUS, Limits, shorten
from loadfactor.base.units import H_PER_YEAR, MILLIGPUS_PER_GPU, MS_PER_S, S_PER_HOUR

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


Floats = NDArray[np.float64]


def read_numbers(frame: pd.DataFrame, column: str, name: str, limits: Limits, may_be_empty: bool = False) -> Floats:
    """The numbers of a column. Raises SourceError naming the file, the row, the column and the range."""
    if column not in frame.columns:
        raise SourceError(f"{name} has no column {column}; is it a whole file of this kind?")
    written = frame[column]
    if isinstance(written, pd.DataFrame):
        raise SourceError(f"{name} has two columns {column}; leave one")
    values = np.asarray(pd.to_numeric(written, errors="coerce"), dtype=np.float64)
    wanted = np.flatnonzero(written.notna()) if may_be_empty else np.arange(len(values))
    said = values[wanted]
    if said.size and not (limits.admit(float(said.min())) and limits.admit(float(said.max()))):
        place = next(place for place in wanted if not limits.admit(float(values[place])))
        raise SourceError(
            f"{name}, row {int(frame.index[place]) + FIRST_ROW}: {column} must be a number {limits.words}, "
            f"got {shorten(str(written.iloc[place]))}"
        )
    return values


@dataclass(frozen=True)
class JobTrace:
    """One entry a job. `published_wait_s` is the wait the file itself reports; the rest where it has them."""

    name: str
    submit_s: Floats
    gpus: Floats
    duration_s: Floats
    limit_s: Floats | None = None
    priority: Floats | None = None
    team: NDArray[np.str_] | None = None
    published_wait_s: Floats | None = None
    published_makespan_s: float | None = None
    have_gpus: int | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateTrace:
    """A cluster's own counts, one entry per interval of `step_s`; "large" jobs ask for at least a whole node."""

    name: str
    step_s: float
    node_gpus: int
    total_gpus: Floats
    running_large_gpus: Floats
    running_small_gpus: Floats
    running_small_jobs: Floats
    pending_large_gpus: Floats
    pending_large_jobs: Floats
    pending_small_gpus: Floats
    pending_small_jobs: Floats
    left_out: tuple[str, ...] = ()

    @property
    def demand_gpus(self) -> Floats:
        """GPUs held and GPUs waited for."""
        return self.running_large_gpus + self.running_small_gpus + self.pending_large_gpus + self.pending_small_gpus


@dataclass(frozen=True)
class DemandTrace:
    """GPUs wanted in each interval of `step_s`."""

    name: str
    step_s: float
    demand_gpus: Floats
    left_out: tuple[str, ...] = field(default=())


Demand = JobTrace | StateTrace | DemandTrace
