"""The marginal answer of a plan: what the next 8 GPUs, the next node and the next 10,000 of money bring, planned anew with them."""

from collections.abc import Sequence
from dataclasses import dataclass

NEXT_GPUS = 8
NEXT_MONEY = 10_000.0


@dataclass(frozen=True)
class Enlargement:
    """So many GPUs more; `money`, where it is an amount of it that pays for them."""

    name: str
    gpus: int
    money: float | None = None


@dataclass(frozen=True)
class Marginal:
    """What one enlargement brings: `now` and `then`, before and with it, what is `gained` in `quantity`, and what that costs more.

    `gained` is 0 where nothing is, and `reason` says why. `cost` is of the run, or of a month; None without a price.
    """

    step: str
    added_gpus: int
    quantity: str
    now: float
    then: float
    gained: float
    cost: float | None
    throughput_factor: float | None = None
    reason: str = ""

    @property
    def cost_per_unit(self) -> float | None:
        """Cost of one more unit of the quantity; None where nothing is gained or no price is known."""
        return self.cost / self.gained if self.cost is not None and self.gained > 0 else None


def list_enlargements(
    node_gpus: int, price_per_gpu: float | None, currency: str, period: str = "a month"
) -> Sequence[Enlargement]:
    """The next 8 GPUs, the next node (one line where it has as many), and the whole GPUs that 10,000 more pay for, where priced.

    >>> [(e.name, e.gpus) for e in list_enlargements(72, 1460.0, "USD")]
    [('8 GPUs', 8), ('a node of 72 GPUs', 72), ('10,000 USD a month', 6)]
    """
    found = [Enlargement(f"{NEXT_GPUS} GPUs", NEXT_GPUS), Enlargement(f"a node of {node_gpus} GPUs", node_gpus)]
    if node_gpus == NEXT_GPUS:
        found = [Enlargement(f"{NEXT_GPUS} GPUs, a node", NEXT_GPUS)]
    if price_per_gpu:
        name = f"{NEXT_MONEY:,.0f} {currency} {period}".strip()
        found.append(Enlargement(name, int(NEXT_MONEY // price_per_gpu), NEXT_MONEY))
    return found
