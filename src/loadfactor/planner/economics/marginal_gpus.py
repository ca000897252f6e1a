"""What more GPUs bring where every hour of demand that they do not serve is rented."""

from loadfactor.base.units import H_PER_MONTH
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.hardware.marginal import Marginal, list_enlargements


def keep_more(
    demand: LoadDuration, kept_gpus: int, price: float, rent_price: float, node_gpus: int, currency: str
) -> tuple[Marginal, ...]:
    """Rented GPU-hours of a month that more kept GPUs replace, and what these cost, used or not, at `price` for each hour.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> step = keep_more(day, 60, 1.2, 3.0, 8, "USD")[0]
    >>> round(step.now), round(step.then), round(step.cost_per_unit, 2), step.reason
    (4867, 2920, 3.6, 'to rent these hours costs less')
    """

    now, found = demand.rented_gpus(kept_gpus) * H_PER_MONTH, []
    for step in list_enlargements(node_gpus, price * H_PER_MONTH, currency):
        then = demand.rented_gpus(kept_gpus + step.gpus) * H_PER_MONTH
        cost = step.gpus * price * H_PER_MONTH
        reason = ""
        if not step.gpus:
            reason = "they pay for no GPU"
        elif then >= now:
            reason = "the demand never takes them"
        elif cost > (now - then) * rent_price:
            reason = "to rent these hours costs less"
        found.append(Marginal(step.name, step.gpus, "GPU-hours not rented", now, then, now - then, cost, reason=reason))
    return tuple(found)
