"""Charges of bills as one cost column of them: which rows count for it, in which currency, and how they lie over days."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.charging.bill_lines import view_charges as name_charges
from loadfactor.books.charging.currencies import choose_currency
from loadfactor.money.currency import EXACT
from loadfactor.money.spending import DaySpend
from loadfactor.settings.money import CostColumn
from loadfactor.store.session import Session

EPOCH: Final = date(1970, 1, 1)
_DIGITS: Final = Decimal("1e-18")
"""Of a day's part of a charge of several days; its last day takes what is left."""
IS_FIXED: Final = """(ChargeCategory = 'Purchase' OR ChargeFrequency IN ('Recurring', 'One-Time')
    OR CommitmentDiscountId IS NOT NULL OR CapacityReservationStatus = 'Unused')"""
"""SQL: a charge that was bound to come, whatever anybody does."""
_CAN_BE_OWNED: Final = """(ChargeCategory IS DISTINCT FROM 'Tax' AND CommitmentDiscountStatus IS DISTINCT FROM 'Unused'
    AND CapacityReservationStatus IS DISTINCT FROM 'Unused')"""


def has_bill(session: Session) -> bool:
    """True where charges of a bill were imported."""
    return bool(session.manifest.of("charges"))


def view_charges(session: Session, column: CostColumn) -> tuple[str, tuple[str, ...]]:
    """Give all charges the name `counted`, with `cost` from one column, 0 where it is not said; their currency, and remarks on it.

    Where `rate` is not null, their cost counts times it. Raises InputError where a rate of exchange is missing.
    """
    name_charges(session, None)
    currency, relation, remarks = choose_currency(session, None)
    session.create_view("counted", f"SELECT *, coalesce({column}, 0) AS cost FROM {relation}")
    return currency, remarks


def convert(amount: Decimal, rate: str | None) -> Decimal:
    """An amount at a rate of exchange, exactly; as it is without one.

    >>> convert(Decimal("3.20"), "1.25")
    Decimal('4.0000')
    """
    return amount if rate is None else EXACT.multiply(amount, Decimal(rate))


@dataclass(frozen=True)
class BilledDays:
    """What charges of one owner say of the days they are for; `recurs` where fixed cost is charged anew every day.

    `can_be_owned` is False of what stands in a pool, like taxes and GPUs that nobody holds.
    """

    team: str | None
    project: str | None
    first: date
    last: date
    is_fixed: bool
    recurs: bool
    can_be_owned: bool
    cost: Decimal

    def spread(self) -> Iterator[DaySpend]:
        """By day: fixed cost on the first, variable cost evenly, so that the days sum to it exactly."""
        if self.is_fixed:
            yield DaySpend(self.first, Decimal(0), self.cost)
            return
        days = (self.last - self.first).days + 1
        part = (self.cost / days).quantize(_DIGITS)
        for number in range(days - 1):
            yield DaySpend(self.first + timedelta(number), part)
        yield DaySpend(self.last, EXACT.subtract(self.cost, EXACT.multiply(part, Decimal(days - 1))))


def read_billed_days(session: Session, since: date, until: date) -> list[BilledDays]:
    """The charges that `view_charges` counts and that begin from one day to another, summed exactly by owner and days (UTC)."""
    start, end = ((day - EPOCH).days * MS_PER_DAY for day in (since, until + timedelta(1)))
    sql = f"""SELECT team, project, first, last, fixed, fixed AND daily, ownable, rate, sum(cost) FROM (
                SELECT rate, team, project, cost, {IS_FIXED} AS fixed, ChargeCategory = 'Usage' AS daily,
                  {_CAN_BE_OWNED} AS ownable,
                  ChargePeriodStart // {MS_PER_DAY} AS first,
                  greatest(first, (coalesce(ChargePeriodEnd, ChargePeriodStart + 1) - 1) // {MS_PER_DAY}) AS last
                FROM counted WHERE ChargePeriodStart >= {start} AND ChargePeriodStart < {end})
              GROUP BY ALL ORDER BY ALL"""
    return [
        BilledDays(
            team,
            project,
            EPOCH + timedelta(first),
            EPOCH + timedelta(last),
            bool(fixed),
            bool(recurs),
            bool(ownable),
            convert(Decimal(cost), rate),
        )
        for team, project, first, last, fixed, recurs, ownable, rate, cost in session.raw.execute(sql).fetchall()
    ]
