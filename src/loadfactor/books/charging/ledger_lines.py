"""GPU-hours of the ledger by owner and state, and what they cost at the ledger's own prices."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from loadfactor.base.units import US_PER_S
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.money.currency import EXACT
from loadfactor.money.lines import ChargedHours, CostLine, Owner, read_hours
from loadfactor.store.session import Session

Expr = Any
EFFECTIVE_COST = "EffectiveCost"
"""The one column of cost that books without a bill know."""


@dataclass(frozen=True)
class LedgerHours:
    """GPU-hours of one owner (or nobody) in one state at one price; None where no price is known."""

    owner: Owner
    state: str
    price: Decimal | None
    hours: Decimal
    effective: Decimal

    @property
    def pool(self) -> str | None:
        """The pool of time that nobody held."""
        return self.state if self.state in ("unallocated", "down") else None

    @property
    def charged_hours(self) -> ChargedHours:
        """As the hours of a line."""
        return ChargedHours(
            self.hours,
            self.hours if self.state == "idle" else Decimal(0),
            self.hours if self.state == "unobserved" else Decimal(0),
            self.effective,
        )

    def cost_as(self, costs: dict[str, Decimal]) -> CostLine:
        """These hours as a line with the costs given."""
        return CostLine(costs, None if self.pool else self.owner, self.pool, "gpu", self.charged_hours)


def read_ledger_hours(session: Session, by: Sequence[str], basis: str) -> list[LedgerHours]:
    """What `asked_ledger` holds by owner, state and price. GPU-seconds are added up as whole microseconds, in any order alike."""
    sql = recall(f"ledger hours {by} {basis}", lambda: _compile(tuple(by), basis))["hours"]
    return [
        LedgerHours(
            tuple(owner),
            state,
            None if price is None else Decimal(str(price)),
            read_hours(held_us / US_PER_S),
            read_hours(effective_us / US_PER_S),
        )
        for *owner, state, price, held_us, effective_us in session.raw.execute(f"{sql} ORDER BY ALL").fetchall()
    ]


def price_hours(hours: Iterable[LedgerHours]) -> Iterator[CostLine]:
    """Price × hours; hours without a price are left out, for their cost is unknown."""
    for held in hours:
        if held.price is not None:
            yield held.cost_as({EFFECTIVE_COST: EXACT.multiply(held.hours, held.price)})


def _compile(by: tuple[str, ...], basis: str) -> Queries:
    from loadfactor.books.expressions import write_sql  # Ibis takes longer to import than most answers

    return {"hours": write_sql(_sum_hours(by, basis))}


def _sum_hours(by: tuple[str, ...], basis: str) -> Expr:
    import ibis

    from loadfactor.ledger.columns import ACTIVITIES
    from loadfactor.ledger.states import measures
    from loadfactor.ledger.steps import ledger_columns
    from loadfactor.tables.schema import DIMENSIONS

    book = ibis.table(ledger_columns(), name="asked_ledger")
    known = measures(book)
    effective = sum(
        (known[f"effective_{kind.basis}_s"] for kind in ACTIVITIES[1:]), known[f"effective_{ACTIVITIES[0].basis}_s"]
    )
    rows = book.select(
        **{name: book[DIMENSIONS[name]] for name in by},
        state=book.state,
        price=book[f"price_per_gpu_hour_{basis}"],
        held_us=(book.gpu_s * US_PER_S).round().cast("int64"),
        effective_us=(effective * US_PER_S).round().cast("int64"),
    )
    return rows.group_by(*by, "state", "price").aggregate(
        held_us=rows.held_us.sum(), effective_us=rows.effective_us.sum()
    )
