"""The series of a remote_write request, scanned by compiled code: WriteRequest of Prometheus' prompb/remote.proto.

A request is series (field 1) and metadata (3). A series is labels (1), samples (2), exemplars (3) and histograms (4), the labels
first; a sample is a double (1) and milliseconds since 1970 (2), either left out where it is 0.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inline, inner
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.sources.prometheus.protobuf_wire import (
    BAD_WIRE,
    FAULTS,
    FIRST_BYTES,
    FIXED64,
    SECOND_BYTES,
    TRUNCATED,
    VARINT,
    WIRE_BITS,
    Bytes,
    Ints,
    read_length,
    read_varint,
    skip_field,
)

COUNT, LAST = 0, 1
"""Of `state`: how many sets there are; the one that came last, -1 where none did."""
_MIX: Final = np.uint64(0xFF51AFD7ED558CCD)
_HALF: Final = np.uint64(32)
_WORD: Final = 8
_MASK: Final = np.uint64(0x7FFFFFFFFFFFFFFF)
FREE: Final = -1


class LabelSets(NamedTuple):
    """Set k is the bytes from start[k] to start[k + 1]. `after`: the set that came behind it last; `slots`: numbers by hash."""

    bytes: Bytes
    start: Ints
    after: Ints
    slots: Ints
    state: Ints
    seed: NDArray[np.uint64]  # so that nobody can choose labels that meet in one slot


def make_sets(sets: int, size: int, seed: int) -> LabelSets:
    """An empty table with room for so many sets of so many bytes in all."""
    return LabelSets(
        np.zeros(size, np.uint8),
        np.zeros(sets + 1, np.int64),
        np.full(sets, FREE, np.int64),
        np.full(1 << (2 * sets).bit_length(), FREE, np.int64),
        np.array([0, FREE], np.int64),
        np.array([seed], np.uint64),
    )


def grow_sets(old: LabelSets, sets: int, size: int) -> LabelSets:
    """The same sets with more room."""
    new = make_sets(sets, size, int(old.seed[0]))
    new.bytes[: len(old.bytes)] = old.bytes
    new.start[: len(old.start)] = old.start
    new.after[: len(old.after)] = old.after
    new.state[:] = old.state
    enter_sets(new)
    return new


@inner
def read_word(data: Bytes, i: int) -> Any:
    """Eight bytes, the lowest first: one load, because the places are unsigned and so never count from the end."""
    at = np.uint64(i)
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@inner
def differ(known: Bytes, i: int, data: Bytes, k: int, size: int) -> bool:
    """Whether so many bytes of one, from i on, differ from those of the other, from k on."""
    found: Any = np.uint64(0)
    if size < _WORD:
        for at in range(size):
            found |= np.uint64(known[i + at] ^ data[k + at])
        return bool(found != np.uint64(0))
    for at in range(0, size - _WORD, _WORD):
        found |= read_word(known, i + at) ^ read_word(data, k + at)
    found |= read_word(known, i + size - _WORD) ^ read_word(data, k + size - _WORD)  # may overlap the one before
    return bool(found != np.uint64(0))


@inner
def _find_slot(table: LabelSets, data: Bytes, i: int, end: int) -> int:
    found: Any = table.seed[0] ^ np.uint64(end - i)
    k = i
    while k + _WORD <= end:
        found = (found ^ read_word(data, k)) * _MIX
        found ^= found >> _HALF
        k += _WORD
    while k < end:
        found = (found ^ np.uint64(data[k])) * _MIX
        found ^= found >> _HALF
        k += 1
    mask = len(table.slots) - 1
    slot = np.int64(found & _MASK) & mask
    while table.slots[slot] != FREE:
        known = table.slots[slot]
        start, stop = table.start[known], table.start[known + 1]
        if stop - start == end - i and not differ(table.bytes, start, data, i, end - i):
            break
        slot = (slot + 1) & mask
    return int(slot)


@inner
def find_set(table: LabelSets, data: Bytes, i: int, end: int) -> int:
    """The number of these labels, a new one where they are new; FREE where there is no room for them."""
    slot = _find_slot(table, data, i, end)
    found = table.slots[slot]
    if found == FREE:
        count = table.state[COUNT]
        start = table.start[count]
        if count == len(table.after) or end - i > len(table.bytes) - start:
            return FREE
        for k in range(end - i):
            table.bytes[start + k] = data[i + k]
        table.start[count + 1] = start + end - i
        table.after[count] = FREE
        table.slots[slot] = found = count
        table.state[COUNT] = count + 1
    return int(found)


@entry
def enter_sets(table: LabelSets) -> None:
    """Enters all sets into the slots, which are free."""
    for number in range(table.state[COUNT]):
        slot = _find_slot(table, table.bytes, table.start[number], table.start[number + 1])
        table.slots[slot] = number


@entry
def keep_first(table: LabelSets, count: int) -> None:
    """Forgets all sets but the first so many. The newest leave first, so no search for an older one passes their slots."""
    for number in range(table.state[COUNT] - 1, count - 1, -1):
        table.slots[_find_slot(table, table.bytes, table.start[number], table.start[number + 1])] = FREE
    table.state[COUNT] = min(table.state[COUNT], count)
    table.state[LAST] = FREE


_VALUE: Final = 1 << WIRE_BITS | FIXED64
_TIME: Final = 2 << WIRE_BITS | VARINT
_PLAIN_SIZE: Final = 18  # tag, length, tag, eight bytes of value, tag, six bytes of time
_HEAD_MASK: Final = np.uint64(0xFFFFFF)
_PLAIN_HEAD: Final = np.uint64(_VALUE << 16 | (_PLAIN_SIZE - 2) << 8 | SECOND_BYTES)
_TIME_MASK: Final = np.uint64(0x8080_8080_8080_FF00)  # which bytes go on, behind the tag
_PLAIN_TIME: Final = np.uint64(0x0080_8080_8080_0000 | _TIME << 8)
_EARLIEST, _LATEST = np.uint64(EARLIEST_MS), np.uint64(LATEST_MS)
_EXEMPLARS, _HISTOGRAMS = 3, 4  # fields of a series
_SYMBOLS, _SERIES_2 = 4, 5  # fields of a request of remote_write 2.0
DONE, NO_ROOM, FULL = 0, -20, -21
"""Why a scan stopped: at the end; no room for new labels; no room for more samples; else a fault."""
WRITE_2, NO_LABELS, LATE_LABELS, MANY_SERIES, LONG_LABELS = -22, -23, -24, -26, -27
SERIES_FAULTS: Final = {
    **FAULTS,
    WRITE_2: "is of remote_write 2.0; have the sender write 1.0 (protobuf_message: prometheus.WriteRequest)",
}
NO_INSTANT: Final = -1
"""Stands for the time of a sample that is outside of the years 2000 to 2100."""
SERIES, EXEMPLARS, HISTOGRAMS, LABELS_FROM, LABELS_TO = range(5)
"""Of `counts`: how many of each there were, and where the labels lie of a series that cannot be kept."""


class ScannedSamples(NamedTuple):
    """Of each sample the number of its labels, the instant (ms, or NO_INSTANT), and the bits of its value."""

    labels: NDArray[np.int32]
    at_ms: Ints
    bits: NDArray[np.uint64]


@entry
def scan_series(
    data: Bytes, i: int, known: LabelSets, out: ScannedSamples, k: int, counts: Ints, limits: Ints
) -> tuple[int, int, int]:
    """Scans series from byte i on; gives where it stopped (at a field), how many samples there are by now, and why.

    After NO_LABELS, LATE_LABELS and LONG_LABELS it stopped behind that one series, whose samples have this number instead of their
    labels'. `limits`: series of a request, and bytes of the labels of one.
    """
    end = len(data)
    while i < end:
        begin = i
        tag, i = read_varint(data, i, end)
        if i < 0:
            return begin, k, i
        if tag != FIRST_BYTES:
            field = tag >> WIRE_BITS
            if field in (_SYMBOLS, _SERIES_2):
                return begin, k, WRITE_2
            i = BAD_WIRE if field == 1 else skip_field(data, i, end, tag)
            if i < 0:
                return begin, k, i
            continue
        size, i = read_length(data, i, end)
        if i < 0:
            return begin, k, i
        if counts[SERIES] == limits[0]:
            return begin, k, MANY_SERIES
        stop, labels = i + size, i
        found, i = _find_labels(data, i, stop, known, limits[1])
        if i < 0:
            return begin, k, i
        labels_end = i
        until, exemplars, histograms, is_late = _read_samples(data, i, stop, found, out, k)
        if until < 0:
            return begin, k, until
        if is_late:
            out.labels[k:until] = found = LATE_LABELS
        i, k = stop, until
        counts[SERIES] += 1
        counts[EXEMPLARS] += exemplars
        counts[HISTOGRAMS] += histograms
        if found < 0:
            counts[LABELS_FROM], counts[LABELS_TO] = labels, labels_end
            return i, k, found
        last = known.state[LAST]
        if last >= 0:
            known.after[last] = found
        known.state[LAST] = found
    return i, k, DONE


@inline
def _find_labels(data: Bytes, i: int, stop: int, known: LabelSets, longest: int) -> tuple[int, int]:
    """The number of the labels with which a series begins, or why they have none, and where they end."""
    last = known.state[LAST]
    guess = known.after[last] if last >= 0 else FREE
    if 0 <= guess < known.state[COUNT]:
        start, end = known.start[guess], known.start[guess + 1]
        after = i + end - start
        # labels end where none follows, so equal bytes are equal sets
        ends = after <= stop and (after == stop or data[after] != FIRST_BYTES)
        if ends and not differ(known.bytes, start, data, i, end - start):
            return guess, after
    end = i
    while end < stop and data[end] == FIRST_BYTES:
        size, at = read_length(data, end + 1, stop)
        if at < 0:
            return 0, at
        end = at + size
    if end == i:
        return NO_LABELS, end
    if end - i > longest:
        return LONG_LABELS, end
    found = find_set(known, data, i, end)
    return found, NO_ROOM if found == FREE else end


@inline
def _read_samples(
    data: Bytes, i: int, stop: int, labels: int, out: ScannedSamples, k: int
) -> tuple[int, int, int, bool]:
    """How many samples there are with those of this series, how many exemplars and histograms it has, and whether more labels."""
    exemplars, histograms, is_late = 0, 0, False
    while i < stop:
        if stop - i >= _PLAIN_SIZE and k < len(out.labels):
            at_ms = _read_plain_time(data, i)
            if at_ms >= 0:
                out.labels[k], out.at_ms[k], out.bits[k] = labels, at_ms, read_word(data, i + 3)
                i, k = i + _PLAIN_SIZE, k + 1
                continue
        tag, i = read_varint(data, i, stop)
        if i < 0:
            return i, 0, 0, False
        if tag != SECOND_BYTES:
            field = tag >> WIRE_BITS
            if field <= 2 and tag > 0 and tag != FIRST_BYTES:
                return BAD_WIRE, 0, 0, False
            is_late |= tag == FIRST_BYTES
            exemplars += field == _EXEMPLARS
            histograms += field == _HISTOGRAMS
            i = skip_field(data, i, stop, tag)
            if i < 0:
                return i, 0, 0, False
            continue
        size, i = read_length(data, i, stop)
        if i < 0:
            return i, 0, 0, False
        if k == len(out.labels):
            return FULL, 0, 0, False
        i, bits, at_ms = _read_sample(data, i, i + size)
        if i < 0:
            return i, 0, 0, False
        out.labels[k], out.at_ms[k], out.bits[k] = labels, at_ms, bits
        k += 1
    return k, exemplars, histograms, is_late


@inline
def _read_plain_time(data: Bytes, i: int) -> int:
    """The instant of a sample as every sender writes it, a value and then a time of six bytes; -1 where it is another one."""
    head, time = read_word(data, i), read_word(data, i + _PLAIN_SIZE - 8)
    if head & _HEAD_MASK != _PLAIN_HEAD or time & _TIME_MASK != _PLAIN_TIME:
        return -1
    at_ms: Any = np.uint64(0)
    for k in range(6):
        at_ms |= (time >> np.uint64(16 + 8 * k) & np.uint64(127)) << np.uint64(7 * k)
    return int(np.int64(at_ms)) if _EARLIEST <= at_ms <= _LATEST else -1


@inline
def _read_sample(data: Bytes, i: int, stop: int) -> tuple[int, Any, int]:
    bits: Any = np.uint64(0)
    at_ms = 0
    while i < stop:
        if data[i] == _VALUE:
            if stop - i < 9:
                return TRUNCATED, bits, 0
            bits = read_word(data, i + 1)
            i += 9
            continue
        tag, i = read_varint(data, i, stop)
        if tag == _TIME:
            at_ms, i = read_varint(data, i, stop)
        elif i >= 0:
            i = BAD_WIRE if tag > 0 and tag >> WIRE_BITS in (1, 2) else skip_field(data, i, stop, tag)
        if i < 0:
            return i, bits, 0
    return i, bits, at_ms if EARLIEST_MS <= at_ms <= LATEST_MS else NO_INSTANT
