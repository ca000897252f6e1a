"""What is known of each understood series, in arrays by its number."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.sources.dcgm.fields import BLANK_FP64, BLANK_INT32, BLANK_INT64, BLANKS
from loadfactor.sources.dcgm.values import explain_blank, is_large
from loadfactor.sources.gpu_scrapes.fields import Field

SOURCE_NUMBER, UNIT, GPU, PLACE, KEY, LABELS, HOLDERS, NAME = range(8)
"""Columns of the facts: the source; the GPU or node among those of all sources; the rest are numbers of the source's own."""
TOTAL, BLANKED, LARGE, MASK = range(4)
"""Columns of the flags: a total that only grows; blanks of DCGM stand in it; it may pass the smaller ones; bits speak."""


_ALIVE_MS: Final = MS_PER_HOUR


class SeriesFacts:
    """Rows of facts. `multiply` and `divide` turn a value into our unit, `last_ms` is the newest point taken (-1 none)."""

    def __init__(self) -> None:
        self.fields: list[Field | None] = []
        self.of = np.zeros((1024, 8), np.int32)
        self.flags = np.zeros((1024, 4), bool)
        self.multiply = np.ones(1024)
        self.divide = np.ones(1024)
        self.last_ms = np.full(1024, -1)

    def __len__(self) -> int:
        return len(self.fields)

    def add(self, facts: tuple[int, ...], field: Field | None, has_blanks: bool) -> int:
        """The number of one more series."""
        number = len(self.fields)
        if number == len(self.of):
            for name in ("of", "flags", "multiply", "divide", "last_ms"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.full_like(old, -1) if name == "last_ms" else old]))
        self.fields.append(field)
        self.of[number] = facts
        if field is not None:
            self.flags[number] = (field.counts, has_blanks, is_large(field), field.mask)
            self.multiply[number], self.divide[number] = field.multiply, field.divide
        return number

    def count_alive(self) -> int:
        """How many series had a point not long before the newest."""
        last_ms = self.last_ms[: len(self)]
        return int((last_ms >= last_ms.max(initial=0) - _ALIVE_MS).sum())

    def find_blanks(self, series: NDArray[np.int32], value: NDArray[np.float64]) -> dict[int, str]:
        """The entries that are no measurement, and why; NaN and infinite ones not among them."""
        flags = self.flags[series]
        small = (value >= BLANK_INT32) & ~flags[:, LARGE]
        for base in (BLANK_INT32, BLANK_FP64):
            small |= (value >= base) & (value < base + len(BLANKS))
        suspect = flags[:, BLANKED] & (small | (value >= BLANK_INT64))
        at = np.flatnonzero(suspect)
        found, explained = {}, {}
        for i, number, large in zip(at.tolist(), value[at].tolist(), flags[at, LARGE].tolist(), strict=True):
            if (number, large) not in explained:
                field = self.fields[series[i]]
                assert field is not None
                explained[number, large] = explain_blank("", number, field)
            if why := explained[number, large]:
                found[i] = why
        masks = np.flatnonzero(flags[:, MASK])
        wrong = masks[(value[masks] < 0) | (value[masks] != np.trunc(value[masks]))]
        return {**found, **dict.fromkeys(wrong.tolist(), UNREADABLE)}


UNREADABLE: Final = "an unreadable value"
