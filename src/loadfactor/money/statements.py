"""Statements: what an owner or a pool is charged, made of parts that say where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from loadfactor.money.lines import ChargedHours, Costs, Owner
from loadfactor.settings.money import ChargebackPolicy

_RATE_DIGITS = Decimal("1e-6")


@dataclass(frozen=True)
class StatementPart:
    """A part of a statement: `busy`, `idle` and `unobserved` GPU-hours, `storage` …, or a share of a pool; and by what rule."""

    name: str
    amounts: Costs
    method: str


@dataclass(frozen=True)
class Statement:
    """What one owner is charged, or what stands in one pool. Amounts are in minor units of the currency; parts sum to them.

    `hours` are all that the owner held, `charged_hours` those whose cost is here: policy may keep idle ones apart. An owner whose
    storage, network or egress is kept apart has a second statement, in the pool of that name.
    """

    owner: Owner | None
    pool: str | None
    by: Mapping[str, str | None]
    amounts: Costs
    parts: tuple[StatementPart, ...]
    hours: ChargedHours
    charged_hours: Decimal

    @property
    def rates(self) -> dict[str, Decimal | None]:
        """The cost of a charged GPU-hour, by cost column, shares of pools left out; None without hours, or a cost of them."""
        return {column: self._rate(column) for column in self.amounts}

    def _rate(self, column: str) -> Decimal | None:
        gpus = [part.amounts[column] for part in self.parts if part.name in GPU_PARTS]
        return (
            (sum(gpus, Decimal(0)) / self.charged_hours).quantize(_RATE_DIGITS) if self.charged_hours and gpus else None
        )


GPU_PARTS = ("busy", "idle", "unobserved", "gpu")
"""Parts of a statement that are GPU-hours: of an owner by what they did, of a pool as a whole."""


@dataclass(frozen=True)
class SpreadPool:
    """A pool that owners bear, or were to bear: its amounts as they stand on their statements, and how.

    `kept_because` says why it stands in a statement of its own after all; it is empty where it was spread.
    """

    pool: str
    way: str
    amounts: Costs
    hours: ChargedHours
    kept_because: str = ""


@dataclass(frozen=True)
class ColumnTotal:
    """A cost column: the bill exactly, what rounding it once took away, what all statements charge, and what is then left: 0."""

    bill: Decimal
    charged: Decimal
    rounding: Decimal
    difference: Decimal


@dataclass(frozen=True)
class Chargeback:
    """Who pays: a statement for each owner and pool, and each column's total. `by` are the names that owners consist of."""

    by: tuple[str, ...]
    currency: str
    policy: ChargebackPolicy
    statements: tuple[Statement, ...]
    spreads: tuple[SpreadPool, ...]
    totals: Mapping[str, ColumnTotal]
