"""Risk of prices that move after buying: regret of a decision under other prices, and the fall that undoes it.

An owned GPU is a bet that renting stays dear: H100 contracts moved from $1.70 to $2.35 within six months, and down before that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, log1p

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.economics.tiers import choose_owned_gpus, cost_own_and_rent

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
        """What an hour costs more than with hindsight."""
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
        if change <= -1:
            raise PlanError(f"a price cannot fall by all of itself, got a change of {change:g}")
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
    if life_years <= 0:
        raise PlanError(f"life_years must be positive, got {life_years:g}")
    if yearly_change_share <= -1 or discount_rate_share < 0:
        raise PlanError("a price keeps above zero and the discount rate is not negative")
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
    if min(own_cost_per_hour, rent_price_per_hour) <= 0 or not 0 < utilization_share <= 1:
        raise PlanError("need prices above 0 and a utilization above 0 and at most 1")
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
