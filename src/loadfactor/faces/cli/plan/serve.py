"""`loadfactor plan serve`: which layout, how many replicas, what they cost, how full they fly, and what would change it."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import engine_constants, engine_names
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption, present
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.plan.serving_answer import answer
from loadfactor.planner.serving.demand import PROCESSES, SHAPES, Lengths, Process, demand_of_trace, demand_of_users
from loadfactor.planner.serving.fleet_run import Policy
from loadfactor.planner.serving.replica_layout import choose_precision
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.serving_plan import ServingInputs, plan_serving
from loadfactor.planner.serving.simulation.costs import Speculation
from loadfactor.planner.serving.simulation.fleet import (
    ORDERS,
    ROUTERS,
    Autoscale,
    Failures,
    PrefixCache,
    Slo,
)
from loadfactor.planner.serving.simulation.simulate import Arrivals
from loadfactor.sources.public_traces.requests.chunk import TraceReport
from loadfactor.sources.public_traces.requests.reader import read_requests
from loadfactor.units import MS_PER_S, S_PER_HOUR


def add_to(app: typer.Typer) -> None:
    """Hang the command under `plan`."""
    app.command("serve", help="A serving fleet: layout, replicas, cost, fullness, crowd curve and levers.")(serve)


def serve(
    model: Annotated[str, typer.Option(help="A model of the catalog, or a path to its config.json.")] = "llama-3.1-70b",
    accelerator_name: Annotated[str, typer.Option("--accelerator", help="An accelerator of the catalog.")] = "h100-sxm",
    engine: Annotated[str, typer.Option(help=f"Serving engine: {', '.join(engine_names())}.")] = "vllm",
    precision_name: Annotated[
        str | None, typer.Option("--precision", help="bf16, fp8, fp4, int8 or int4; as published when left out.")
    ] = None,
    users: Annotated[float, typer.Option(help="Users of the service.")] = 20_000,
    requests_per_user: Annotated[float, typer.Option(help="Requests of one user on an average day.")] = 20,
    prompt: Annotated[float, typer.Option(help="Mean prompt, tokens.")] = 1500,
    output_tokens: Annotated[float, typer.Option("--output-tokens", help="Mean output, tokens.")] = 300,
    shape: Annotated[str, typer.Option(help=f"Shape of day and week: {', '.join(SHAPES)}.")] = "office",
    arrivals: Annotated[str, typer.Option(help=f"Arrivals within the hour: {', '.join(PROCESSES)}.")] = "poisson",
    burst_factor: Annotated[
        float, typer.Option(help="Rate while bursting over the calm rate (arrivals bursts).")
    ] = 5.0,
    gap_cv: Annotated[float, typer.Option(help="Variation of the gaps between requests (arrivals gamma).")] = 2.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="Requests of a trace instead: Azure CSV, Mooncake JSON lines or a ServeGen folder."),
    ] = None,
    trace_scale: Annotated[float, typer.Option(help="Multiply the trace's rate.")] = 1.0,
    ttft: Annotated[float, typer.Option(help="Objective: time to first token, seconds.")] = 2.0,
    tpot: Annotated[float, typer.Option(help="Objective: time per output token, milliseconds.")] = 50.0,
    attainment: Annotated[float, typer.Option(help="Share of requests that must see both.")] = 0.95,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option("--price-per-gpu-hour", help="Dollars per GPU-hour; the catalog's when left out.")
    ] = None,
    gpus_per_replica: Annotated[int | None, typer.Option(help="Fix the GPUs of a replica.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Fix the number of replicas and see how they fly.")] = None,
    prefix_share: Annotated[float, typer.Option(help="Share of every prompt found in the prefix cache.")] = 0.0,
    chunked_prefill: Annotated[
        bool | None, typer.Option(help="Mix prompts with decoding; the engine's habit when left out.")
    ] = None,
    speculate: Annotated[
        str | None, typer.Option(help="Speculative decoding as drafted:acceptance, e.g. 3:0.7.")
    ] = None,
    prefill_replicas: Annotated[
        int, typer.Option(help="Replicas that compute prompts only (disaggregation); fixes --replicas.")
    ] = 0,
    router: Annotated[str, typer.Option(help=f"{', '.join(ROUTERS)}.")] = "least-loaded",
    order: Annotated[str, typer.Option(help=f"Queue order: {', '.join(ORDERS)}.")] = "first-come",
    autoscale: Annotated[bool, typer.Option(help="Let replicas follow the load.")] = False,
    cold_start: Annotated[float, typer.Option(help="Seconds a new replica needs (autoscale).")] = 180.0,
    mtbf_hours: Annotated[float | None, typer.Option(help="Mean hours between failures of a replica.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn; same seed, same answer.")] = 1,
    output: Output = None,
    output_format: Format = "terminal",
) -> None:
    """Plan a serving fleet for a demand: equations choose the layout, a simulation of the day sizes and checks the fleet."""
    chip = accelerator(accelerator_name)
    network = read_network(model)
    constants = engine_constants(chip, engine)
    if chunked_prefill is not None:
        constants = replace(constants, mixed=chunked_prefill)
    kept = choose_precision(network, precision_name, None if constants.narrow_cache else 2.0)
    price, priced = _price(price_per_gpu_hour, chip.id)
    assumptions = [priced]
    report: TraceReport | None = None
    fresh: Callable[[], Iterable[Arrivals]] | None = None
    if trace is not None:
        report = TraceReport()
        demand = demand_of_trace(_requests(trace, trace_scale, seed, report))
        fresh = partial(_requests, trace, trace_scale, seed)
        assumptions.append(Assumption("requests", _described(report), str(trace)))
    else:
        _known(arrivals, PROCESSES, "--arrivals")
        base = demand_of_users(
            users, requests_per_user, Lengths(prompt, output_tokens, longest=network.max_context), shape
        )
        process: Process = next(p for p in PROCESSES if p == arrivals)
        demand = replace(base, process=process, burst_factor=burst_factor, gap_cv=gap_cv)
        assumptions.append(
            Assumption(
                "shape of demand", f"{shape} hours, {arrivals} arrivals", "assumed; --shape, --arrivals, --trace"
            )
        )
    _known(router, ROUTERS, "--router")
    _known(order, ORDERS, "--order")
    if prefill_replicas and replicas is None:
        raise InputError(
            "--prefill-replicas needs --replicas: the whole number of replicas, of which some compute prompts"
        )
    prefix = PrefixCache()
    if report is not None and report.block_tokens:
        tokens = 200_000  # blocks of a replica's host memory, as KV offloading keeps them
        prefix = PrefixCache(blocks=tokens // report.block_tokens * 8, block_tokens=report.block_tokens)
    policy = Policy(
        router=next(r for r in ROUTERS if r == router),
        order=next(o for o in ORDERS if o == order),
        prefix=prefix,
        autoscale=Autoscale(cold_start_s=cold_start) if autoscale else None,
        failures=Failures(mtbf_hours * S_PER_HOUR) if mtbf_hours else None,
        prefill_replicas=prefill_replicas,
    )
    lengths = demand.lengths
    traffic = Traffic(
        lengths.prompt_mean,
        lengths.output_mean,
        lengths.prompt_cv,
        prefix_share,
        _speculation(speculate),
        bool(prefill_replicas),
    )
    question = ServingInputs(
        network=network,
        accelerator=chip,
        precision=kept,
        engine=constants,
        demand=demand,
        slo=Slo(ttft, tpot / MS_PER_S),
        price_per_gpu_hour=price,
        wanted_share=attainment,
        traffic=traffic,
        policy=policy,
        replicas=replicas,
        gpus_per_replica=gpus_per_replica,
        trace=fresh,
        seed=seed,
    )
    with Console(stderr=True).status("choosing a layout (the first run compiles the simulation)") as status:
        plan = plan_serving(question, status.update)
    users_now = None if trace else users
    present(answer(question, plan, assumptions, users_now, requests_per_user), output_format, output)


def _known(given: str, allowed: Iterable[str], option: str) -> None:
    if given not in allowed:
        raise InputError(f"{option} {given} is not known; take {', '.join(allowed)}")


def _price(given: float | None, chip: str) -> tuple[float, Assumption]:
    if given is not None:
        if not 0 < given < math.inf:
            raise InputError(f"--price-per-gpu-hour must be positive, got {given:g}")
        return given, Assumption("GPU-hour", f"${given:.2f}", "--price-per-gpu-hour")
    known = gpu_hour_price(chip)
    if known is None:
        raise InputError(f"the catalog has no price for {chip}; give one with --price-per-gpu-hour")
    return known.typical, Assumption(
        "GPU-hour", f"${known.typical:.2f}, on demand", known.source, f"{known.as_of}, {known.status}"
    )


def _speculation(text: str | None) -> Speculation:
    if text is None:
        return Speculation()
    drafted, _, acceptance = text.partition(":")
    try:
        return Speculation(int(drafted), float(acceptance))
    except ValueError:
        raise InputError(
            f"--speculate {text} is not drafted:acceptance; 3:0.7 drafts three tokens, 70 % accepted"
        ) from None


def _requests(path: Path, scale: float, seed: int, report: TraceReport | None = None) -> Iterator[Arrivals]:
    for chunk in read_requests(path, report, scale, seed):
        yield Arrivals(chunk.at_ns, chunk.prompt_tokens, chunk.output_tokens, chunk.offsets, chunk.hashes)


def _described(report: TraceReport) -> str:
    text = f"{report.requests:,} in {report.span_s / S_PER_HOUR:.2f} h"
    text += f"; longest silence {report.longest_gap_s:.0f} s (counted as idle)"
    if report.unreadable:
        text += (
            f"; {report.unreadable} rows without a number left out, the first in line {report.first_unreadable_line}"
        )
    return text
