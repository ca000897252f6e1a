"""Savings of a commitment: a committed hour is paid whether it is used or not.

The three shares are defined here once, for plans in floating point and for bills in exact decimals.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from loadfactor.base.errors import PlanError

Amount = TypeVar("Amount", float, Decimal)


def commitment_utilization(used: Amount, committed: Amount) -> Amount | None:
    """How much of what was committed was used, both in one unit; None where nothing was committed."""
    return used / committed if committed else None


def commitment_coverage(covered: Amount, eligible: Amount) -> Amount | None:
    """How much of what a commitment could have covered it did, both at on-demand prices; None where there was nothing to cover."""
    return covered / eligible if eligible else None


def effective_savings_rate(paid_cost: Amount, on_demand_cost: Amount) -> Amount | None:
    """1 − paid / what the same use costs on demand; negative when the commitment lost money, None when nothing was used.

    >>> effective_savings_rate(Decimal(180), Decimal(240))
    Decimal('0.25')
    """
    return 1 - paid_cost / on_demand_cost if on_demand_cost else None


@dataclass(frozen=True)
class Commitment:
    """`committed_gpus` paid every hour at `committed_price` each, beside an on-demand price, while `used_gpus` are used."""

    committed_gpus: float
    committed_price_per_gpu_hour: float
    on_demand_price_per_gpu_hour: float
    used_gpus: float

    def __post_init__(self) -> None:
        """Refuse prices of zero and negative amounts."""
        if min(self.committed_price_per_gpu_hour, self.on_demand_price_per_gpu_hour) <= 0:
            raise PlanError("a committed and an on-demand GPU-hour must both cost something; give prices above 0")
        if self.committed_gpus <= 0 or self.used_gpus < 0:
            raise PlanError(
                f"need committed GPUs above 0 and used at least 0, got {self.committed_gpus:g} and {self.used_gpus:g}"
            )

    @property
    def covered_gpus(self) -> float:
        """The part of the use that the commitment serves; the rest is on demand."""
        return min(self.used_gpus, self.committed_gpus)

    @property
    def break_even_share(self) -> float:
        """Use of the commitment above which it beats on-demand: c/p, one minus the discount; above 1 it never does."""
        return self.committed_price_per_gpu_hour / self.on_demand_price_per_gpu_hour

    @property
    def utilization_share(self) -> float:
        """How much of what was committed was used."""
        return commitment_utilization(self.covered_gpus, self.committed_gpus) or 0.0

    @property
    def coverage_share(self) -> float | None:
        """How much of the use was served by the commitment; None when nothing was used."""
        return commitment_coverage(self.covered_gpus, self.used_gpus)

    @property
    def paid_cost_per_hour(self) -> float:
        """Everything paid in an hour: the commitment, and on-demand for what exceeds it."""
        beyond = self.used_gpus - self.covered_gpus
        return self.committed_gpus * self.committed_price_per_gpu_hour + beyond * self.on_demand_price_per_gpu_hour

    @property
    def unused_cost_per_hour(self) -> float:
        """Paid for GPUs nobody used."""
        return (self.committed_gpus - self.covered_gpus) * self.committed_price_per_gpu_hour

    @property
    def effective_savings_share(self) -> float | None:
        """`effective_savings_rate` of an hour.

        >>> c = Commitment(committed_gpus=100, committed_price_per_gpu_hour=1.8, on_demand_price_per_gpu_hour=3.0, used_gpus=80)
        >>> round(c.effective_savings_share, 4), c.break_even_share, round(c.unused_cost_per_hour, 2)
        (0.25, 0.6, 36.0)
        """
        return effective_savings_rate(self.paid_cost_per_hour, self.used_gpus * self.on_demand_price_per_gpu_hour)
