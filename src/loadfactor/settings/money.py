"""Money: the tables [chargeback], [billing], [[budget]], [[project]], [[lever]] and [[owned]]."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.limits import MOST_YEARS
from loadfactor.settings.table import Amount, HomePath, SettingsTable, read_amount, unique
from loadfactor.tables.schema import CURRENCY

HOLDER, OWN_POOL, HELD, EFFECTIVE = "holder", "own pool", "held hours", "effective hours"
EVEN, FIXED = "even", "fixed shares"
Way = Literal["holder", "own pool", "held hours", "effective hours", "even", "fixed shares"]
_WRITTEN: Final = (HOLDER, OWN_POOL, HELD, EFFECTIVE, EVEN)
POOLS: Final = ("unallocated", "idle", "unobserved", "down", "shared", "unused commitment", "untagged")
"""Where money stands that no owner holds, in the order of statements."""
CostColumn = Literal["BilledCost", "EffectiveCost", "ListCost", "ContractedCost"]
COST_COLUMNS: Final[tuple[CostColumn, ...]] = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
"""Cost columns of FOCUS, which are never added to each other."""


_OF_MONEY: Final = ("currency", "measured_load", "gpu_w")
_MOST_COST: Final = 1e12


class Bearing(BaseModel):
    """Bearers of the cost of a pool: a word, or a table of fixed shares by the names of owners."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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
    """Rules of chargeback: the table [chargeback].

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
    served: Literal["holder", "users"] = Field(
        default="holder",
        description="Who bears GPUs that serve models: who holds them, or who used them, by the logs of gateways.",
    )
    storage: Literal["included", "apart"] = Field(
        default="included", description="Whether storage is included in an owner's statement, or stands apart."
    )
    network: Literal["included", "apart"] = Field(
        default="included", description="Whether network is included in an owner's statement, or stands apart."
    )
    egress: Literal["included", "apart"] = Field(
        default="included", description="Whether egress is included in an owner's statement, or stands apart."
    )

    @field_validator("unallocated", "down", "shared", "unused_commitment", "untagged")
    @classmethod
    def _has_no_holder(cls, bearing: Bearing) -> Bearing:
        if bearing.way == HOLDER:
            raise ValueError(f"nobody holds it; choose from {', '.join(_WRITTEN[1:])}, or give a table of shares")
        return bearing

    def bearing_of(self, pool: str) -> Bearing:
        """Bearers of a pool, by the name it has on statements."""
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


def read_policy(words: Mapping[str, str]) -> ChargebackPolicy:
    """The policy whose words these are. Raises InputError where names of fixed shares hide where one ends.

    >>> policy = ChargebackPolicy(idle="own pool", shared={"research": 60, "search, web": 40})
    >>> read_policy(policy.words) == policy
    True
    """
    written: dict[str, Any] = {}
    for name, text in words.items():
        way, _, listed = text.partition(" (")
        pairs = re.findall(r"(.+?) (\d[\d.]*)(?:, |\)$)", listed) if way == FIXED else []
        written[name] = {owner: Decimal(share) for owner, share in pairs} if pairs else text
    found = ChargebackPolicy.model_validate(written)
    if any(found.words[name] != text for name, text in words.items()):
        raise InputError(
            "the rules of that closing cannot be read again; `loadfactor chargeback --diff` says what changed"
        )
    return found


class Budget(SettingsTable):
    """Budget of a team or project in a month, a quarter or a year: a table [[budget]]. Without either, everybody together."""

    name: str | None = Field(
        default=None, min_length=1, description="What it is called. By default as its team or project."
    )
    team: str | None = Field(default=None, description="The team whose budget it is.")
    project: str | None = Field(default=None, description="The project whose budget it is.")
    amount: Amount = Field(gt=0, description="What may be spent in a period.")
    period: Literal["month", "quarter", "year"] = Field(
        default="month", description="The period that the amount is for."
    )
    column: CostColumn = Field(
        default="EffectiveCost", description="Which cost counts: BilledCost as invoiced, or amortized."
    )
    thresholds_percent: tuple[Decimal, ...] = Field(
        default=(Decimal(50), Decimal(80), Decimal(100)), description="Percents of the amount that are announced."
    )
    least_anomaly: Amount = Field(
        default=Decimal(100), ge=0, description="The least amount by which an unusual day stands out."
    )

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
        """What it is called, else its owner."""
        return self.name or " / ".join(name for name in (self.team, self.project) if name) or "everybody"

    @model_validator(mode="after")
    def _named(self) -> Self:
        if "" in (self.team, self.project):
            raise ValueError("a budget's team or project is empty; name it, or leave it out")
        return self


Budgets = Annotated[
    tuple[Budget, ...],
    unique("two budgets of {item.label} for a {item.period}; keep one", "team", "project", "period", "column"),
]
"""Budgets that differ in owner, period or column."""


class BillingSettings(SettingsTable):
    """How lines of bills become GPUs of nodes: the table [billing]."""

    nodes: HomePath | None = Field(
        default=None, description="CSV that says, with dates, which resource was which node."
    )
    node_tags: tuple[str, ...] = Field(default=("Name",), description="Tags of a bill that hold the name of a node.")
    gpu_share: Decimal = Field(
        default=Decimal(1),
        gt=0,
        le=1,
        description="Part of an instance's cost that is its GPUs': \"all\", or a number like 0.9.",
    )

    @field_validator("gpu_share", mode="before")
    @classmethod
    def _read_share(cls, given: Any) -> Any:
        if given == "all":
            return Decimal(1)
        if isinstance(given, bool) or not isinstance(given, (int, float, Decimal)):
            raise ValueError(f'{given!r} is no share; write "all" or a number like 0.9')
        return Decimal(str(given))

    @property
    def share_words(self) -> str:
        """The policy as it is printed with answers.

        >>> BillingSettings(gpu_share=0.9).share_words
        'GPUs bear 0.9 of what an instance costs; of GPUs that are billed apart, all'
        """
        if self.gpu_share == 1:
            return "GPUs bear all that an instance costs"
        return f"GPUs bear {self.gpu_share} of what an instance costs; of GPUs that are billed apart, all"


class ProjectPlan(SettingsTable):
    """A training or fine-tuning project as it was planned. It is found in the books by project, or by its experiments."""

    name: str = Field(
        min_length=1, description="What it is called; the project of its jobs, where no experiments are named."
    )
    experiments: tuple[str, ...] = Field(default=(), description="Experiments that belong to it, in place of its name.")
    runs: int = Field(ge=1, description="Runs that have to succeed.")
    gpu_hours_per_run: Amount = Field(gt=0, description="GPU-hours of one run that succeeds.")
    retry_percent: Amount = Field(
        default=Decimal(0), ge=0, description="GPU-hours of runs that fail, of those that succeed."
    )
    evaluation_gpu_hours: Amount = Field(
        default=Decimal(0), ge=0, description="GPU-hours of evaluation, for the whole project."
    )
    price_per_gpu_hour: Amount = Field(gt=0, description="Planned price of a held GPU-hour.")
    storage_cost: Amount = Field(default=Decimal(0), ge=0, description="Storage of the whole project.")
    staff_cost: Amount = Field(default=Decimal(0), ge=0, description="Staff of the whole project.")

    @model_validator(mode="after")
    def _named(self) -> Self:
        if "" in self.experiments:
            raise ValueError("one of the experiments is empty; name it, or leave it out")
        return self


ProjectPlans = Annotated[
    tuple[ProjectPlan, ...], unique("two projects are called {item.name!r}; give each a name of its own", "name")
]
"""Projects of different names."""


class DoneLever(SettingsTable):
    """A lever of `loadfactor savings` that was applied, and what was promised of it: a table [[lever]]."""

    lever: str = Field(min_length=1, description="Its name, as `loadfactor savings` prints it.")
    done: date = Field(description="The day since which it works, UTC.")
    promised: Amount | None = Field(default=None, description="What it was to save a month.")
    team: str | None = Field(default=None, min_length=1, description="The team that did it; all, where none is named.")


class OwnedPool(SettingsTable):
    """GPUs that are owned: a table [[owned]]. Names and defaults are those of `loadfactor plan own`."""

    pool: str | None = Field(default=None, min_length=1, description="Pool of the GPUs. By default, any.")
    accelerator: str | None = Field(default=None, min_length=1, description="Their model. By default, any.")
    server_price: float = Field(gt=0, le=_MOST_COST, description="Capital: one server with all its GPUs.")
    gpus_per_server: int | None = Field(default=None, ge=1, description="GPUs of one server; the catalog's by default.")
    life_years: float | None = Field(default=None, gt=0, le=MOST_YEARS, description="Years until a server is sold.")
    discount_rate_percent: float | None = Field(
        default=None, ge=0, description="Discount rate: cost of capital a year, in percent."
    )
    residual_percent: float | None = Field(
        default=None, ge=0, le=100, description="What it is sold for, in percent of its price."
    )
    server_kw: float | None = Field(default=None, ge=0, description="Power at full load; the catalog's by default.")
    load_percent: float | None = Field(default=None, ge=0, le=100, description="Mean power, in percent of full power.")
    pue: float | None = Field(default=None, ge=1, description="Power into the building over power into the servers.")
    price_per_kwh: float | None = Field(default=None, ge=0, description="Price of a kilowatt-hour.")
    colocation_price_per_kw_month: float | None = Field(
        default=None, gt=0, description="All-in colocation in place of energy and PUE."
    )
    network_percent: float | None = Field(
        default=None, ge=0, description="Network, storage and CPU hosts, of its price."
    )
    support_percent: float | None = Field(default=None, ge=0, description="Support and repair a year, of its price.")
    staff_cost: float | None = Field(default=None, ge=0, le=_MOST_COST, description="Staff a year for one server.")
    availability_percent: float | None = Field(
        default=None, gt=0, le=100, description="Share of the time that it is up, in percent."
    )
    currency: str | None = Field(
        default=None, pattern=CURRENCY, description="Currency of these amounts. By default, that of the books."
    )
    measured_load: bool = Field(default=False, description="Measured energy in place of `load_percent`.")
    gpu_w: float | None = Field(
        default=None,
        gt=0,
        description="Full power of a GPU, W, that measured power is compared with; the catalog's by default.",
    )

    @property
    def label(self) -> str:
        """Which GPUs it is of."""
        return " / ".join(name for name in (self.pool, self.accelerator) if name) or "all GPUs"

    @property
    def terms(self) -> dict[str, Any]:
        """Settings of a server, under the names of `plan own`."""
        left_out = {*_OF_MONEY, "pool"}
        return {
            name: value
            for name in type(self).model_fields
            if name not in left_out and (value := getattr(self, name)) is not None
        }

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [name for name in ("gpus_per_server", "server_kw") if getattr(self, name) is None]
        if self.accelerator is None and missing:
            raise ValueError(f"owned GPUs of any model need {' and '.join(missing)}; or name their accelerator")
        if self.measured_load and self.colocation_price_per_kw_month is not None:
            raise ValueError(
                "colocation is paid for all power, so there is no load to measure; leave one of the two out"
            )
        if self.measured_load and self.accelerator is None and self.gpu_w is None:
            raise ValueError(
                "measured load of GPUs of any model needs gpu_w, their full power; or name their accelerator"
            )
        return self


OwnedPools = Annotated[tuple[OwnedPool, ...], unique("two tables are of {item.label}; keep one", "pool", "accelerator")]
"""Owned GPUs, each table of others."""
