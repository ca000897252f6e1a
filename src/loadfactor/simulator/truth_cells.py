"""GPU-hours and cost of every GPU, run and hour, read off the construction.

Activity is a whole number of ten-thousandths and time a whole number of milliseconds, so the integral of activity over any
span is exact; it is read off running sums at both ends of every hour a GPU was held. Only the last step, dividing by units
and weighting with shares and prices, is in floating point.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.simulator.activity import ACTIVITY_PER_ONE, ActivityBlock, compute_activity
from loadfactor.simulator.fleet import Floats, Ints
from loadfactor.simulator.simulation import Simulation
from loadfactor.tables.schema import IDLE_BELOW

IDLE_BELOW_ACTIVITY = round(IDLE_BELOW * ACTIVITY_PER_ONE)


def measure_cells(sim: Simulation) -> pd.DataFrame:
    """One row per GPU, run and hour, and rows of run −1 for what nobody held; columns as in `TrueTotals`, 0 where one has none."""
    marks = _find_marks(sim)
    held = [_measure_held(sim, block, marks) for block in compute_activity(sim)]
    merged = pd.concat(held, ignore_index=True).groupby(["device", "run", "hour_ms"], as_index=False).sum()
    lone = _measure_unheld(sim, marks)
    return pd.concat([merged, lone], ignore_index=True).fillna(0.0)


def _find_marks(sim: Simulation) -> Ints:
    """Instants at which a span is cut: the hours, and where a price changes."""
    hours = np.arange(sim.scenario.start_ms, sim.scenario.end_ms + 1, MS_PER_HOUR, dtype=np.int64)
    return np.unique(np.concatenate((hours, [p.from_ms for p in sim.prices])).astype(np.int64))


def _cut_spans(from_ms: Ints, to_ms: Ints, marks: Ints) -> tuple[Ints, Ints, Ints]:
    """Spans cut at the marks: for each part the span it is of, and its two ends."""
    first, last = np.searchsorted(marks, from_ms, "right"), np.searchsorted(marks, to_ms, "left")
    parts = np.maximum(last - first + 1, 0)
    span = np.repeat(np.arange(len(from_ms)), parts)
    nth = np.arange(len(span)) - np.repeat(np.cumsum(parts) - parts, parts) + first[span]
    since = np.maximum(from_ms[span], marks[np.maximum(nth - 1, 0)])
    until = np.minimum(to_ms[span], marks[np.minimum(nth, len(marks) - 1)])
    real = until > since
    return span[real], since[real], until[real]


def _measure_held(sim: Simulation, block: ActivityBlock, marks: Ints) -> pd.DataFrame:
    """What was held in a block: seconds seen, seconds idle, and the integral of activity, per run, GPU and hour."""
    holdings, scenario = sim.holdings, sim.scenario
    step = scenario.step_ms
    here = (holdings.device >= block.first) & (holdings.device < block.first + len(block.lo_ms))
    index = np.nonzero(here)[0]
    row = holdings.device[index] - block.first
    since = np.maximum(np.maximum(holdings.from_ms[index], block.lo_ms[row]), scenario.start_ms)
    until = np.minimum(holdings.to_ms[index], block.hi_ms[row])
    if block.day == scenario.days - 1:
        until = np.minimum(holdings.to_ms[index], scenario.end_ms)  # the rest of the time, in which no interval ends
    span, a, b = _cut_spans(since, np.maximum(since, until), marks)
    holding = index[span]
    row = holdings.device[holding] - block.first
    seen = block.valid
    observed = _integrate(seen, block, row, a, b, step)
    idle = _integrate(seen & (block.activity < IDLE_BELOW_ACTIVITY), block, row, a, b, step)
    effective = _integrate(np.where(seen, block.activity, 0), block, row, a, b, step) / ACTIVITY_PER_ONE
    weight = holdings.share[holding] * sim.fleet.share[holdings.device[holding]] / MS_PER_HOUR
    cost = _find_prices(sim, holdings.device[holding], a)
    allocated = (b - a) * weight
    cells = {
        "device": holdings.device[holding],
        "run": holdings.run[holding],
        "hour_ms": a // MS_PER_HOUR * MS_PER_HOUR,
        "paid_gpu_hours": allocated,
        "allocated_gpu_hours": allocated,
        "observed_gpu_hours": observed * weight,
        "unobserved_gpu_hours": (b - a - observed) * weight,
        "idle_gpu_hours": idle * weight,
        "busy_gpu_hours": (observed - idle) * weight,
        "effective_gpu_hours": effective * weight,
        "paid_cost": allocated * cost,
        "allocated_cost": allocated * cost,
        "idle_cost": idle * weight * cost,
        "unobserved_cost": (b - a - observed) * weight * cost,
    }
    return pd.DataFrame(cells)


def _integrate(values: npt.NDArray[Any], block: ActivityBlock, row: Ints, a: Ints, b: Ints, step: int) -> Ints:
    """∫ value dt from a to b, in value × ms: a running sum over whole intervals and the part of the one cut."""
    values = values.astype(np.int64)
    running = np.zeros((values.shape[0], values.shape[1] + 1), dtype=np.int64)
    np.cumsum(values, axis=1, out=running[:, 1:])

    def upto(t: Ints) -> Ints:
        within = t - block.lo_ms[row]
        slot = np.minimum(within // step, values.shape[1])
        part = np.where(slot < values.shape[1], values[row, np.minimum(slot, values.shape[1] - 1)], 0)
        return np.asarray(running[row, slot] * step + part * (within - slot * step))

    return np.asarray(upto(b) - upto(a))


def _find_prices(sim: Simulation, device: Ints, at_ms: Ints) -> Floats:
    """Contracted price of a whole GPU at an instant."""
    of = [n.group.accelerator for n in sim.fleet.nodes]
    names = np.array(of)[sim.fleet.node[device]]
    out = np.full(len(device), np.nan)
    for p in sim.prices:
        if p.basis == "contracted":
            until = sim.scenario.end_ms if p.to_ms is None else p.to_ms
            out[(names == p.accelerator) & (at_ms >= p.from_ms) & (at_ms < until)] = p.price_per_gpu_hour
    return out


def _measure_unheld(sim: Simulation, marks: Ints) -> pd.DataFrame:
    """What nobody held: the spans of each GPU's life that are left when those held and those down are taken out."""
    holdings, fleet = sim.holdings, sim.fleet
    down = [(d, o.from_ms, o.to_ms) for o in sim.outages for d in o.devices]
    out_device = np.array([d for d, _, _ in down], dtype=np.int64)
    out_from = np.array([a for _, a, _ in down], dtype=np.int64)
    out_to = np.array([b for _, _, b in down], dtype=np.int64)
    # Every edge adds to or takes from the share that is spoken for; between two edges it is constant.
    n = len(fleet.device_id)
    device = np.concatenate((np.arange(n), np.arange(n), *[x for x in (holdings.device, out_device) for _ in (0, 1)]))
    at = np.concatenate((fleet.from_ms, fleet.to_ms, holdings.from_ms, holdings.to_ms, out_from, out_to))
    ones = np.ones(len(down))
    change = np.concatenate((np.ones(n), -np.ones(n), -holdings.share, holdings.share, -ones, ones))
    order = np.lexsort((at, device))
    device, at, change = device[order], at[order], change[order]
    free = np.cumsum(change)  # back to zero at the end of each GPU's life, up to rounding
    inside = (device[1:] == device[:-1]) & (at[1:] > at[:-1]) & (free[:-1] > 1e-9)
    span_device, span_free = device[:-1][inside], free[:-1][inside]
    idle = _measure_spans(sim, span_device, at[:-1][inside], at[1:][inside], span_free, marks, "unallocated")
    return pd.concat([idle, _measure_spans(sim, out_device, out_from, out_to, ones, marks, "down")], ignore_index=True)


def _measure_spans(
    sim: Simulation, device: Ints, from_ms: Ints, to_ms: Ints, share: Floats, marks: Ints, what: str
) -> pd.DataFrame:
    span, a, b = _cut_spans(from_ms, to_ms, marks)
    gpu_hours = (b - a) * share[span] * sim.fleet.share[device[span]] / MS_PER_HOUR
    cost = gpu_hours * _find_prices(sim, device[span], a)
    cells = {
        "device": device[span],
        "run": -1,
        "hour_ms": a // MS_PER_HOUR * MS_PER_HOUR,
        "paid_gpu_hours": gpu_hours,
        f"{what}_gpu_hours": gpu_hours,
        "paid_cost": cost,
        f"{what}_cost": cost,
    }
    return pd.DataFrame(cells).groupby(["device", "run", "hour_ms"], as_index=False).sum()
