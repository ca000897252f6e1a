"""Budgets: what is spent, how fast, what the period will come to, which thresholds it passes, and which days stand out."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from operator import itemgetter

from loadfactor.base.units import PERCENT
from loadfactor.money.anomalies import SpendAnomaly, find_anomalies
from loadfactor.money.currency import add_exactly
from loadfactor.money.forecast import SpendForecast, forecast_spend
from loadfactor.money.spending import BudgetPeriod, DailySpending
from loadfactor.settings.money import Budget


@dataclass(frozen=True)
class BudgetThreshold:
    """A part of a budget: the day on which it was spent, or by the forecast will be; None where it is not."""

    percent: Decimal
    amount: Decimal
    reached_on: date | None
    expected_on: date | None


@dataclass(frozen=True)
class BudgetStatus:
    """Where a budget stands. Spent are all charges so far; `complete_days` of the period have all of theirs.

    `burn_rate` is above 1 where complete days took more of the budget than of the period; None before the first of them.
    """

    budget: Budget
    period: BudgetPeriod
    complete_days: int
    fixed_spent: Decimal
    variable_spent: Decimal
    burn_rate: Decimal | None
    forecast: SpendForecast | None
    thresholds: tuple[BudgetThreshold, ...]
    anomalies: tuple[SpendAnomaly, ...]

    @property
    def spent(self) -> Decimal:
        """Fixed and variable charges so far."""
        return add_exactly((self.fixed_spent, self.variable_spent))

    @property
    def left(self) -> Decimal:
        """What may still be spent; negative where more was."""
        return self.budget.amount - self.spent


def compute_burn_rate(spent: Decimal, amount: Decimal, elapsed_days: int, period_days: int) -> Decimal:
    """The part of a budget that is spent over the part of the period that has passed.

    >>> compute_burn_rate(Decimal(6000), Decimal(12000), 12, 30)
    Decimal('1.25')
    """
    return spent * period_days / (amount * elapsed_days)


def follow_budget(
    budget: Budget, spending: DailySpending, period: BudgetPeriod, fixed_to_come: Decimal = Decimal(0)
) -> BudgetStatus:
    """Where a budget stands in a period. `fixed_to_come` are fixed charges of the period that are known and not booked."""
    booked = spending.within(period.first, period.last)
    complete = [spend for spend in booked if spend.day <= spending.complete_through]
    days = max(0, min((spending.complete_through - period.first).days + 1, period.days))
    in_complete_days = add_exactly(amount for spend in complete for amount in (spend.fixed, spend.variable))
    forecast = forecast_spend(spending, period, fixed_to_come)
    reached = [(spend.day, spend.fixed + spend.variable) for spend in booked]
    all_days = sorted([*reached, *_list_coming(spending, period, forecast)], key=itemgetter(0))
    return BudgetStatus(
        budget=budget,
        period=period,
        complete_days=days,
        fixed_spent=add_exactly(spend.fixed for spend in booked),
        variable_spent=add_exactly(spend.variable for spend in booked),
        burn_rate=compute_burn_rate(in_complete_days, budget.amount, days, period.days) if days else None,
        forecast=forecast,
        thresholds=tuple(
            BudgetThreshold(percent, amount, day, None if day else _find_day(all_days, amount))
            for percent in budget.thresholds_percent
            for amount in (budget.amount * percent / PERCENT,)
            for day in (_find_day(reached, amount),)
        ),
        anomalies=find_anomalies(spending, period, budget.least_anomaly),
    )


def _list_coming(
    spending: DailySpending, period: BudgetPeriod, forecast: SpendForecast | None
) -> list[tuple[date, Decimal]]:
    """What days still to come add to what is booked; fixed charges that are known and not booked count on the last one."""
    if forecast is None:
        return []
    coming = [(day, amount - spending.on(day).variable) for day, amount in forecast.days]
    booked = add_exactly(spend.fixed for spend in spending.within(period.first, period.last))
    return [*coming, (period.last, forecast.fixed - booked)]


def _find_day(spends: Iterable[tuple[date, Decimal]], amount: Decimal) -> date | None:
    """The day on which the sum reaches an amount."""
    spent = Decimal(0)
    for day, more in spends:
        spent += more
        if spent >= amount:
            return day
    return None
