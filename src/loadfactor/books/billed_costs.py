"""Charges of bills as one cost column of them: which rows count for it, in which currency, and how they lie over days."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.books.charging.bill_lines import EPOCH, choose_currency
from loadfactor.books.charging.bill_lines import view_charges as name_charges
from loadfactor.books.charging.fleet_chargeback import CostDays
from loadfactor.metrics.query.calendar import Window, instant
from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.money.currency import EXACT, add_exactly
from loadfactor.money.spending import DaySpend
from loadfactor.settings.money import CostColumn
from loadfactor.store.session import Session

_DIGITS: Final = Decimal("1e-18")
"""Of a day's part of a charge of several days; its last day takes what is left."""


def has_bill(session: Session) -> bool:
    """True where charges of a bill were imported."""
    return bool(session.manifest.of("charges"))


def view_charges(session: Session, column: CostColumn) -> tuple[str, tuple[str, ...]]:
    """Give all charges the name `counted`, with `cost` from one column, 0 where there is none; their currency, and remarks on it.

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
    """A cost by the days it is for; `recurs` where fixed cost is charged anew every day."""

    first: date
    last: date
    is_fixed: bool
    recurs: bool
    cost: Decimal

    @classmethod
    def of(cls, days: CostDays, cost: Fraction, month: Window) -> "BilledDays":
        """A cost of a month; its days end with the month, for it is charged in that."""
        end = instant(month.end_ms - 1).astimezone(month.zone).date()
        first, last = EPOCH + timedelta(days.first), EPOCH + timedelta(max(days.first, days.last))
        exact = EXACT.multiply(Decimal(round(cost / Fraction(_DIGITS))), _DIGITS)
        return cls(first, max(first, min(last, end)), days.is_fixed, days.recurs, exact)

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


_NAME: Final = (
    "coalesce(CommitmentDiscountId, CASE WHEN CapacityReservationStatus = 'Unused' THEN CapacityReservationId END)"
)
_UNUSED: Final = "coalesce(CommitmentDiscountStatus = 'Unused' OR CapacityReservationStatus = 'Unused', false)"


@dataclass(frozen=True)
class BilledCommitment:
    """One commitment, reservation or capacity reservation. `purchased_cost` is what was invoiced for it (BilledCost).

    Over its whole life that is what its usage costs amortized, used and unused; `difference_cost` is the part of it that lies in
    periods that are not in the bill, or, negative, that was purchased before them.
    """

    name: str
    title: str
    type: str
    use: CommitmentUse
    purchased_cost: Decimal

    @property
    def label(self) -> str:
        """Its title, else the last part of its name, which may be a path."""
        return self.title or self.name.rsplit("/", 1)[-1]

    @property
    def difference_cost(self) -> Decimal:
        """Purchased cost less the amortized cost of use."""
        return EXACT.subtract(self.purchased_cost, add_exactly((self.use.used_cost, self.use.unused_cost)))


@dataclass(frozen=True)
class BilledCommitments:
    """All commitments of the bills, use that none covered, spot capacity, and the commitments together with that use.

    Costs are exact, in `currency`; `remarks` say which were converted. On-demand cost is what the same use costs without the
    commitment: ContractedCost, else ListCost.
    """

    currency: str
    remarks: tuple[str, ...]
    commitments: tuple[BilledCommitment, ...]
    uncovered: CommitmentUse
    spot: CommitmentUse
    together: CommitmentUse


def find_commitments(session: Session) -> BilledCommitments:
    """Sum up every commitment in the bills. Raises InputError where there is no bill."""
    if not has_bill(session):
        raise InputError(
            f"no bill in {session.name}; import one: `loadfactor import focus PATH`, or aws-cur, azure-cost, gcp-billing"
        )
    purchased = _read_purchases(session)
    currency, remarks = view_charges(session, "EffectiveCost")
    sql = f"""SELECT {_NAME} AS name, {_UNUSED} AS unused, PricingCategory = 'Dynamic' AS spot, any_value(CommitmentDiscountName),
                any_value(CommitmentDiscountType), rate, sum(cost), sum(coalesce(ContractedCost, ListCost, 0))
              FROM counted WHERE ChargeCategory = 'Usage' AND (name IS NOT NULL OR spot OR coalesce(ServiceName, '') IN (
                SELECT coalesce(ServiceName, '') FROM counted WHERE ChargeCategory = 'Usage' AND {_NAME} IS NOT NULL))
              GROUP BY name, unused, spot, rate ORDER BY ALL"""
    rows = session.raw.execute(sql).fetchall()
    is_spot = [name is None and bool(spot) for name, _, spot, *_ in rows]
    lines = [
        CommitmentLine(
            name, convert(Decimal(cost), rate), convert(Decimal(0 if unused else on_demand), rate), not unused
        )
        for name, unused, _, _, _, rate, cost, on_demand in rows
    ]
    uses = measure_commitments(line for line, spot in zip(lines, is_spot, strict=True) if not spot)
    spot = measure_commitments(line for line, is_one in zip(lines, is_spot, strict=True) if is_one)
    named = {name: (title, kind) for name, (title, kind, _) in purchased.items()}
    named |= {name: (title, kind) for name, _, _, title, kind, *_ in rows if name is not None}
    commitments = tuple(
        BilledCommitment(
            name,
            title or "",
            kind or "",
            uses.get(name, CommitmentUse()),
            purchased[name][2] if name in purchased else Decimal(0),
        )
        for name, (title, kind) in sorted(named.items())
    )
    together = sum(uses.values(), CommitmentUse())
    return BilledCommitments(
        currency, remarks, commitments, uses.get(None, CommitmentUse()), spot.get(None, CommitmentUse()), together
    )


def _read_purchases(session: Session) -> dict[str, tuple[str | None, str | None, Decimal]]:
    """Name, type and BilledCost of what was purchased, by id; recurring fees of a commitment are purchases, too."""
    view_charges(session, "BilledCost")
    sql = f"""SELECT {_NAME} AS name, any_value(CommitmentDiscountName), any_value(CommitmentDiscountType), rate, sum(cost)
              FROM counted WHERE ChargeCategory = 'Purchase' AND name IS NOT NULL GROUP BY name, rate ORDER BY ALL"""
    found: dict[str, tuple[str | None, str | None, Decimal]] = {}
    for name, title, kind, rate, cost in session.raw.execute(sql).fetchall():
        before = found[name][2] if name in found else Decimal(0)
        found[name] = title, kind, EXACT.add(before, convert(Decimal(cost), rate))
    return found
