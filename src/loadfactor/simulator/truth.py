"""The ground truth: what the ledger must say, from the construction itself and not through the ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.simulator.scenario import WORKLOADS
from loadfactor.simulator.schedule import ScheduledWait
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.table_rows import ProgressRow, list_progress
from loadfactor.simulator.truth_cells import measure_cells

QUANTILES = (0.5, 0.9, 0.99)


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
        """The whole fleet over the whole of its time."""
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
        """Every row of progress."""
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
    return Truth(sim, measure_cells(sim))


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
