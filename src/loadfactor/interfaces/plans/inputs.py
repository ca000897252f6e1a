"""Inputs that pages of several plans share: the demand a plan is made for, the load measured in a store, and prices in words."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loadfactor.base.errors import InputError
from loadfactor.base.units import H_PER_DAY, S_PER_HOUR
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import NO_PRICE, ChosenPrice, choose_price, find_price
from loadfactor.interfaces.charts import Chart, Reference, Series
from loadfactor.interfaces.document import Assumption, DataTable, Section
from loadfactor.interfaces.formats import counted, duration, money, number, percent
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.economics.measured_load import MeasuredLoad
from loadfactor.planner.hardware.distance import MovedConstant
from loadfactor.planner.hardware.workload import ServiceRequest

if TYPE_CHECKING:
    from rich.status import Status

    from loadfactor.planner.serving.fleet_size import ServingInputs
    from loadfactor.planner.sizing.cluster.jobs import Jobs
    from loadfactor.sources.demand import Demand, DemandTrace, JobTrace


def state_price(name: str, price: ChosenPrice | None) -> Assumption:
    """Price of a GPU-hour: its kind, source and age; or that none is known."""
    if price is None:
        return Assumption(name, "none", NO_PRICE)
    amount = f"{money(price.per_gpu_hour, price.currency)} per GPU-hour"
    listed = price.listed
    if listed is not None and listed.low is not None and listed.high is not None:
        amount += f" ({money(listed.low, price.currency)} to {money(listed.high, price.currency)})"
    return Assumption(name, f"{amount}, {price.basis}" if price.basis else amount, price.source, price.as_of)


def list_moved(constants: Sequence[MovedConstant], note: str) -> DataTable:
    """The constants that a measured run moved, from before to after."""
    return table(
        constants,
        col("constant", lambda c: c.name.replace("_", " ")),
        col("before", "before", "number"),
        col("after", "after", "number"),
        title="Constants that moved",
        note=note,
    )


def find_demand(path: Path | None, store: Path | None) -> "Demand":
    """The trace in the file, or the history of the books; exactly one must be given."""
    if (path is None) == (store is None):
        raise InputError(
            "give the demand once: a CSV file of jobs or hours, --store with the folder of your books, or --users"
        )
    from loadfactor.sources.demand_files import read_demand

    return read_demand(path) if path is not None else _read_books(store)


def read_jobs(trace: "JobTrace") -> "Jobs":
    """The jobs of a trace as the simulation takes them."""
    from loadfactor.planner.sizing.cluster.jobs import make_jobs

    return make_jobs(trace.submit_s, trace.gpus, trace.duration_s, trace.limit_s, trace.priority)


def _read_books(store: Path | None) -> "JobTrace":
    import numpy as np

    from loadfactor.books.job_run import job_history
    from loadfactor.interfaces.requests import StoreRequest
    from loadfactor.sources.demand import JobTrace

    books = StoreRequest(store=store).books
    history = job_history(books)
    notes = []
    if history.still_held:
        notes.append(f"{history.still_held} jobs still held")
    if history.not_waited:
        notes.append(f"{history.not_waited} jobs without a submission time, taken as submitted when they started")
    # the simulator holds whole GPUs or one share of one: anything between is rounded up
    gpus = np.where(history.gpus > 1, np.ceil(history.gpus - 1e-9), history.gpus)
    known = history.team if (history.team != "").any() else None
    return JobTrace(
        f"books in {books.store.name}",
        history.submit_s,
        gpus,
        history.duration_s,
        team=known,
        have_gpus=history.installed_gpus,
        left_out=tuple(notes),
    )


def ask_serving(request: ServiceRequest, users: float, price: ChosenPrice, **more: Any) -> "ServingInputs":
    """What `plan serve` asks for so many users of the service of another plan; `more` are other options of it."""
    from loadfactor.planner.serving.request import ServingRequest
    from loadfactor.planner.serving.serving_plan import build_inputs

    service = {item.name: getattr(request, item.name) for item in fields(ServiceRequest)}
    serving = ServingRequest(**service | {"users": users} | more)
    card = accelerator(serving.accelerator)
    engine = read_engine_constants(card, serving.engine, serving.release or "")
    return build_inputs(serving, read_network(serving.model), card, engine, price)


def show_search() -> "Status":
    """A word to a person on what the search for a fleet takes time for; `update` changes it."""
    from rich.console import Console

    return Console(stderr=True).status("choosing a layout (the first run compiles the simulation)")


def ask_hours(request: ServiceRequest, users: float, price: ChosenPrice) -> "DemandTrace":
    """GPUs that so many users take in each hour of a week: in the busiest the fleet of `plan serve`, else replicas by the rate."""
    import numpy as np

    from loadfactor.planner.serving.fleet_size import size_fleet
    from loadfactor.sources.demand import DemandTrace

    question = ask_serving(request, users, price)
    with show_search() as status:
        fleet = size_fleet(question, status.update)
    rates = np.array([question.demand.rate_per_s(hour) for hour in range(7 * H_PER_DAY)])
    replicas = np.ceil(fleet.replicas * rates / rates.max() - 1e-9)
    name = f"the fleet of plan serve for {users:,.0f} users of {question.network.name}"
    return DemandTrace(name, float(S_PER_HOUR), replicas * fleet.chosen.replica.layout.gpus)


def state_hours(served: "DemandTrace", price: ChosenPrice) -> Assumption:
    """The fleet of a service as a demand for GPUs, and its cost where every hour of it is rented, as `plan serve` counts."""
    peak = float(served.demand_gpus.max())
    kept = f"{money(peak * price.per_gpu_hour, price.currency)} an hour if rented for all hours"
    return Assumption(
        "fleet", f"{number(peak)} GPUs in the busiest hours ({kept}), fewer replicas in the others", served.name
    )


PLAN_CURRENCY = "USD"
"""That of API prices and of the catalog."""


class MeasuredRequest(Protocol):
    """A request that may take the load from books, of a job and a window of time."""

    @property
    def store(self) -> Path | None: ...
    @property
    def job(self) -> str | None: ...
    @property
    def start(self) -> str | None: ...
    @property
    def end(self) -> str | None: ...
    @property
    def last(self) -> str | None: ...


def find_load(request: MeasuredRequest) -> MeasuredLoad | None:
    """The load in the books of the folder named; None where none is. Raises InputError as the books do."""
    if request.store is None:
        of_books = {"--job": request.job, "--from": request.start, "--to": request.end, "--last": request.last}
        given = next((flag for flag, value in of_books.items() if value is not None), None)
        if given is not None:
            raise InputError(f"{given} is about the books: give --store with their folder, too")
        return None
    from loadfactor.books.serving_load import find_serving_load
    from loadfactor.interfaces.requests import WindowRequest

    window = WindowRequest(store=request.store, start=request.start, end=request.end, last=request.last)
    with window.books.snapshot() as books:
        return find_serving_load(books, request.job, window.window(books))


def choose_measured_price(card: str, given: float | None, load: MeasuredLoad | None) -> ChosenPrice:
    """The price given, else what the GPUs of the load cost, else the catalog's. Raises InputError where none is known."""
    return find_measured_price(card, given, load) or choose_price(card, given)


def find_measured_price(card: str, given: float | None, load: MeasuredLoad | None) -> ChosenPrice | None:
    """The same for a plan that answers without a price, too."""
    known = None if load is None or load.currency != PLAN_CURRENCY else load.price_per_gpu_hour
    if given is None and known:
        return ChosenPrice(known, PLAN_CURRENCY, "what the GPUs held cost in the books of --store")
    return find_price(card, given)


def state_load(load: MeasuredLoad) -> Assumption:
    """Jobs of the load, their requests, how long each is, and how much of the time was counted."""
    who = load.jobs[0] if len(load.jobs) == 1 else counted(len(load.jobs), "job")
    words = (
        f"{number(load.requests_per_s)} requests/s over {duration(load.span_s)}, {number(load.input_tokens)} tokens in and "
        f"{number(load.output_tokens_each)} out each, {number(load.peak_ratio)} times as many in the busiest hour"
    )
    return Assumption(
        f"measured load of {who}", words, "--store", f"{percent(load.counted_share)} of held time counted"
    )


def state_busiest(load: MeasuredLoad, gpus: int) -> Assumption:
    """The throughput of a replica of so many GPUs in the busiest hour."""
    words = f"{number(load.busiest_tokens_per_gpu_s * gpus)} tokens/s in and out on {counted(gpus, 'GPU')} in the busiest hour"
    return Assumption("throughput", words, "--store", "saturation is at least that, and the floor at most what follows")


def draw_load(load: MeasuredLoad, saturated_tokens_per_gpu_s: float, floor_share: float | None = None) -> Section:
    """The measured load, and its place against saturation and, where there is one, the floor."""
    share, lead = load.share_of(saturated_tokens_per_gpu_s), ""
    rows = [
        ("GPUs held on average", number(load.gpus)),
        ("duty cycle: time with tokens", percent(load.duty_share)),
        ("tokens/s of a held GPU: mean", number(load.tokens_per_gpu_s)),
        ("in the busiest hour", number(load.busiest_tokens_per_gpu_s)),
        ("saturated", number(saturated_tokens_per_gpu_s)),
        ("mean load, of saturated", percent(share)),
    ]
    if floor_share is not None:
        rows.append(("utilization floor", percent(floor_share)))
        lead = f"The measured load lies {'above' if share >= floor_share else 'below'} the floor."
    if load.cost_per_hour is not None:
        rows.append(("what they cost an hour", money(load.cost_per_hour, load.currency)))
    return Section("What was measured", lead, tables=(table(rows, "what", "value"),))


def draw_load_duration(demand: LoadDuration, references: Sequence[Reference]) -> Chart:
    """Draw the GPUs needed for at least each share of the time."""
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
