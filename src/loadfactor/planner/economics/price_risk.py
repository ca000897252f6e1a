"""What if prices move after you bought? Regret of a decision under other prices, and the fall that undoes it.

An owned GPU is a bet that renting stays dear: H100 contracts moved from $1.70 to $2.35 within six months, and down before that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, log1p

from loadfactor.errors import PlanError
from loadfactor.planner.economics.base_and_peak import own_and_rent_cost_per_hour, own_and_rent_gpus
from loadfactor.planner.economics.load_duration import LoadDuration

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
        """Dollars an hour lost against having known."""
        return self.planned_cost_per_hour - self.best_cost_per_hour


def price_scenarios(
    curve: LoadDuration,
    owned_gpus: int,
    own_cost_per_hour: float,
    rent_price_per_hour: float,
    changes: Sequence[float] = PRICE_CHANGES,
) -> tuple[PriceScenario, ...]:
    """The plan of owning `owned_gpus` under other rental prices.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> fall = price_scenarios(day, 60, 1.2, 3.0, changes=(-0.5,))[0]
    >>> fall.best_owned_gpus, round(24 * fall.planned_cost_per_hour), round(24 * fall.best_cost_per_hour)
    (20, 1968, 1716)
    """
    scenarios = []
    for change in changes:
        if change <= -1:
            raise PlanError(f"a price cannot fall by all of itself, got a change of {change:g}")
        rent = rent_price_per_hour * (1 + change)
        best = own_and_rent_gpus(curve, own_cost_per_hour, rent)
        scenarios.append(
            PriceScenario(
                change,
                rent,
                best,
                own_and_rent_cost_per_hour(curve, owned_gpus, own_cost_per_hour, rent),
                own_and_rent_cost_per_hour(curve, best, own_cost_per_hour, rent),
            )
        )
    return tuple(scenarios)


def mean_price_share(yearly_change_share: float, life_years: float, cost_of_capital_share: float) -> float:
    """Mean of a price over a life, as a share of today's, with each year's dollars discounted: ∫(1+g)ᵗ(1+r)⁻ᵗdt / ∫(1+r)⁻ᵗdt.

    >>> mean_price_share(0.0, 4, 0.10), round(mean_price_share(-0.20, 4, 0.0), 4)  # (0.8⁴ − 1)/(4 ln 0.8)
    (1.0, 0.6615)
    """
    if life_years <= 0:
        raise PlanError(f"life_years must be positive, got {life_years:g}")
    if yearly_change_share <= -1 or cost_of_capital_share < 0:
        raise PlanError("a price keeps above zero and the cost of capital is not negative")
    growth = log1p(yearly_change_share) - log1p(cost_of_capital_share)
    return _integral(growth, life_years) / _integral(-log1p(cost_of_capital_share), life_years)


def break_even_yearly_change(
    own_cost_per_hour: float,
    rent_price_per_hour: float,
    utilization_share: float,
    life_years: float,
    cost_of_capital_share: float,
) -> float | None:
    """The yearly change of the rental price at which owning a GPU of this utilization comes out even over its life.

    Below it (prices falling faster) renting would have been cheaper. None when no change between −99 % and +300 % a year evens out.

    >>> round(break_even_yearly_change(3.0 * 0.66146, 3.0, 1.0, 4, 0.0), 3)  # the fall of `mean_price_share`'s example
    -0.2
    """
    if min(own_cost_per_hour, rent_price_per_hour) <= 0 or not 0 < utilization_share <= 1:
        raise PlanError("need prices above 0 and a utilization above 0 and at most 1")
    needed = own_cost_per_hour / (rent_price_per_hour * utilization_share)
    low, high = -0.99, 3.0
    if (
        not mean_price_share(low, life_years, cost_of_capital_share)
        <= needed
        <= mean_price_share(high, life_years, cost_of_capital_share)
    ):
        return None
    while high - low > 1e-9:
        middle = (low + high) / 2
        if mean_price_share(middle, life_years, cost_of_capital_share) < needed:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _integral(rate: float, years: float) -> float:
    """∫₀ⁿ e^(rate·t) dt."""
    return years if abs(rate * years) < log(1 + 1e-12) else expm1(rate * years) / rate
