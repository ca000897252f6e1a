"""Assumptions that several plans state in the same words."""

from loadfactor.catalog.prices import ChosenPrice
from loadfactor.faces.document import Assumption
from loadfactor.faces.formats import money


def state_price(name: str, price: ChosenPrice) -> Assumption:
    """What a GPU-hour costs, what kind of price that is, where it comes from and how old it is."""
    amount = f"{money(price.per_gpu_hour, price.currency)} per GPU-hour"
    if price.low is not None and price.high is not None:
        amount += f" ({money(price.low, price.currency)} to {money(price.high, price.currency)})"
    return Assumption(name, f"{amount}, {price.basis}" if price.basis else amount, price.source, price.as_of)
