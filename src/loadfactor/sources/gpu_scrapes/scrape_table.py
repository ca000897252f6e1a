"""Scrapes in columns, one row a scrape of one GPU or MIG instance: its values, its totals, and who held it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.base import Gap, Gaps
from loadfactor.sources.gpu_scrapes.fields import BY_PROCESS, KEY_NUMBER, KEYS, WHOLE, FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import KnownDevices


@dataclass
class Scrape:
    """One scrape of one GPU or MIG instance, filled value by value, and who held it."""

    holders: set[str] = field(default_factory=set)
    values: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    _of: dict[str, str | None] = field(default_factory=dict)

    def add(self, key: str, counts: bool, value: float, holder: str | None) -> str | None:
        """Adds a value; says what is wrong where the same field was read otherwise before.

        One series a pod repeats what the device did, so equal values are one. Where they differ, those of fields that
        virtual GPUs report by process are of nobody but that process.
        """
        place = self.totals if counts else self.values
        if key not in self._of:
            self._of[key] = holder
            place[key] = value
            return None
        before = place.get(key)
        if before == value:
            return None
        if key in BY_PROCESS and holder != self._of[key]:
            if holder is None or self._of[key] is None:  # the row of the device itself
                if holder is None:
                    place[key], self._of[key] = value, None
                return None
            place.pop(key, None)
            return "read by process (virtual GPUs), not of the device"
        return "read twice with different values"


class TextGaps:
    """Counts gaps by text; `drain` hands them over and starts again."""

    def __init__(self) -> None:
        self._of: dict[str, Gaps] = {}

    def add(self, where: str, what: str, count: int = 1, reason: str = "") -> None:
        """`count` more of this kind; `reason` as of a Gap."""
        self._of.setdefault(where, Gaps()).add(where, what, count, reason)

    def drain(self) -> Iterator[Gap]:
        """Every kind of every text once."""
        of, self._of = self._of, {}
        for gaps in of.values():
            yield from gaps.drain()


_WHOLE: Final = np.array([key in WHOLE for key in KEYS])
UNREAD, IS_VALUE, IS_TOTAL = range(3)
"""Kinds of cells of `values`."""


@dataclass
class ScrapeColumns:
    """Rows of scrapes. `values` and `state` have a column for each of KEYS; the rest are numbers of KnownDevices."""

    place: NDArray[np.int32]
    gpu: NDArray[np.int32]
    at_ms: NDArray[np.int64]
    labels: NDArray[np.int32]  # of the first line read
    holders: NDArray[np.int32]
    values: NDArray[np.float64]
    state: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.place)

    def pick(self, which: Any) -> "ScrapeColumns":
        """Some rows, by a slice, a mask or numbers."""
        return ScrapeColumns(*(getattr(self, f.name)[which] for f in fields(self)))


def make_columns(rows: int) -> ScrapeColumns:
    numbers = [np.zeros(rows, kind) for kind in (np.int32, np.int32, np.int64, np.int32, np.int32)]
    return ScrapeColumns(*numbers, np.empty((rows, len(KEYS))), np.zeros((rows, len(KEYS)), np.uint8))  # type: ignore


class ScrapeTable:
    """Scrapes to which values are added. A scrape where a field comes twice or holders differ is kept as a `Scrape` as well."""

    def __init__(self, known: KnownDevices, gaps: TextGaps) -> None:
        self._known, self._gaps = known, gaps
        self._columns = make_columns(1024)
        self._odd: dict[int, Scrape] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def columns(self) -> ScrapeColumns:
        """All rows."""
        return self._columns.pick(slice(self._size))

    def open_rows(self, readings: FieldValues) -> None:
        """Adds rows; each of the readings is the first of one."""
        old, self._size = self._size, self._size + len(readings)
        if self._size > len(self._columns):
            more = make_columns(2 * self._size)
            for f in fields(more):
                getattr(more, f.name)[:old] = getattr(self._columns, f.name)[:old]
            self._columns = more
        new, columns = slice(old, self._size), self._columns
        columns.place[new], columns.gpu[new], columns.at_ms[new] = readings.place, readings.gpu, readings.at_ms
        columns.labels[new], columns.holders[new], columns.state[new] = readings.labels, readings.holders, UNREAD

    def feed(self, readings: FieldValues, row: NDArray[np.int64], texts: list[str]) -> None:
        """Adds values to these rows, in their order; -1 where the size of the device is not known, which is a gap.

        What is of the whole GPU says on the row of a MIG instance only that the GPU was held.
        """
        if (row < 0).any():
            self._count(readings, row < 0, texts, "skipped: a MIG instance without its profile", named=False)
            readings, row = readings.pick(row >= 0), row[row >= 0]
        is_part = ~(self._known.list_places().is_instance[readings.place] & _WHOLE[readings.key])
        self._count(readings, ~is_part, texts, "of the whole GPU on the row of a MIG instance", named=True)
        columns = self._columns
        cell = row * len(KEYS) + readings.key
        owner = np.empty(columns.state.size, np.int32)  # the last value for each cell
        mine = np.arange(len(cell), dtype=np.int32)
        owner[cell[is_part]] = mine[is_part]
        again = is_part & ((owner[cell] != mine) | (columns.state.ravel()[cell] != UNREAD))
        odd_rows = np.zeros(len(self), bool)
        odd_rows[row[again | (readings.holders != columns.holders[row])]] = True
        odd_rows[list(self._odd)] = True
        odd = odd_rows[row]
        plain = is_part & ~odd
        columns.values.ravel()[cell[plain]] = readings.value[plain]
        columns.state.ravel()[cell[plain]] = np.where(readings.is_total[plain], IS_TOTAL, IS_VALUE)
        for i in np.flatnonzero(odd):
            self._put_careful(readings, int(i), int(row[i]), bool(is_part[i]), texts)
        for number in np.unique(row[odd]).tolist():
            self._write(number)

    def drain(self, which: NDArray[np.bool_]) -> ScrapeColumns:
        """Takes these rows out; those that stay move up."""
        columns, stay = self.columns, np.flatnonzero(~which)
        self._columns, self._size = columns.pick(stay), len(stay)
        places = {int(old): new for new, old in enumerate(stay)} if self._odd else {}
        self._odd = {places[row]: scrape for row, scrape in self._odd.items() if row in places}
        return columns.pick(which)

    def _put_careful(self, readings: FieldValues, i: int, row: int, is_part: bool, texts: list[str]) -> None:
        scrape = self._odd.get(row)
        if scrape is None:
            scrape = self._odd[row] = self._read_row(row)
        held = self._known.holders.all[readings.holders[i]]
        scrape.holders.update(held)
        if is_part:
            key = KEYS[readings.key[i]]
            wrong = scrape.add(key, bool(readings.is_total[i]), float(readings.value[i]), held[0] if held else None)
            if wrong:
                self._gaps.add(texts[readings.text[i]], f"{self._known.names.all[readings.name[i]]} {wrong}")

    def _read_row(self, row: int) -> Scrape:
        """A row as the scrape it came from: all its values had one holder."""
        holders = self._known.holders.all[self._columns.holders[row]]
        scrape = Scrape(set(holders))
        for number in np.flatnonzero(self._columns.state[row]):
            counts = self._columns.state[row, number] == IS_TOTAL
            value = float(self._columns.values[row, number])
            scrape.add(KEYS[number], bool(counts), value, holders[0] if holders else None)
        return scrape

    def _write(self, row: int) -> None:
        scrape, columns = self._odd[row], self._columns
        columns.state[row] = UNREAD
        for found, state in ((scrape.values, IS_VALUE), (scrape.totals, IS_TOTAL)):
            for key, value in found.items():
                number = KEY_NUMBER[key]
                columns.values[row, number], columns.state[row, number] = value, state
        columns.holders[row] = self._known.holders.number(tuple(sorted(scrape.holders)))

    def _count(self, readings: FieldValues, which: NDArray[np.bool_], texts: list[str], what: str, named: bool) -> None:
        if not which.any():
            return
        found = readings.pick(which)
        of = np.stack([found.text, found.name if named else np.zeros_like(found.name)])
        for (text, name), count in zip(*np.unique(of.T, axis=0, return_counts=True), strict=True):
            self._gaps.add(texts[text], f"{self._known.names.all[name]} {what}" if named else what, int(count))


class Timeline:
    """The scrapes of rows that are sorted by GPU, then time; a GPU cut by MIG has several rows a scrape.

    `first` is the first row of each scrape, `of_row` numbers the scrapes by row. Whoever knows the steps fills in `start_ms`, where
    the interval of a scrape begins, and `step_ms`.
    """

    def __init__(self, scrapes: ScrapeColumns) -> None:
        new = (scrapes.gpu[1:] != scrapes.gpu[:-1]) | (scrapes.at_ms[1:] != scrapes.at_ms[:-1])
        new = np.append(True, new)[: len(scrapes)]
        self.first = np.flatnonzero(new)
        self.of_row = np.cumsum(new) - 1
        self.gpu, self.at_ms = scrapes.gpu[self.first], scrapes.at_ms[self.first]
        self.start_ms = self.at_ms.copy()
        self.step_ms = np.zeros_like(self.at_ms)

    @property
    def is_first(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """True for the first scrape of each GPU."""
        return np.append(True, self.gpu[1:] != self.gpu[:-1])[: len(self.gpu)]


def number_cells(place: NDArray[np.int32], at_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers what has one place and time, from 0 in the order first seen: the number of each entry, and the first entry of each.

    >>> number_cells(np.array([7, 8, 7, 7], np.int32), np.array([5, 5, 5, 6]))
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    n = len(place)
    runs = np.flatnonzero(np.append(True, at_ms[1:] != at_ms[:-1])[:n])  # lines of a scrape have one time
    times, time_of_run = np.unique(at_ms[runs], return_inverse=True)
    time = np.repeat(time_of_run, np.diff(np.append(runs, n)))
    code = place.astype(np.int64) * len(times) + time
    if n and int(code.max()) < 8 * n + 1024:  # few enough to look up
        table = np.empty(int(code.max()) + 1, np.int64)
        table[code[::-1]] = np.arange(n)[::-1]
        first = table[code]
    else:
        _, entry, inverse = np.unique(code, return_index=True, return_inverse=True)
        first = entry[inverse]
    is_first = first == np.arange(n)
    return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)
