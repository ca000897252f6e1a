"""`loadfactor plan size`: how many GPUs can we keep full? From a history of jobs, or of a cluster's state."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadfactor.errors import InputError
from loadfactor.faces.answer import Answer, Assumption, present
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.plan.given_demand import StoreOption, given_demand
from loadfactor.faces.cli.plan.given_price import price_with_source
from loadfactor.units import PERCENT

if (
    TYPE_CHECKING
):  # the planner and its numpy are imported when the question is asked: `loadfactor --help` answers at once
    from loadfactor.planner.sizing.size_plan import SizeQuestion
    from loadfactor.sources.demand import JobTrace


def add_to(app: typer.Typer) -> None:
    """Hang the question under `plan`."""
    app.command("size")(size)


def size(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="CSV of jobs (submit_s, gpus, duration_s), of hours (hour, gpus), or a published trace; .gz too."
        ),
    ] = None,
    store: StoreOption = None,
    have: Annotated[
        int | None,
        typer.Option("--have", help="GPUs of today's cluster, to judge it; from the books where they are given."),
    ] = None,
    gpu: Annotated[
        str, typer.Option("--gpu", help="Accelerator whose catalog prices hold where none is typed in.")
    ] = "h100-sxm",
    price_per_gpu_hour: Annotated[
        float | None,
        typer.Option("--price-per-gpu-hour", help="What an hour of a GPU of this cluster costs, used or not."),
    ] = None,
    delay_cost: Annotated[
        float | None,
        typer.Option(
            "--delay-cost", help="What it costs that a job waits an hour for one GPU; a GPU-hour's price if not given."
        ),
    ] = None,
    rent_price: Annotated[
        float | None, typer.Option("--rent-price", help="What a GPU rented by the hour costs.")
    ] = None,
    scheduler: Annotated[
        str, typer.Option("--scheduler", help="slurm, fifo, any, shortest, priority, preempt, srtf or fair.")
    ] = "slurm",
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", help="GPUs of one node.")] = 8,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Sizes to try, as 64,72,80; chosen from the demand if not given.")
    ] = "",
    teams: Annotated[
        int,
        typer.Option(
            "--teams", help="Compare with so many equal teams that each have their own, where jobs name none."
        ),
    ] = 4,
    growth: Annotated[
        float, typer.Option("--growth-percent", help="How much demand grows a year, for the next GPU's life.")
    ] = 0.0,
    life_years: Annotated[int, typer.Option("--life-years", help="Years the next GPU is judged over.")] = 4,
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
    """How many GPUs can we keep full? Waits, utilization and cost of every size, and whether the next GPU earns its price."""
    from loadfactor.planner.sizing.cluster import SCHEDULERS
    from loadfactor.planner.sizing.cluster_size import SizeCost
    from loadfactor.planner.sizing.size_plan import SizeQuestion
    from loadfactor.sources.demand import JobTrace

    if scheduler not in SCHEDULERS:
        raise InputError(f"--scheduler {scheduler} is not known; take {', '.join(SCHEDULERS)}")
    hour_cost, hour_assumption = price_with_source(
        "GPU of this cluster", price_per_gpu_hour, "--price-per-gpu-hour", gpu, "one_year_contract"
    )
    peak_cost, peak_assumption = price_with_source("GPU rented at peaks", rent_price, "--rent-price", gpu)
    found = given_demand(trace, store)
    question = SizeQuestion(
        cost=SizeCost(hour_cost, hour_cost if delay_cost is None else delay_cost),
        policy=SCHEDULERS[scheduler][0],
        gpus_per_node=gpus_per_node,
        have_gpus=found.have_gpus if have is None and isinstance(found, JobTrace) else have,
        sizes=_sizes(sizes),
        teams=teams,
        team_of_job=_teams(found) if isinstance(found, JobTrace) else None,
        rent_price=peak_cost,
        api_price=api_price,
        value=value,
        yearly_growth_share=growth / PERCENT,
        life_years=life_years,
    )
    assumptions = (hour_assumption, peak_assumption)
    if isinstance(found, JobTrace):
        answer = _from_jobs(found, question, SCHEDULERS[scheduler][1], delay_cost is not None, assumptions)
    else:
        from loadfactor.faces.cli.plan.size_of_state import answer_from_state

        answer = answer_from_state(found, question, assumptions)
    present(answer, output_format, output)


def _from_jobs(
    found: "JobTrace",
    question: "SizeQuestion",
    scheduler_words: str,
    delay_typed: bool,
    assumptions: tuple[Assumption, ...],
) -> Answer:
    from loadfactor.faces.cli.plan.size_of_jobs import answer_from_jobs
    from loadfactor.planner.sizing.cluster.jobs import jobs_of
    from loadfactor.planner.sizing.size_plan import plan_size

    jobs = jobs_of(found.submit_s, found.gpus, found.duration_s, found.limit_s, found.priority)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"simulating {len(jobs):,} jobs, a size at a time (first run compiles)", total=None)
        plan = plan_size(
            jobs,
            question,
            on_sizes=lambda count: progress.update(task, total=count),
            on_point=lambda _: progress.advance(task),
        )
    return answer_from_jobs(found, jobs, question, plan, scheduler_words, delay_typed, assumptions)


def _teams(trace: "JobTrace") -> list[str] | None:
    """Whose job is whose, in the order of submission, where the trace knows more than one team."""
    if trace.team is None or len(set(trace.team)) < 2:
        return None
    return [str(trace.team[place]) for place in trace.submit_s.argsort(kind="stable")]


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise InputError(f"--sizes {text}: give whole numbers of GPUs, as 64,72,80") from error
    if any(s < 1 for s in sizes):
        raise InputError(f"--sizes {text}: a cluster has at least 1 GPU")
    return sizes
