"""The metrics: one declaration for each, in the order a person should read them."""

from loadfactor.base.errors import no_such
from loadfactor.metrics.energy import ENERGY
from loadfactor.metrics.fullness import FULLNESS
from loadfactor.metrics.metric import Metric
from loadfactor.metrics.money import MONEY, per_unit
from loadfactor.metrics.query.reading import Reading
from loadfactor.metrics.signals import SIGNALS
from loadfactor.metrics.work import QUEUE, WORK

__all__ = ["METRICS", "Metric", "Reading", "metric"]

METRICS = (*FULLNESS, *SIGNALS, *ENERGY, *MONEY, *WORK, *QUEUE)


def metric(name: str) -> Metric:
    """The metric called `name`; any `cost_per_<unit>` is one. Raises InputError naming the nearest when there is none."""
    for candidate in METRICS:
        if candidate.name == name:
            return candidate
    if name.startswith("cost_per_") and len(name) > len("cost_per_"):
        unit = name.removeprefix("cost_per_")
        return per_unit(unit, unit)
    raise no_such("metric", name, [m.name for m in METRICS], "see `loadfactor metrics`")
