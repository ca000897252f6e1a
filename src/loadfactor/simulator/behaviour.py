"""What decides the activity of each GPU while it is held: drawn once for every run and GPU."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import MS_PER_S
from loadfactor.simulator.fleet import Floats, Ints
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.workloads import SHAPES, WORKLOADS

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Behaviour:
    """What decides the activity of each holding, one element per holding."""

    shape: Ints
    level: Singles  # SM active while it computes
    noise: Singles
    engine_gap: Singles
    busy_gap: Singles
    work_from_ms: Ints
    work_to_ms: Ints
    checkpoint_ms: Ints
    seed: npt.NDArray[np.uint32]


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
