"""The byte scanner of query logs: plain cells become numbers in one pass over the bytes, compiled; it stops at anything else.

Plain is what nvidia-smi writes all day: a local time with slashes, digits with a unit that is known, and texts that were met
before. A text met for the first time, and a line that is no plain row, are handed back to Python, which reads them with care
and lets the scanner go on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inline, inner
from loadfactor.base.units import BYTES_PER_KIB, H_PER_DAY, MS_PER_S, S_PER_MIN
from loadfactor.sources.nvidia_smi.cells import (
    TIMESTAMP,
    Cells,
    Numbers,
    ParsedRows,
    WrittenTimes,
    encode_cells,
    make_cells,
    parse_numbers,
    parse_times,
)
from loadfactor.sources.nvidia_smi.columns import UNITS

Int = Any  # 64 bits; types within compiled code are Numba's
SKIP, TIME, TEXT, NUMBER = range(4)  # kinds of columns
ENDED, STRANGE_LINE, NEW_TEXT = range(3)  # why the scanner stopped
UNIT_BYTES: Final = 8
_SPACE, _COMMA, _LINE_END, _ZERO, _POINT, _SLASH, _COLON = (ord(c) for c in " ,\n0./:")
_DIGITS_MAX: Final = 15  # below 2**53, so that one division by a power of ten rounds as reading the text does
_YEAR_FROM, _YEAR_TO = 1970, 2199
_POWERS: Final = np.array([10.0**i for i in range(_DIGITS_MAX + 1)])


class Layout(NamedTuple):
    """What the columns of a heading hold, one entry a column. The value of a number is number × multiply ÷ divide of its unit."""

    kinds: NDArray[np.int64]
    slots: NDArray[np.int64]  # the row of `Found.codes` (TEXT) or of `Found.values` (NUMBER) it is written to
    units: NDArray[np.uint8]  # column, unit, its letters
    lengths: NDArray[np.int64]  # column, unit: how many letters; -1 where there is no further unit
    multiply: NDArray[np.float64]
    divide: NDArray[np.float64]


class Texts(NamedTuple):
    """The texts met so far, in a hash table with open addressing. `counts` holds how many there are, and the bytes of all."""

    counts: NDArray[np.int64]
    letters: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    columns: NDArray[np.int64]
    codes: NDArray[np.int64]  # number of the text within its column
    values: NDArray[np.float64]  # of a text in a column of numbers: what it means, NaN when nothing
    buckets: NDArray[np.int64]  # which text, or -1
    after: NDArray[np.int64]  # the text that followed it in its column the last time, or -1
    last: NDArray[np.int64]  # the text met last in each column, or -1


class Found(NamedTuple):
    """What the rows hold, one entry a row."""

    times: NDArray[np.int64]  # ms since 1970 by the local clock
    codes: NDArray[np.int32]  # column of texts, row
    values: NDArray[np.float64]  # column of numbers, row
    odd: NDArray[np.int32]  # likewise: the code of the text where the cell is no plain number, else not set


@entry
def scan(data: Any, at: Int, row: Int, layout: Layout, texts: Texts, found: Found) -> tuple[Int, ...]:
    """Scan whole lines from byte `at` on, writing rows from `row` on; empty lines are passed over.

    Returns why it stopped, the byte and the row to go on at, and for NEW_TEXT the column and where the text begins and ends.
    """
    size, columns = len(data), len(layout.kinds)
    day: Int = np.int64(-1)
    midnight_ms: Int = np.int64(0)
    while at < size:
        if data[at] == _LINE_END:
            at += 1
            continue
        i, plain = at, np.bool_(True)
        for column in range(columns):
            i = _skip_spaces(data, i, size)
            kind, start = layout.kinds[column], i
            if kind == SKIP:
                i = _find_end(data, i, size)
            elif kind == TIME:
                written, clock_ms, i = _read_time(data, i, size)
                if written >= 0 and written != day:
                    midnight_ms = _find_midnight(written)
                    day = written if midnight_ms >= 0 else np.int64(-1)
                plain = written >= 0 and midnight_ms >= 0
                found.times[row] = midnight_ms + clock_ms
            else:
                slot = layout.slots[column]
                if kind == NUMBER:
                    value, i = _read_number(data, i, size, layout, column)
                    found.values[slot, row] = value
                if kind == TEXT or i < 0:
                    text, i, end = _find_text(data, start, size, column, texts)
                    if text < 0:
                        return NEW_TEXT, at, row, column, start, end
                    if kind == TEXT:
                        found.codes[slot, row] = texts.codes[text]
                    else:
                        found.values[slot, row] = texts.values[text]
                        found.odd[slot, row] = texts.codes[text]
            i = _skip_spaces(data, i, size)
            plain = plain and i < size and data[i] == (_COMMA if column < columns - 1 else _LINE_END)
            if not plain:
                return STRANGE_LINE, at, row, 0, 0, 0
            i += 1
        at = i
        row += 1
    return ENDED, at, row, 0, 0, 0


@entry
def add_text(letters: Any, column: int, code: int, value: float, texts: Texts) -> Int:
    """Add a text of a column, unless it is there. Returns its number, or -1 when the table is full."""
    text, size, used = _look_up(letters, 0, len(letters), column, texts), texts.counts[0], texts.counts[1]
    if text >= 0:
        return text
    if size >= len(texts.starts) or used + len(letters) > len(texts.letters):
        return -1
    for k in range(len(letters)):
        texts.letters[used + k] = letters[k]
    texts.starts[size], texts.lengths[size] = used, len(letters)
    texts.columns[size], texts.codes[size], texts.values[size], texts.after[size] = column, code, value, -1
    texts.counts[0], texts.counts[1] = size + 1, used + len(letters)
    bucket = _hash(letters, 0, len(letters), column) & (len(texts.buckets) - 1)
    while texts.buckets[bucket] >= 0:
        bucket = (bucket + 1) & (len(texts.buckets) - 1)
    texts.buckets[bucket] = size
    return size


@inner
def _skip_spaces(data: Any, i: Int, size: Int) -> Int:
    while i < size and data[i] == _SPACE:
        i += 1
    return i


@inner
def _find_end(data: Any, i: Int, size: Int) -> Int:
    """Where the cell ends."""
    while i < size and data[i] != _COMMA and data[i] != _LINE_END:
        i += 1
    return i


@inline
def _read_time(data: Any, i: Int, size: Int) -> tuple[Int, Int, Int]:
    """Year, month and day as one number, or -1 when this is no time; the milliseconds since midnight; where it ends."""
    if i + 20 > size or data[i + 4] != _SLASH or data[i + 7] != _SLASH or data[i + 10] != _SPACE:
        return -1, 0, i
    if data[i + 13] != _COLON or data[i + 16] != _COLON:
        return -1, 0, i
    day: Int = np.int64(0)
    clock: Int = np.int64(0)
    good: Any = np.bool_(True)
    for k in (0, 1, 2, 3, 5, 6, 8, 9):
        digit = np.int64(data[i + k]) - _ZERO
        good &= (digit >= 0) & (digit <= 9)
        day = day * 10 + digit
    for k in (11, 12, 14, 15, 17, 18):
        digit = np.int64(data[i + k]) - _ZERO
        good &= (digit >= 0) & (digit <= 9)
        clock = clock * 10 + digit
    second, minute, hour = clock % 100, clock // 100 % 100, clock // 10_000
    if not good or hour >= H_PER_DAY or minute >= S_PER_MIN or second >= S_PER_MIN:
        return -1, 0, i
    clock_ms = ((hour * S_PER_MIN + minute) * S_PER_MIN + second) * MS_PER_S
    i += 19
    if data[i] == _POINT:
        weight, i = MS_PER_S, i + 1
        while i < size and weight > 1 and 0 <= np.int64(data[i]) - _ZERO <= 9:
            weight //= 10
            clock_ms += (np.int64(data[i]) - _ZERO) * weight
            i += 1
        if weight == MS_PER_S:
            return -1, 0, i
    return day, clock_ms, i


@inner
def _find_midnight(written: Int) -> Int:
    """The local ms since 1970 at which a day begins, or -1 when there is no such day (Howard Hinnant, days_from_civil)."""
    year, month, day = written // 10_000, written // 100 % 100, written % 100
    if year < _YEAR_FROM or year > _YEAR_TO or month < 1 or month > 12 or day < 1:
        return -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 30 + (month + month // 8) % 2 if month != 2 else (29 if leap else 28)
    if day > days:
        return -1
    if month <= 2:
        year, month = year - 1, month + 12
    in_year = (153 * (month - 3) + 2) // 5 + day - 1
    since = 365 * year + year // 4 - year // 100 + year // 400 + in_year - 719_468
    return since * H_PER_DAY * S_PER_MIN * S_PER_MIN * MS_PER_S


@inline
def _read_number(data: Any, i: Int, size: Int, layout: Layout, column: Int) -> tuple[float, Int]:
    """The value in our unit, and where it ends; -1 there when the cell is not plainly a number."""
    number, digits, scale, start = np.int64(0), 0, 0, i
    while i < size and 0 <= np.int64(data[i]) - _ZERO <= 9:
        number = number * 10 + (np.int64(data[i]) - _ZERO)
        i += 1
    digits = i - start
    if digits == 0:
        return 0.0, -1
    if i < size and data[i] == _POINT:
        start = i = i + 1
        while i < size and 0 <= np.int64(data[i]) - _ZERO <= 9:
            number = number * 10 + (np.int64(data[i]) - _ZERO)
            i += 1
        scale = i - start
        if scale == 0:
            return 0.0, -1
    if digits + scale > _DIGITS_MAX:
        return 0.0, -1
    i = _skip_spaces(data, i, size)
    for unit in range(layout.lengths.shape[1]):
        length = layout.lengths[column, unit]
        if length < 0:
            break
        end = i + length
        if end >= size or (data[end] != _COMMA and data[end] != _LINE_END and data[end] != _SPACE):
            continue
        same = True
        for k in range(length):
            same = same and data[i + k] == layout.units[column, unit, k]
        if same and length == 0:  # a text may follow the space
            end = _skip_spaces(data, end, size)
            same = end < size and (data[end] == _COMMA or data[end] == _LINE_END)
        if same:
            value = number / _POWERS[scale] if scale else float(number)
            return value * layout.multiply[column, unit] / layout.divide[column, unit], end
    return 0.0, -1


@inline
def _find_text(data: Any, start: Int, size: Int, column: Int, texts: Texts) -> tuple[Int, Int, Int]:
    """The text of this cell, or -1; where the cell goes on behind it, and where the text without spaces behind it ends."""
    before = texts.last[column]
    likely = texts.after[before] if before >= 0 else np.int64(-1)
    if likely >= 0:  # GPUs come round and round in the same order
        end = start + texts.lengths[likely]
        if end < size and (data[end] == _COMMA or data[end] == _LINE_END):
            differ, first = np.uint8(0), texts.starts[likely]
            for k in range(end - start):  # unsigned, because only then the loop is vectorized
                differ |= texts.letters[np.uint64(first + k)] ^ data[np.uint64(start + k)]
            if differ == 0:
                texts.last[column] = likely
                return likely, end, end
    end = _find_end(data, start, size)
    behind = end
    while end > start and data[end - 1] == _SPACE:
        end -= 1
    text = _look_up(data, start, end, column, texts)
    if text >= 0:
        if before >= 0:
            texts.after[before] = text
        texts.last[column] = text
    return text, behind, end


@inner
def _look_up(data: Any, start: Int, end: Int, column: Int, texts: Texts) -> Int:
    """The text with these letters in this column, or -1."""
    bucket = _hash(data, start, end, column) & (len(texts.buckets) - 1)
    while texts.buckets[bucket] >= 0:
        text = texts.buckets[bucket]
        if texts.columns[text] == column and texts.lengths[text] == end - start:
            same, first = True, texts.starts[text]
            for k in range(end - start):
                same = same and texts.letters[first + k] == data[start + k]
            if same:
                return text
        bucket = (bucket + 1) & (len(texts.buckets) - 1)
    return -1


@inner
def _hash(data: Any, start: Int, end: Int, column: Int) -> Int:
    """FNV-1a, 32 bits."""
    found = np.uint32(2_166_136_261) ^ np.uint32(column)
    for k in range(start, end):
        found = np.uint32((found ^ np.uint32(data[k])) * np.uint32(16_777_619))
    return np.int64(found)


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
