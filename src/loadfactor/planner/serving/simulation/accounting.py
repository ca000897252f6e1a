"""Time of replicas and requests: every nanosecond of a paid replica is busy, idle, starting or down, in the hour it was spent."""

import numpy as np

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.counters import AT, BIN_RATIO, BINS, LEAST_NS
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    DOWN,
    DRAINING,
    IN_SYSTEM,
    LAST_SETTLED,
    NEVER,
    NOW,
    OFF,
    STARTING,
    Clock,
    Replicas,
    Rules,
)


@inner
def settle(replicas: Replicas, clock: Clock, rules: Rules, r: int) -> None:
    """Book the time of replica `r` since it was last settled; call before anything about it changes."""
    now = clock.scalars[NOW]
    spent = now - replicas.each[r].settled
    replicas.each[r].settled = now
    status = replicas.each[r].status
    if spent == 0 or status == OFF:
        return
    counters = clock.counters
    counters[AT.paid_ns] += spent
    if status == STARTING:
        counters[AT.starting_ns] += spent
    elif status == DOWN:
        counters[AT.down_ns] += spent
    elif replicas.each[r].step_end != NEVER:
        counters[AT.busy_ns] += spent
        counters[AT.decoding_ns] += spent * replicas.each[r].step_batch
        counters[AT.present_ns] += spent * replicas.each[r].present
        clock.sums[AT.cache_fill_ns] += spent * (1.0 - replicas.each[r].free / rules.blocks)
    else:
        counters[AT.idle_ns] += spent


@inner
def settle_all(replicas: Replicas, clock: Clock, rules: Rules) -> None:
    """Book everybody's time up to now, as the end of an hour needs."""
    for r in range(replicas.each.size):
        settle(replicas, clock, rules, r)
    count_system(clock, 0)


@inner
def count_system(clock: Clock, change: int) -> None:
    """Requests in the system × time, for Little's law."""
    s = clock.scalars
    clock.counters[AT.system_ns] += s[IN_SYSTEM] * (s[NOW] - s[LAST_SETTLED])
    s[LAST_SETTLED] = s[NOW]
    s[IN_SYSTEM] += change


@inner
def count_value(clock: Clock, kind: int, value_ns: float) -> None:
    """Count one value into its logarithmic histogram."""
    place = 0
    if value_ns > LEAST_NS:
        place = min(int(np.log(value_ns / LEAST_NS) / np.log(BIN_RATIO)) + 1, BINS - 1)
    clock.histograms[kind, place] += 1


@inner
def serves(status: int) -> bool:
    """Whether a replica in this status runs steps."""
    return status in (ACTIVE, DRAINING)
