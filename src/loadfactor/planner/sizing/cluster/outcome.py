"""Outcome of a cluster simulation: waits by job and by size, how full it was, and why jobs waited beside idle GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import S_PER_HOUR
from loadfactor.planner.sizing.cluster.jobs import Floats, Ints, Jobs
from loadfactor.planner.sizing.cluster.state import ClusterStatistics

SIZE_EDGES = (0, *(2**power for power in range(11)), 10**9)  # GPUs


@dataclass(frozen=True)
class Outcome:
    """One simulation. Arrays run along the jobs; `start_s` is NaN for a job that was turned away."""

    jobs: Jobs
    gpus: int
    start_s: Floats
    end_s: Floats
    held_s: Floats
    starts: Ints
    statistics: ClusterStatistics

    @property
    def wait_s(self) -> Floats:
        """Seconds each job stood in the queue, before its first start and after being stopped."""
        stopped_s = np.where(self.starts > 1, self.end_s - self.start_s - self.held_s, 0.0)
        return self.start_s - self.jobs.submit_s + np.maximum(stopped_s, 0.0)

    @property
    def turned_away_share(self) -> float:
        return float(np.isnan(self.start_s).mean())

    @property
    def makespan_s(self) -> float:
        return float(np.nanmax(self.end_s) - self.jobs.submit_s[0])

    @property
    def busy_gpu_s(self) -> float:
        """GPU-seconds held, added up over the simulated clock; equals Σ gpus × seconds held."""
        return self.statistics.all_busy_gpu_s

    @property
    def utilization_share(self) -> float:
        """Share of all GPUs held between the first and the last submission; the emptying afterwards is not counted."""
        span_s = self.jobs.span_s
        return self.statistics.busy_gpu_s / (self.gpus * span_s) if span_s > 0 else 1.0

    @property
    def pending_share(self) -> float:
        return self._time_share(self.statistics.pending_s)

    @property
    def pending_while_idle_share(self) -> float:
        """Share of that time in which somebody waited while a GPU was free: the three reasons below add up to it."""
        return self._time_share(self.statistics.blocked_s)

    @property
    def gang_share(self) -> float:
        """…because fewer GPUs were free than the smallest waiting gang asks for."""
        return self._time_share(self.statistics.gang_s)

    @property
    def fragmented_share(self) -> float:
        """…because enough were free, but not on the nodes a gang needs."""
        return self._time_share(self.statistics.fragmented_s)

    @property
    def order_share(self) -> float:
        """…because a job would have fitted but the queue's order or a reservation held it."""
        return self._time_share(self.statistics.order_s)

    @property
    def fragmented_gpu_hours(self) -> float:
        """GPU-hours that stood free while a waiting gang would have fitted into as many GPUs on other nodes."""
        return self.statistics.fragmented_gpu_s / S_PER_HOUR

    def wait_quantiles_s(self, quantiles: Sequence[float] = (0.5, 0.9, 0.99)) -> tuple[float, ...]:
        """Waits that these shares of jobs do not exceed."""
        return tuple(float(q) for q in np.nanquantile(self.wait_s, quantiles))

    @property
    def mean_wait_s(self) -> float:
        return float(np.nanmean(self.wait_s))

    @property
    def gpu_weighted_wait_s(self) -> float:
        """Mean wait, each job counted by its GPUs."""
        known = ~np.isnan(self.wait_s)
        return float(np.average(self.wait_s[known], weights=self.jobs.gpus[known]))

    def by_size(self) -> tuple["SizeClass", ...]:
        """Waits of jobs of like size: a share of a GPU, 1, 2, 3–4, 5–8, 9–16, … GPUs."""
        classes = []
        wait = self.wait_s
        for low, high in pairwise(SIZE_EDGES):
            mine = (self.jobs.gpus > low) & (self.jobs.gpus <= high) if low else self.jobs.gpus < 1
            if low == 0:
                ones = self.jobs.gpus == 1
                classes += [_size_class("under 1", mine, wait), _size_class("1", ones, wait)]
            else:
                classes.append(_size_class(str(high) if high - low == 1 else f"{low + 1}–{high}", mine, wait))
        return tuple(c for c in classes if c.jobs)

    def _time_share(self, seconds: float) -> float:
        return seconds / self.jobs.span_s if self.jobs.span_s > 0 else 0.0


@dataclass(frozen=True)
class SizeClass:
    """Jobs of like size: how many, and the waits that half, nine tenths and 99 % of them do not exceed, seconds."""

    gpus: str
    jobs: int
    p50_s: float
    p90_s: float
    p99_s: float


def _size_class(name: str, mine: NDArray[np.bool_], wait: Floats) -> SizeClass:
    known = wait[mine & ~np.isnan(wait)]
    if len(known) == 0:
        return SizeClass(name, 0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.quantile(known, (0.5, 0.9, 0.99))
    return SizeClass(name, len(known), float(p50), float(p90), float(p99))


@dataclass(frozen=True)
class BatchMeans:
    """A steady-state mean with its 95 % confidence half-width."""

    mean: float
    half_width: float


def average_batches(values: Floats, batches: int = 20, warm_up_share: float = 0.1) -> BatchMeans:
    """The mean of a simulated series after its warm-up, with a confidence interval from the means of consecutive batches.

    Waits of neighbouring jobs are alike, so their own spread would promise too much; means of long batches hardly are.

    >>> average_batches(np.tile([1.0, 3.0], 1000))
    BatchMeans(mean=2.0, half_width=0.0)
    """
    kept = values[int(len(values) * warm_up_share) :]
    size = len(kept) // batches
    means = kept[: size * batches].reshape(batches, size).mean(axis=1)
    student_95 = 1.96 + 2.6 / (batches - 1)  # within 1 % of Student's t for 10 or more batches
    return BatchMeans(float(means.mean()), float(student_95 * means.std(ddof=1) / np.sqrt(batches)))
