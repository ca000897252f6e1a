"""Long query logs, scanned in one pass; every text met for the first time, and every strange line, is read with care.

The scanner knows no spelling of its own: what a text means in a column of numbers, and what a line that is no plain row holds,
it is told by the readers that read everything else.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.nvidia_smi.cells import Cells, Numbers, encode_cells, make_cells, parse_numbers
from loadfactor.sources.nvidia_smi.columns import UNITS
from loadfactor.sources.nvidia_smi.parsed_rows import TIMESTAMP, ParsedRows
from loadfactor.sources.nvidia_smi.scan import (
    ENDED,
    NEW_TEXT,
    NUMBER,
    SKIP,
    TEXT,
    TIME,
    UNIT_BYTES,
    Found,
    Layout,
    Texts,
    add_text,
    scan,
)
from loadfactor.sources.nvidia_smi.timestamps import WrittenTimes, parse_times

Column = tuple[str | None, str, str | None]
"""What we call a column (None where it is not kept), its name in the heading and its unit there."""

ReadLine = Callable[[bytes], tuple[dict[str, Cells], int]]
"""The careful reading of one line: its cells by our name, none where it is no row; and how many lines are no rows."""

_TEXTS_MAX: Final = 4096
_LETTERS_MAX: Final = 256 * BYTES_PER_KIB
_STRANGE_MAX: Final = 64  # lines, and new texts among numbers, in one part; with more the careful reader is as fast
_BOM: Final = "\ufeff".encode()  # Arrow drops it where its input begins, and there alone


class QueryScanner:
    """Scans parts of one log below one heading; the texts it met in one part are known in the next."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._kinds = [_find_kind(ours) for ours, _, _ in columns]
        self._slots = [self._kinds[:i].count(kind) for i, kind in enumerate(self._kinds)]
        self._layout = _make_layout(columns, self._kinds, self._slots)
        self._forget()

    def scan(self, data: bytes, read_line: ReadLine) -> tuple[ParsedRows, int] | None:
        """The rows of whole lines, and how many lines are none; None where all of them had better be read with care."""
        if b"\r" in data or data.startswith(_BOM):  # Arrow ends a line at a lone \r
            return None
        found = self._make_room(len(data) // len(self._columns) + 1)  # a cell and what ends it take a byte or more
        letters = np.frombuffer(data, dtype=np.uint8)
        at = row = strange = bad = 0
        zoned: dict[int, frozenset[bool]] = {}  # of the times in strange lines, by row
        while True:
            why, at, row, column, start, end = scan(letters, at, row, self._layout, self._table, found)
            if why == ENDED:
                return self._collect(found, row, zoned), bad
            if why == NEW_TEXT:
                strange += self._kinds[column] == NUMBER
                known = self._intern(column, data[start:end].decode()) is not None
            else:
                strange += 1
                behind = data.find(b"\n", at) + 1 or len(data)
                cells, no_rows = read_line(data[at:behind])
                known = not data.startswith(_BOM, at) and (not cells or self._write_row(cells, found, row, zoned))
                at, row, bad = behind, row + bool(cells), bad + no_rows
            if not known or strange > _STRANGE_MAX:
                self._forget()
                return None

    def _make_room(self, rows: int) -> Found:
        texts, numbers = self._kinds.count(TEXT), self._kinds.count(NUMBER)
        return Found(
            np.empty(rows, dtype=np.int64),
            np.empty((texts, rows), dtype=np.int32),
            np.empty((numbers, rows), dtype=np.float64),
            np.empty((numbers, rows), dtype=np.int32),
        )

    def _forget(self) -> None:
        """Begin with no texts."""

        def none(count: int) -> Any:
            return np.full(count, -1, dtype=np.int64)

        self._texts: list[list[str]] = [[] for _ in self._columns]
        self._table = Texts(
            counts=np.zeros(2, dtype=np.int64),
            letters=np.empty(_LETTERS_MAX, dtype=np.uint8),
            starts=none(_TEXTS_MAX),
            lengths=none(_TEXTS_MAX),
            columns=none(_TEXTS_MAX),
            codes=none(_TEXTS_MAX),
            values=np.empty(_TEXTS_MAX, dtype=np.float64),
            buckets=none(4 * _TEXTS_MAX),
            after=none(_TEXTS_MAX),
            last=none(len(self._columns)),
        )

    def _intern(self, column: int, text: str) -> int | None:
        """The number of this text of a column in the table, which knows it from now on; None when the table is full."""
        value, (ours, name, unit) = np.nan, self._columns[column]
        if self._kinds[column] == NUMBER and ours is not None:
            value = parse_numbers(encode_cells(name, unit, pa.array([text])), UNITS[ours]).values[0]
        letters, known = np.frombuffer(text.encode(), dtype=np.uint8), self._texts[column]
        number: int = add_text(letters, column, len(known), value, self._table)
        if number < 0:
            return None
        if self._table.codes[number] == len(known):
            known.append(text)
        return number

    def _write_row(self, cells: Mapping[str, Cells], found: Found, row: int, zoned: dict[int, frozenset[bool]]) -> bool:
        """Write what a strange line holds; False when the table of texts is full."""
        for column, ((ours, _, _), kind, slot) in enumerate(zip(self._columns, self._kinds, self._slots, strict=True)):
            if ours is None:
                continue
            if kind == TIME:
                written = parse_times(cells[ours])
                found.times[row], zoned[row] = written.at_ms[0], written.zoned
                continue
            text = self._intern(column, cells[ours].distinct()[0])
            if text is None:
                return False
            if kind == TEXT:
                found.codes[slot, row] = self._table.codes[text]
            else:
                found.values[slot, row] = self._table.values[text]
                found.odd[slot, row] = self._table.codes[text]
        return True

    def _collect(self, found: Found, count: int, zoned: Mapping[int, frozenset[bool]]) -> ParsedRows:
        times: WrittenTimes | None = None
        texts: dict[str, Cells] = {}
        numbers: dict[str, Numbers] = {}
        for (ours, name, unit), kind, slot, known in zip(
            self._columns, self._kinds, self._slots, self._texts, strict=True
        ):
            if ours is None:
                continue
            if kind == TIME:
                plain = [frozenset((False,))] if count > len(zoned) else []
                times = WrittenTimes(name, found.times[:count], frozenset().union(*plain, *zoned.values()))
                continue
            codes = (found.codes if kind == TEXT else found.odd)[slot, :count]
            cells = make_cells(name, unit, pa.array(known, pa.string()), codes)
            if kind == TEXT:
                texts[ours] = cells
            else:
                numbers[ours] = Numbers(name, found.values[slot, :count], cells.texts, cells.codes)
        return ParsedRows(count, times, texts, numbers)


def _find_kind(ours: str | None) -> int:
    if ours is None:
        return SKIP
    if ours == TIMESTAMP:
        return TIME
    return NUMBER if ours in UNITS else TEXT


def _make_layout(columns: Sequence[Column], kinds: Sequence[int], slots: Sequence[int]) -> Layout:
    """The units of each column of numbers: first the one that its heading names, or that is meant without, spelled and not."""
    spelled: list[dict[str, tuple[float, float]]] = []
    for (ours, _, unit), kind in zip(columns, kinds, strict=True):
        known = UNITS[ours] if kind == NUMBER and ours is not None else {}
        meant = unit or next(iter(known), "")
        first = {meant: known[meant], "": known[meant]} if meant in known else {}
        spelled.append({**first, **known})
    most = max(map(len, spelled))
    layout = Layout(
        np.array(kinds, dtype=np.int64),
        np.array(slots, dtype=np.int64),
        np.zeros((len(columns), most, UNIT_BYTES), dtype=np.uint8),
        np.full((len(columns), most), -1, dtype=np.int64),
        np.ones((len(columns), most)),
        np.ones((len(columns), most)),
    )
    for i, units in enumerate(spelled):
        for j, (unit, (multiply, divide)) in enumerate(units.items()):
            layout.units[i, j, : len(unit)] = list(unit.encode())
            layout.lengths[i, j], layout.multiply[i, j], layout.divide[i, j] = len(unit), multiply, divide
    return layout
