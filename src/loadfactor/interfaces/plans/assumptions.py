"""Assumptions that several plans state in the same words."""

from loadfactor.catalog.prices import ChosenPrice
from loadfactor.interfaces.document import Assumption
from loadfactor.interfaces.formats import money


def state_price(name: str, price: ChosenPrice) -> Assumption:
    """What a GPU-hour costs, what kind of price that is, where it comes from and how old it is."""
    amount = f"{money(price.per_gpu_hour, price.currency)} per GPU-hour"
    listed = price.listed
    if listed is not None and listed.low is not None and listed.high is not None:
        amount += f" ({money(listed.low, price.currency)} to {money(listed.high, price.currency)})"
    return Assumption(name, f"{amount}, {price.basis}" if price.basis else amount, price.source, price.as_of)
