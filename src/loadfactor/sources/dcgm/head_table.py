"""Beginnings of lines, found again byte by byte: a table of names with labels and of titles, in arrays for compiled code."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import entry, inner

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
_LF, _SPACE, _QUOTE, _HASH, _OPEN, _CLOSE, _BACKSLASH = (ord(c) for c in '\n "#{}\\')
_HASH_BY: Final = np.uint64(0xFF51AFD7ED558CCD)
_HASH_SHIFT: Final = np.uint64(33)
STRANGE: Final = -1
"""The look of a beginning that is not entered: its lines are never plain."""


class HeadTable(NamedTuple):
    """Beginnings of lines, byte by byte, found by hash. `after`: the one that came behind it last; `last`: the one at hand."""

    bytes: Bytes
    start: Ints
    end: Ints
    looks: NDArray[np.int8]
    after: Ints
    last: Ints
    slots: Ints  # numbers by hash, -1 where free


@inner
def differ(heads: Bytes, data: Bytes) -> bool:
    found: Any = np.uint8(0)
    for k in range(len(heads)):
        found = np.uint8(found | np.uint8(heads[k] ^ data[k]))  # as bytes, so that it is vectorised
    return bool(found)


@inner
def _hash(data: Bytes) -> int:
    found: Any = np.uint64(len(data))
    for byte in data:
        found = (found ^ np.uint64(byte)) * _HASH_BY
        found ^= found >> _HASH_SHIFT
    return int(found & np.uint64(0x7FFFFFFFFFFFFFFF))


@inner
def find(table: HeadTable, data: Bytes) -> int:
    """The number of a beginning, -1 when it is new."""
    mask = len(table.slots) - 1
    slot = _hash(data) & mask
    while table.slots[slot] >= 0:
        number = table.slots[slot]
        start, end = table.start[number], table.end[number]
        if end - start == len(data) and not differ(table.bytes[start:end], data):
            return int(number)
        slot = (slot + 1) & mask
    return -1


@entry
def put_heads(table: HeadTable, numbers: Ints) -> None:
    """Enters these beginnings into the slots."""
    mask = len(table.slots) - 1
    for number in numbers:
        slot = _hash(table.bytes[table.start[number] : table.end[number]]) & mask
        while table.slots[slot] >= 0:
            slot = (slot + 1) & mask
        table.slots[slot] = number


@inner
def find_end(data: Bytes, i: int) -> int:
    """Where a beginning that is no guess ends: a title at the line's end, else behind the labels or before a space."""
    n = len(data)
    if data[i] == _HASH:
        while i < n and data[i] != _LF:
            i += 1
        return i
    while i < n and data[i] != _OPEN and data[i] != _SPACE and data[i] != _LF:
        i += 1
    if i == n or data[i] != _OPEN:
        return i
    quoted = False
    while i < n and data[i] != _LF:
        if quoted and data[i] == _BACKSLASH:
            i += 1
        elif data[i] == _QUOTE:
            quoted = not quoted
        elif data[i] == _CLOSE and not quoted:
            return i + 1
        i += 1
    return min(i, n)


def make_table(heads: int, size: int) -> HeadTable:
    """An empty table with room for so many beginnings of so many bytes in all."""
    heads = max(heads, 1024)
    slots = 1 << (4 * heads).bit_length()
    return HeadTable(
        np.zeros(size, np.uint8),
        np.zeros(heads, np.int64),
        np.zeros(heads, np.int64),
        np.full(heads, STRANGE, np.int8),
        np.zeros(heads, np.int64),
        np.zeros(1, np.int64),
        np.full(slots, -1, np.int64),
    )


def grow_table(table: HeadTable, heads: int, size: int) -> HeadTable:
    """The same with more room, and nothing in its slots yet."""
    new = make_table(heads, size)
    for name in HeadTable._fields[:-1]:
        old: NDArray[Any] = getattr(table, name)
        getattr(new, name)[: len(old)] = old
    return new
