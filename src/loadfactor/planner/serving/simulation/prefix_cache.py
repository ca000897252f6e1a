"""The prefix cache of a replica: a set-associative cache of prefix blocks, least recently used out first.

Blocks enter when the request is routed, not when its prompt has been computed: a second request that follows within the time
of one prefill finds them a little early.
"""

import numpy as np

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.state import Replicas


@inner
def cached_blocks(replicas: Replicas, replica: int, hashes: np.ndarray) -> int:
    """How many of a prompt's leading blocks the replica holds."""
    sets = replicas.prefix_key.shape[1]
    found = 0
    for block in hashes:
        row = replicas.prefix_key[replica, block % sets]
        held = False
        for way in range(row.size):
            if row[way] == block:
                held = True
        if not held:
            break
        found += 1
    return found


@inner
def remember(replicas: Replicas, replica: int, hashes: np.ndarray, now: int) -> None:
    """Put a prompt's blocks into the cache, each over the least recently used of its set."""
    sets = replicas.prefix_key.shape[1]
    for block in hashes:
        row = replicas.prefix_key[replica, block % sets]
        used = replicas.prefix_used[replica, block % sets]
        oldest = 0
        for way in range(row.size):
            if row[way] == block:
                oldest = way
                break
            if used[way] < used[oldest]:
                oldest = way
        row[oldest] = block
        used[oldest] = now + 1
