"""Spending by day: periods of a budget, and what was usual on a day like this one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from statistics import median
from typing import Final, Literal

from loadfactor.base.units import D_PER_WEEK
from loadfactor.money.currency import add_exactly

HISTORY_WEEKS: Final = 8
"""How far back a day is compared with earlier ones: long enough for medians, short enough to follow a fleet that grows."""
_WORKDAYS: Final = 5
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class DaySpend:
    """What was spent on a day. `fixed` is what was bound to come whatever anybody does, like the fee of a commitment."""

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
    """Spending of one owner by day, complete through a day; a complete day of which nothing is said cost nothing.

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
        """What was spent on a day."""
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
