"""Columns of numbers in a CSV of demand, each inside the range in which it makes sense."""

from typing import Final

import numpy as np
import pandas as pd

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_CLUSTER_GPUS, MOST_GPUS, Limits, shorten
from loadfactor.base.units import H_PER_YEAR, MILLIGPUS_PER_GPU, MS_PER_S, S_PER_HOUR
from loadfactor.sources.demand import Floats

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
