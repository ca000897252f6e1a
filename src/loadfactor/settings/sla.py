"""Contracts on availability: the tables [[sla]], what a provider promised of GPUs and what it owes where they were not usable."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loadfactor.settings.table import Amount, DurationOrZero, SettingsTable, unique


class CreditStep(SettingsTable):
    """What is owed of a month's price where the availability was below a share."""

    below: Amount = Field(gt=0, le=1, description="Availability of the month below this share: 0.99 is 99 %.")
    credit: Amount = Field(gt=0, le=1, description="Is owed this share of the month's price: 0.1 is 10 %.")


class Maintenance(SettingsTable):
    """Time that the provider announced: outages in it do not count."""

    start: datetime = Field(
        alias="from", description="Since: 2026-10-05T08:00:00Z; without a zone in that of the page."
    )
    end: datetime = Field(alias="to", description="Until when it lasts.")
    node: tuple[str, ...] = Field(default=("*",), description="Of these nodes, names with * and ?.")

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if (self.start.tzinfo is None) != (self.end.tzinfo is None):
            raise ValueError(f"the maintenance from {self.start} names a zone at one end; write Z behind both")
        if self.end <= self.start:
            raise ValueError(f"the maintenance from {self.start} ends at {self.end}; give a later `to`")
        return self


def matches(name: str | None, patterns: Iterable[str]) -> bool:
    """Whether a name, in any case, is one of these patterns; of no name only * is.

    >>> matches("Maintenance: disks", ["maintenance*"]), matches(None, ["*"]), matches(None, ["h100*"])
    (True, True, False)
    """
    return any(fnmatchcase((name or "").lower(), pattern.lower()) for pattern in patterns)


class Sla(SettingsTable):
    """A contract on availability: which GPUs, what was promised of a month, what is owed, and what does not count."""

    provider: str = Field(min_length=1, description="Who promised it, and gets the statement.")
    name: str = Field(default="", max_length=80, description="Name of the contract, where a provider has several.")
    contract: str = Field(default="", description="Number or reference that the provider knows it by.")
    pool: tuple[str, ...] = Field(default=("*",), description="Of GPUs of these pools, names with * and ?.")
    accelerator: tuple[str, ...] = Field(default=("*",), description="Of GPUs of these models.")
    node: tuple[str, ...] = Field(default=("*",), description="Of GPUs of these nodes.")
    availability: Amount = Field(gt=0, le=1, description="Availability that was promised of a month: 0.995.")
    per: Literal["node", "all"] = Field(
        default="node", description="Measured and credited by each node, or by all of its GPUs together."
    )
    credit: tuple[CreditStep, ...] = Field(min_length=1, description="Steps of credit, each a table.")
    reasons: tuple[str, ...] = Field(default=("*",), description="Reasons of outages that count, with * and ?.")
    exclude: tuple[str, ...] = Field(
        default=(), description='Reasons of outages that do not count: ["maintenance*", "drained by us*"].'
    )
    least_outage: DurationOrZero = Field(
        default=DurationOrZero("0s"), description="Outages of a GPU that are shorter do not count."
    )
    maintenance: tuple[Maintenance, ...] = Field(default=(), description="Time that was announced, each a table.")

    @property
    def label(self) -> str:
        """What it is called, else its provider."""
        return self.name or self.provider

    def covers(self, node: str | None, pool: str | None, accelerator: str | None) -> bool:
        """Whether a GPU of this node, pool and model is one of it."""
        return matches(node, self.node) and matches(pool, self.pool) and matches(accelerator, self.accelerator)

    def find_credit(self, availability: Decimal | None) -> Decimal:
        """The share of a month's price that is owed for an availability; nothing for one that is not known.

        >>> steps = [{"below": 0.99, "credit": 0.1}, {"below": 0.95, "credit": 1}]
        >>> contract = Sla(provider="x", availability=0.99, credit=steps)
        >>> [contract.find_credit(Decimal(text)) for text in ("0.99", "0.9899", "0.9")]
        [Decimal('0'), Decimal('0.1'), Decimal('1')]
        """
        if availability is None:
            return Decimal(0)
        return max((step.credit for step in self.credit if availability < step.below), default=Decimal(0))

    @model_validator(mode="after")
    def _steps_down(self) -> Self:
        steps = sorted(self.credit, key=lambda step: step.below, reverse=True)
        if steps[0].below > self.availability:
            raise ValueError(
                f"a credit below {steps[0].below}, where {self.availability} is promised; correct one of them"
            )
        for above, step in pairwise(steps):
            if step.below == above.below or step.credit <= above.credit:
                raise ValueError(
                    f"below {step.below} no more is owed than below {above.below}; give it a larger credit"
                )
        return self


Slas = Annotated[tuple[Sla, ...], unique("two [[sla]] are called {item.label!r}; give each a `name`", "label")]
"""Contracts of different names. A GPU belongs to the first that covers it."""
