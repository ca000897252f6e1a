"""Which replicas are up: the autoscaler, cold starts, failures and repairs."""

import numpy as np

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.accounting import settle
from loadfactor.planner.serving.simulation.counters import AT
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    CHANCE,
    DOWN,
    DRAINING,
    NEVER,
    NEXT_SCALE,
    NOW,
    OFF,
    SPARE_SINCE,
    STARTING,
    Clock,
    Replicas,
    Rules,
)


@inner
def draw_chance(clock: Clock) -> float:
    """The next number of a fixed pseudo-random sequence, above 0 and at most 1 (Lehmer's, modulus 2³¹ − 1)."""
    value = clock.scalars[CHANCE] * np.int64(48271) % np.int64(2147483647)
    clock.scalars[CHANCE] = value
    return float(value / 2147483647.0)


@inner
def change_status(replicas: Replicas, rules: Rules, clock: Clock, r: int, status: int) -> None:
    """Change the status of a replica, with the timer that status carries."""
    settle(replicas, clock, rules, r)
    now = clock.scalars[NOW]
    replicas.each[r].status = status
    replicas.each[r].timer = NEVER
    if status == STARTING:
        replicas.each[r].timer = now + rules.cold_start_ns
        clock.counters[AT.cold_starts] += 1
    elif status == DOWN:
        replicas.each[r].timer = now + rules.repair_ns
    elif status == ACTIVE and rules.mtbf_ns > 0:
        replicas.each[r].timer = now + np.int64(-np.log(draw_chance(clock)) * rules.mtbf_ns) + 1


@inner
def scale(replicas: Replicas, rules: Rules, clock: Clock) -> None:
    """One look of the autoscaler: enough replicas for the sequences outstanding, at most one fewer per look, and not at once."""
    now = clock.scalars[NOW]
    clock.scalars[NEXT_SCALE] = now + rules.scale_interval_ns
    count = replicas.each.size
    waiting, up = replicas.queued[count], 0
    for r in range(count):
        waiting += replicas.each[r].outstanding
        if replicas.each[r].status == ACTIVE or replicas.each[r].status == STARTING:
            up += 1
        if (
            replicas.each[r].status == DRAINING
            and replicas.each[r].outstanding == 0
            and replicas.each[r].step_end == NEVER
        ):
            change_status(replicas, rules, clock, r, OFF)
    wanted = min(max(int(np.ceil(waiting / rules.scale_target)), rules.least), count)
    if wanted >= up:
        clock.scalars[SPARE_SINCE] = NEVER
        for status in (DRAINING, OFF):  # one that is still warm first
            for r in range(count):
                if up < wanted and replicas.each[r].status == status:
                    change_status(replicas, rules, clock, r, ACTIVE if status == DRAINING else STARTING)
                    up += 1
        return
    if clock.scalars[SPARE_SINCE] == NEVER:
        clock.scalars[SPARE_SINCE] = now
    if now - clock.scalars[SPARE_SINCE] < rules.scale_down_lag_ns:
        return
    for r in range(count - 1, -1, -1):
        if replicas.each[r].status == ACTIVE:
            change_status(replicas, rules, clock, r, DRAINING)
            return
