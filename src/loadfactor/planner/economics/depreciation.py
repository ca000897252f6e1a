"""What is the server worth in the books, year by year? Three schedules accountants use; none of them is what it sells for."""

from typing import Literal

from loadfactor.errors import PlanError

Method = Literal["straight line", "declining balance", "sum of years"]
METHODS: tuple[Method, ...] = ("straight line", "declining balance", "sum of years")


def yearly_charges(
    price: float, residual_cost: float, years: int, method: Method = "straight line", rate_share: float | None = None
) -> tuple[float, ...]:
    """The charge of each year, USD; never writes the book value below the residual.

    Declining balance charges `rate_share` (2/years, the double rate, where none is given) of what is left.

    >>> yearly_charges(300_000, 60_000, 4)
    (60000.0, 60000.0, 60000.0, 60000.0)
    >>> yearly_charges(300_000, 60_000, 4, "sum of years")
    (96000.0, 72000.0, 48000.0, 24000.0)
    >>> yearly_charges(300_000, 60_000, 4, "declining balance", 0.4)  # the last year stops at the residual
    (120000.0, 72000.0, 43200.0, 4800.0)
    """
    if years < 1:
        raise PlanError(f"a schedule needs at least one whole year, got {years}")
    if not 0 <= residual_cost <= price:
        raise PlanError(f"the residual lies between 0 and the price {price:g}, got {residual_cost:g}")
    loss_cost = price - residual_cost
    if method == "straight line":
        return (loss_cost / years,) * years
    if method == "sum of years":
        return tuple(loss_cost * (years - year) / (years * (years + 1) / 2) for year in range(years))
    rate = 2 / years if rate_share is None else rate_share
    if not 0 < rate <= 1:
        raise PlanError(f"a declining balance loses between 0 and all of itself a year, got {rate:g}")
    charges = []
    book_value = price
    for _ in range(years):
        charge = min(book_value * rate, book_value - residual_cost)
        charges.append(charge)
        book_value -= charge
    return tuple(charges)
