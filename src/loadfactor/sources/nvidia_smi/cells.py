"""Columns of text → numbers in our units; each different text is looked at once."""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import NS_PER_MS
from loadfactor.sources.base import Gaps
from loadfactor.sources.nvidia_smi.columns import UNMEASURED, Unit
from loadfactor.sources.parsing.times import LocalClock, parse_slashed_ms, parse_stamp

Codes = NDArray[np.int64] | NDArray[np.int32]
_NUMBER: Final = r"^(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z%/]*)$"
_BLANKS: Final = ' \t\r"'
_REASON_MAX: Final = 60


@dataclass(frozen=True)
class Cells:
    """One column of a part of a log: its name there, the unit of its heading, its texts (trimmed) and which row has which."""

    name: str
    unit: str | None
    texts: pa.Array
    codes: Codes

    def distinct(self) -> list[str]:
        """The different texts; `codes` points into them."""
        found: list[str] = self.texts.to_pylist()
        return found


def merge_equal(cells: Cells) -> Cells:
    """The same column with every text once: spellings that differ in the blanks around them become one."""
    once = pc.dictionary_encode(cells.texts)
    if len(once.dictionary) == len(cells.texts):
        return cells
    return Cells(cells.name, cells.unit, once.dictionary, once.indices.to_numpy().astype(np.int64)[cells.codes])


def encode_cells(name: str, unit: str | None, data: Any) -> Cells:
    """One column from an Arrow array of text, plain or dictionary-encoded."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    texts, codes = (
        (data.dictionary, data.indices) if pa.types.is_dictionary(data.type) else (data, np.arange(len(data)))
    )
    return Cells(name, unit, pc.utf8_trim(texts, characters=_BLANKS), np.asarray(codes, np.int64))


def parse_numbers(cells: Cells, units: dict[str, Unit]) -> NDArray[np.float64]:
    """The value of each row in our unit, NaN where there is none.

    A unit in the cell counts before the one in the heading; without either the first of `units` is meant.
    """
    parts = pc.extract_regex(cells.texts, _NUMBER)
    texts = pc.struct_field(parts, "number")
    written = pc.struct_field(parts, "unit")
    values = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    default = cells.unit or next(iter(units))
    found = np.full(len(values), np.nan)
    for unit in pc.unique(written).to_pylist():
        factor = units.get(unit or default) if unit is not None else None
        if factor is not None:
            here = pc.fill_null(pc.equal(written, unit), False).to_numpy(zero_copy_only=False)
            found[here] = values[here] * factor[0] / factor[1]
    return found[cells.codes]


def explain_cell(text: str) -> str:
    """The reason why a cell holds no number, for messages.

    >>> explain_cell("[N/A]"), explain_cell(""), explain_cell("%$1")
    ('[N/A]', 'nothing', 'an unreadable value')
    """
    if is_unmeasured(text) and len(text) <= _REASON_MAX and text.isprintable():
        return text or "nothing"
    return "an unreadable value"


def is_unmeasured(text: str) -> bool:
    """True for what the tool writes where it knows no value: [N/A], ERR!, [GPU is lost], an empty cell."""
    return text.lower() in UNMEASURED or (text.startswith("[") and text.endswith("]"))


TIMESTAMP: Final = "timestamp"
MISSING: Final = np.iinfo(np.int64).min


def parse_times(cells: Cells) -> tuple[NDArray[np.int64], set[bool]]:
    """The time of each row in ms since 1970, of UTC where a zone is written, else of the local clock; whether zones are written."""
    slashed = parse_slashed_ms(cells.texts)
    if slashed is not None:
        return slashed.to_numpy(zero_copy_only=False)[cells.codes], {False}
    stamps = [parse_stamp(text) for text in cells.distinct()]
    distinct_ms = np.array([MISSING if s is None else s.at_ns // NS_PER_MS for s in stamps], dtype=np.int64)
    return distinct_ms[cells.codes], {s.zoned for s in stamps if s is not None}


class Timestamps:
    """The times of one log: all local, or all with their zone."""

    def __init__(self, label: str, zone: tzinfo | None, gaps: Gaps) -> None:
        self._label, self._gaps = label, gaps
        self._clock = LocalClock(zone) if zone is not None else None
        self._utc: bool | None = None

    def convert(self, cells: Cells, line: int) -> NDArray[np.int64]:
        """The instant of every row, MISSING where it has none."""
        at_ms, zoned = parse_times(cells)
        kinds = zoned if self._utc is None else {*zoned, self._utc}
        if len(kinds) == 2:
            raise SourceError(
                f"{self._label}, near line {line}: times with and without a zone are mixed; split the file or write one kind"
            )
        found = at_ms.copy()
        readable = found != MISSING
        self._gaps.add(self._label, f"row without a readable time in {cells.name}", int((~readable).sum()))
        if kinds == {False}:
            self._utc = False
            if self._clock is None:
                raise SourceError(
                    f"{self._label}: its times are local times without a zone; say which with --timezone, "
                    "for example --timezone Europe/Berlin"
                )
            utc, exists = self._clock.convert(found[readable])
            self._gaps.add(
                self._label, "row at a local time that does not exist (clock set forward)", int((~exists).sum())
            )
            self._gaps.add(self._label, "row in a repeated hour, taken for its first pass", self._clock.guessed)
            self._clock.guessed = 0
            found[readable] = np.where(exists, utc, MISSING)
        elif kinds:
            self._utc = True
        return found
