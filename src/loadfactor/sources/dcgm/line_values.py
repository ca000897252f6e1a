"""Values as they were read, in columns: one entry a line, in the order of the text."""

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.dcgm.known_series import GPU, HOLDERS, KEY, KIND, LABELS, NAME, PLACE, VALUE

UNTIMED: Final = -1


@dataclass(frozen=True)
class LineBatch:
    """Lines as they were read. `at_ms` is UNTIMED and `values` NaN where a line has none; `series` as in KnownSeries."""

    series: NDArray[np.int32]
    values: NDArray[np.float64]  # in our units
    at_ms: NDArray[np.int64]
    lines: NDArray[np.int64]


@dataclass(frozen=True)
class LineValues:
    """Values of kept fields. Places, keys, labels, holders and names are numbers of KnownSeries, texts those of their labels.

    `before` is the number of scrapes of the GPU before this one where the line has no time, else -1.
    """

    place: NDArray[np.int32]
    gpu: NDArray[np.int32]
    key: NDArray[np.int32]
    labels: NDArray[np.int32]
    holders: NDArray[np.int32]
    name: NDArray[np.int32]
    is_total: NDArray[np.bool_]
    value: NDArray[np.float64]
    at_ms: NDArray[np.int64]
    before: NDArray[np.int64]
    line: NDArray[np.int64]
    text: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.place)

    def pick(self, which: Any) -> "LineValues":
        """Some of them, by a slice, a mask or numbers."""
        return LineValues(*(getattr(self, f.name)[which] for f in fields(self)))


def find_values(
    batch: LineBatch, facts: NDArray[np.int32], is_total: NDArray[np.bool_], before: NDArray[np.int64], text: int
) -> LineValues:
    """The lines of a batch that hold values."""
    at = np.flatnonzero((facts[batch.series, KIND] == VALUE) & ~np.isnan(batch.values))
    of = facts[batch.series[at]]
    return LineValues(
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


def join_values(parts: list[LineValues]) -> LineValues:
    """All of these, one after the other."""
    return LineValues(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(LineValues)))
