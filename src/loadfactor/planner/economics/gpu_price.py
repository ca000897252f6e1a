"""Price of a GPU-hour that is owned, and of one that is kept: the same for every plan."""

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import ChosenPrice, choose_price
from loadfactor.catalog.servers import Server, find_server
from loadfactor.planner.economics.ownership import OwnedServer, compute_owned_cost


def describe_server(server: Server) -> str:
    """How old and sure the facts of a server are."""
    known = [fact for fact in (server.price, server.power_w) if fact is not None]
    status = "estimate" if any(fact.is_estimate for fact in known) else "seen"
    return f"{max(fact.retrieved_on for fact in known):%Y-%m}, {status}"


def choose_kept_price(name: str, given: float | None, option: str = "--price-per-gpu-hour") -> ChosenPrice:
    """What a GPU costs that is kept for every hour: the price given, else what owning one costs, else a year's contract.

    >>> round(choose_kept_price("h100-sxm", None).per_gpu_hour, 4), choose_kept_price("l4", None).basis
    (1.8586, 'l4 on demand')
    """
    server = find_server(accelerator(name).id)
    if given is not None or server is None or server.price is None or server.power_w is None:
        return choose_price(name, given, option, "one_year_contract")
    owned = OwnedServer(server.price.value, int(server.gpus.value), power_w=server.power_w.value)
    return ChosenPrice(
        compute_owned_cost(owned).cost_per_available_gpu_hour,
        server.currency,
        f"catalog: {server.price.source}; {server.power_w.source}",
        f"owned {server.accelerator}, as plan own counts it",
        describe_server(server),
    )


def require_server(name: str, price: float | None, power_w: float | None, gpus: int | None) -> tuple[float, float, int]:
    """(price, power in W, GPUs) of one server: what was given, else the catalog's.

    Raises InputError naming the options to give where the catalog does not know the server of this accelerator.
    """
    wanted = accelerator(name).id
    server = find_server(wanted)
    if server is not None:
        price = server.price.value if price is None and server.price is not None else price
        power_w = server.power_w.value if power_w is None and server.power_w is not None else power_w
        gpus = int(server.gpus.value) if gpus is None else gpus
    missing = [flag for flag, value in (("--server-price", price), ("--server-kw", power_w)) if value is None]
    if price is None or power_w is None:
        raise InputError(f"the catalog does not know what a server of {wanted} is; give {' and '.join(missing)}")
    return price, power_w, gpus or 8
