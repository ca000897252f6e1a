"""Rules of the queue: GPUs that are free while jobs wait, and waits that are longer than usual."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_MIN, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.books.watched_waits import QueuedJobs, UsualWait
from loadfactor.insight.alerts.rule import (
    LEAST_COVERAGE,
    Compound,
    Evidence,
    Floats,
    Ints,
    Limit,
    Limits,
    Need,
    Rule,
    Verdicts,
    count_by,
    flatten,
    show_duration,
    show_names,
)

_NODE: Final = ("node",)
_WINDOW_S: Final = 10.0 * S_PER_MIN
_FREE: Final = Need("unallocated_gpu_hours", _NODE, _WINDOW_S)
_SIZE: Final = Need("paid_gpu_hours", _NODE, float(S_PER_MIN))
_POOL: Final = Need("paid_gpu_hours", ("pool",), float(S_PER_MIN))
"""Read so that the pool of a node is known."""
_ROUNDING: Final = 1e-6
SHORTEST_MS, LONGEST_MS = MS_PER_HOUR, 6 * MS_PER_HOUR
"""The waits of now are those that last, and those that ended within half of the usual p90: within these limits."""


def find_free_beside_waits(evidence: Evidence, limits: Limits) -> Verdicts:
    """Pools with GPUs that nobody has held for ten minutes, while a job has waited as long that fits into them.

    A job no larger than a node needs one node with enough of them; a larger one needs whole nodes.
    """
    pools, pool_of, free, size = _read_free(evidence)
    shape = len(pool_of), len(pools)
    largest, most = np.zeros(shape), np.zeros(shape)
    known = np.flatnonzero(pool_of.ravel() >= 0)
    own = flatten(pool_of, len(pools))[known]
    np.maximum.at(largest.ravel(), own, size.ravel()[known])
    np.maximum.at(most.ravel(), own, free.ravel()[known])
    is_whole = free >= size - _ROUNDING
    of_largest = np.zeros(free.shape, dtype=np.bool_)
    of_largest.ravel()[known] = size.ravel()[known] >= largest.ravel()[own] - _ROUNDING
    whole = count_by(pool_of, len(pools), is_whole & of_largest)
    waits = evidence.records.waits
    place_of = {pool: place for place, pool in enumerate(pools)}
    pool_number = np.array([place_of.get(pool or "", -1) for pool in waits.pools], dtype=np.int64)
    waiting = waits.find_waiting(evidence.at_ms) & (pool_number >= 0) & (waits.gpus > 0)
    waiting &= waits.queued_ms <= (evidence.at_ms - limits["wait"] * MS_PER_MIN)[:, np.newaxis]
    step, row = np.nonzero(waiting)
    at, gpus = (step, pool_number[row]), waits.gpus[row]
    nodes = np.ceil(gpus / np.maximum(largest[at], _ROUNDING) - _ROUNDING)
    fits = np.where(gpus <= largest[at] + _ROUNDING, gpus <= most[at] + _ROUNDING, nodes <= whole[at])
    count = np.zeros(shape)
    np.add.at(count, (step[fits], pool_number[row[fits]]), 1.0)
    is_there = count_by(pool_of, len(pools), np.ones_like(pool_of)) > 0

    def explain(at: int, place: int) -> tuple[str, ...]:
        own = row[fits & (step == at) & (pool_number[row] == place)]
        waited = show_duration((evidence.at_ms[at] - waits.queued_ms[own].min()) / MS_PER_S)
        here = free[at, pool_of[at] == place]
        return (
            f"{here.sum():.0f} GPUs free on {np.count_nonzero(here > 0)} nodes, as many as {most[at, place]:.0f} on one",
            f"{count[at, place]:.0f} jobs wait that would fit, the longest for {waited}: "
            + show_names(f"{waits.jobs[wait]} ({waits.gpus[wait]:.0f} GPUs)" for wait in own.tolist()),
        )

    groups = [(pool or "(no pool)",) for pool in pools]
    return Verdicts(groups, count > 0, count == 0, count, "jobs", explain, ~is_there)


def _read_free(evidence: Evidence) -> tuple[list[str], Ints, Floats, Floats]:
    """Pools, and by step and node its pool by number (−1 where its GPUs are not known), its GPUs that nobody holds, and all."""
    found, paid = evidence.read(_FREE), evidence.read(_SIZE)
    is_known = paid.is_there & (found.coverage >= LEAST_COVERAGE) & ~np.isnan(found.value)
    named = evidence.names(_NODE, "pool")
    used = [named.names[code] if code >= 0 else "" for code in np.unique(named.codes[is_known]).tolist()]
    pools = sorted(set(used))
    number = {pool: place for place, pool in enumerate(pools)}
    place_of = np.array([*(number.get(name, -1) for name in named.names), number.get("", -1)], dtype=np.int64)
    pool_of = np.where(is_known, place_of[named.codes], -1)
    free = np.floor(np.where(is_known, found.value, 0.0) * S_PER_HOUR / _WINDOW_S + _ROUNDING)
    return pools, pool_of, free, np.where(is_known, paid.value, 0.0) * S_PER_HOUR / S_PER_MIN


def find_unusual_waits(evidence: Evidence, limits: Limits) -> Verdicts:
    """Queues in which jobs wait longer now than nine of ten did in the days before."""
    at_ms, waits = evidence.at_ms[:, np.newaxis], evidence.records.waits
    days = (evidence.at_ms - evidence.step_ms) // MS_PER_DAY
    usual = {day: evidence.records.usual_waits(day * MS_PER_DAY) for day in dict.fromkeys(days.tolist())}
    own = _name_queues(waits)
    queues = sorted({*own, *(queue for of_day in usual.values() for queue in of_day)})
    number = {queue: place for place, queue in enumerate(queues)}
    of = np.array([number[queue] for queue in own], dtype=np.int64)
    by_day = {day: _read_p90(queues, of_day, limits) for day, of_day in usual.items()}
    p90_s = np.stack([by_day[day] for day in days.tolist()])
    since = at_ms - np.clip(np.nan_to_num(p90_s) * MS_PER_S / 2, SHORTEST_MS, LONGEST_MS)
    threshold = np.maximum(p90_s, limits["wait"] * S_PER_MIN)
    lasts = waits.find_waiting(evidence.at_ms)
    ended = waits.started & (waits.ended_ms <= at_ms) & (waits.ended_ms > since[:, of])
    waited_s = (np.minimum(waits.ended_ms, at_ms) - waits.queued_ms) / MS_PER_S
    is_long = (lasts | ended) & (waited_s > threshold[:, of])
    parents = np.broadcast_to(of, is_long.shape)
    long, now = (count_by(parents, len(queues), chosen) for chosen in (is_long, is_long | ended))
    share = np.divide(long, now, out=np.zeros(long.shape), where=now > 0)
    longest = np.zeros(long.shape)
    np.maximum.at(longest.ravel(), flatten(parents, len(queues))[is_long.ravel()], waited_s[is_long])
    is_bad = (long >= limits["jobs"]) & (share >= limits["share"])
    is_clear = (long < limits["jobs"]) | (share < limits["share"] / 2)

    def explain(step: int, place: int) -> tuple[str, ...]:
        at = step, place
        rows = np.flatnonzero(is_long[step] & (of == place))
        jobs = usual[int(days[step])][queues[place]].jobs
        return (
            f"{long[at]:.0f} of {now[at]:.0f} jobs have waited longer than {show_duration(threshold[at])}: "
            + show_names(waits.jobs[row] for row in rows.tolist()),
            f"the longest for {show_duration(longest[at])}; nine of ten of the {jobs} jobs that started"
            f" in the 14 days before today waited no longer than {show_duration(p90_s[at])}",
        )

    value = np.where(np.isnan(p90_s), np.nan, longest)
    return Verdicts(
        [(queue or "(no queue)",) for queue in queues], is_bad & ~np.isnan(p90_s), is_clear, value, "s", explain
    )


def _name_queues(waits: QueuedJobs) -> list[str]:
    """The queue of each wait, or the pool where it has no queue."""
    return [queue or pool or "" for queue, pool in zip(waits.queues, waits.pools, strict=True)]


def _read_p90(queues: list[str], usual: Mapping[str, UsualWait], limits: Limits) -> Floats:
    """The usual p90 of each queue, in seconds; NaN where too few jobs are known."""
    found = (usual.get(queue) for queue in queues)
    return np.array([of.p90_s if of and of.jobs >= limits["history"] else np.nan for of in found], dtype=np.float64)


QUEUE: Final = (
    Rule(
        "gpus_free_while_jobs_wait",
        Compound(
            find_free_beside_waits, (_FREE, _SIZE, _POOL),
            {"wait": Limit(10, "min", "how long a job must have waited to count", 0, 10_080)},
        ),
        ("pool",), 5 * S_PER_MIN, "warning", "scheduling",
        "GPUs have been free for 15 minutes while jobs wait that would fit on them.",
        "Is it scheduling: does a limit, a reservation, a wrong constraint or a stuck scheduler keep the jobs away?",
        "Why they wait (`squeue -o %r`, `kubectl describe`), `loadfactor waits --by reason`, and the quotas of their queue.",
    ),
    Rule(
        "queue_wait_unusual",
        Compound(
            find_unusual_waits, (),
            {
                "history": Limit(20, "jobs", "how many jobs must have started in the days before", 1, 1e6),
                "jobs": Limit(3, "jobs", "how many jobs have to wait that long", 1, 1e6),
                "share": Limit(0.5, "share", "their part of those that wait that long or started lately", 0.01, 1),
                "wait": Limit(10, "min", "a wait that is no longer is never unusual", 0, 10_080),
            },
        ),
        ("queue",), 5 * S_PER_MIN, "info", "scheduling",
        "Most jobs of a queue wait longer than nine of ten did in the 14 days before.",
        "Is it scheduling: are fewer GPUs usable, are jobs larger or longer than usual, or did somebody submit very many?",
        "`loadfactor waits --by queue` and `--by size`; `loadfactor show allocation down_share --by pool`.",
    ),
)  # fmt: skip
