"""Binary heaps in plain arrays, compiled: completions by time, waiting jobs by rank."""

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.compiled import inner


@inner
def push(keys: NDArray[np.float64], items: NDArray[np.int64], offset: int, size: int, key: float, item: int) -> None:
    """Add to the heap of `size` entries that starts at `offset`."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[offset + parent] <= key:
            break
        keys[offset + place] = keys[offset + parent]
        items[offset + place] = items[offset + parent]
        place = parent
    keys[offset + place] = key
    items[offset + place] = item


@inner
def pop(keys: NDArray[np.float64], items: NDArray[np.int64], offset: int, size: int) -> int:
    """Remove the smallest of `size` entries and return its item; the heap has size − 1 afterwards."""
    smallest = items[offset]
    last = size - 1
    key, item = keys[offset + last], items[offset + last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and keys[offset + child + 1] < keys[offset + child]:
            child += 1
        if keys[offset + child] >= key:
            break
        keys[offset + place] = keys[offset + child]
        items[offset + place] = items[offset + child]
        place = child
    keys[offset + place] = key
    items[offset + place] = item
    return int(smallest)
