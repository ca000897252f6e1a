"""Charges of bills as one cost column of them: which rows count for it, in which currency, and how they lie over days."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from loadfactor.charges import ACTUAL, AMORTIZED
from loadfactor.errors import InputError
from loadfactor.money.currency import EXACT
from loadfactor.money.spending import DaySpend
from loadfactor.money_settings import CostColumn
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.units import MS_PER_DAY

EPOCH: Final = date(1970, 1, 1)
_PERIOD: Final = "struct_pack(p := ProviderName, a := BillingAccountId, s := BillingPeriodStart)"
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


def find_currencies(session: Session) -> tuple[str, tuple[str, ...]]:
    """The currency that bills are counted in, that of the books where they are in several; and those that are left out.

    Raises InputError where none of several is that of the books.
    """
    session.view_table("charges", "charges")
    sql = "SELECT DISTINCT BillingCurrency FROM charges WHERE BillingCurrency IS NOT NULL ORDER BY 1"
    found = [currency for (currency,) in session.raw.execute(sql).fetchall()]
    if len(found) > 1 and session.currency not in found:
        raise InputError(
            f"the bills are in {', '.join(found)}, the books in {session.currency}; keep bills of each currency in books of"
            " their own"
        )
    counted = found[0] if len(found) == 1 else session.currency
    return counted, tuple(currency for currency in found if currency != counted)


def view_charges(session: Session, column: CostColumn, currency: str) -> None:
    """Give the rows that one cost column is read from the name `counted`: in one currency, `cost` without nulls.

    Azure exports a period twice; where both exports are there, what is invoiced is read from one, amortized cost from the other.
    """
    own, other = (ACTUAL, AMORTIZED) if column == "BilledCost" else (AMORTIZED, ACTUAL)
    session.view_table("charges", "charges")
    sql = f"SELECT *, coalesce({column}, 0) AS cost FROM charges WHERE BillingCurrency IS NOT DISTINCT FROM {quote(currency)}"
    (twice,) = session.fetch_one("SELECT count(DISTINCT x_Dataset) FROM charges")
    if twice > 1:
        sql += f""" AND (x_Dataset IS DISTINCT FROM {quote(other)}
                      OR {_PERIOD} NOT IN (SELECT {_PERIOD} FROM charges WHERE x_Dataset = {quote(own)}))"""
    session.create_view("counted", sql)


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
    sql = f"""SELECT team, project, first, last, fixed, fixed AND daily, ownable, sum(cost) FROM (
                SELECT team, project, cost, {IS_FIXED} AS fixed, ChargeCategory = 'Usage' AS daily, {_CAN_BE_OWNED} AS ownable,
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
            Decimal(cost),
        )
        for team, project, first, last, fixed, recurs, ownable, cost in session.raw.execute(sql).fetchall()
    ]
