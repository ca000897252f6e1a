"""Options of `plan size`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loadfactor.base.limits import CLUSTER_GPUS, COST, GPU_HOUR_PRICE, GROWTH_PERCENT, MOST_YEARS, PAUSE_S
from loadfactor.base.request import option
from loadfactor.planner.hardware.workload import USER_COUNT, ServiceRequest

Scheduler = Literal["slurm", "fifo", "any", "shortest", "priority", "preempt", "srtf", "srsf", "fair"]


@dataclass(frozen=True, kw_only=True)
class SizeRequest(ServiceRequest):
    """A history of jobs (or of a cluster's state, or hours of demand), prices, and how the queue is worked off."""

    trace: Path | None = option(
        "CSV of jobs (submit_s, gpus, duration_s), of hours (hour, gpus), or a published trace; .gz too.",
        None,
        is_argument=True,
    )
    store: Path | None = option("Take the jobs from the books in this folder.", None)
    users: float | None = option(
        "Take the fleet that plan serve recommends for so many users.", None, within=USER_COUNT
    )
    gpus: int | None = option(
        "GPUs of today's cluster, to judge it; from the books where they are given.", None, within=CLUSTER_GPUS
    )
    price_per_gpu_hour: float | None = option(
        "What an hour of a GPU of this cluster costs, used or not; what owning one costs if not given.",
        None,
        within=GPU_HOUR_PRICE,
    )
    delay_cost: float | None = option(
        "What it costs that a job waits an hour for one GPU; a GPU-hour's price if not given.", None, within=COST
    )
    rent_price: float | None = option(
        "What a GPU rented by the hour costs; the catalog's on-demand price if not given.", None, within=GPU_HOUR_PRICE
    )
    scheduler: Scheduler = option("How the queue is worked off.", "slurm")
    scheduler_interval_s: float = option(
        "A scheduler that stops jobs wakes this often, s; 0: at every event.", 0.0, within=PAUSE_S
    )
    spread: bool = option("Put gangs on the emptiest node instead of the fullest.", False)
    gpus_per_node: int = option("GPUs of one node.", 8, at_least=1, at_most=10_000)
    sizes: tuple[int, ...] = option("Sizes to try; chosen from the demand if not given.", (), within=CLUSTER_GPUS)
    teams: int = option(
        "Compare with so many equal teams that each have their own, where jobs name none.", 4, at_least=1, at_most=1000
    )
    team_correlation: float = option(
        "How alike the teams' demands move, for pooling: 0 not at all, 1 as one.", 0.0, at_least=0, at_most=1
    )
    growth_percent: float = option(
        "How much demand grows a year, for the next GPU's life, %.", 0.0, within=GROWTH_PERCENT
    )
    life_years: int = option("Years the next GPU is judged over.", 4, at_least=1, at_most=MOST_YEARS)
    api_price_per_gpu_hour: float | None = option(
        "What an API charges for the work of one used GPU-hour, to judge the next GPU.", None, within=GPU_HOUR_PRICE
    )
    value_per_gpu_hour: float | None = option(
        "What an hour of a used GPU's work is worth, to judge the next GPU.", None, within=GPU_HOUR_PRICE
    )
