"""Load-duration curve of a demand series: how much of the time the k-th GPU is needed.

The marginal utilization of GPU k is the share of time at least k GPUs are wanted; where demand is between k−1 and k the GPU works
for the fraction. Summed over all GPUs it is the mean demand, exactly. Average utilization is the wrong test for the next GPU.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.limits import MOST_GPUS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LoadDuration:
    """Demand in GPUs over equal (or weighted) intervals, sorted downward, and the marginal utilization of every GPU."""

    demand_gpus: Floats
    time_share: Floats
    marginal_share: Floats

    @property
    def mean_gpus(self) -> float:
        """Demand on average."""
        return float(self.demand_gpus @ self.time_share)

    @property
    def peak_gpus(self) -> float:
        """The largest demand."""
        return float(self.demand_gpus[0])

    @property
    def sd_gpus(self) -> float:
        """Standard deviation of the demand."""
        return float(np.sqrt((self.demand_gpus - self.mean_gpus) ** 2 @ self.time_share))

    @property
    def load_factor(self) -> float:
        """Mean over peak: how full a fleet bought for the peak would be."""
        return self.mean_gpus / self.peak_gpus

    def utilization_share(self, gpu: int) -> float:
        """Marginal utilization of the `gpu`-th GPU, counted from 1; zero beyond the peak."""
        if gpu < 1:
            raise PlanError(f"GPUs are counted from 1, got {gpu}")
        return float(self.marginal_share[gpu - 1]) if gpu <= len(self.marginal_share) else 0.0


def load_duration(demand_gpus: ArrayLike, weight: ArrayLike | None = None) -> LoadDuration:
    """The curve of a demand series; `weight` where intervals differ in length.

    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> [round(day.utilization_share(k), 4) for k in (20, 40, 60, 80)]
    [1.0, 0.75, 0.5, 0.3333]
    >>> round(day.load_factor, 3), round(float(day.marginal_share.sum()), 4) == round(day.mean_gpus, 4)
    (0.646, True)
    """
    demand = np.asarray(demand_gpus, dtype=np.float64).ravel()
    if demand.size == 0:
        raise PlanError("the demand series is empty; give GPUs per hour")
    if not np.isfinite(demand).all() or demand.min() < 0:
        raise PlanError("demand must be finite and not negative in every interval; leave unknown hours out")
    if demand.max() > MOST_GPUS:
        raise PlanError(f"the demand reaches {demand.max():,.6g} GPUs; more than {MOST_GPUS:,} cannot be planned for")
    if demand.max() == 0:
        raise PlanError("the demand is 0 GPUs in every interval; there is nothing to size")
    parts = np.ones_like(demand) if weight is None else np.asarray(weight, dtype=np.float64).ravel()
    if parts.shape != demand.shape or parts.min() < 0 or parts.sum() == 0:
        raise PlanError("weights must be one positive length per interval")
    order = np.argsort(-demand, kind="stable")
    demand, share = demand[order], (parts / parts.sum())[order]
    # E[min(D, k)] for every k from one pass over the sorted series; its differences are the marginal utilizations.
    sizes = np.arange(int(np.ceil(demand[0])) + 1, dtype=np.float64)
    above = np.searchsorted(-demand, -sizes, side="right")  # intervals with demand ≥ k
    share_above = np.concatenate(([0.0], np.cumsum(share)))
    load_above = np.concatenate(([0.0], np.cumsum(share * demand)))
    served = sizes * share_above[above] + (load_above[-1] - load_above[above])
    return LoadDuration(demand, share, np.clip(np.diff(served), 0.0, 1.0))
