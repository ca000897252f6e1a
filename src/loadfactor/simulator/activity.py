"""The activity of each GPU in each interval, and whether it was measured: blocks of devices × intervals, a day at a time.

Activity is an integer number of ten-thousandths, as a collector prints four decimals; so sums over it are exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S, PERCENT
from loadfactor.simulator.demand import Calendar, compute_request_rate
from loadfactor.simulator.fleet import Floats, Ints
from loadfactor.simulator.scenario import SHAPES, WORKLOADS
from loadfactor.simulator.simulation import Simulation

ACTIVITY_PER_ONE = 10_000
ROWS_PER_BLOCK = 100_000
SLOT_OF_WORK_MS = MS_PER_HOUR // 4  # people at a notebook run something, or do not, for a quarter of an hour
SAWTOOTH_MS = 780 * MS_PER_S  # a loader's buffer fills and drains
CHECKPOINT_DIP_MS = 75 * MS_PER_S
STEADY, SAWTOOTH, NOTEBOOK, SERVING = range(len(SHAPES))
HASH = np.uint32(2_654_435_761)
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ActivityBlock:
    """Devices `first` … `first + rows − 1` over one day's intervals: interval j of row d is [lo + j·step, lo + (j+1)·step)."""

    day: int
    first: int
    lo_ms: Ints  # per row
    hi_ms: Ints  # per row: the end of its last interval
    owner: npt.NDArray[np.int32]  # index of the holding, −1 where nobody holds it
    valid: npt.NDArray[np.bool_]  # the sample was taken and arrived
    sm: npt.NDArray[np.int32]  # SM active, ten-thousandths
    engine: npt.NDArray[np.int32]
    busy: npt.NDArray[np.int32]  # percent
    unprofiled: npt.NDArray[np.bool_]  # SM and engine were not measured
    activity: npt.NDArray[np.int32]  # of the best signal measured, ten-thousandths


@dataclass(frozen=True)
class Behaviour:
    """Draws that decide the activity of each holding, one element per holding."""

    shape: Ints
    level: Singles  # SM active while it computes
    noise: Singles
    engine_gap: Singles
    busy_gap: Singles
    work_from_ms: Ints
    work_to_ms: Ints
    checkpoint_ms: Ints
    seed: npt.NDArray[np.uint32]


def compute_activity(sim: Simulation, how: Behaviour | None = None) -> Iterator[ActivityBlock]:
    """All intervals of the simulation, day by day, and within a day by device: at most about 100,000 at a time."""
    how = draw_behaviour(sim) if how is None else how
    per_day = MS_PER_DAY // sim.scenario.step_ms + 1
    rows = max(1, ROWS_PER_BLOCK // per_day)
    starts = np.searchsorted(sim.holdings.device, np.arange(len(sim.fleet.device_id) + 1))
    for day in range(sim.scenario.days):
        for first in range(0, len(sim.fleet.device_id), rows):
            last = min(first + rows, len(sim.fleet.device_id))
            yield _compute_block(sim, how, day, first, last, int(starts[first]), int(starts[last]))


def _compute_block(sim: Simulation, how: Behaviour, day: int, first: int, last: int, p0: int, p1: int) -> ActivityBlock:
    scenario, fleet, holdings = sim.scenario, sim.fleet, sim.holdings
    step = scenario.step_ms
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence((scenario.seed, 7, day, first))))
    base = scenario.start_ms + fleet.phase_ms[first:last]  # an interval ends here, and every step before and after
    from_day, to_day = scenario.start_ms + day * MS_PER_DAY, scenario.start_ms + (day + 1) * MS_PER_DAY
    before = (from_day - base) // step  # intervals that end up to the start of the day
    count = (to_day - base) // step - before
    width = int(count.max())
    lo = base + before * step
    hi = lo + count * step
    shape = (last - first, width)
    from_ms = lo[:, None] + np.arange(width, dtype=np.int64) * step

    near = np.arange(p0, p1)
    row = holdings.device[p0:p1] - first
    near = near[(holdings.from_ms[p0:p1] < hi[row]) & (holdings.to_ms[p0:p1] > lo[row])]
    owner, held = _find_owners(sim, near, first, lo, step, shape)
    has = owner >= 0
    sm = _compute_sm(sim.calendar, how, owner, has, from_ms, step, rng) * held
    sm_q = np.rint(np.clip(sm, 0, 0.9999) * ACTIVITY_PER_ONE).astype(np.int32)
    # The engine is active at least as often as a mean SM, a kernel is resident at least as often as the engine works.
    active = sm_q.astype(np.float32) / ACTIVITY_PER_ONE
    gap, resident = how.engine_gap[owner], how.busy_gap[owner]
    engine = active + np.where(sm_q > 0, (1 - active) * gap * np.minimum(1, 4 * active), 0)
    engine_q = np.maximum(sm_q, np.rint(engine * ACTIVITY_PER_ONE).astype(np.int32))
    share = engine_q.astype(np.float32) / ACTIVITY_PER_ONE
    busy = share + np.where(engine_q > 0, (1 - share) * resident * np.minimum(1, 3 * share), 0)
    busy_q = np.minimum(np.ceil(busy * PERCENT - 1e-4), PERCENT).astype(np.int32)

    unprofiled = np.broadcast_to(~fleet.profiled[first:last, None], shape)
    activity = np.where(unprofiled, busy_q * (ACTIVITY_PER_ONE // PERCENT), sm_q)
    return ActivityBlock(
        day,
        first,
        lo,
        hi,
        owner,
        _find_measured(sim, first, from_ms, step, hi, rng),
        sm_q,
        engine_q,
        busy_q,
        unprofiled,
        activity,
    )


def _find_owners(
    sim: Simulation, near: Ints, first: int, lo: Ints, step: int, shape: tuple[int, int]
) -> tuple[npt.NDArray[np.int32], Singles]:
    """The holder of most of each interval, and its part of it: an interval in which a job starts is partly idle."""
    holdings = sim.holdings
    owner = np.full(shape, -1, dtype=np.int32)
    held = np.ones(shape, dtype=np.float32)
    row = holdings.device[near] - first
    since, until = holdings.from_ms[near] - lo[row], holdings.to_ms[near] - lo[row]
    i0 = np.clip(-((step // 2 - since) // step), 0, shape[1])
    i1 = np.clip(-((step // 2 - until) // step), 0, shape[1])
    for holding, r, a, b in zip(near.tolist(), row.tolist(), i0.tolist(), i1.tolist(), strict=True):
        owner[r, a:b] = holding
    real = i1 > i0
    r, a, b, s, u = row[real], i0[real], i1[real] - 1, since[real], until[real]
    held[r, a] = np.clip(((a + 1) * step - s) / step, 0, 1)
    held[r, b] = np.minimum(held[r, b], np.clip((u - b * step) / step, 0, 1))
    return owner, held


def _compute_sm(
    calendar: Calendar,
    how: Behaviour,
    owner: npt.NDArray[np.int32],
    has: npt.NDArray[np.bool_],
    from_ms: Ints,
    step: int,
    rng: np.random.Generator,
) -> Singles:
    noise = rng.standard_normal(owner.shape, dtype=np.float32)
    shape = np.where(has, how.shape[owner], -1)
    out = np.zeros(owner.shape, dtype=np.float32)
    working = has & (from_ms + step > how.work_from_ms[owner]) & (from_ms < how.work_to_ms[owner])
    for kind, level in (
        (STEADY, _compute_steady),
        (SAWTOOTH, _compute_sawtooth),
        (NOTEBOOK, _compute_notebook),
        (SERVING, _compute_serving),
    ):
        at = np.nonzero(working & (shape == kind))
        if len(at[0]):
            holding, t = owner[at].astype(np.int64), from_ms[at]
            value = level(calendar, how, holding, t, step)
            # Noise is relative, so that what does nothing stays at nothing.
            out[at] = value * (1 + how.noise[holding] / np.maximum(how.level[holding], 0.05) * noise[at])
    return out


def _compute_steady(_: Calendar, how: Behaviour, holding: Ints, t: Ints, step: int) -> Singles:
    every = how.checkpoint_ms[holding]
    since = (t - how.work_from_ms[holding]) % np.maximum(every, 1)
    dip = np.where((every > 0) & (since < step), 1 - 0.85 * min(1.0, CHECKPOINT_DIP_MS / step), 1.0)
    return np.asarray(how.level[holding] * dip, dtype=np.float32)


def _compute_sawtooth(_: Calendar, how: Behaviour, holding: Ints, t: Ints, step: int) -> Singles:
    phase = ((t + step // 2 - how.work_from_ms[holding]) % SAWTOOTH_MS) / SAWTOOTH_MS
    return np.asarray(how.level[holding] * np.clip(1.15 * (1 - phase), 0.03, 1.0), dtype=np.float32)


def _compute_notebook(calendar: Calendar, how: Behaviour, holding: Ints, t: Ints, _: int) -> Singles:
    """Bursts while its owner is at the desk; a drawn number per session and quarter of an hour decides."""
    bucket = (t // SLOT_OF_WORK_MS).astype(np.uint32)
    drawn = (bucket * HASH) ^ how.seed[holding]
    drawn = (drawn ^ (drawn >> np.uint32(15))) * np.uint32(2_246_822_519)
    chance = (drawn ^ (drawn >> np.uint32(13))).astype(np.float64) / 2**32
    hour = calendar.hour(t)
    awake = (hour >= 8.5) & (hour < 19) & ~calendar.weekend(t)
    return np.asarray(how.level[holding] * np.where(awake & (chance < 0.3), 0.25 + 2.5 * chance, 0), dtype=np.float32)


def _compute_serving(calendar: Calendar, how: Behaviour, holding: Ints, t: Ints, step: int) -> Singles:
    return np.asarray(how.level[holding] * compute_request_rate(calendar, t + step // 2), dtype=np.float32)


def _find_measured(
    sim: Simulation, first: int, from_ms: Ints, step: int, hi: Ints, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    fleet = sim.fleet
    to_ms = from_ms + step
    rows = slice(first, first + len(from_ms))
    seen = np.asarray(
        (from_ms >= fleet.from_ms[rows, None])
        & (to_ms <= np.minimum(fleet.to_ms[rows, None], hi[:, None]))
        & (rng.random(from_ms.shape, dtype=np.float32) >= sim.scenario.missing_share)
    )
    here = range(first, first + len(from_ms))
    day = (int(from_ms.min()), int(to_ms.max()))
    for outage in sim.outages:
        if outage.reason != "drained" and outage.from_ms < day[1] and outage.to_ms > day[0]:
            for device in outage.devices:
                if device in here:
                    r = device - first
                    seen[r] &= (to_ms[r] <= outage.from_ms) | (from_ms[r] >= outage.to_ms)
    for failure in sim.exporter_failures:
        if failure.from_ms < day[1] and failure.to_ms > day[0]:
            quiet = fleet.node[rows] == failure.node
            if quiet.any():
                seen[quiet] &= (to_ms[quiet] <= failure.from_ms) | (from_ms[quiet] >= failure.to_ms)
    return seen


def draw_behaviour(sim: Simulation) -> Behaviour:
    """Draw what distinguishes one run from another of the same kind, and one GPU of a gang from the next."""
    holdings, runs = sim.holdings, sim.runs
    rng = np.random.default_rng((sim.scenario.seed, 6))
    work = np.array([r.job.workload for r in runs], dtype=np.int64)
    table = WORKLOADS

    def of_run(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)[work]

    level = of_run([w.sm_share for w in table]) * np.clip(rng.normal(1, 0.09, len(runs)), 0.7, 1.16)
    peaks = np.array([d.peak_sm_share for d in sim.scenario.deployments] + [0.3])
    deployed = np.array([r.job.deployment for r in runs], dtype=np.int64)
    serving = np.array([table[w].shape == "serving" for w in work])
    level = np.where(serving, peaks[deployed], level)
    gang = np.array([len(r.devices) for r in runs])
    slowed = (rng.random(len(runs)) < 0.08) & (gang >= 4) & ~serving
    level = np.where(slowed, level * 0.78, level)  # everybody waits for one
    run = holdings.run
    per_gpu = level[run] * rng.normal(1, 0.012, len(run))
    first_of_gang = np.zeros(len(run), dtype=bool)
    first_of_gang[np.unique(run, return_index=True)[1]] = True
    per_gpu = np.where(slowed[run] & first_of_gang, np.minimum(per_gpu * 1.24, 0.97), per_gpu)
    return Behaviour(
        shape=np.array([SHAPES.index(w.shape) for w in table], dtype=np.int64)[work][run],
        level=np.clip(per_gpu, 0.02, 0.97).astype(np.float32),
        noise=of_run([w.noise_share for w in table])[run].astype(np.float32),
        engine_gap=of_run([w.engine_gap_share for w in table])[run].astype(np.float32),
        busy_gap=rng.uniform(0.5, 0.95, len(runs))[run].astype(np.float32),
        work_from_ms=np.array([r.work_from_ms for r in runs], dtype=np.int64)[run],
        work_to_ms=np.array([r.work_to_ms for r in runs], dtype=np.int64)[run],
        checkpoint_ms=(np.array([w.checkpoint_s for w in table], dtype=np.int64) * MS_PER_S)[work][run],
        seed=rng.integers(0, 2**32, len(runs), dtype=np.uint32)[run],
    )
