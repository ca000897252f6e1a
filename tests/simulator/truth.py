"""The ground truth: what the ledger must say, from the construction itself and not through the ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.simulator.activity import ACTIVITY_PER_ONE, ActivityBlock, compute_activity
from loadfactor.simulator.fleet import Floats, Ints
from loadfactor.simulator.scenario import WORKLOADS
from loadfactor.simulator.schedule import ScheduledWait
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.table_rows import ProgressRow, list_progress
from loadfactor.tables.schema import IDLE_BELOW

QUANTILES = (0.5, 0.9, 0.99)
IDLE_BELOW_ACTIVITY = round(IDLE_BELOW * ACTIVITY_PER_ONE)


@dataclass(frozen=True)
class TrueTotals:
    """GPU-hours and cost (contracted prices) of a part of the fleet. Paid, unallocated and down only where a split has them."""

    paid_gpu_hours: float
    allocated_gpu_hours: float
    unallocated_gpu_hours: float
    down_gpu_hours: float
    observed_gpu_hours: float
    unobserved_gpu_hours: float
    idle_gpu_hours: float
    busy_gpu_hours: float
    effective_gpu_hours: float
    paid_cost: float
    allocated_cost: float
    unallocated_cost: float
    down_cost: float
    idle_cost: float
    unobserved_cost: float


COLUMNS = tuple(f.name for f in fields(TrueTotals))


@dataclass(frozen=True)
class TrueWaits:
    """How long people waited: quantiles of the waits that ended in a start (linear between ranks), and the others counted."""

    started: int
    p50_s: float
    p90_s: float
    p99_s: float
    mean_s: float
    cancelled: int
    waiting: int


@dataclass(frozen=True)
class Truth:
    """The ledger as it must be. `cells` has one row per GPU, attempt and hour; a row without a run is what nobody held."""

    sim: Simulation
    cells: pd.DataFrame

    def total(self) -> TrueTotals:
        return _sum_totals(self.cells[list(COLUMNS)].sum())

    def by(self, dimension: str) -> dict[object, TrueTotals]:
        """Split by device, node, accelerator, pool, hour or day (all of what is paid), or by job, attempt, experiment, user,
        team, project or purpose (what is held, and under None what nobody held). Hours and days are instants in ms."""
        grouped = self.cells.assign(key=self._key(dimension)).groupby("key", dropna=False)[list(COLUMNS)].sum()
        return {None if pd.isna(key) else key: _sum_totals(row) for key, row in grouped.iterrows()}

    def waits(self, **where: str) -> TrueWaits:
        """TrueWaits of all jobs, or of those whose team, user, project, pool or job_id is the one given."""
        return _summarize_waits(w for w in self.sim.waits if all(getattr(w.job, k) == v for k, v in where.items()))

    def amounts(self, kept: bool = True, **where: str) -> dict[str, float]:
        """Sum of progress by unit, kept or lost, of all jobs or of those that match."""
        out: dict[str, float] = {}
        for made in self.list_progress():
            job = self.sim.runs[made.run].job
            if made.kept == kept and all(getattr(job, k) == v for k, v in where.items()):
                out[made.unit] = out.get(made.unit, 0.0) + made.amount
        return out

    def list_progress(self) -> Iterable[ProgressRow]:
        return list_progress(self.sim)

    def _key(self, dimension: str) -> pd.Series:
        cells, fleet = self.cells, self.sim.fleet
        of_device = {
            "device": fleet.device_id,
            "node": [fleet.nodes[n].name for n in fleet.node],
            "accelerator": [fleet.nodes[n].group.accelerator for n in fleet.node],
            "pool": [fleet.nodes[n].group.pool for n in fleet.node],
        }
        if dimension in of_device:
            return cells["device"].map(pd.Series(list(of_device[dimension])))
        if dimension == "hour":
            return cells["hour_ms"]
        if dimension == "day":
            return cells["hour_ms"] // MS_PER_DAY * MS_PER_DAY
        runs = self.sim.runs
        of_run: Mapping[str, list[object]] = {
            "job": [r.job.job_id for r in runs],
            "attempt": [f"{r.job.job_id}/{r.attempt}" for r in runs],
            "experiment": [r.job.experiment_id for r in runs],
            "user": [r.job.user for r in runs],
            "team": [r.job.team for r in runs],
            "project": [r.job.project for r in runs],
            "purpose": [WORKLOADS[r.job.workload].purpose for r in runs],
        }
        return cells["run"].map(pd.Series(of_run[dimension], dtype=object))


def truth(sim: Simulation) -> Truth:
    """Work the truth out. Takes one pass over the activity of every interval, but makes no samples."""
    # One row per GPU, run and hour, and rows of run −1 for what nobody held; columns as in `TrueTotals`, 0 where one has none.
    hours = np.arange(sim.scenario.start_ms, sim.scenario.end_ms + 1, MS_PER_HOUR, dtype=np.int64)
    marks = np.unique(np.concatenate((hours, [p.from_ms for p in sim.prices])).astype(np.int64))
    held = [_measure_held(sim, block, marks) for block in compute_activity(sim)]
    merged = pd.concat(held, ignore_index=True).groupby(["device", "run", "hour_ms"], as_index=False).sum()
    lone = _measure_unheld(sim, marks)
    return Truth(sim, pd.concat([merged, lone], ignore_index=True).fillna(0.0))


def _sum_totals(sums: pd.Series) -> TrueTotals:
    return TrueTotals(**{name: float(sums[name]) for name in COLUMNS})


def _summarize_waits(waits: Iterable[ScheduledWait]) -> TrueWaits:
    listed = list(waits)
    ended = np.array([(w.until_ms - w.since_ms) / MS_PER_S for w in listed if w.until_ms is not None and w.started])
    p50, p90, p99 = np.quantile(ended, QUANTILES).tolist() if len(ended) else (np.nan,) * 3
    return TrueWaits(
        started=len(ended),
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        mean_s=float(ended.mean()) if len(ended) else np.nan,
        cancelled=sum(w.until_ms is not None and not w.started for w in listed),
        waiting=sum(w.until_ms is None for w in listed),
    )


def _cut_spans(from_ms: Ints, to_ms: Ints, marks: Ints) -> tuple[Ints, Ints, Ints]:
    first, last = np.searchsorted(marks, from_ms, "right"), np.searchsorted(marks, to_ms, "left")
    parts = np.maximum(last - first + 1, 0)
    span = np.repeat(np.arange(len(from_ms)), parts)
    nth = np.arange(len(span)) - np.repeat(np.cumsum(parts) - parts, parts) + first[span]
    since = np.maximum(from_ms[span], marks[np.maximum(nth - 1, 0)])
    until = np.minimum(to_ms[span], marks[np.minimum(nth, len(marks) - 1)])
    real = until > since
    return span[real], since[real], until[real]


def _measure_held(sim: Simulation, block: ActivityBlock, marks: Ints) -> pd.DataFrame:
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
    of = [n.group.accelerator for n in sim.fleet.nodes]
    names = np.array(of)[sim.fleet.node[device]]
    out = np.full(len(device), np.nan)
    for p in sim.prices:
        if p.basis == "contracted":
            until = sim.scenario.end_ms if p.to_ms is None else p.to_ms
            out[(names == p.accelerator) & (at_ms >= p.from_ms) & (at_ms < until)] = p.price_per_gpu_hour
    return out


def _measure_unheld(sim: Simulation, marks: Ints) -> pd.DataFrame:
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
