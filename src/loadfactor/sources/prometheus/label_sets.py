"""Sets of labels found again by their bytes: a table in arrays for compiled code, filled by it, never larger than it was made."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

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
    """The slot by which these bytes are known, or a free one."""
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
