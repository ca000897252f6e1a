"""Spending by day: periods of a budget, and what was usual on a day like this one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from statistics import median
from typing import Final, Literal

from loadfactor.base.units import D_PER_WEEK, PERCENT
from loadfactor.money.currency import add_exactly
from loadfactor.settings.money import Budget

HISTORY_WEEKS: Final = 8
"""How far back a day is compared with earlier ones: long enough for medians, short enough to follow a fleet that grows."""
_WORKDAYS: Final = 5
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class DaySpend:
    """Spending on a day. `fixed` is what was bound to come whatever anybody does, like the fee of a commitment."""

    day: date
    variable: Decimal
    fixed: Decimal = Decimal(0)


@dataclass(frozen=True)
class BudgetPeriod:
    """A month, a quarter or a year, from its first day to its last."""

    first: date
    last: date

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.last - self.first).days + 1

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


def find_period(day: date, kind: Literal["month", "quarter", "year"]) -> BudgetPeriod:
    """The period that a day lies in.

    >>> period = find_period(date(2028, 2, 10), "quarter")
    >>> str(period.first), str(period.last), period.days
    ('2028-01-01', '2028-03-31', 91)
    """
    months = _MONTHS[kind]
    first_month = (day.month - 1) // months * months + 1
    after = first_month + months
    end = date(day.year + (after > 12), after - 12 if after > 12 else after, 1)
    return BudgetPeriod(date(day.year, first_month, 1), end - ONE_DAY)


class DailySpending:
    """Spending of one owner by day, complete through a day; a complete day of which nothing is known cost nothing.

    Later days may lack charges that are still to come, so nothing is concluded from how little they cost; nor from days before
    `complete_from`, the first of which everything is known: by default that of the first spending, or of the period.
    """

    def __init__(self, spends: Iterable[DaySpend], complete_through: date, complete_from: date | None = None) -> None:
        by_day: dict[date, DaySpend] = {}
        for spend in spends:
            known = by_day.get(spend.day, DaySpend(spend.day, Decimal(0)))
            variable, fixed = add_exactly((known.variable, spend.variable)), add_exactly((known.fixed, spend.fixed))
            by_day[spend.day] = DaySpend(spend.day, variable, fixed)
        self._by_day = by_day
        self.complete_through = complete_through
        self.complete_from = complete_from

    @cached_property
    def since(self) -> date | None:
        """The first day to compare later ones with; None where nothing is known."""
        return self.complete_from or min(self._by_day, default=None)

    def on(self, day: date) -> DaySpend:
        """Spending on a day."""
        return self._by_day.get(day, DaySpend(day, Decimal(0)))

    def within(self, first: date, last: date) -> list[DaySpend]:
        """Days in which something was spent, from the first to the last, in their order."""
        return [self._by_day[day] for day in sorted(self._by_day) if first <= day <= last]

    def earlier_like(self, day: date, least: int) -> tuple[list[Decimal], str]:
        """Variable cost of earlier complete days like this one, the latest weeks alone, and what makes them alike.

        Those of the same weekday, where there are at least so many; else all workdays or all days of weekends; else none.
        """
        if self.since is None:
            return [], ""
        first = max(self.since, day - HISTORY_WEEKS * D_PER_WEEK * ONE_DAY)
        last = min(day - ONE_DAY, self.complete_through)
        days = [first + n * ONE_DAY for n in range((last - first).days + 1)]
        same = [self.on(earlier).variable for earlier in days if earlier.weekday() == day.weekday()]
        if len(same) >= least:
            return same, "same weekday"
        is_workday = day.weekday() < _WORKDAYS
        alike = [self.on(earlier).variable for earlier in days if (earlier.weekday() < _WORKDAYS) == is_workday]
        return (alike, "workdays" if is_workday else "weekends") if len(alike) >= least else ([], "")


def find_median(amounts: list[Decimal]) -> Decimal:
    """The median of exact amounts.

    >>> find_median([Decimal(1), Decimal(4), Decimal(2), Decimal(3)])
    Decimal('2.5')
    """
    return Decimal(median(amounts))


UNUSUAL_Z: Final = Decimal("3.5")
"""Robust z from which a day is unusual (Iglewicz and Hoaglin 1993)."""
_MAD_TO_SD: Final = Decimal("0.6745")
"""Median absolute deviation of a normal distribution, in standard deviations."""
UNUSUAL_CHANGE: Final = Decimal("0.5")
"""Where earlier days were all alike, and there is no deviation to compare with: so much more than their median is unusual."""
LEAST_DAYS: Final = 4
"""Earlier days like it that a day is judged by."""


@dataclass(frozen=True)
class SpendAnomaly:
    """A day that cost more than was usual: by how much, and how far out that is.

    `robust_z` is None where earlier days were alike, `change_share` where they cost nothing. `basis` says which days they are.
    """

    day: date
    amount: Decimal
    usual: Decimal
    robust_z: Decimal | None
    change_share: Decimal | None
    basis: str

    @property
    def impact(self) -> Decimal:
        """How much more it cost than was usual."""
        return self.amount - self.usual


def robust_z(amount: Decimal, earlier: Sequence[Decimal]) -> Decimal | None:
    """0.6745 · (x − median) / median absolute deviation; None where that deviation is 0.

    >>> earlier = [Decimal(x) for x in (100, 102, 98, 101, 99, 100)]
    >>> round(robust_z(Decimal(160), earlier), 1)
    Decimal('40.5')
    """
    middle = find_median(list(earlier))
    deviation = find_median([abs(x - middle) for x in earlier])
    return _MAD_TO_SD * (amount - middle) / deviation if deviation else None


def find_anomalies(spending: DailySpending, period: BudgetPeriod, least_impact: Decimal) -> tuple[SpendAnomaly, ...]:
    """Complete days of a period whose variable cost is unusual and at least `least_impact` above the usual, in their order.

    A day with fewer than four earlier days like it is not judged.
    """
    last = min(period.last, spending.complete_through)
    days = (period.first + n * ONE_DAY for n in range((last - period.first).days + 1))
    found = (judge_day(spending, day) for day in days)
    return tuple(anomaly for anomaly in found if anomaly and anomaly.impact >= least_impact)


def judge_day(spending: DailySpending, day: date) -> SpendAnomaly | None:
    """The day as an anomaly, however small; None where it is usual or there is too little to compare it with."""
    earlier, basis = spending.earlier_like(day, LEAST_DAYS)
    if not earlier:
        return None
    amount, usual = spending.on(day).variable, find_median(earlier)
    z = robust_z(amount, earlier)
    change = (amount - usual) / abs(usual) if usual else None
    is_unusual = amount > usual and (change is None or change >= UNUSUAL_CHANGE) if z is None else z >= UNUSUAL_Z
    return SpendAnomaly(day, amount, usual, z, change, basis) if is_unusual else None


LEAST_WEEKS: Final = 2
"""So many earlier days like it make the usual cost of a day that is to come."""


@dataclass(frozen=True)
class SpendForecast:
    """The cost of a period at its end. `days` are those still to come, or not complete, with the variable cost expected of each.

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
    """The cost of a period at the rate so far.

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
        """The amount that may still be spent; negative where more was."""
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
    """The amounts that days still to come add to what is booked; fixed charges known and not booked count on the last one."""
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
