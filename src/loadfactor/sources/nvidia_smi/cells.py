"""Columns of text → numbers in our units; each different text is looked at once."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.sources.nvidia_smi.columns import UNMEASURED, Unit

Floats = NDArray[np.float64]
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


@dataclass(frozen=True)
class Numbers:
    """One column of a part of a log in our unit: the value of each row, NaN where there is none, and the text that was no number.

    `codes` points into `texts` in every row without a value; elsewhere it may be anything.
    """

    name: str
    values: Floats
    texts: pa.Array
    codes: Codes


def make_cells(name: str, unit: str | None, texts: pa.Array, codes: Codes) -> Cells:
    """One column from its different texts, as they stand in the log, and which row has which."""
    return Cells(name, unit, pc.utf8_trim(texts, characters=_BLANKS), codes)


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
    if not pa.types.is_dictionary(data.type):
        data = pc.dictionary_encode(data)
    return make_cells(name, unit, data.dictionary, data.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def parse_numbers(cells: Cells, units: dict[str, Unit]) -> Numbers:
    """The values of a column in our unit.

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
    return Numbers(cells.name, found[cells.codes], cells.texts, cells.codes)


def explain_cell(text: str) -> str:
    """What to say of a cell that holds no number.

    >>> explain_cell("[N/A]"), explain_cell(""), explain_cell("%$1")
    ('[N/A]', 'nothing', 'an unreadable value')
    """
    if is_unmeasured(text) and len(text) <= _REASON_MAX and text.isprintable():
        return text or "nothing"
    return "an unreadable value"


def is_unmeasured(text: str) -> bool:
    """True for what the tool writes where it knows no value: [N/A], ERR!, [GPU is lost], an empty cell."""
    return text.lower() in UNMEASURED or (text.startswith("[") and text.endswith("]"))
