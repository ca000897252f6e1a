"""The chain of amounts from a bill to a budget: each with its name, its unit and its formula, for every page that shows one.

They are different amounts, and each page shows the one it is about: `loadfactor bill bridge` walks from any of them to any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

UNIT: Final = "currency"
"""All of them are money, in the currency of the statements."""


@dataclass(frozen=True)
class ChainAmount:
    """One amount of the chain: its name, its formula, what makes it differ from the one before, and the command that shows it."""

    name: str
    formula: str
    differs_by: str
    shown_by: str


BILL: Final = ChainAmount(
    "bill", "lines of the bill in the window; of a team, those whose tags name it", "", "chargeback"
)
KNOWN: Final = ChainAmount(
    "bill lines of known GPUs",
    "of these, the GPUs' part of lines whose node the books know",
    "other lines: storage, network, taxes, fees, GPUs on nodes that the books do not know",
    "bill compare",
)
COST: Final = ChainAmount(
    "cost of GPU-hours",
    "price × GPU-hours in the ledger, of who held them: the metric `cost`",
    "who held the GPUs in place of whose tags they have; hours and prices of the ledger in place of those billed",
    "show cost --by team",
)
DIRECT: Final = ChainAmount(
    "charged directly",
    "lines of its own and the GPU-hours it held, at what the bill charges for them, without a bill at their price",
    "what the bill charges in place of price × hours, other lines of its own among them; without time that nobody held",
    "chargeback",
)
IDLE: Final = ChainAmount(
    "charged with its share of idle",
    "charged directly + its share of the pool `idle`",
    "its share of idle GPU-hours, where [chargeback] idle spreads them",
    "chargeback",
)
REST: Final = ChainAmount(
    "charged with its share of the rest",
    "… + its shares of unallocated, down, unobserved, shared, unused commitments and untagged",
    "its shares of the other pools, where [chargeback] spreads them",
    "chargeback",
)
STATEMENT: Final = ChainAmount(
    "statement",
    "all that is charged, rounded once; of the fleet with the pools that nobody bears",
    "pools that nobody bears, which stand in statements of their own",
    "chargeback",
)
SPENT: Final = ChainAmount(
    "budget spent",
    "statements of the months of the budget's period",
    "other months of the budget's period",
    "budget",
)
CHAIN: Final = (BILL, KNOWN, COST, DIRECT, IDLE, REST, STATEMENT, SPENT)
"""In the order in which money flows."""
BRIDGE: Final = "loadfactor bill bridge"
"""The command that walks from one to another."""


@dataclass(frozen=True)
class BridgeStep:
    """An amount of the chain, and the change from the one before it in minor units of the currency; of the first it is 0."""

    name: str
    amount: Decimal
    change: Decimal
    formula: str
    differs_by: str
    shown_by: str


def walk(amounts: Mapping[str, Decimal | None]) -> tuple[BridgeStep, ...]:
    """The known amounts of a chain by their names, one after another; the first and all changes sum to the last.

    >>> steps = walk({"bill": Decimal("10.00"), "cost of GPU-hours": None, "statement": Decimal("8.50")})
    >>> [(step.name, str(step.change)) for step in steps]
    [('bill', '0.00'), ('statement', '-1.50')]
    """
    steps: list[BridgeStep] = []
    for of in CHAIN:
        amount = amounts.get(of.name)
        if amount is not None:
            change = amount - (steps[-1].amount if steps else amount)
            steps.append(BridgeStep(of.name, amount, change, of.formula, of.differs_by if steps else "", of.shown_by))
    return tuple(steps)
