"""Depreciation of a server, year by year: three schedules of accountants; none of them is what it sells for."""

from typing import Literal

from loadfactor.base.errors import PlanError

Method = Literal["straight line", "declining balance", "sum of years"]
METHODS: tuple[Method, ...] = ("straight line", "declining balance", "sum of years")


def depreciate(price: float, residual_cost: float, years: int, method: Method = "straight line") -> tuple[float, ...]:
    """The charge of each year; never writes the book value below the residual.

    Declining balance charges twice the straight rate, 2/years, of what is left.

    >>> depreciate(300_000, 60_000, 4)
    (60000.0, 60000.0, 60000.0, 60000.0)
    >>> depreciate(300_000, 60_000, 4, "sum of years")
    (96000.0, 72000.0, 48000.0, 24000.0)
    >>> depreciate(300_000, 60_000, 4, "declining balance")  # the third year stops at the residual
    (150000.0, 75000.0, 15000.0, 0.0)
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
    rate = min(1.0, 2 / years)
    charges = []
    book_value = price
    for _ in range(years):
        charge = min(book_value * rate, book_value - residual_cost)
        charges.append(charge)
        book_value -= charge
    return tuple(charges)
