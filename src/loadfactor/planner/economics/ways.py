"""One demand served in three ways: by an API, on rented GPUs, and on owned ones, which are paid for first and pay off later."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadfactor.base.units import H_PER_MONTH, H_PER_YEAR
from loadfactor.planner.economics.ownership import OwnedServer, compute_owned_cost

MONTHS_PER_YEAR = H_PER_YEAR / H_PER_MONTH


@dataclass(frozen=True)
class Way:
    """One way: its bill of a month and of a million tokens, everything counted, and when it is paid.

    `upfront_cost` is paid first and lasts `life_months`; `paid_per_month` besides.
    """

    name: str
    gpus: float | None
    cost_per_month: float
    cost_per_mtok: float
    upfront_cost: float
    paid_per_month: float
    life_months: float | None = None


def list_ways(
    api_cost_per_hour: float, mtok_per_hour: float, gpus: int, rent_price: float, server: OwnedServer | None
) -> tuple[Way, ...]:
    """The API, the fleet rented for every hour, and the same fleet owned, where its server is known, as `plan own` counts it.

    An owned GPU is its part of a server, and as many more are bought as are down.

    >>> ways = list_ways(10.0, 20.0, 8, 2.95, OwnedServer(server_price=300_000))
    >>> [(way.name, round(way.cost_per_month), round(way.cost_per_mtok, 2), round(way.upfront_cost)) for way in ways]
    [('API', 7300, 0.5, 0), ('rented', 17228, 1.18, 0), ('owned', 10854, 0.74, 355670)]
    """

    def pay(name: str, gpus: int | None, cost_per_hour: float) -> Way:
        cost = cost_per_hour * H_PER_MONTH
        return Way(name, gpus, cost, cost_per_hour / mtok_per_hour, 0.0, cost)

    ways = [pay("API", None, api_cost_per_hour), pay("rented", gpus, gpus * rent_price)]
    if server is not None:
        cost = compute_owned_cost(server)
        bought = gpus / server.availability_share
        ways.append(
            replace(
                pay("owned", gpus, gpus * cost.cost_per_available_gpu_hour),
                upfront_cost=bought / server.gpus * server.server_price * (1 + server.network_share),
                paid_per_month=gpus * H_PER_MONTH * cost.running_cost / cost.available_gpu_hours,
                life_months=server.life_years * MONTHS_PER_YEAR,
            )
        )
    return tuple(ways)


@dataclass(frozen=True)
class Turn:
    """The month, counted from 1, at whose end `name` has cost less than what was the cheapest until then."""

    month: int
    name: str


def find_turn(ways: Sequence[Way]) -> Turn | None:
    """When what is paid first has paid off against the cheapest monthly bill; None where it does not within its life.

    >>> find_turn((Way("rented", 8, 100, 1, 0, 100), Way("owned", 8, 60, 1, 1000, 20, 48)))  # 1,000 ÷ (100 − 20) a month
    Turn(month=13, name='owned')
    """
    by_month = min(way.paid_per_month for way in ways if way.life_months is None)
    for way in ways:
        if way.life_months is not None and way.paid_per_month < by_month:
            month = int(way.upfront_cost / (by_month - way.paid_per_month)) + 1
            return Turn(month, way.name) if month <= way.life_months else None
    return None
