"""Savings of commitments, reservations and spot capacity by the bill: savings rate, coverage, utilization and unused cost.

The shares are those of `planner/economics/renting.py`, of exact amounts.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from loadfactor.money.currency import EXACT
from loadfactor.planner.economics.renting import (
    commitment_coverage,
    commitment_utilization,
    effective_savings_rate,
)


@dataclass(frozen=True)
class CommitmentLine:
    """A charge that a commitment covers, or could have covered: what it cost amortized, and its use at on-demand prices.

    `name` is None for use that no commitment covered. Of what nobody used, `is_used` is False and there is no on-demand cost.
    """

    name: str | None
    effective_cost: Decimal
    on_demand_cost: Decimal = Decimal(0)
    is_used: bool = True


@dataclass(frozen=True)
class CommitmentUse:
    """The result of a commitment, or of several together: amortized costs, and the same use at on-demand prices."""

    used_cost: Decimal = Decimal(0)
    unused_cost: Decimal = Decimal(0)
    uncovered_cost: Decimal = Decimal(0)
    covered_on_demand_cost: Decimal = Decimal(0)
    uncovered_on_demand_cost: Decimal = Decimal(0)

    def __add__(self, other: "CommitmentUse") -> "CommitmentUse":
        return CommitmentUse(
            EXACT.add(self.used_cost, other.used_cost),
            EXACT.add(self.unused_cost, other.unused_cost),
            EXACT.add(self.uncovered_cost, other.uncovered_cost),
            EXACT.add(self.covered_on_demand_cost, other.covered_on_demand_cost),
            EXACT.add(self.uncovered_on_demand_cost, other.uncovered_on_demand_cost),
        )

    @property
    def utilization_share(self) -> Decimal | None:
        """How much of what was committed was used, by cost; None where nothing was committed."""
        return commitment_utilization(self.used_cost, self.used_cost + self.unused_cost)

    @property
    def coverage_share(self) -> Decimal | None:
        """How much of the use that could be covered was, at on-demand prices; None where nothing was used."""
        return commitment_coverage(
            self.covered_on_demand_cost, self.covered_on_demand_cost + self.uncovered_on_demand_cost
        )

    @property
    def effective_savings_share(self) -> Decimal | None:
        """1 − paid / what the same use costs on demand, what was not covered on both sides; None where nothing was used."""
        return effective_savings_rate(
            self.used_cost + self.unused_cost + self.uncovered_cost,
            self.covered_on_demand_cost + self.uncovered_on_demand_cost,
        )


def measure_commitments(lines: Iterable[CommitmentLine]) -> dict[str | None, CommitmentUse]:
    """Each commitment by its name, and under None the use that none covered; their sum is the fleet's.

    >>> lines = [CommitmentLine("ri", Decimal(144), Decimal(240)), CommitmentLine("ri", Decimal(36), is_used=False)]
    >>> use = measure_commitments(lines)["ri"]
    >>> str(use.effective_savings_share), str(use.utilization_share), str(use.unused_cost)
    ('0.25', '0.8', '36')
    """
    uses: dict[str | None, CommitmentUse] = defaultdict(CommitmentUse)
    for line in lines:
        if line.name is None:
            use = CommitmentUse(uncovered_cost=line.effective_cost, uncovered_on_demand_cost=line.on_demand_cost)
        elif line.is_used:
            use = CommitmentUse(used_cost=line.effective_cost, covered_on_demand_cost=line.on_demand_cost)
        else:
            use = CommitmentUse(unused_cost=line.effective_cost)
        uses[line.name] += use
    return dict(sorted(uses.items(), key=lambda item: (item[0] is None, item[0] or "")))
