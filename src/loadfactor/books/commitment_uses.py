"""What commitments, reservations and spot capacity came to by the bill: sums over charges, judged by `money.commitments`."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.books.billed_costs import convert, has_bill, view_charges
from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.money.currency import EXACT, add_exactly
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
    """What became of every commitment in the bills. Raises InputError where there is no bill."""
    if not has_bill(session):
        raise InputError(
            f"no bill in {session.folder}; import one: `loadfactor import focus PATH`, or aws-cur, azure-cost, gcp-billing"
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
