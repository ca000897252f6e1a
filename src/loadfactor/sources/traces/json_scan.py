"""Events of a trace's JSON, read by compiled code: each becomes a row of whole numbers, its texts numbers in a table of texts.

Chrome's Trace Event Format, of which Kineto writes slices (`X`) and memory (`i`); others write pairs (`B`, `E`). Flows, counters
and metadata are passed over. An event that is no JSON is read once more tolerantly, else passed over and counted.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner
from loadfactor.sources.traces.json_tokens import (
    ALLOCATED,
    ARGS,
    ARGS_BEGINS,
    ARGS_COLUMNS,
    ARGS_TEXT,
    BAD,
    CLOSE,
    CLOSE_LIST,
    COLON,
    COLUMNS,
    COMMA,
    DIMS,
    DURATION,
    EVENT_BEGINS,
    EVENT_COLUMNS,
    EVENT_TEXT,
    GRID,
    MISSING,
    MORE,
    NAME,
    NOTHING,
    OPEN,
    PHASE,
    QUOTE,
    START,
    TEXTS,
    TOO_LARGE,
    Bytes,
    find_quote,
    find_text,
    read_thousandths,
    read_whole,
    skip_space,
    skip_value,
)

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
NEEDS_MORE, FULL, ENDED = 1, 2, 3
"""Why a scan stopped: it wants more bytes, room is full, the list of events ended."""
STATE, ROWS, TEXT_COUNT, ARENA_USED, MALFORMED, PASSED, NAN_TIMES = 0, 1, 2, 3, 4, 5, 6
"""Places of the counts of a scan; NAN_TIMES are events whose time is no number of 64 bits."""
COUNTS: Final = 7
SLICE, BEGIN, STOP, INSTANT = 88, 66, 69, 105
_BIT: Final = 32  # between capital and small letters
_LARGE_A, _LARGE_Z = 65, 90
_SEED: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_FOLD: Final = np.uint64(29)
_OPERATORS: Final = np.frombuffer(b"aten::", np.uint8)


@inner
def _find_member(data: Bytes, i: int, size: int, text: Bytes, begins: Ints, columns: Ints) -> int:
    for k in range(len(columns)):
        begin = begins[k]
        length = begins[k + 1] - begin
        if length < size:
            continue
        if length > size:
            return NOTHING
        same = True
        for j in range(size):
            byte = data[np.uint64(i + j)]
            if _LARGE_A <= byte <= _LARGE_Z:
                byte += _BIT
            if byte != text[begin + j]:
                same = False
                break
        if same:
            return int(columns[k])
    return NOTHING


@inner
def _multiply(data: Bytes, i: int, end: int) -> int:
    """The product of a list of numbers: how many blocks a grid has."""
    product = 1
    while i < end:
        byte = data[np.uint64(i)]
        if 48 <= byte <= 57:
            value = 0
            while i < end and 48 <= data[np.uint64(i)] <= 57 and value < 1 << 32:
                value = value * 10 + (data[np.uint64(i)] - 48)
                i += 1
            product = min(product * value, 1 << 30)
        else:
            i += 1
    return product


@inner
def _take(data: Bytes, i: int, end: int, column: int, row: Ints, spans: Ints, tolerant: bool) -> int:
    if column in (GRID, DIMS):
        stop = skip_value(data, i, end, tolerant)
        if stop >= 0 and column == GRID:
            row[GRID] = _multiply(data, i, stop)
        elif stop >= 0:
            spans[2 * DIMS], spans[2 * DIMS + 1] = i, stop
        return stop
    begin, stop, after = find_text(data, i, end, tolerant)
    if after < 0:
        return after
    if column < TEXTS:
        spans[2 * column], spans[2 * column + 1] = begin, stop
    elif column == PHASE:
        row[PHASE] = data[np.uint64(begin)] if stop == begin + 1 else 0
    elif column in (START, DURATION):
        row[column] = read_thousandths(data, begin, stop)
    else:
        row[column] = read_whole(data, begin, stop)
    return after


@inner
def _read_event(data: Bytes, i: int, end: int, row: Ints, spans: Ints, tolerant: bool) -> int:
    row[:] = MISSING
    spans[:] = 0
    inside = False
    i += 1
    while True:
        i = skip_space(data, i, end)
        if i >= end:
            return MORE
        byte = data[np.uint64(i)]
        if byte == COMMA:
            i += 1
            continue
        if byte == CLOSE:
            i += 1
            if not inside:
                return i
            inside = False
            continue
        if byte != QUOTE:
            return BAD
        begin = i + 1
        i = find_quote(data, begin, end, tolerant)
        if i < 0:
            return i
        size = i - begin
        i = skip_space(data, i + 1, end)
        if i >= end:
            return MORE
        if data[np.uint64(i)] != COLON:
            return BAD
        i = skip_space(data, i + 1, end)
        if i >= end:
            return MORE
        if inside:
            column = _find_member(data, begin, size, ARGS_TEXT, ARGS_BEGINS, ARGS_COLUMNS)
        else:
            column = _find_member(data, begin, size, EVENT_TEXT, EVENT_BEGINS, EVENT_COLUMNS)
        if column == ARGS and data[np.uint64(i)] == OPEN:
            inside = True
            i += 1
            continue
        i = (
            skip_value(data, i, end, tolerant)
            if column >= COLUMNS
            else _take(data, i, end, column, row, spans, tolerant)
        )
        if i < 0:
            return i


@inner
def _number_text(
    data: Bytes, begin: int, end: int, slots: Ints, hashes: Hashes, ends: Ints, arena: Bytes, counts: Ints
) -> int:
    """The number of a text in the table of texts, where it is put when it is new."""
    key = _SEED
    for k in range(begin, end):
        key = (key ^ np.uint64(data[np.uint64(k)])) * _PRIME
    key ^= key >> _FOLD
    size, mask = end - begin, len(slots) - 1
    place = np.int64(key & np.uint64(mask))
    while slots[place] >= 0:
        known = slots[place]
        start = ends[known]
        if hashes[known] == key and ends[known + 1] - start == size:
            same = True
            for k in range(size):
                same &= arena[np.uint64(start + k)] == data[np.uint64(begin + k)]
            if same:
                return int(known)
        place = (place + 1) & mask
    known = counts[TEXT_COUNT]
    slots[place] = known
    hashes[known] = key
    start = counts[ARENA_USED]
    for k in range(size):
        arena[np.uint64(start + k)] = data[np.uint64(begin + k)]
    counts[ARENA_USED] += size
    ends[known + 1] = counts[ARENA_USED]
    counts[TEXT_COUNT] += 1
    return int(known)


@inner
def _is_kept(data: Bytes, row: Ints, spans: Ints, counts: Ints) -> bool:
    """Whether the event is one that is kept; counts those that are not."""
    phase = row[PHASE]
    if (phase == INSTANT and row[ALLOCATED] != MISSING) or phase in (SLICE, BEGIN, STOP):
        if row[START] != TOO_LARGE and row[START] != MISSING and row[DURATION] != TOO_LARGE:
            if spans[2 * DIMS] > 0:
                name = spans[2 * NAME]
                for k in range(len(_OPERATORS)):
                    if data[np.uint64(name + k)] != _OPERATORS[k]:
                        spans[2 * DIMS + 1] = spans[2 * DIMS]
                        break
            return True
        counts[NAN_TIMES] += 1
        return False
    counts[PASSED] += 1
    return False


@inner
def _find_next_event(data: Bytes, i: int, end: int) -> int:
    """Where an object begins that follows another one and a comma; MORE where none is in sight."""
    while i < end:
        if data[np.uint64(i)] == CLOSE:
            j = skip_space(data, i + 1, end)
            if j < end and data[np.uint64(j)] == COMMA:
                j = skip_space(data, j + 1, end)
                if j < end and data[np.uint64(j)] == OPEN:
                    return j
        i += 1
    return MORE


@entry
def scan_events(
    data: Bytes,
    i: int,
    end: int,
    rows: Ints,
    spans: Ints,
    slots: Ints,
    hashes: Hashes,
    ends: Ints,
    arena: Bytes,
    counts: Ints,
) -> int:
    """Scans a list of events from `i`; gives how far it came. counts[STATE] says why it stopped there."""
    while True:
        i = skip_space(data, i, end)
        if i >= end:
            counts[STATE] = NEEDS_MORE
            return i
        byte = data[np.uint64(i)]
        if byte == COMMA:
            i += 1
            continue
        if byte == CLOSE_LIST:
            counts[STATE] = ENDED
            return i + 1
        at = counts[ROWS]
        room = len(arena) - counts[ARENA_USED]
        if at == len(rows) or counts[TEXT_COUNT] + TEXTS >= len(hashes) or 2 * counts[TEXT_COUNT] >= len(slots):
            counts[STATE] = FULL
            return i
        row = rows[at]
        if byte == OPEN:
            after = _read_event(data, i, end, row, spans, False)
            if after == BAD:
                after = _read_event(data, i, end, row, spans, True)
        else:
            after = skip_value(data, i, end, False)
            row[PHASE] = 0
        if after == BAD:
            counts[MALFORMED] += 1
            after = _find_next_event(data, i + 1, end)
            row[PHASE] = MISSING
            if after < 0:
                counts[MALFORMED] -= 1  # it is counted when more bytes are there
        if after < 0:
            counts[STATE] = NEEDS_MORE
            return i
        if row[PHASE] != MISSING and _is_kept(data, row, spans, counts):
            if after - i > room:
                counts[STATE] = FULL
                return i
            for text in range(TEXTS):
                begin, stop = spans[2 * text], spans[2 * text + 1]
                row[text] = _number_text(data, begin, stop, slots, hashes, ends, arena, counts) if stop > begin else -1
            counts[ROWS] += 1
        i = after


@entry
def place_texts(slots: Ints, hashes: Hashes, count: int) -> None:
    """Puts the texts into empty slots."""
    mask = len(slots) - 1
    for known in range(count):
        place = np.int64(hashes[known] & np.uint64(mask))
        while slots[place] >= 0:
            place = (place + 1) & mask
        slots[place] = known


@entry
def end_of_value(data: Bytes, i: int, end: int) -> int:
    """Where the value ends that begins at `i`; MORE or BAD."""
    return skip_value(data, i, end, False)
