"""Lines as they were read, in columns, and the values of fields in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.dcgm.known_series import GPU, HOLDERS, KEY, KIND, LABELS, NAME, PLACE, VALUE
from loadfactor.sources.gpu_scrapes.field_values import FieldValues


@dataclass(frozen=True)
class LineBatch:
    """Lines as they were read. `at_ms` is UNTIMED and `values` NaN where a line has none; `series` as in KnownSeries."""

    series: NDArray[np.int32]
    values: NDArray[np.float64]  # in our units
    at_ms: NDArray[np.int64]
    lines: NDArray[np.int64]


def find_values(
    batch: LineBatch, facts: NDArray[np.int32], is_total: NDArray[np.bool_], before: NDArray[np.int64], text: int
) -> FieldValues:
    """The lines of a batch that hold values."""
    at = np.flatnonzero((facts[batch.series, KIND] == VALUE) & ~np.isnan(batch.values))
    of = facts[batch.series[at]]
    return FieldValues(
        of[:, PLACE],
        of[:, GPU],
        of[:, KEY],
        of[:, LABELS],
        of[:, HOLDERS],
        of[:, NAME],
        is_total[at],
        batch.values[at],
        batch.at_ms[at],
        before[at],
        batch.lines[at],
        np.full(len(at), text, np.int32),
    )
