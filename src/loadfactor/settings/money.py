"""What `loadfactor.toml` says of money: the table [chargeback] and the tables [[budget]]."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from loadfactor.base.errors import no_such
from loadfactor.settings.table import SettingsTable

HOLDER, OWN_POOL, HELD, EFFECTIVE, EVEN, FIXED = (
    "holder",
    "own pool",
    "held hours",
    "effective hours",
    "even",
    "fixed shares",
)
Way = Literal["holder", "own pool", "held hours", "effective hours", "even", "fixed shares"]
_WRITTEN: Final = (HOLDER, OWN_POOL, HELD, EFFECTIVE, EVEN)
POOLS: Final = ("unallocated", "idle", "unobserved", "down", "shared", "unused commitment", "untagged")
"""Where money stands that no owner holds, in the order of statements."""
CostColumn = Literal["BilledCost", "EffectiveCost", "ListCost", "ContractedCost"]
COST_COLUMNS: Final[tuple[CostColumn, ...]] = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
"""Cost columns of FOCUS, which are never added to each other."""


def read_amount(written: Any, what: str) -> Decimal:
    """An amount as it is written in TOML: a number, or a text with one. Raises ValueError naming `what`.

    >>> read_amount(0.1, "amount"), read_amount("12000.50", "amount")
    (Decimal('0.1'), Decimal('12000.50'))
    """
    try:
        amount = Decimal(str(written)) if not isinstance(written, bool) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise ValueError(f"{what} is {written!r}, which is no number; write it like 12000 or 12000.50")
    return amount


class Bearing(BaseModel):
    """Who bears the cost of a pool: a word, or a table of fixed shares by the names of owners."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    way: Way
    shares: tuple[tuple[str, Decimal], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _written(cls, written: Any) -> Any:
        if isinstance(written, str):
            if written not in _WRITTEN:
                raise ValueError(f"{no_such('way to bear a cost', written, _WRITTEN)}; or give a table of shares")
            return {"way": written}
        if not isinstance(written, Mapping):
            raise ValueError(f"{written!r} says not who bears it; choose from {', '.join(_WRITTEN)}, or give a table")
        shares = tuple((name, read_amount(share, f"the share of {name}")) for name, share in sorted(written.items()))
        if any(share < 0 for _, share in shares) or not sum(share for _, share in shares):
            raise ValueError("shares are 0 or more, and one of them is above 0")
        return {"way": FIXED, "shares": shares}

    @property
    def words(self) -> str:
        """As it is printed on a statement.

        >>> Bearing.model_validate({"research": 60, "search": 40}).words
        'fixed shares (research 60, search 40)'
        """
        listed = ", ".join(f"{name} {share}" for name, share in self.shares)
        return f"{self.way} ({listed})" if listed else self.way


def _bearing(way: Way, description: str) -> Any:
    return Field(default=Bearing.model_construct(way=way), description=description)


class ChargebackPolicy(SettingsTable):
    """Who pays for what: the table [chargeback].

    A cost that nobody holds stays in its own pool, or is borne by owners in proportion to the GPU-hours they held or used
    effectively, evenly, or by fixed shares. Even and fixed shares are of the first name that statements are by.
    """

    mode: Literal["showback", "chargeback"] = Field(
        default="showback", description="Statements that are shown, or posted."
    )
    idle: Bearing = _bearing("holder", "Who bears held GPUs that did nothing.")
    unobserved: Bearing = _bearing("holder", "Who bears held GPUs of which nothing is known.")
    unallocated: Bearing = _bearing("own pool", "Who bears GPUs that nobody held.")
    down: Bearing = _bearing("own pool", "Who bears GPUs that were not usable.")
    shared: Bearing = _bearing("own pool", "Who bears what serves everybody: support, control planes, taxes.")
    unused_commitment: Bearing = _bearing("own pool", "Who bears commitments and reservations that nobody used.")
    untagged: Bearing = _bearing("own pool", "Who bears what has no owner.")
    storage: Literal["included", "apart"] = Field(default="included", description="Storage, in an owner's statement.")
    network: Literal["included", "apart"] = Field(default="included", description="Network, in an owner's statement.")
    egress: Literal["included", "apart"] = Field(default="included", description="Egress, in an owner's statement.")

    @field_validator("unallocated", "down", "shared", "unused_commitment", "untagged")
    @classmethod
    def _has_no_holder(cls, bearing: Bearing) -> Bearing:
        if bearing.way == HOLDER:
            raise ValueError(f"nobody holds it; choose from {', '.join(_WRITTEN[1:])}, or give a table of shares")
        return bearing

    def bearing_of(self, pool: str) -> Bearing:
        """Who bears a pool, by the name it has on statements."""
        bearing: Bearing = getattr(self, pool.replace(" ", "_"))
        return bearing

    def is_apart(self, kind: str) -> bool:
        """True for storage, network and egress where they have statements of their own."""
        return getattr(self, kind, "included") == "apart" if kind in ("storage", "network", "egress") else False

    @property
    def words(self) -> dict[str, str]:
        """Each setting as it is printed on a statement."""
        return {
            name: value.words if isinstance(value, Bearing) else value
            for name in type(self).model_fields
            for value in (getattr(self, name),)
        }


class Budget(SettingsTable):
    """What a team or project may spend in a month, a quarter or a year: a table [[budget]]. Without either, everybody together."""

    team: str | None = Field(default=None, description="The team whose budget it is.")
    project: str | None = Field(default=None, description="The project whose budget it is.")
    amount: Decimal = Field(gt=0, description="What may be spent in a period.")
    period: Literal["month", "quarter", "year"] = Field(default="month", description="How long a period is.")
    column: CostColumn = Field(
        default="EffectiveCost", description="Which cost counts: BilledCost as invoiced, or amortized."
    )
    thresholds_percent: tuple[Decimal, ...] = Field(
        default=(Decimal(50), Decimal(80), Decimal(100)), description="Percents of the amount that are announced."
    )
    least_anomaly: Decimal = Field(
        default=Decimal(100), ge=0, description="The least amount by which an unusual day stands out."
    )

    @field_validator("amount", "least_anomaly", mode="before")
    @classmethod
    def _amount(cls, written: Any) -> Decimal:
        return read_amount(written, "it")

    @field_validator("thresholds_percent", mode="before")
    @classmethod
    def _rising(cls, written: Any) -> tuple[Decimal, ...]:
        if not isinstance(written, (list, tuple)):
            raise ValueError("thresholds are a list of percents: [50, 80, 100]")
        percents = tuple(sorted({read_amount(percent, "a threshold") for percent in written}))
        if percents and percents[0] <= 0:
            raise ValueError(f"a threshold is {percents[0]}; give percents above 0")
        return percents

    @property
    def label(self) -> str:
        """Whose budget it is."""
        return " / ".join(name for name in (self.team, self.project) if name) or "everybody"

    @model_validator(mode="after")
    def _named(self) -> Self:
        if "" in (self.team, self.project):
            raise ValueError("a budget's team or project is empty; name it, or leave it out")
        return self


def _tell_apart(budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
    seen = set()
    for budget in budgets:
        key = (budget.team, budget.project, budget.period, budget.column)
        if key in seen:
            raise ValueError(f"two budgets of {budget.label} for a {budget.period}; keep one")
        seen.add(key)
    return budgets


Budgets = Annotated[tuple[Budget, ...], AfterValidator(_tell_apart)]
"""Budgets that differ in owner, period or column."""
