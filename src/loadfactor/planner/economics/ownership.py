"""Cost of an hour of an owned GPU, whether it works or not.

A year of one server = capital + energy (or colocation) + network, storage and CPU + support + staff; divided by the GPU-hours it
is up. Capital is shown two ways: the annuity (C − S/(1+r)ⁿ)·CRF with CRF = r/(1 − (1+r)⁻ⁿ), which pays for the money tied up, and
the straight line (C − S)/n of the accounts, which does not. Decisions use the annuity.
"""

from dataclasses import dataclass
from math import expm1, log1p
from typing import Literal

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.limits import COST, MOST_YEARS, Limits
from loadfactor.base.units import H_PER_MONTH, H_PER_YEAR, W_PER_KW
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import ChosenPrice, choose_price
from loadfactor.catalog.servers import Server, find_server

SERVER_LIMITS = {
    "server_price": Limits(at_least=0.01, at_most=1e12),
    "gpus": Limits(at_least=1, at_most=100_000),
    "life_years": Limits(at_least=0.1, at_most=MOST_YEARS),
    "discount_rate_share": Limits(at_least=0, at_most=10),
    "residual_share": Limits(at_least=0, at_most=1),
    "power_w": Limits(at_least=0, at_most=10_000_000),
    "load_share": Limits(at_least=0, at_most=1),
    "pue": Limits(at_least=1, at_most=10),
    "price_per_kwh": Limits(at_least=0, at_most=1e6),
    "colocation_price_per_kw_month": Limits(at_least=0.01, at_most=1e9),
    "network_share": Limits(at_least=0, at_most=10),
    "support_share": Limits(at_least=0, at_most=10),
    "staff_cost_per_year": COST,
    "availability_share": Limits(at_least=0.01, at_most=1),
}
LEAVE_OUT = {"colocation_price_per_kw_month": "; leave it out to pay for energy"}


@dataclass(frozen=True)
class OwnedServer:
    """One server and what it takes to run it. Shares are fractions of one.

    `network_share` is network, storage and CPU hosts as a share of the server's price, written off over the same life;
    `support_share` is paid every year; `colocation_price_per_kw_month`, when given, replaces energy and PUE (an all-in rate on
    the full power).
    """

    server_price: float
    gpus: int = 8
    life_years: float = 4.0
    discount_rate_share: float = 0.10
    residual_share: float = 0.20
    power_w: float = 10_200.0
    load_share: float = 0.8
    pue: float = 1.3
    price_per_kwh: float = 0.08
    colocation_price_per_kw_month: float | None = None
    network_share: float = 0.15
    support_share: float = 0.05
    staff_cost_per_year: float = 8_000.0
    availability_share: float = 0.97

    def __post_init__(self) -> None:
        for name, limits in SERVER_LIMITS.items():
            value = getattr(self, name)
            if value is not None and not limits.admit(value):
                raise PlanError(f"{name} must be {limits.words}, got {value:g}{LEAVE_OUT.get(name, '')}")


@dataclass(frozen=True)
class OwnedCost:
    """A year of one server, term by term; and what that makes of a GPU-hour."""

    capital_cost: float
    straight_line_capital_cost: float
    energy_cost: float
    colocation_cost: float
    network_cost: float
    straight_line_network_cost: float
    support_cost: float
    staff_cost: float
    gpu_hours: float
    available_gpu_hours: float

    @property
    def running_cost(self) -> float:
        """Everything but capital."""
        return self.energy_cost + self.colocation_cost + self.support_cost + self.staff_cost

    @property
    def total_cost(self) -> float:
        """The year with the annuity: what decisions use."""
        return self.capital_cost + self.network_cost + self.running_cost

    @property
    def straight_line_total_cost(self) -> float:
        """The year as the accounts show it, without the cost of the money tied up."""
        return self.straight_line_capital_cost + self.straight_line_network_cost + self.running_cost

    @property
    def price_per_gpu_hour(self) -> float:
        """Per installed GPU-hour."""
        return self.total_cost / self.gpu_hours

    @property
    def cost_per_available_gpu_hour(self) -> float:
        """Per GPU-hour the server is up: what compares with a rented hour."""
        return self.total_cost / self.available_gpu_hours

    @property
    def straight_line_cost_per_available_gpu_hour(self) -> float:
        """The same by the accounts."""
        return self.straight_line_total_cost / self.available_gpu_hours

    def break_even_share(self, cost_per_rented_gpu_hour: float) -> float:
        """The utilization above which owning beats paying this much per used hour; above 1 it never does."""
        if cost_per_rented_gpu_hour <= 0:
            raise PlanError(f"a rented GPU-hour must cost something, got {cost_per_rented_gpu_hour:g}")
        return self.cost_per_available_gpu_hour / cost_per_rented_gpu_hour


def capital_recovery_factor(discount_rate_share: float, years: float) -> float:
    """The yearly payment that repays 1 with interest: r/(1 − (1+r)⁻ⁿ), or 1/n where the money costs nothing.

    >>> round(capital_recovery_factor(0.10, 4), 5), capital_recovery_factor(0.0, 4)
    (0.31547, 0.25)
    """
    if discount_rate_share == 0:
        return 1 / years
    return discount_rate_share / -expm1(-years * log1p(discount_rate_share))


def compute_owned_cost(server: OwnedServer) -> OwnedCost:
    """A year of the server.

    >>> cost = compute_owned_cost(OwnedServer(server_price=300_000))
    >>> round(cost.total_cost), round(cost.price_per_gpu_hour, 4), round(cost.cost_per_available_gpu_hour, 4)
    (126343, 1.8028, 1.8586)
    >>> round(cost.break_even_share(2.95), 3)
    0.63
    """
    factor = capital_recovery_factor(server.discount_rate_share, server.life_years)
    residual_cost = server.residual_share * server.server_price
    network_cost = server.network_share * server.server_price
    power_kw = server.power_w / W_PER_KW
    by_meter = server.colocation_price_per_kw_month is None
    colocation_price_per_kw_year = (server.colocation_price_per_kw_month or 0.0) * (H_PER_YEAR / H_PER_MONTH)
    gpu_hours = float(H_PER_YEAR * server.gpus)
    return OwnedCost(
        capital_cost=(server.server_price - residual_cost / (1 + server.discount_rate_share) ** server.life_years)
        * factor,
        straight_line_capital_cost=(server.server_price - residual_cost) / server.life_years,
        energy_cost=power_kw * server.load_share * H_PER_YEAR * server.pue * server.price_per_kwh if by_meter else 0.0,
        colocation_cost=0.0 if by_meter else power_kw * colocation_price_per_kw_year,
        network_cost=network_cost * factor,
        straight_line_network_cost=network_cost / server.life_years,
        support_cost=server.support_share * server.server_price,
        staff_cost=server.staff_cost_per_year,
        gpu_hours=gpu_hours,
        available_gpu_hours=gpu_hours * server.availability_share,
    )


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


def describe_server(server: Server) -> str:
    """How old and sure the facts of a server are."""
    known = [fact for fact in (server.price, server.power_w) if fact is not None]
    status = "estimate" if any(fact.is_estimate for fact in known) else "seen"
    return f"{max(fact.retrieved_on for fact in known):%Y-%m}, {status}"


def choose_kept_price(name: str, given: float | None, option: str = "--price-per-gpu-hour") -> ChosenPrice:
    """Price of a GPU that is kept for every hour: the price given, else what owning one costs, else a year's contract.

    >>> round(choose_kept_price("h100-sxm", None).per_gpu_hour, 4), choose_kept_price("l4", None).basis
    (1.8586, 'l4 on demand')
    """
    server, owned = find_server(accelerator(name).id), find_owned_server(name)
    if given is not None or owned is None:
        return choose_price(name, given, option, "one_year_contract")
    assert server is not None
    assert server.price is not None
    assert server.power_w is not None
    return ChosenPrice(
        compute_owned_cost(owned).cost_per_available_gpu_hour,
        server.currency,
        f"catalog: {server.price.source}; {server.power_w.source}",
        f"owned {server.accelerator}, as plan own counts it",
        describe_server(server),
    )


def find_owned_server(name: str) -> OwnedServer | None:
    """The server of an accelerator on the terms that `plan own` takes by default; None where the catalog does not know it."""
    server = find_server(accelerator(name).id)
    if server is None or server.price is None or server.power_w is None:
        return None
    return OwnedServer(server.price.value, int(server.gpus.value), power_w=server.power_w.value)


def require_server(name: str, price: float | None, power_w: float | None, gpus: int | None) -> tuple[float, float, int]:
    """(price, power in W, GPUs) of one server: what was given, else the catalog's.

    Raises InputError naming the options to give where the catalog does not know the server of this accelerator.
    """
    card = accelerator(name).id
    server = find_server(card)
    if server is not None:
        price = server.price.value if price is None and server.price is not None else price
        power_w = server.power_w.value if power_w is None and server.power_w is not None else power_w
        gpus = int(server.gpus.value) if gpus is None else gpus
    missing = [flag for flag, value in (("--server-price", price), ("--server-kw", power_w)) if value is None]
    if price is None or power_w is None:
        raise InputError(f"the catalog does not know what a server of {card} is; give {' and '.join(missing)}")
    return price, power_w, gpus or 8
