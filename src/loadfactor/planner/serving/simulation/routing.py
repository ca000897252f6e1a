"""Routing of a request to a replica: round robin, the least loaded, the one that remembers its prefix, or one queue for all."""

import numpy as np

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.prefix_cache import cached_blocks
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    DECODE,
    NONE,
    PREFIX_AFFINE,
    ROUND_ROBIN,
    SHARED_QUEUE,
    TURN,
    Clock,
    Replicas,
    Rules,
)

CROWDED = 2.0  # a replica with this many times the average outstanding work loses its claim to a prefix


@inner
def route(replicas: Replicas, clock: Clock, rules: Rules, hashes: np.ndarray, wanted: int) -> int:
    """The replica for a new request (role not `DECODE`) or a transfer (`wanted` = DECODE); NONE when none is up."""
    count = replicas.each.size
    if rules.router == SHARED_QUEUE and wanted != DECODE:
        return int(count)
    best, least, total, up = NONE, 0, 0, 0
    for offset in range(count):
        r = (clock.scalars[TURN] + offset) % count
        if replicas.each[r].status != ACTIVE or (replicas.each[r].role == DECODE) != (wanted == DECODE):
            continue
        if rules.router == ROUND_ROBIN:
            clock.scalars[TURN] = r + 1
            return int(r)
        up += 1
        total += replicas.each[r].outstanding
        if best == NONE or replicas.each[r].outstanding < least:
            best, least = r, replicas.each[r].outstanding
    clock.scalars[TURN] += 1
    if rules.router == PREFIX_AFFINE and hashes.size and wanted != DECODE and up:
        longest = 0
        limit = CROWDED * (total / up) + 2
        for r in range(count):
            if (
                replicas.each[r].status != ACTIVE
                or replicas.each[r].role == DECODE
                or replicas.each[r].outstanding > limit
            ):
                continue
            found = cached_blocks(replicas, r, hashes)
            if found > longest or (
                found == longest and found > 0 and replicas.each[r].outstanding < replicas.each[best].outstanding
            ):
                longest, best = found, r
    return int(best)
