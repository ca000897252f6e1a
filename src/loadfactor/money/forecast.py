"""Forecast of what a period will have cost at its end: fixed cost as it is, variable cost by weekdays or at its rate so far."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from loadfactor.money.currency import add_exactly
from loadfactor.money.spending import ONE_DAY, BudgetPeriod, DailySpending, find_median

LEAST_WEEKS: Final = 2
"""So many earlier days like it make the usual cost of a day that is to come."""


@dataclass(frozen=True)
class SpendForecast:
    """What a period comes to. `days` are those still to come, or not complete, with the variable cost expected of each.

    `method`: `by weekday` medians, at the `run rate` of complete days, or `complete` where the period is over.
    """

    fixed: Decimal
    variable: Decimal
    method: Literal["by weekday", "run rate", "complete"]
    days: tuple[tuple[date, Decimal], ...]

    @property
    def total(self) -> Decimal:
        """Fixed and variable cost together."""
        return self.fixed + self.variable


def project_run_rate(spent: Decimal, elapsed_days: int, period_days: int) -> Decimal:
    """What a period costs at the rate so far.

    >>> project_run_rate(Decimal(6000), 12, 30)
    Decimal('15000')
    """
    return spent * period_days / elapsed_days


def forecast_spend(
    spending: DailySpending, period: BudgetPeriod, fixed_to_come: Decimal = Decimal(0)
) -> SpendForecast | None:
    """The forecast for a period; None while nothing is known that could be carried on.

    Fixed cost is what was booked and what is known to come. Each day to come costs the median of earlier days like it; while
    some have fewer than two, every one costs the mean of the period's complete days. A day that is not complete costs that,
    or what it has cost already, whichever is more.

    >>> from loadfactor.money.spending import DaySpend, find_period
    >>> june = find_period(date(2026, 6, 1), "month")
    >>> days = [DaySpend(date(2026, 6, day), Decimal(250), Decimal(3000 if day == 1 else 0)) for day in range(1, 13)]
    >>> forecast_spend(DailySpending(days, date(2026, 6, 12)), june).total
    Decimal('10500')
    """
    booked = spending.within(period.first, period.last)
    fixed = add_exactly([fixed_to_come, *(spend.fixed for spend in booked)])
    last_complete = min(spending.complete_through, period.last)
    done = add_exactly(spend.variable for spend in booked if spend.day <= last_complete)
    elapsed = max(0, (last_complete - period.first).days + 1)
    to_come = [period.first + n * ONE_DAY for n in range(elapsed, period.days)]
    usual = [spending.earlier_like(day, LEAST_WEEKS)[0] for day in to_come]
    method: Literal["by weekday", "run rate", "complete"] = "by weekday" if to_come else "complete"
    expected = [find_median(amounts) for amounts in usual if amounts]
    if len(expected) < len(to_come):
        first = max(period.first, spending.complete_from or period.first)
        whole_days = (last_complete - first).days + 1
        if whole_days <= 0:
            return None
        in_them = add_exactly(spend.variable for spend in booked if first <= spend.day <= last_complete)
        method = "run rate"
        expected = [project_run_rate(in_them, whole_days, 1)] * len(to_come)
    days = tuple((day, max(spending.on(day).variable, amount)) for day, amount in zip(to_come, expected, strict=True))
    return SpendForecast(fixed, add_exactly([done, *(amount for _, amount in days)]), method, days)
