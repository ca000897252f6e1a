"""Demand for GPUs as plain arrays: jobs, the state of a cluster, or GPUs requested over time; and what was left out of the file."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JobTrace:
    """One entry a job. `published_wait_s` is the wait the file itself reports; the rest where it has them."""

    name: str
    submit_s: Floats
    gpus: Floats
    duration_s: Floats
    limit_s: Floats | None = None
    priority: Floats | None = None
    team: NDArray[np.str_] | None = None
    published_wait_s: Floats | None = None
    published_makespan_s: float | None = None
    have_gpus: int | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateTrace:
    """A cluster's own counts, one entry per interval of `step_s`; "large" jobs ask for at least a whole node."""

    name: str
    step_s: float
    node_gpus: int
    total_gpus: Floats
    running_large_gpus: Floats
    running_small_gpus: Floats
    running_small_jobs: Floats
    pending_large_gpus: Floats
    pending_large_jobs: Floats
    pending_small_gpus: Floats
    pending_small_jobs: Floats
    left_out: tuple[str, ...] = ()

    @property
    def demand_gpus(self) -> Floats:
        """GPUs held and GPUs waited for."""
        return self.running_large_gpus + self.running_small_gpus + self.pending_large_gpus + self.pending_small_gpus


@dataclass(frozen=True)
class DemandTrace:
    """GPUs requested in each interval of `step_s`."""

    name: str
    step_s: float
    demand_gpus: Floats
    left_out: tuple[str, ...] = field(default=())


Demand = JobTrace | StateTrace | DemandTrace
