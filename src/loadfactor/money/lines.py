"""Lines to be charged: what costs, joined to who holds it, with the GPU-hours that stand behind it.

A line may be the sum of many: charging needs sums alone, so whoever has ten million rows first adds up those of one owner, pool
and kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final, Literal

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import S_PER_HOUR
from loadfactor.money.currency import EXACT, check_amount
from loadfactor.settings.money import POOLS

Owner = tuple[str | None, ...]
"""Values of what statements are by, like team and project; None where it is not known."""
Costs = dict[str, Decimal]
"""Amounts by cost column."""
Kind = Literal["gpu", "storage", "network", "egress", "other"]
STATES: Final = ("busy", "idle", "unobserved")
"""States of held GPU-hours, as the ledger has them."""
_SPLIT_DIGITS: Final = 18
"""Digits to which idle and unobserved parts of a line are worked out; what is left of it is busy, so nothing is lost."""


@dataclass(frozen=True)
class ChargedHours:
    """GPU-hours behind a cost. `total` are those held; of a pool, those that it stands for."""

    total: Decimal = Decimal(0)
    idle: Decimal = Decimal(0)
    unobserved: Decimal = Decimal(0)
    effective: Decimal = Decimal(0)

    def __add__(self, other: "ChargedHours") -> "ChargedHours":
        return ChargedHours(
            EXACT.add(self.total, other.total),
            EXACT.add(self.idle, other.idle),
            EXACT.add(self.unobserved, other.unobserved),
            EXACT.add(self.effective, other.effective),
        )

    @property
    def coverage_share(self) -> Decimal | None:
        """The part of the hours that was observed; None where there are none."""
        return (self.total - self.unobserved) / self.total if self.total else None


def read_hours(gpu_seconds: float) -> Decimal:
    """GPU-seconds of the ledger as hours to nine digits, so that sums do not depend on the order in which floats were added.

    >>> read_hours(3600 * 0.1 * 3), read_hours(1200.0)
    (Decimal('0.300000000'), Decimal('0.333333333'))
    """
    return (Decimal(gpu_seconds) / S_PER_HOUR).quantize(Decimal("1e-9"), ROUND_HALF_EVEN)


@dataclass(frozen=True)
class CostLine:
    """What costs: amounts by column, and the owner or the pool that they belong to. With neither it is untagged."""

    costs: Mapping[str, Decimal]
    owner: Owner | None = None
    pool: str | None = None
    kind: Kind = "gpu"
    hours: ChargedHours = field(default=ChargedHours())

    def __post_init__(self) -> None:
        """Refuse what cannot be. Raises InputError."""
        named = self.owner is not None and any(self.owner)
        where = (
            f"of {' / '.join(name or '?' for name in self.owner or ())}" if named else f"in {self.pool or 'untagged'}"
        )
        if self.pool is not None and self.pool not in POOLS:
            raise no_such("pool", self.pool, POOLS)
        if named and self.pool is not None:
            raise InputError(f"a line {where} is also in the pool {self.pool!r}; a cost has an owner or a pool")
        for column, amount in self.costs.items():
            check_amount(amount, f"{column} of a line {where}")
        hours = self.hours
        if min(hours.idle, hours.unobserved, hours.effective) < 0 or hours.idle + hours.unobserved > hours.total:
            raise InputError(
                f"a line {where} has more idle and unobserved hours than it held ({hours.total}), or negative ones"
            )

    @property
    def is_owned(self) -> bool:
        """True where anything is known of the owner."""
        return self.owner is not None and any(self.owner)


def split_by_state(line: CostLine, columns: Sequence[str]) -> dict[str, Costs]:
    """The costs of held GPUs by what they did, in proportion to hours; they sum to the line exactly.

    >>> hours = ChargedHours(total=Decimal(3), idle=Decimal(1))
    >>> parts = split_by_state(CostLine({"BilledCost": Decimal(6)}, ("vision",), hours=hours), ["BilledCost"])
    >>> {state: int(costs["BilledCost"]) for state, costs in parts.items()}
    {'idle': 2, 'busy': 4}
    """
    parts: dict[str, Costs] = {}
    left = {column: line.costs[column] for column in columns}
    for state, hours in (("idle", line.hours.idle), ("unobserved", line.hours.unobserved)):
        if not hours:
            continue
        share = Fraction(hours) / Fraction(line.hours.total)
        parts[state] = {column: _take(line.costs[column], share) for column in columns}
        left = {column: EXACT.subtract(left[column], parts[state][column]) for column in columns}
    parts["busy"] = left
    return parts


def _take(amount: Decimal, share: Fraction) -> Decimal:
    if share == 1:
        return amount
    return Decimal(f"{round(Fraction(amount) * share * 10**_SPLIT_DIGITS)}E-{_SPLIT_DIGITS}")
