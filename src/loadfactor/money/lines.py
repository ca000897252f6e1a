"""Lines to be charged: what costs, joined to who holds it, with the GPU-hours that stand behind it.

A line may be the sum of many: charging needs sums alone, so whoever has ten million rows first adds up those of one owner, pool
and kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final, Literal

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import S_PER_HOUR
from loadfactor.money.currency import EXACT, add_exactly, check_amount
from loadfactor.settings.money import POOLS, ChargebackPolicy

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
    """A cost: amounts by column, and the owner or the pool that they belong to. With neither it is untagged.

    `billed_hours` are those of its hours that the costs are for, where they are not for all of them.
    """

    costs: Mapping[str, Decimal]
    owner: Owner | None = None
    pool: str | None = None
    kind: Kind = "gpu"
    hours: ChargedHours = field(default=ChargedHours())
    billed_hours: Decimal | None = None

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

    @property
    def billed_share(self) -> Fraction:
        """The part of its hours that its costs are for."""
        return Fraction(1) if self.billed_hours is None else Fraction(self.billed_hours) / Fraction(self.hours.total)


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


def measure_tag_coverage(lines: Iterable[CostLine], column: str) -> Decimal | None:
    """The part of charges whose owner's names are all known; None where there are none.

    What stands in a pool cannot have an owner, untagged cost aside. Credits and refunds go with charges, so they do not count.

    >>> lines = [CostLine({"BilledCost": Decimal(90)}, ("vision", "llm")), CostLine({"BilledCost": Decimal(30)}, ("vision", None))]
    >>> measure_tag_coverage([*lines, CostLine({"BilledCost": Decimal(500)}, pool="down")], "BilledCost")
    Decimal('0.75')
    """
    tagged: list[Decimal] = []
    untagged: list[Decimal] = []
    for line in lines:
        if line.pool in (None, "untagged") and line.costs[column] > 0:
            (tagged if line.owner and all(line.owner) else untagged).append(line.costs[column])
    whole = add_exactly((*tagged, *untagged))
    return add_exactly(tagged) / whole if whole else None


def choose_column(columns: Iterable[str]) -> str:
    """The one cost that shares and bridges are of: amortized cost where the bill says it, else the first column it says.

    >>> choose_column(["BilledCost", "EffectiveCost"]), choose_column(["BilledCost"])
    ('EffectiveCost', 'BilledCost')
    """
    known = tuple(columns)
    return EFFECTIVE_COST if EFFECTIVE_COST in known else known[0]


EFFECTIVE_COST: Final = "EffectiveCost"
"""The column of amortized cost; the one that books without a bill know."""
_RATE_DIGITS = Decimal("1e-6")


SHARE_OF: Final = "share of "
"""What the name of a part begins with that is a share of a pool."""


@dataclass(frozen=True)
class StatementPart:
    """A part of a statement: `busy`, `idle` and `unobserved` GPU-hours, `storage` …, or a share of a pool; and by what rule."""

    name: str
    amounts: Costs
    method: str


@dataclass(frozen=True)
class StatedHours:
    """GPU-hours of a statement. Idle and effective ones are None where nothing was observed, and of pools, which nobody held."""

    total: Decimal = Decimal(0)
    idle: Decimal | None = None
    unobserved: Decimal = Decimal(0)
    effective: Decimal | None = None
    coverage_share: Decimal | None = None


def state_hours(held: ChargedHours, pool: str | None) -> StatedHours:
    """Hours as a statement prints them.

    >>> state_hours(ChargedHours(Decimal(4), unobserved=Decimal(4)), None).idle is None
    True
    """
    seen = pool is None and held.total > held.unobserved
    share = None if pool else held.coverage_share
    return StatedHours(
        held.total, held.idle if seen else None, held.unobserved, held.effective if seen else None, share
    )


def add_hours(parts: Iterable[StatedHours]) -> StatedHours:
    """Hours of several statements together.

    >>> add_hours([StatedHours(Decimal(3), Decimal(1), Decimal(0)), StatedHours(Decimal(1), None, Decimal(1))]).coverage_share
    Decimal('0.75')
    """
    held = [of for of in parts if of.total]
    if len(held) == 1:
        return held[0]
    total, unobserved = (add_exactly(getattr(of, name) for of in held) for name in ("total", "unobserved"))
    idle, effective = ([getattr(of, name) for of in held] for name in ("idle", "effective"))
    known = [
        None if set(of) <= {None} else add_exactly(hours for hours in of if hours is not None)
        for of in (idle, effective)
    ]
    return StatedHours(total, known[0], unobserved, known[1], (total - unobserved) / total if any(known) else None)


@dataclass(frozen=True)
class Statement:
    """The charges of one owner, or of one pool. Amounts are in minor units of the currency; parts sum to them.

    `hours` are all that the owner held, `charged_hours` those whose cost is here: policy may keep idle ones apart. `billed_hours`
    are those of them that amounts are known for: a bill may lack their node. An owner whose storage, network or egress is kept
    apart has a second statement, in the pool of that name.
    """

    owner: Owner | None
    pool: str | None
    by: Mapping[str, str | None]
    amounts: Costs
    parts: tuple[StatementPart, ...]
    hours: StatedHours
    charged_hours: Decimal
    billed_hours: Decimal = Decimal(0)

    @property
    def rates(self) -> dict[str, Decimal | None]:
        """The cost of a GPU-hour, by cost column: of the amounts that have GPU-hours, ÷ these; None where there are none.

        Left out are shares of pools, and GPUs of a bill on no node that the books know, whose hours nobody knows.
        """
        return {column: self._rate(column) for column in self.amounts}

    def _rate(self, column: str) -> Decimal | None:
        with_hours = ("gpu",) if self.pool else STATES
        gpus = [part.amounts[column] for part in self.parts if part.name in with_hours]
        return (
            (sum(gpus, Decimal(0)) / self.billed_hours).quantize(_RATE_DIGITS) if self.billed_hours and gpus else None
        )


@dataclass(frozen=True)
class StatementLine:
    """A part of a statement as a line of it: direct or a share of a pool, with its GPU-hours and their rate by cost column.

    Rates are those of the statement where hours × rate is the amount to a minor unit, else amount ÷ hours; None where there are no
    GPU-hours, or where the amounts are for a part of them alone: a bill may lack a node.
    """

    name: str
    is_share: bool
    unit: str | None
    hours: Decimal | None
    rates: Mapping[str, Decimal | None]
    amounts: Costs
    method: str


def list_lines(statement: Statement) -> tuple[StatementLine, ...]:
    """The parts of a statement as lines, in its order.

    >>> part = StatementPart("busy", {"BilledCost": Decimal("7.05")}, "held hours that worked")
    >>> hours = StatedHours(Decimal(4), Decimal(1), Decimal(0))
    >>> (line,) = list_lines(Statement(("vision",), None, {}, part.amounts, (part,), hours, Decimal(3), Decimal(3)))
    >>> str(line.hours), str(line.rates["BilledCost"])
    ('3', '2.350000')
    """
    held = statement.hours
    idle = held.idle or Decimal(0)
    of_parts = {"idle": idle, "unobserved": held.unobserved, "busy": held.total - idle - held.unobserved}
    if statement.pool:
        of_parts = {"gpu": held.total}
    is_whole = statement.billed_hours == statement.charged_hours
    lines = []
    for part in statement.parts:
        hours = of_parts.get(part.name) or None
        whole = statement.rates
        rates = {
            column: _rate_line(of, hours, whole[column]) if is_whole else None for column, of in part.amounts.items()
        }
        unit = "GPU-hour" if hours else None
        lines.append(
            StatementLine(part.name, part.name.startswith(SHARE_OF), unit, hours, rates, part.amounts, part.method)
        )
    return tuple(lines)


def _rate_line(amount: Decimal, hours: Decimal | None, of_all: Decimal | None) -> Decimal | None:
    """What an hour of a line cost, rounding of its amount aside."""
    if not hours:
        return None
    if of_all is not None and abs(of_all * hours - amount) <= Decimal(1).scaleb(int(amount.as_tuple().exponent)):
        return of_all
    return (amount / hours).quantize(_RATE_DIGITS)


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
    """Chargeback: a statement for each owner and pool, and each column's total. `by` are the names that owners consist of."""

    by: tuple[str, ...]
    currency: str
    policy: ChargebackPolicy
    statements: tuple[Statement, ...]
    spreads: tuple[SpreadPool, ...]
    totals: Mapping[str, ColumnTotal]
