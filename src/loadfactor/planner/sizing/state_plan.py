"""Plan of a cluster's size from its counts or an hourly demand, without jobs: the base to keep, the peaks to rent, why GPUs idled.

Each interval with GPUs pending and idle at once gets one reason, the first that suffices. Gang: fewer GPUs are idle than a pending
job asks for on average, small and large jobs apart. Fragmentation: enough are idle, but the running small jobs may lie so that not
enough nodes are free for the gang (an upper bound: the counts do not say where jobs lie). Order: the idle GPUs would have held the
gang however the small jobs lie (a lower bound).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from loadfactor.planner.economics.load_duration import (
    LoadDuration,
    MarginalGpu,
    choose_owned_gpus,
    cost_own_and_rent,
    load_duration,
)
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.sizing.cluster.jobs import Floats
from loadfactor.planner.sizing.size_plan import SizeQuestion, judge


@dataclass(frozen=True)
class StateCounts:
    """Counts per interval; "large" means at least one whole node (`node_gpus`)."""

    total_gpus: Floats
    running_large_gpus: Floats
    running_small_gpus: Floats
    running_small_jobs: Floats
    pending_large_gpus: Floats
    pending_large_jobs: Floats
    pending_small_gpus: Floats
    pending_small_jobs: Floats
    node_gpus: int = 8

    @property
    def idle_gpus(self) -> Floats:
        return self.total_gpus - self.running_large_gpus - self.running_small_gpus


@dataclass(frozen=True)
class IdleReasons:
    """Shares of all intervals; the three reasons add up to `pending_while_idle_share`."""

    pending_share: float
    pending_while_idle_share: float
    gang_share: float
    fragmentation_share: float
    order_share: float
    mean_idle_gpus: float
    mean_gang_gpus: float

    @property
    def explained_share(self) -> float | None:
        """How much of the pending-while-idle time gang size and fragmentation account for; None when there was none."""
        if self.pending_while_idle_share == 0:
            return None
        return (self.gang_share + self.fragmentation_share) / self.pending_while_idle_share


def explain_idle(state: StateCounts) -> IdleReasons:
    """Classify every interval.

    Two nodes of 8: one gang of 8 runs, then 5 and 2 single-GPU jobs beside it, while a gang of 8 waits: first 3 idle GPUs are
    too few; then, a large job gone and two small jobs left on two nodes, 14 idle GPUs hold no free node.

    >>> def a(*values): return np.array(values, float)
    >>> found = explain_idle(StateCounts(a(16, 16), a(8, 0), a(5, 2), a(5, 2), a(8, 8), a(1, 1), a(0, 0), a(0, 0)))
    >>> found.gang_share, found.fragmentation_share, found.order_share
    (0.5, 0.5, 0.0)
    """
    idle = state.idle_gpus
    pending = state.pending_large_gpus + state.pending_small_gpus > 0
    both = pending & (idle > 0)
    large_gang = _mean_gang(state.pending_large_gpus, state.pending_large_jobs)
    small_gang = _mean_gang(state.pending_small_gpus, state.pending_small_jobs)
    enough_large, enough_small = idle >= large_gang, idle >= small_gang
    gang = both & ~enough_large & ~enough_small
    # nodes not held by large jobs, and how many of them small jobs can touch at most
    other_nodes = (state.total_gpus - state.running_large_gpus) // state.node_gpus
    touched = np.minimum(state.running_small_jobs, other_nodes)
    fits_large_anyhow = enough_large & (other_nodes - touched >= np.ceil(large_gang / state.node_gpus))
    fits_small_anyhow = enough_small & (idle > other_nodes * (np.ceil(np.where(enough_small, small_gang, 1)) - 1))
    order = both & ~gang & (fits_large_anyhow | fits_small_anyhow)
    fragmentation = both & ~gang & ~order
    gangs = np.fmin(large_gang, small_gang)[both]
    return IdleReasons(
        pending_share=float(pending.mean()),
        pending_while_idle_share=float(both.mean()),
        gang_share=float(gang.mean()),
        fragmentation_share=float(fragmentation.mean()),
        order_share=float(order.mean()),
        mean_idle_gpus=float(idle[both].mean()) if both.any() else 0.0,
        mean_gang_gpus=float(gangs.mean()) if both.any() else 0.0,
    )


def _mean_gang(gpus: ArrayLike, jobs: ArrayLike) -> Floats:
    """GPUs per pending job, infinite where none is pending."""
    gpus, jobs = np.asarray(gpus, np.float64), np.asarray(jobs, np.float64)
    return np.where(jobs > 0, gpus / np.maximum(jobs, 1), np.inf)


@dataclass(frozen=True)
class BasePlan:
    """One number of GPUs to keep, everything beyond rented: how much the last one is used, and what an hour costs."""

    name: str
    gpus: int
    last_used_share: float | None
    cost_per_hour: float


@dataclass(frozen=True)
class StatePlan:
    """The answer; `have_gpus` and `why_idle` are None where the counts do not tell them. Costs are in `currency`."""

    trace: str
    mean_gpus: float
    peak_gpus: float
    load_factor: float
    keep_gpus: int
    have_gpus: int | None
    price_per_gpu_hour: float
    rent_price_per_gpu_hour: float
    plans: Sequence[BasePlan]
    next_gpu: MarginalGpu
    why_idle: IdleReasons | None
    demand: LoadDuration = field(repr=False)
    currency: str = "USD"
    marginal: tuple[Marginal, ...] = ()
    """What more kept GPUs bring, where requested."""

    @property
    def cost_per_hour(self) -> float:
        return cost_own_and_rent(self.demand, self.keep_gpus, self.price_per_gpu_hour, self.rent_price_per_gpu_hour)

    @property
    def break_even_share(self) -> float:
        """Share of the time for which a GPU must be needed to be kept."""
        return self.price_per_gpu_hour / self.rent_price_per_gpu_hour


def plan_size_from_state(
    trace: str, demand_gpus: Floats, question: SizeQuestion, counts: StateCounts | None = None
) -> StatePlan:
    """Base and peak of a demand; with the cluster's counts also why GPUs stood idle while jobs waited.

    Where nothing can be rented, waiting takes its place at the cost of delay.

    >>> import numpy as np
    >>> from loadfactor.planner.sizing.size_plan import SizeCost
    >>> day = np.array([20.0] * 6 + [40.0] * 6 + [60.0] * 4 + [80.0] * 8)
    >>> plan = plan_size_from_state("a day", day, SizeQuestion(SizeCost(1.2, 1.2), rent_price=3.0))
    >>> plan.keep_gpus, round(24 * plan.cost_per_hour)
    (60, 2208)
    """
    price, rent_price = question.cost.price_per_gpu_hour, question.rent_price or question.cost.delay_cost_per_gpu_hour
    demand = load_duration(demand_gpus)
    keep = choose_owned_gpus(demand, price, rent_price)
    have = question.have_gpus or (None if counts is None else int(counts.total_gpus[-1]))
    peak = len(demand.marginal_share)
    rows = [("rent everything", 0), ("keep the base, rent the peaks", keep), ("keep the peak", peak)]
    if have is not None and have not in (keep, peak):
        rows.insert(1, ("keep today's", have))
    return StatePlan(
        trace=trace,
        mean_gpus=demand.mean_gpus,
        peak_gpus=demand.peak_gpus,
        load_factor=demand.load_factor(keep),
        keep_gpus=keep,
        have_gpus=have,
        price_per_gpu_hour=price,
        rent_price_per_gpu_hour=rent_price,
        plans=tuple(
            BasePlan(
                name,
                gpus,
                demand.utilization_share(gpus) if gpus else None,
                cost_own_and_rent(demand, gpus, price, rent_price),
            )
            for name, gpus in rows
        ),
        next_gpu=judge(demand, (have or keep) + 1, question),
        why_idle=None if counts is None else explain_idle(counts),
        demand=demand,
    )
