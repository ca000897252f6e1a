"""Chart of a load-duration curve, for every plan that has a demand."""

from collections.abc import Sequence

from loadfactor.interfaces.charts import Chart, Reference, Series
from loadfactor.planner.economics.load_duration import LoadDuration


def draw_load_duration(demand: LoadDuration, references: Sequence[Reference]) -> Chart:
    """GPUs wanted for at least each share of the time."""
    step = max(1, len(demand.demand_gpus) // 500)
    reached, at = 0.0, []
    for share in demand.time_share:
        at.append(reached)
        reached += float(share)
    values = [float(d) for d in demand.demand_gpus]
    return Chart(
        "Load-duration curve: GPUs wanted for at least this share of the time",
        "step",
        [*at[::step], 1.0],
        (Series("GPUs wanted", [*values[::step], values[-1]]),),
        "share of time",
        "GPUs",
        references=references,
    )
