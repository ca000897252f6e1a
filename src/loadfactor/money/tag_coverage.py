"""Tag coverage: how much of what could have an owner has one, by cost."""

from collections.abc import Iterable
from decimal import Decimal

from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import CostLine


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
