"""Ways to rent, and their risk: commitments, spot once interruptions are paid for, and prices that move after buying.

A spot instance is interrupted once in `hours_between_interruptions` on average (Poisson); a job on m instances stops when any of
them goes: M = M₁/m. Effective price = spot price / efficiency. Where the provider's notice is long enough to save the state, an
interruption costs the checkpoint and the restart, M/(M + δ + R), and no periodic checkpoints are needed. An owned GPU is a bet that
renting stays dear: regret says what the bet costs under other prices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import expm1, log, log1p
from typing import TypeVar

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.planner.economics.load_duration import LoadDuration, choose_owned_gpus, cost_own_and_rent
from loadfactor.planner.hardware.checkpoint import LEAST_EFFICIENCY_SHARE, CheckpointPlan, plan_checkpoints

Amount = TypeVar("Amount", float, Decimal)


def commitment_utilization(used: Amount, committed: Amount) -> Amount | None:
    """How much of what was committed was used, both in one unit; None where nothing was committed."""
    return used / committed if committed else None


def commitment_coverage(covered: Amount, eligible: Amount) -> Amount | None:
    """How much of what a commitment could have covered it did, both at on-demand prices; None where there was nothing to cover."""
    return covered / eligible if eligible else None


def effective_savings_rate(paid_cost: Amount, on_demand_cost: Amount) -> Amount | None:
    """1 − paid / what the same use costs on demand; negative when the commitment lost money, None when nothing was used.

    >>> effective_savings_rate(Decimal(180), Decimal(240))
    Decimal('0.25')
    """
    return 1 - paid_cost / on_demand_cost if on_demand_cost else None


@dataclass(frozen=True)
class Commitment:
    """`committed_gpus` paid every hour at `committed_price` each, beside an on-demand price, while `used_gpus` are used."""

    committed_gpus: float
    committed_price_per_gpu_hour: float
    on_demand_price_per_gpu_hour: float
    used_gpus: float

    def __post_init__(self) -> None:
        if min(self.committed_price_per_gpu_hour, self.on_demand_price_per_gpu_hour) <= 0:
            raise PlanError("a committed and an on-demand GPU-hour must both cost something; give prices above 0")
        if self.committed_gpus <= 0 or self.used_gpus < 0:
            raise PlanError(
                f"need committed GPUs above 0 and used at least 0, got {self.committed_gpus:g} and {self.used_gpus:g}"
            )

    @property
    def covered_gpus(self) -> float:
        """The part of the use that the commitment serves; the rest is on demand."""
        return min(self.used_gpus, self.committed_gpus)

    @property
    def break_even_share(self) -> float:
        """Use of the commitment above which it beats on-demand: c/p, one minus the discount; above 1 it never does."""
        return self.committed_price_per_gpu_hour / self.on_demand_price_per_gpu_hour

    @property
    def utilization_share(self) -> float:
        """How much of what was committed was used."""
        return commitment_utilization(self.covered_gpus, self.committed_gpus) or 0.0

    @property
    def coverage_share(self) -> float | None:
        """How much of the use was served by the commitment; None when nothing was used."""
        return commitment_coverage(self.covered_gpus, self.used_gpus)

    @property
    def paid_cost_per_hour(self) -> float:
        """Everything paid in an hour: the commitment, and on-demand for what exceeds it."""
        beyond = self.used_gpus - self.covered_gpus
        return self.committed_gpus * self.committed_price_per_gpu_hour + beyond * self.on_demand_price_per_gpu_hour

    @property
    def unused_cost_per_hour(self) -> float:
        return (self.committed_gpus - self.covered_gpus) * self.committed_price_per_gpu_hour

    @property
    def effective_savings_share(self) -> float | None:
        """`effective_savings_rate` of an hour.

        >>> c = Commitment(committed_gpus=100, committed_price_per_gpu_hour=1.8, on_demand_price_per_gpu_hour=3.0, used_gpus=80)
        >>> round(c.effective_savings_share, 4), c.break_even_share, round(c.unused_cost_per_hour, 2)
        (0.25, 0.6, 36.0)
        """
        return effective_savings_rate(self.paid_cost_per_hour, self.used_gpus * self.on_demand_price_per_gpu_hour)


@dataclass(frozen=True)
class SpotOffer:
    """A spot price and how the job that uses it survives. `instances` is how many machines the job holds at once."""

    price_per_gpu_hour: float
    hours_between_interruptions: float
    checkpoint_s: float = 60.0
    restart_s: float = 600.0
    instances: int = 1
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        if self.hours_between_interruptions <= 0:
            raise PlanError(f"hours between interruptions must be positive, got {self.hours_between_interruptions:g}")


@dataclass(frozen=True)
class SpotCost:
    """Cost of an hour of useful work, and how it is reached."""

    cost_per_useful_gpu_hour: float
    efficiency_share: float
    mtbf_s: float
    checkpoints: CheckpointPlan | None
    saved_within_notice: bool


def cost_spot(offer: SpotOffer) -> SpotCost:
    """The price of an hour of kept work.

    >>> cost = cost_spot(SpotOffer(price_per_gpu_hour=1.20, hours_between_interruptions=4))
    >>> round(cost.cost_per_useful_gpu_hour, 4), round(cost.efficiency_share, 4)
    (1.3726, 0.8743)
    """
    mtbf_s = offer.hours_between_interruptions * S_PER_HOUR / offer.instances
    saved = offer.notice_s > 0 and offer.checkpoint_s <= offer.notice_s
    plan = None if saved else plan_checkpoints(offer.checkpoint_s, mtbf_s, offer.restart_s)
    efficiency = mtbf_s / (mtbf_s + offer.checkpoint_s + offer.restart_s) if plan is None else plan.efficiency_share
    if efficiency < LEAST_EFFICIENCY_SHARE:
        raise PlanError(
            f"{offer.instances} spot instances that go every {mtbf_s:g} s finish nothing with a restart of {offer.restart_s:g} s; "
            "take fewer instances or on-demand"
        )
    return SpotCost(offer.price_per_gpu_hour / efficiency, efficiency, mtbf_s, plan, saved)


PRICE_CHANGES = (-0.5, -0.3, -0.1, 0.0, 0.1, 0.3, 0.5)


@dataclass(frozen=True)
class PriceScenario:
    """Renting costs `change_share` more or less than planned: what the plan costs, what hindsight would have cost."""

    change_share: float
    rent_price_per_hour: float
    best_owned_gpus: int
    planned_cost_per_hour: float
    best_cost_per_hour: float

    @property
    def regret_per_hour(self) -> float:
        """Cost of an hour above that with hindsight."""
        return self.planned_cost_per_hour - self.best_cost_per_hour


def vary_rent_price(
    curve: LoadDuration,
    owned_gpus: int,
    own_cost_per_hour: float,
    rent_price_per_hour: float,
    changes: Sequence[float] = PRICE_CHANGES,
) -> tuple[PriceScenario, ...]:
    """The plan of owning `owned_gpus` under other rental prices.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> fall = vary_rent_price(day, 60, 1.2, 3.0, changes=(-0.5,))[0]
    >>> fall.best_owned_gpus, round(24 * fall.planned_cost_per_hour), round(24 * fall.best_cost_per_hour)
    (20, 1968, 1716)
    """
    scenarios = []
    for change in changes:
        rent = rent_price_per_hour * (1 + change)
        best = choose_owned_gpus(curve, own_cost_per_hour, rent)
        scenarios.append(
            PriceScenario(
                change,
                rent,
                best,
                cost_own_and_rent(curve, owned_gpus, own_cost_per_hour, rent),
                cost_own_and_rent(curve, best, own_cost_per_hour, rent),
            )
        )
    return tuple(scenarios)


def average_price_share(yearly_change_share: float, life_years: float, discount_rate_share: float) -> float:
    """Mean of a price over a life, as a share of today's, with each year's money discounted: ∫(1+g)ᵗ(1+r)⁻ᵗdt / ∫(1+r)⁻ᵗdt.

    >>> average_price_share(0.0, 4, 0.10), round(average_price_share(-0.20, 4, 0.0), 4)  # (0.8⁴ − 1)/(4 ln 0.8)
    (1.0, 0.6615)
    """
    if yearly_change_share <= -1:
        raise PlanError("a price keeps above zero")
    growth = log1p(yearly_change_share) - log1p(discount_rate_share)
    return _integral(growth, life_years) / _integral(-log1p(discount_rate_share), life_years)


def find_break_even_change(
    own_cost_per_hour: float,
    rent_price_per_hour: float,
    utilization_share: float,
    life_years: float,
    discount_rate_share: float,
) -> float | None:
    """The yearly change of the rental price at which owning a GPU of this utilization comes out even over its life.

    Below it (prices falling faster) renting would have been cheaper. None when no change between −99 % and +300 % a year evens out.

    >>> round(find_break_even_change(3.0 * 0.66146, 3.0, 1.0, 4, 0.0), 3)  # the fall of `average_price_share`'s example
    -0.2
    """
    needed = own_cost_per_hour / (rent_price_per_hour * utilization_share)
    low, high = -0.99, 3.0
    if (
        not average_price_share(low, life_years, discount_rate_share)
        <= needed
        <= average_price_share(high, life_years, discount_rate_share)
    ):
        return None
    while high - low > 1e-9:
        middle = (low + high) / 2
        if average_price_share(middle, life_years, discount_rate_share) < needed:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _integral(rate: float, years: float) -> float:
    """∫₀ⁿ e^(rate·t) dt."""
    return years if abs(rate * years) < log(1 + 1e-12) else expm1(rate * years) / rate
