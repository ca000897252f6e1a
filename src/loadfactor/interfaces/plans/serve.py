"""The page of `plan serve`: the simulated day first, then what the equations say about layouts, demand and levers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError
from loadfactor.base.units import BITS_PER_BYTE, S_PER_HOUR
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.interfaces.document import Assumption, Document
from loadfactor.interfaces.formats import percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.assumptions import state_price
from loadfactor.interfaces.plans.measured_load import choose_measured_price, draw_load, find_load, state_load
from loadfactor.interfaces.plans.serving_notes import write_headline, write_notes
from loadfactor.interfaces.plans.serving_sections import DemandAxis, draw_sections
from loadfactor.planner.economics.breakeven_plan import MeasuredLoad
from loadfactor.planner.serving.demand import RequestDemand, observe_demand
from loadfactor.planner.serving.inputs import RequestTrace, build_inputs
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.serving.serving_plan import ServingPlan, plan_fleet
from loadfactor.planner.serving.simulation.simulate import Arrivals

if TYPE_CHECKING:  # imported with a trace: most plans have none
    from loadfactor.sources.public_traces.requests.chunk import TraceReport


@dataclass(frozen=True)
class MeasuredServingPlan(ServingPlan):
    """A plan for the load in a store, and that load."""

    measured: MeasuredLoad


def build_document(request: ServingRequest, progress: Callable[[str], None] = lambda _: None) -> Document:
    """Plan the fleet and lay it out as a page. Raises InputError for a name nobody knows or a fleet that cannot be."""
    chip, network = accelerator(request.accelerator), read_network(request.model)
    load = find_load(request)
    price = choose_measured_price(request.accelerator, request.price_per_gpu_hour, load)
    if load is not None:
        request = take_load(request, load)
    trace, assumed = _demand(request)
    inputs = build_inputs(request, network, chip, read_engine_constants(chip, request.engine), price, trace)
    plan = plan_fleet(inputs, progress)
    users = DemandAxis() if request.trace else DemandAxis("users", request.requests_per_user)
    saturated = _find_saturated(plan, inputs.demand)
    measured = () if load is None or saturated is None else (draw_load(load, saturated),)
    of_load = () if load is None else (state_load(load),)
    return Document(
        headline=write_headline(plan),
        sections=(*draw_sections(plan, users, "The trace" if request.trace else "A Tuesday"), *measured),
        assumptions=(state_price("GPU-hour", price), *of_load, assumed, *_assumptions(plan)),
        notes=write_notes(plan, inputs.demand.requests_per_day),
        data=plan if load is None else MeasuredServingPlan(**vars(plan), measured=load),
        is_no=not plan.slo.kept,
    )


def take_load(request: ServingRequest, load: MeasuredLoad) -> ServingRequest:
    """The request with the demand and the lengths of the load. Raises InputError where a trace gives them, too."""
    if request.trace is not None:
        raise InputError("give the demand once: --trace FILE or --store DIR")
    return replace(
        request,
        users=max(1.0, load.requests_per_day / request.requests_per_user),
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens_each,
    )


def _find_saturated(plan: ServingPlan, demand: RequestDemand) -> float | None:
    """Tokens a second of a GPU of the plan's layout at its capacity, in and out; None where it never keeps the objective."""
    capacity, lengths = plan.chosen.capacity, demand.lengths
    return None if capacity is None else capacity.requests_per_gpu_s * (lengths.prompt_mean + lengths.output_mean)


plan_serving = make_function(
    "plan_serving", ServingRequest, build_document, "The answer of `loadfactor plan serve` as a page."
)


def _demand(request: ServingRequest) -> tuple[RequestTrace | None, Assumption]:
    """The requests of the trace, where there is one, and what is assumed about demand."""
    if request.trace is None:
        words = f"{request.shape} hours, {request.arrivals} arrivals"
        return None, Assumption("shape of demand", words, "assumed; --shape, --arrivals, --trace")
    from loadfactor.sources.public_traces.requests.chunk import TraceReport

    report = TraceReport()
    demand = observe_demand(_read_requests(request, report))
    stream = partial(_read_requests, request, None)
    return RequestTrace(demand, stream, report.block_tokens), Assumption(
        "requests", _describe_trace(report), str(request.trace)
    )


def _read_requests(request: ServingRequest, report: "TraceReport | None") -> Iterator[Arrivals]:
    from loadfactor.sources.public_traces.requests.reader import read_requests

    assert request.trace is not None
    for chunk in read_requests(request.trace, report, request.trace_scale, request.seed):
        yield Arrivals(chunk.at_ns, chunk.prompt_tokens, chunk.output_tokens, chunk.offsets, chunk.hashes)


def _describe_trace(report: "TraceReport") -> str:
    text = f"{report.requests:,} in {report.span_s / S_PER_HOUR:.2f} h"
    text += f"; longest silence {report.longest_gap_s:.0f} s (counted as idle)"
    if report.unreadable:
        text += (
            f"; {report.unreadable} rows without a number left out, the first in line {report.first_unreadable_line}"
        )
    return text


def _assumptions(p: ServingPlan) -> Iterator[Assumption]:
    r = p.chosen.replica
    status = "estimate" if r.engine.is_estimate else "fitted"
    yield Assumption("engine", f"{r.engine.engine}; {r.engine.fitted_on}", "catalog/engines/constants.toml", status)
    bits = BITS_PER_BYTE * r.precision.kv_bytes_per_value
    tokens = p.fleet_run.fleet.batching.cache_tokens
    yield Assumption(
        "cache",
        f"{bits:.0f} bits a number, {tokens:,} tokens a replica",
        "what weights and the engine leave of the memory",
    )
    yield Assumption(
        "headroom",
        f"{percent(p.headroom_share)} of capacity in the equations",
        "kept for unevenness; the simulation has the last word",
    )
    if p.simulated_share < 1:
        yield Assumption(
            "simulated",
            f"{percent(p.simulated_share)} of the requests on {p.simulated_replicas} replicas",
            "a small fleet is less even than a large one: on the safe side",
        )
