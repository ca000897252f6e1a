"""Plan of a cluster's size from its counts or an hourly demand, without jobs: the base to keep, the peaks to rent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadfactor.planner.economics.load_duration import LoadDuration, load_duration
from loadfactor.planner.economics.marginal import MarginalGpu
from loadfactor.planner.economics.tiers import choose_owned_gpus, cost_own_and_rent
from loadfactor.planner.sizing.cluster.idle_reasons import IdleReasons, StateCounts, explain_idle
from loadfactor.planner.sizing.cluster.jobs import Floats
from loadfactor.planner.sizing.size_plan import SizeQuestion, judge


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

    @property
    def cost_per_hour(self) -> float:
        """What keeping the base and renting the peaks costs."""
        return cost_own_and_rent(self.demand, self.keep_gpus, self.price_per_gpu_hour, self.rent_price_per_gpu_hour)

    @property
    def break_even_share(self) -> float:
        """How much of the time a GPU must be wanted to be kept."""
        return self.price_per_gpu_hour / self.rent_price_per_gpu_hour


def plan_size_from_state(
    trace: str, demand_gpus: Floats, question: SizeQuestion, counts: StateCounts | None = None
) -> StatePlan:
    """Base and peak of a demand; with the cluster's counts also why GPUs stood idle while jobs waited.

    Where nothing can be rented, waiting takes its place at the cost of delay.

    >>> import numpy as np
    >>> from loadfactor.planner.sizing.sizes import SizeCost
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
        load_factor=demand.load_factor,
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
