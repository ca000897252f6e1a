"""Values of fields in columns: one entry a value, in the order they came."""

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

UNTIMED: Final = -1


@dataclass(frozen=True)
class FieldValues:
    """Values of kept fields. Places, keys, labels, holders and names are numbers of KnownDevices, texts those of their labels.

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

    def pick(self, which: Any) -> "FieldValues":
        """Some of them, by a slice, a mask or numbers."""
        return FieldValues(*(getattr(self, f.name)[which] for f in fields(self)))


def join_values(parts: list[FieldValues]) -> FieldValues:
    """All of these, one after the other."""
    return FieldValues(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(FieldValues)))
