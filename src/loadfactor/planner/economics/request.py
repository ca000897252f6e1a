"""Options of `plan own` and `plan breakeven`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadfactor.base.limits import GPU_COUNT, GPU_HOUR_PRICE, GROWTH_PERCENT, PAUSE_S, WAIT_H
from loadfactor.base.request import option
from loadfactor.base.units import H_PER_DAY, PERCENT, S_PER_DAY
from loadfactor.planner.economics.ownership import SERVER_LIMITS, OwnedServer
from loadfactor.planner.hardware.workload import MODEL, USER_COUNT, USERS, ServiceRequest


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
class OwnRequest(ServiceRequest):
    """A demand, an accelerator, the server's price, and the prices of renting. What is not given comes from the catalog."""

    demand: Path | None = option("CSV of hours (hour, gpus), of jobs, or a published trace; .gz too.", None)
    store: Path | None = option("Take the jobs from the books in this folder.", None)
    demand_gpus: str = option("Demand typed in, as GPUs x hours of a day: 20x6,40x6,60x4,80x8.", "")
    users: float | None = option(
        "Take the fleet that plan serve recommends for so many users.", None, within=USER_COUNT
    )
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
class BreakEvenRequest(ServiceRequest):
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
    gpus: int | None = option(
        "GPUs of one replica; 1, or the planner's choice for a network, if not given.",
        None,
        at_least=1,
        at_most=100_000,
    )
    model: str = option(
        "Network (catalog name or config.json) whose fleet is planned where no throughput is measured; "
        f"{MODEL} if nothing is given.",
        "",
        short="-m",
    )
    users: float | None = option(f"Users whose bills are compared; {USERS:,.0f} if not given.", None, within=USER_COUNT)
    price_per_gpu_hour: float | None = option(
        "Price of a GPU-hour, used or not; the catalog's on-demand price if not given.", None, within=GPU_HOUR_PRICE
    )
    requests_per_s: float | None = option(
        "Your mean demand, nights included, in place of users.", None, at_least=0.000_001, at_most=1e9
    )
    peak_ratio: float | None = option(
        "Peak demand over mean demand, of even hours; that of --shape if not given.", None, at_least=1, at_most=1000
    )
    requests_per_user_hour: float | None = option(
        "What one user sends in an hour, around the clock; a 24th of --requests-per-user if not given.",
        None,
        at_least=0.000_1,
        at_most=40_000,
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

    @property
    def requests_per_user_day(self) -> float:
        each = self.requests_per_user_hour
        return self.requests_per_user if each is None else each * H_PER_DAY

    @property
    def mean_requests_per_s(self) -> float:
        """The demand whose bills are compared."""
        if self.requests_per_s is not None:
            return self.requests_per_s
        return (USERS if self.users is None else self.users) * self.requests_per_user_day / S_PER_DAY

    @property
    def is_demand_given(self) -> bool:
        return self.users is not None or self.requests_per_s is not None
