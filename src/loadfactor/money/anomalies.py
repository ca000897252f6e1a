"""Unusual days: complete ones that cost far more than earlier days like them, and enough to matter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from loadfactor.money.spending import ONE_DAY, BudgetPeriod, DailySpending, find_median

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
