"""`loadfactor plan own`: own the base and rent the peaks? From a server's price, the prices of renting, and a demand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption, present
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.plan.given_demand import StoreOption, given_demand
from loadfactor.faces.cli.plan.given_price import price_with_source
from loadfactor.units import PERCENT, S_PER_HOUR, W_PER_KW

if TYPE_CHECKING:  # imported when asked: `loadfactor --help` answers at once
    from loadfactor.planner.economics.load_duration import LoadDuration


def add_to(app: typer.Typer) -> None:
    """Hang the question under `plan`."""
    app.command("own")(own)


def own(
    demand: Annotated[
        Path | None, typer.Option("--demand", help="CSV of hours (hour, gpus), of jobs, or a published trace; .gz too.")
    ] = None,
    store: StoreOption = None,
    demand_gpus: Annotated[
        str, typer.Option("--demand-gpus", help="Demand typed in, as GPUs×hours of a day: 20x6,40x6,60x4,80x8.")
    ] = "",
    gpu: Annotated[
        str, typer.Option("--gpu", help="Accelerator whose catalog prices hold where none is typed in.")
    ] = "h100-sxm",
    server_price: Annotated[
        float, typer.Option("--server-price", help="Price of one server with all its GPUs.")
    ] = 300_000.0,
    gpus_per_server: Annotated[int, typer.Option("--gpus-per-server")] = 8,
    life_years: Annotated[float, typer.Option("--life-years")] = 4.0,
    capital_percent: Annotated[float, typer.Option("--capital-percent", help="Yearly cost of capital, %.")] = 10.0,
    residual_percent: Annotated[
        float, typer.Option("--residual-percent", help="What the server sells for at the end, %.")
    ] = 20.0,
    server_kw: Annotated[float, typer.Option("--server-kw", help="Power of a server at full load, kW.")] = 10.2,
    load_percent: Annotated[float, typer.Option("--load-percent", help="Mean power as a share of full, %.")] = 80.0,
    pue: Annotated[float, typer.Option("--pue", help="Power into the building over power into the servers.")] = 1.3,
    price_per_kwh: Annotated[float, typer.Option("--price-per-kwh")] = 0.08,
    colo_cost: Annotated[
        float | None,
        typer.Option("--colocation-price-per-kw-month", help="All-in colocation instead of energy and PUE."),
    ] = None,
    network_percent: Annotated[
        float, typer.Option("--network-percent", help="Network, storage and CPU hosts as % of the server's price.")
    ] = 15.0,
    support_percent: Annotated[
        float, typer.Option("--support-percent", help="Support and repair a year, % of the price.")
    ] = 5.0,
    staff_cost: Annotated[float, typer.Option("--staff-cost", help="Staff a year for one server.")] = 8_000.0,
    availability_percent: Annotated[float, typer.Option("--availability-percent")] = 97.0,
    rent_price: Annotated[float | None, typer.Option("--rent-price", help="On-demand price of a GPU-hour.")] = None,
    committed_price: Annotated[
        float | None,
        typer.Option("--committed-price", help="Price of a GPU-hour paid for every hour of a year's commitment."),
    ] = None,
    spot_price: Annotated[
        float | None, typer.Option("--spot-price", help="Spot price of a GPU-hour; left out where none is given.")
    ] = None,
    spot_hours: Annotated[
        float, typer.Option("--spot-hours", help="Hours between interruptions of one spot instance.")
    ] = 24.0,
    spot_instances: Annotated[int, typer.Option("--spot-instances", help="Instances one job holds at once.")] = 1,
    spot_notice_s: Annotated[float, typer.Option("--spot-notice-s", help="Warning before an interruption.")] = 30.0,
    checkpoint_s: Annotated[
        float, typer.Option("--checkpoint-s", help="Time a job stands still for a checkpoint.")
    ] = 60.0,
    restart_s: Annotated[
        float, typer.Option("--restart-s", help="Time from an interruption until work goes on.")
    ] = 600.0,
    growth: Annotated[float, typer.Option("--growth-percent", help="How much demand grows a year.")] = 0.0,
    judged_gpu: Annotated[
        int | None,
        typer.Option("--gpu-number", help="Judge this GPU, counted from 1; the first not worth owning if not given."),
    ] = None,
    api_price: Annotated[
        float | None,
        typer.Option(
            "--api-price-per-gpu-hour",
            help="What an API charges for the work of one used GPU-hour, to judge the next GPU.",
        ),
    ] = None,
    value: Annotated[
        float | None,
        typer.Option("--value-per-gpu-hour", help="What an hour of a used GPU's work is worth, to judge the next GPU."),
    ] = None,
    output_format: Format = "terminal",
    output: Output = None,
) -> None:
    """Own, commit, rent or spot? What an owned GPU-hour costs, the mix for a demand, and what falling prices would do."""
    from loadfactor.faces.cli.plan.own_page import answer_about_owning
    from loadfactor.planner.economics.own_plan import OwnQuestion, plan_own
    from loadfactor.planner.economics.ownership import OwnedServer
    from loadfactor.planner.economics.spot import SpotOffer

    hour_cost, on_demand = price_with_source("rented on demand", rent_price, "--rent-price", gpu)
    assumptions = [on_demand]
    if committed_price is not None:
        assumptions.append(price_with_source("committed", committed_price, "--committed-price", gpu)[1])
    curve, about = _demand(demand, store, demand_gpus)
    if about is not None:
        assumptions.append(about)
    spot = None
    if spot_price is not None:
        spot = SpotOffer(spot_price, spot_hours, checkpoint_s, restart_s, spot_instances, spot_notice_s)
    question = OwnQuestion(
        server=OwnedServer(
            server_price=server_price,
            gpus=gpus_per_server,
            life_years=life_years,
            cost_of_capital_share=capital_percent / PERCENT,
            residual_share=residual_percent / PERCENT,
            power_w=server_kw * W_PER_KW,
            load_share=load_percent / PERCENT,
            pue=pue,
            price_per_kwh=price_per_kwh,
            colocation_price_per_kw_month=colo_cost,
            network_share=network_percent / PERCENT,
            support_share=support_percent / PERCENT,
            staff_cost_per_year=staff_cost,
            availability_share=availability_percent / PERCENT,
        ),
        on_demand_cost=hour_cost,
        committed_price=committed_price,
        spot=spot,
        demand=curve,
        yearly_growth_share=growth / PERCENT,
        judged_gpu=judged_gpu,
        api_price=api_price,
        value=value,
    )
    present(answer_about_owning(question, plan_own(question), tuple(assumptions)), output_format, output)


def _demand(path: Path | None, store: Path | None, typed: str) -> "tuple[LoadDuration | None, Assumption | None]":
    from loadfactor.planner.economics.load_duration import load_duration
    from loadfactor.planner.sizing.cluster.jobs import jobs_of
    from loadfactor.sources.demand import JobTrace

    if typed and (path is not None or store is not None):
        raise InputError("give the demand once: --demand FILE, --store DIR or --demand-gpus, not both")
    if typed:
        gpus, hours = [], []
        for part in typed.replace("×", "x").split(","):
            try:
                amount, _, length = part.partition("x")
                gpus.append(float(amount))
                hours.append(float(length or 1))
            except ValueError as error:
                raise InputError(f"--demand-gpus {part!r} is not GPUsxhours; write 20x6,40x6,60x4,80x8") from error
        return load_duration(gpus, hours), Assumption(
            "demand", f"{typed} (GPUs x hours), again and again", "your --demand-gpus"
        )
    if path is None and store is None:
        return None, None
    trace = given_demand(path, store)
    if not isinstance(trace, JobTrace):
        return load_duration(trace.demand_gpus), Assumption(
            "demand", f"{len(trace.demand_gpus):,} intervals", trace.name
        )
    jobs = jobs_of(trace.submit_s, trace.gpus, trace.duration_s)
    hourly = jobs.concurrent_gpus(float(S_PER_HOUR))
    words = f"{len(jobs):,} jobs as GPUs wanted each hour, if none waited"
    return load_duration(hourly), Assumption("demand", words, trace.name)
