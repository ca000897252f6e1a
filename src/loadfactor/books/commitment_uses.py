"""What commitments, reservations and spot capacity came to by the bill: sums over charges, judged by `money.commitments`."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.books.billed_costs import find_currencies, has_bill, view_charges
from loadfactor.errors import InputError
from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.money.currency import EXACT, add_exactly
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

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
        """What to call it: its title, else the last part of its name, which may be a path."""
        return self.title or self.name.rsplit("/", 1)[-1]

    @property
    def difference_cost(self) -> Decimal:
        """What was purchased less what usage costs amortized."""
        return EXACT.subtract(self.purchased_cost, add_exactly((self.use.used_cost, self.use.unused_cost)))


@dataclass(frozen=True)
class BilledCommitments:
    """All commitments of the bills, use that none covered, spot capacity, and the commitments together with that use.

    Costs are exact, in `currency`; charges in other currencies are left out. On-demand cost is what the same use costs without the
    commitment: ContractedCost, else ListCost.
    """

    currency: str
    left_out_currencies: tuple[str, ...]
    commitments: tuple[BilledCommitment, ...]
    uncovered: CommitmentUse
    spot: CommitmentUse
    together: CommitmentUse


def find_commitments(session: Session) -> BilledCommitments:
    """What became of every commitment in the bills. Raises InputError where there is no bill."""
    if not has_bill(session):
        raise InputError(
            f"no bill in {session.folder}; import one: `loadfactor import focus PATH`, or aws-cur, azure-cost, gcp-billing"
        )
    currency, left_out = find_currencies(session)
    purchased = _read_purchases(session, currency)
    view_charges(session, "EffectiveCost", currency)
    sql = f"""SELECT {_NAME} AS name, {_UNUSED} AS unused, PricingCategory = 'Dynamic' AS spot, any_value(CommitmentDiscountName),
                any_value(CommitmentDiscountType), sum(cost), sum(coalesce(ContractedCost, ListCost, 0))
              FROM counted WHERE ChargeCategory = 'Usage' AND (name IS NOT NULL OR spot OR coalesce(ServiceName, '') IN (
                SELECT coalesce(ServiceName, '') FROM counted WHERE ChargeCategory = 'Usage' AND {_NAME} IS NOT NULL))
              GROUP BY name, unused, spot ORDER BY ALL"""
    rows = session.raw.execute(sql).fetchall()
    is_spot = [name is None and bool(spot) for name, _, spot, *_ in rows]
    lines = [
        CommitmentLine(name, Decimal(cost), Decimal(0) if unused else Decimal(on_demand), not unused)
        for name, unused, _, _, _, cost, on_demand in rows
    ]
    uses = measure_commitments(line for line, spot in zip(lines, is_spot, strict=True) if not spot)
    spot = measure_commitments(line for line, is_one in zip(lines, is_spot, strict=True) if is_one)
    named = {name: (title, kind) for name, (title, kind, _) in purchased.items()}
    named |= {name: (title, kind) for name, _, _, title, kind, _, _ in rows if name is not None}
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
        currency, left_out, commitments, uses.get(None, CommitmentUse()), spot.get(None, CommitmentUse()), together
    )


def _read_purchases(session: Session, currency: str) -> dict[str, tuple[str | None, str | None, Decimal]]:
    """Name, type and BilledCost of what was purchased, by id; recurring fees of a commitment are purchases, too."""
    view_charges(session, "BilledCost", currency)
    sql = f"""SELECT {_NAME} AS name, any_value(CommitmentDiscountName), any_value(CommitmentDiscountType), sum(cost)
              FROM counted WHERE ChargeCategory = {quote("Purchase")} AND name IS NOT NULL GROUP BY name ORDER BY name"""
    return {name: (title, kind, Decimal(cost)) for name, title, kind, cost in session.raw.execute(sql).fetchall()}
