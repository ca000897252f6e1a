"""Options of `plan own` and `plan breakeven`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadfactor.base.limits import (
    GPU_COUNT,
    GPU_HOUR_PRICE,
    GROWTH_PERCENT,
    LATENCY_MS,
    LATENCY_S,
    PAUSE_S,
    WAIT_H,
)
from loadfactor.base.request import Request, option
from loadfactor.base.units import PERCENT
from loadfactor.planner.economics.ownership import SERVER_LIMITS, OwnedServer
from loadfactor.planner.hardware import EngineName


def _of_server(help: str, name: str, *default: None) -> Any:
    """An option of one field of OwnedServer, with its range and, unless it is None, its default; a share is given in percent."""
    factor = PERCENT if name.endswith("_share") else 1
    limits = SERVER_LIMITS[name]
    value = default[0] if default else getattr(OwnedServer, name)
    return option(
        help,
        value and value * factor,
        at_least=limits.at_least and limits.at_least * factor,
        at_most=limits.at_most and limits.at_most * factor,
    )


@dataclass(frozen=True, kw_only=True)
class OwnRequest(Request):
    """A demand, an accelerator, the server's price, and the prices of renting. What is None comes from the catalog."""

    demand: Path | None = option("CSV of hours (hour, gpus), of jobs, or a published trace; .gz too.", None)
    store: Path | None = option("Take the jobs from the books in this folder.", None)
    demand_gpus: str = option("Demand typed in, as GPUs x hours of a day: 20x6,40x6,60x4,80x8.", "")
    accelerator: str = option("Accelerator whose server and prices the catalog gives.", "h100-sxm")
    server_price: float | None = _of_server(
        "Price of one server with all its GPUs; the catalog's if not given.", "server_price", None
    )
    server_kw: float | None = option(
        "Power of a server at full load, kW; the catalog's if not given.", None, at_least=0, at_most=10_000
    )
    gpus_per_server: int | None = _of_server("GPUs of one server; the catalog's if not given.", "gpus", None)
    life_years: float = _of_server("Years until the server is sold.", "life_years")
    discount_rate_percent: float = _of_server("What the money tied up costs a year, %.", "discount_rate_share")
    residual_percent: float = _of_server("What the server sells for at the end, % of its price.", "residual_share")
    load_percent: float = _of_server("Mean power as a share of full, %.", "load_share")
    pue: float = _of_server("Power into the building over power into the servers.", "pue")
    price_per_kwh: float = _of_server("Price of a kilowatt-hour.", "price_per_kwh")
    colocation_price_per_kw_month: float | None = _of_server(
        "All-in colocation instead of energy and PUE.", "colocation_price_per_kw_month"
    )
    network_percent: float = _of_server("Network, storage and CPU hosts as % of the server's price.", "network_share")
    support_percent: float = _of_server("Support and repair a year, % of the price.", "support_share")
    staff_cost: float = _of_server("Staff a year for one server.", "staff_cost_per_year")
    availability_percent: float = _of_server("Time the server is up, %.", "availability_share")
    rent_price: float | None = option(
        "On-demand price of a GPU-hour; the catalog's if not given.", None, within=GPU_HOUR_PRICE
    )
    committed_price: float | None = option(
        "Price of a GPU-hour paid for every hour of a year's commitment; no such tier if not given.",
        None,
        within=GPU_HOUR_PRICE,
    )
    spot_price: float | None = option(
        "Spot price of a GPU-hour; no such tier if not given.", None, within=GPU_HOUR_PRICE
    )
    spot_hours: float = option("Hours between interruptions of one spot instance.", 24.0, within=WAIT_H)
    spot_instances: int = option("Instances one job holds at once.", 1, at_least=1, at_most=100_000)
    spot_notice_s: float = option("Warning before an interruption, s.", 30.0, within=PAUSE_S)
    checkpoint_s: float = option("Time a job stands still for a checkpoint, s.", 60.0, within=PAUSE_S)
    restart_s: float = option("Time from an interruption until work goes on, s.", 600.0, within=PAUSE_S)
    growth_percent: float = option("How much demand grows a year, %.", 0.0, within=GROWTH_PERCENT)
    gpu_number: int | None = option(
        "Judge this GPU of the fleet instead of the one after the owned.", None, within=GPU_COUNT
    )
    api_price_per_gpu_hour: float | None = option(
        "What an API charges for the work of one used GPU-hour, to judge the next GPU.", None, within=GPU_HOUR_PRICE
    )
    value_per_gpu_hour: float | None = option(
        "What an hour of a used GPU's work is worth, to judge the next GPU.", None, within=GPU_HOUR_PRICE
    )


@dataclass(frozen=True, kw_only=True)
class BreakEvenRequest(Request):
    """A replica's throughput (measured, or planned from a network), its price, and an API. All have defaults."""

    api: str = option(
        "API of the catalog, as openai/gpt-4o-mini (`--api list` shows all); one of the same network if not given.", ""
    )
    api_price: tuple[float, ...] = option(
        "The API's price per million tokens: one number, or input,output.", (), at_least=0, at_most=1e9
    )
    tokens_per_s: float | None = option(
        "Measured saturated throughput of one replica, input and output tokens together.",
        None,
        at_least=0.01,
        at_most=1e12,
    )
    output_tokens_per_s: float | None = option(
        "The same, counting output tokens only.", None, at_least=0.01, at_most=1e12
    )
    accelerator: str = option("Accelerator of the replica; gives its price if none is typed in.", "h100-sxm")
    gpus: int | None = option(
        "GPUs of one replica; 1, or the planner's choice for a network, if not given.",
        None,
        at_least=1,
        at_most=100_000,
    )
    model: str = option(
        "Network (catalog name or config.json) whose throughput is planned where none is measured; "
        "llama-3.1-8b if nothing is given.",
        "",
        short="-m",
    )
    engine: EngineName = option("Serving engine of a planned throughput.", "vllm")
    ttft: float = option("Objective of a planned throughput: seconds to the first token.", 2.0, within=LATENCY_S)
    tpot: float = option("Objective of a planned throughput: milliseconds per output token.", 50.0, within=LATENCY_MS)
    price_per_gpu_hour: float | None = option(
        "Price of a GPU-hour, used or not; the catalog's on-demand price if not given.", None, within=GPU_HOUR_PRICE
    )
    input_tokens: float = option("Input tokens of the mean request.", 500.0, at_least=0, at_most=1e8)
    output_tokens: float = option("Output tokens of the mean request.", 250.0, at_least=0, at_most=1e8)
    requests_per_s: float | None = option(
        "Your mean demand, nights included: compares the bills.", None, at_least=0.000_001, at_most=1e9
    )
    peak_ratio: float = option("Peak demand over mean demand.", 3.0, at_least=1, at_most=1000)
    requests_per_user_hour: float = option(
        "What one user sends in an hour, around the clock.", 1.0, at_least=0.000_1, at_most=1e6
    )
    store: Path | None = option(
        "Take demand, lengths, price and, where no network is named, throughput from the serving jobs of the books in this folder.",
        None,
    )
    job: str | None = option("Of the books, this job alone.", None)
    start: str | None = option("Of the books, from here on: 2026-10, 2026-10-05.", None, name="--from")
    end: str | None = option("Of the books, up to here, itself not included.", None, name="--to")
    last: str | None = option("Of the books, the last part alone: 12h, 7d, 4w.", None)

    @property
    def is_measured(self) -> bool:
        return self.tokens_per_s is not None or self.output_tokens_per_s is not None
