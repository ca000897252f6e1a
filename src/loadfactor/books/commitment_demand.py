"""What to commit to, by the hours that the books measured: GPUs held in each hour, and what a held hour costs today."""

from collections.abc import Callable
from datetime import timedelta, tzinfo
from math import fsum

from loadfactor.base.errors import InputError
from loadfactor.metrics.query.reading import Readings
from loadfactor.planner.economics.commitment_choice import CommitmentChoice, CommitmentOption, choose_commitment

__all__ = ["CommitmentChoice", "CommitmentOption", "choose_for_demand"]

HELD = {"idle_cost": "idle_gpu_hours", "busy_cost": "busy_gpu_hours", "unobserved_cost": "unobserved_gpu_hours"}


def choose_for_demand(
    ask: Callable[..., Readings], commit_price: float, rent_price: float | None, currency: str, timezone: tzinfo
) -> CommitmentChoice:
    """The choice for the GPUs that were held, hour by hour. `rent_price` is by default what a held GPU-hour costs in the books.

    Raises InputError where nothing was held, or some of the held hours have no price and none is given.
    """
    months: dict[str, list[tuple[float, float]]] = {}
    for reading in ask(("allocated_gpu_hours",), ("hour",)):
        hours = (reading.end - reading.start) / timedelta(hours=1)
        at = reading.start.astimezone(timezone)
        if hours > 0:
            months.setdefault(f"{at:%Y-%m}", []).append((_read(reading.value) / hours, hours))
    if not any(gpus for of in months.values() for gpus, _ in of):
        raise InputError(
            "no GPU was held in that time by anybody known; import allocations or give another --from and --to"
        )
    return choose_commitment(months, commit_price, rent_price or _find_price(ask), currency)


def _find_price(ask: Callable[..., Readings]) -> float:
    """What a held GPU-hour costs."""
    found = {r.metric: r for r in ask((*HELD, *HELD.values()), ())}
    hours = {cost: _read(found[name].value) for cost, name in HELD.items()}
    priced = [cost for cost in HELD if hours[cost]]
    if not priced or any(not isinstance(found[cost].value, float) or not found[cost].value for cost in priced):
        raise InputError(
            "not every held GPU-hour has a price in the books; give what a rented one costs: --rent-price 2.50"
        )
    return fsum(_read(found[cost].value) for cost in priced) / fsum(hours[cost] for cost in priced)


def _read(value: object) -> float:
    return value if isinstance(value, float) else 0.0
