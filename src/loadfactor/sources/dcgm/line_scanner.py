"""A scanner of plain lines, compiled: known names and labels, a plain number and perhaps a time; all others go to LineReader.

A line is plain where its beginning is known byte by byte and what stands behind is one number below DCGM's blanks, or that and a
plain time, separated by spaces and ended by a line feed. So a scanned line means what LineReader says of it (tested).
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner
from loadfactor.sources.dcgm.fields import BLANK_FP64, BLANK_INT32, BLANK_INT64, BLANKS, BY_KEY, convert, is_large
from loadfactor.sources.dcgm.head_table import (
    STRANGE,
    Bytes,
    HeadTable,
    Ints,
    differ,
    find,
    find_end,
    grow_table,
    make_table,
    put_heads,
)
from loadfactor.sources.dcgm.known_series import FOREIGN, KEY, KIND, TITLE, VALUE, KnownSeries
from loadfactor.sources.dcgm.metric_lines import SKIPPED, LineBatch, LineReader, find_head_end, is_name
from loadfactor.sources.dcgm.plain_numbers import POWERS, read_number, read_time
from loadfactor.sources.dcgm.scrape_order import follow_lines
from loadfactor.sources.gpu_scrapes.fields import READ_KEYS, UNTIMED
from loadfactor.sources.parsing.text_blocks import TextBlock

_LF, _SPACE = (ord(c) for c in "\n ")
_TITLE, _ANY, _SMALL, _LARGE, _MASK = range(5)
"""What is plain behind a beginning: nothing, any number, one below all blanks, one that is no blank, a mask."""
_BLANK_KINDS: Final = len(BLANKS)
_NEAR: Final = 4  # known lines in a row that are read carefully behind a new one
_FAR: Final = 1024  # lines in a row that are read carefully where hardly any is plain
_LINES: Final = 2**15  # room for a block's; it grows
_follow_many = entry(follow_lines)


class Scanned(NamedTuple):
    """What was read, up to as many lines as there are."""

    series: NDArray[np.int32]
    values: NDArray[np.float64]
    at_ms: Ints
    lines: Ints


@inner
def _is_plain(value: float, look: int) -> bool:
    """False where DCGM may mean that it has no value, or where a mask is none (`explain_blank`, `parse_value`)."""
    if look == _MASK and (value < 0 or value != np.floor(value)):
        return False
    if value < BLANK_INT32 or look == _ANY:
        return True
    between = BLANK_INT32 + _BLANK_KINDS <= value < BLANK_INT64
    return look == _LARGE and between and not BLANK_FP64 <= value < BLANK_FP64 + _BLANK_KINDS


@entry
def scan_lines(
    data: Bytes, i: int, line: int, table: HeadTable, out: Scanned, k: int, powers: NDArray[np.float64]
) -> tuple[int, int, int]:
    """Reads plain lines from byte `i` on, the `k`-th of them first; where it stops, the number of that line, and the next k."""
    n, room = len(data), len(out.series)
    while i < n and k < room:
        if data[i] == _LF:
            i, line = i + 1, line + 1
            continue
        last = table.last[0]
        found = table.after[last]
        end = i + table.end[found] - table.start[found]
        stop = _LF if table.looks[found] == _TITLE else _SPACE
        guessed = table.looks[found] != STRANGE and end < n and data[end] == stop
        if not guessed or differ(table.bytes[table.start[found] : table.end[found]], data[i:end]):
            end = find_end(data, i)
            found = find(table, data[i:end])
            if found < 0 or end >= n:
                break
        look = table.looks[found]
        value, at_ms = np.nan, UNTIMED
        if look != _TITLE:
            if data[end] != _SPACE:
                break
            while end < n and data[end] == _SPACE:
                end += 1
            if end == n:
                break
            value, end = read_number(data, end, powers)
            if end < 0 or end >= n or not _is_plain(value, look):
                break
            if data[end] == _SPACE:
                while end < n and data[end] == _SPACE:
                    end += 1
                if end < n and data[end] != _LF:
                    at_ms, end = read_time(data, end, powers)
                    if end < 0:
                        break
                    while end < n and data[end] == _SPACE:
                        end += 1
            if look == _ANY:
                value = np.nan
        if end >= n or data[end] != _LF:
            break
        out.series[k], out.values[k], out.at_ms[k], out.lines[k] = found, value, at_ms, line
        table.after[last] = found
        table.last[0] = found
        i, line, k = end + 1, line + 1, k + 1
    return i, line, k


class LineScanner:
    """Scans blocks of lines against what is known, and learns from what LineReader reads."""

    follow_lines = staticmethod(_follow_many)

    def __init__(self, known: KnownSeries) -> None:
        self._known = known
        self._entered = 0
        self._generation: object = None
        self._table: Any = None
        n = _LINES
        self._out = Scanned(np.empty(n, np.int32), np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64))

    def read(self, block: TextBlock, reader: LineReader) -> LineBatch:
        """The lines of a block that say something; those that are not plain are read by `reader`."""
        data, byte, line, k = block.data, 0, block.line, 0
        view, out, careful, near = np.frombuffer(data, np.uint8), self._out, [], 1
        while byte < len(data):
            self._enter_new()
            if k == len(out.series):
                out = self._out = Scanned(*(np.concatenate([array, array]) for array in out))
            before = k
            byte, line, k = scan_lines(view, byte, line, self._table, out, k, POWERS)
            near = (
                1 if k - before >= near else min(2 * near, _FAR)
            )  # where nothing is plain it is not tried line by line
            start, known, since, want = k, len(self._known), 0, near
            while since < want and byte < len(data) and k < len(out.series):  # where one series is new others are, too
                end = data.find(b"\n", byte)
                last = end < 0
                if last:
                    end = len(data)
                    self._note(reader, out.series[:k], out.at_ms[:k])  # it counts whether one before had a time
                parsed = reader.parse(data[byte:end].decode(), last)
                if parsed is not None:
                    out.series[k], out.values[k], out.at_ms[k] = parsed
                    out.lines[k] = line
                    careful.append(k)
                    k += 1
                since += 1
                if len(self._known) > known:
                    known, since, want = len(self._known), 0, max(near, _NEAR)
                byte, line = end + 1, line + 1
            self._guess(out.series[max(start - 1, 0) : k])
        batch = LineBatch(out.series[:k].copy(), out.values[:k].copy(), out.at_ms[:k].copy(), out.lines[:k].copy())
        return self._finish(reader, batch, careful)

    def _finish(self, reader: LineReader, batch: LineBatch, careful: list[int]) -> LineBatch:
        """Values in our units; what is skipped is counted, and plain lines of others leave."""
        scanned = np.ones(len(batch.series), bool)
        scanned[careful] = False
        facts = self._known.facts
        kinds = facts[batch.series, KIND]
        counts = np.bincount(kinds[scanned], minlength=VALUE + 1)
        for kind, what in SKIPPED.items():
            reader.skip(what, counts[kind])
        self._note(reader, batch.series, batch.at_ms)
        at = np.flatnonzero(scanned & (kinds == VALUE))
        keys = facts[batch.series[at], KEY]
        batch.values[at] = convert(batch.values[at], _MULTIPLY[keys], _DIVIDE[keys])
        return batch

    def _note(self, reader: LineReader, series: NDArray[np.int32], at_ms: Ints) -> None:
        of_dcgm = self._known.facts[series, KIND] > FOREIGN
        reader.found = reader.found or bool(of_dcgm.any())
        reader.timed = reader.timed or bool((of_dcgm & (at_ms != UNTIMED)).any())

    def _guess(self, series: NDArray[np.int32]) -> None:
        """These came one after the other, and may do so again."""
        self._enter_new()
        table = self._table
        usual = series[table.looks[series] != STRANGE]
        if len(usual):
            table.after[usual[:-1]] = usual[1:]
            table.last[0] = usual[-1]

    def _enter_new(self) -> None:
        """Enters what was learnt since; starts again where numbers have changed or there is no room."""
        known = self._known
        if known.generation is not self._generation:
            self._generation, self._entered, self._table = known.generation, 0, make_table(0, 0)
        new = range(self._entered, len(known))
        if not new:
            return
        heads = [head.encode() for head in known.heads[self._entered :]]
        size = int(self._table.end[self._entered - 1]) if self._entered else 0
        used = size + sum(map(len, heads))
        if len(known) >= len(self._table.start) or used > len(self._table.bytes):
            self._table = grow_table(self._table, 2 * len(known), 2 * used)
            put_heads(self._table, np.flatnonzero(self._table.looks != STRANGE))
        ends = size + np.cumsum([len(head) for head in heads])
        self._table.bytes[size:used] = np.frombuffer(b"".join(heads), np.uint8)
        self._table.end[new.start : new.stop] = ends
        self._table.start[new.start : new.stop] = [size, *ends[:-1]]
        self._table.looks[new.start : new.stop] = [
            _look(head, known.facts[i]) for i, head in zip(new, known.heads[new.start :], strict=True)
        ]
        put_heads(self._table, new.start + np.flatnonzero(self._table.looks[new.start : new.stop] != STRANGE))
        self._entered = len(known)


_MULTIPLY: Final = np.array([BY_KEY[key].multiply if key in BY_KEY else 1 for key in READ_KEYS], np.float64)
_DIVIDE: Final = np.array([BY_KEY[key].divide if key in BY_KEY else 1 for key in READ_KEYS], np.float64)


def _look(head: str, facts: NDArray[np.int32]) -> int:
    """What may stand behind a beginning where its line is plain; where it ends must not depend on what stands there."""
    kind = facts[KIND]
    if kind == TITLE:
        return _TITLE
    if find_head_end(head + " 1") != len(head) or (kind == FOREIGN and not is_name(head)):
        return STRANGE
    if kind != VALUE:
        return _ANY
    field = BY_KEY[READ_KEYS[facts[KEY]]]
    return _MASK if field.mask else _LARGE if is_large(field) else _SMALL
