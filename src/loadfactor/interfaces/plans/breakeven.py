"""Page of `plan breakeven`: the utilization from which serving a model yourself beats an API, and what that means."""

from dataclasses import dataclass, replace

from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.catalog.token_prices import TokenPrice, token_prices
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import (
    choose_measured_price,
    draw_load,
    find_load,
    state_busiest,
    state_load,
    state_price,
)
from loadfactor.planner.economics.breakeven import (
    MeanDemand,
    MeanRequest,
    ReplicaCost,
    find_gpu_hour_price,
    lower_floor_needs_price_ratio,
)
from loadfactor.planner.economics.breakeven_plan import (
    DEFAULT_MODEL,
    ApiChoice,
    BreakEvenPlan,
    MeasuredLoad,
    choose_api,
    choose_model,
    plan_break_even,
)
from loadfactor.planner.economics.request import BreakEvenRequest
from loadfactor.planner.serving.layout_search import choose_throughput, measured_tokens_per_s
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.simulation.fleet import Slo


@dataclass(frozen=True)
class StatedThroughput:
    """Tokens per second, input and output together, GPUs of a replica, where from; `range` where it is planned: factors on it."""

    tokens_per_s: float
    gpus: int
    about: Assumption
    range: tuple[float, float] | None = None


def read_throughput(request: BreakEvenRequest) -> StatedThroughput:
    """The throughput as typed in."""
    tokens_per_s = measured_tokens_per_s(
        request.tokens_per_s, request.output_tokens_per_s, request.input_tokens, request.output_tokens
    )
    if request.tokens_per_s is not None:
        about = Assumption("throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s")
    else:
        words = f"{request.output_tokens_per_s:g} output tokens/s saturated, with the input read beside them"
        about = Assumption("throughput", words, "your --output-tokens-per-s")
    return StatedThroughput(tokens_per_s, request.gpus or 1, about)


def plan_throughput(request: BreakEvenRequest, model: str) -> StatedThroughput:
    """The same, planned: the layout with the most requests per GPU that keeps the objective.

    Raises InputError where the network does not fit, or keeps the objective on no layout (or not on the GPUs asked for).
    """
    network, card = read_network(model), accelerator(request.accelerator)
    constants = read_engine_constants(card, request.engine)
    traffic = Traffic(request.input_tokens, request.output_tokens)
    slo = Slo(request.ttft, request.tpot / MS_PER_S)
    best = choose_throughput(network, card, constants, traffic, slo, request.gpus)
    words = (
        f"{number(best.tokens_per_s)} tokens/s in and out on {counted(best.gpus, 'GPU')}, {network.name} in {request.engine}, "
        f"while the first token comes within {duration(slo.ttft_s)} and the next every {duration(slo.tpot_s)}"
    )
    status = "estimate" if constants.is_estimate else "equations with constants fitted to measurements"
    about = Assumption("throughput", words, "the serving planner", status)
    return StatedThroughput(best.tokens_per_s, best.gpus, about, best.range)


NEVER = "never"


@dataclass(frozen=True)
class TokenPriceList:
    """Every list price of the catalog."""

    prices: tuple[TokenPrice, ...]


def build_document(request: BreakEvenRequest) -> Document:
    """The page of a request; it is a no where self-hosting never pays, or not at the demand given."""
    if request.api == "list":
        return list_prices()
    load = find_load(request)
    price = choose_measured_price(request.accelerator, request.price_per_gpu_hour, load)
    is_busiest = load is not None and not (request.is_measured or request.model)
    if load is not None:
        request = take_load(request, load)
    measured = request.is_measured
    model = choose_model(request)
    api = choose_api(request, model)
    stated = read_throughput(request) if measured else plan_throughput(request, model)
    tokens_per_s, gpus, throughput = stated.tokens_per_s, stated.gpus, stated.about
    if load is not None and is_busiest:
        throughput = state_busiest(load, gpus)
    plan = plan_break_even(
        ReplicaCost(price.per_gpu_hour * gpus, tokens_per_s, gpus),
        api.name,
        api.price,
        MeanRequest(request.input_tokens, request.output_tokens),
        request.requests_per_s,
        request.peak_ratio,
        request.requests_per_user_hour,
        load,
        stated.range,
    )
    bills = () if plan.demand is None else (_draw_bills(plan, plan.demand),)
    of_load = () if load is None else (draw_load(load, tokens_per_s / gpus, plan.floor_share),)
    return Document(
        headline=_write_headline(plan) + _write_open(plan),
        sections=(_draw_floor(plan), *of_load, *bills, _draw_sensitivity(plan), _draw_claim(plan)),
        assumptions=(
            state_price("GPU of the replica", price),
            *(() if load is None else (state_load(load),)),
            throughput,
            *_state_default(request),
            _state_api(api),
            *_list_assumptions(plan),
        ),
        notes=_list_changes(plan),
        data=plan,
        is_no=not plan.self_hosting_pays,
    )


def take_load(request: BreakEvenRequest, load: MeasuredLoad) -> BreakEvenRequest:
    """The request with the demand, the lengths and, where neither it nor a network gives one, the throughput of the load."""
    taken = replace(
        request,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens_each,
        requests_per_s=load.requests_per_s,
        peak_ratio=load.peak_ratio,
    )
    if request.model:
        return taken
    gpus = request.gpus or load.gpus_per_replica
    if request.is_measured:
        return replace(taken, gpus=gpus)
    return replace(taken, gpus=gpus, tokens_per_s=load.busiest_tokens_per_gpu_s * gpus)


plan_breakeven = make_function(
    "plan_breakeven", BreakEvenRequest, build_document, "The answer of `loadfactor plan breakeven` as a page."
)


def list_prices() -> Document:
    """Every token price of the catalog."""
    prices = token_prices()
    columns = (
        TableColumn("model"),
        TableColumn("input per Mtok", "money"),
        TableColumn("output per Mtok", "money"),
        TableColumn("as of"),
    )
    rows = [(p.id, p.input_price_per_mtok, p.output_price_per_mtok, p.as_of) for p in prices]
    return Document(
        f"{len(prices)} list prices of hosted models; name one with --api.",
        (Section("Per million tokens", tables=(DataTable(columns, rows),)),),
        data=TokenPriceList(prices),
    )


def _write_headline(plan: BreakEvenPlan) -> str:
    if not plan.pays:
        return (
            "Use the API: self-hosting never pays. Even always full, a million tokens costs "
            f"{money(plan.full_cost_per_mtok, plan.currency)} against {money(plan.api_price_per_mtok, plan.currency)} "
            f"at {plan.api}."
        )
    floor = (
        f"{percent(plan.floor_share)} of saturated throughput, nights included: {number(plan.floor_requests_per_s)} requests/s "
        f"on each replica, about {short(plan.floor_users)} users"
    )
    if plan.demand is None:
        return f"Self-host only above {floor}; below that {plan.api} is cheaper."
    fleet = f"{counted(plan.demand.replicas, 'replica')} {percent(plan.demand.utilization_share)} full"
    self_hosted, api = (
        money(plan.demand.self_hosted_cost_per_hour, plan.currency),
        money(plan.demand.api_price_per_hour, plan.currency),
    )
    bills = f"{fleet} cost {self_hosted} an hour, the API {api}"
    if plan.demand.self_hosting_pays:
        return f"Self-host: {bills}. The floor is {floor}."
    return f"Use the API or bring demand first: {bills}. The floor is {floor}."


def _write_open(plan: BreakEvenPlan) -> str:
    """That the choice turns inside the range of the throughput, where it does."""
    if not plan.is_open or plan.floor_range is None:
        return ""
    low, high = (percent(share) for share in plan.floor_range)
    turns = f"in four of five cases the floor lies between {low} and {high}, which turns it"
    return f" The choice is open: {turns}; measure the throughput."


def _draw_floor(plan: BreakEvenPlan) -> Section:
    reached = plan.pays
    rows = [
        (
            "utilization floor",
            percent(plan.floor_share) if reached else f"{NEVER} ({percent(plan.floor_share)} would be needed)",
        ),
        *(() if plan.floor_range is None else (("in four of five cases", _write_floor_range(plan.floor_range)),)),
        ("API, per million tokens of this mix", money(plan.api_price_per_mtok, plan.currency)),
        ("self-hosted and always full, per million tokens", money(plan.full_cost_per_mtok, plan.currency)),
        ("one replica, saturated", f"{number(plan.saturated_requests_per_s)} requests/s"),
        ("demand at the floor", f"{number(plan.floor_requests_per_s)} requests/s" if reached else NEVER),
        ("users at the floor", short(plan.floor_users) if reached else NEVER),
    ]
    table = DataTable((TableColumn("what"), TableColumn("value")), rows)
    return Section("The floor", charts=(_chart_cost(plan),), tables=(table,))


def _write_floor_range(floor_range: tuple[float, float]) -> str:
    low, high = floor_range
    return f"{percent(low)} to {percent(high) if high <= 1 else NEVER}"


def _draw_bills(plan: BreakEvenPlan, demand: MeanDemand) -> Section:
    columns = (
        TableColumn("way"),
        TableColumn("replicas", "number"),
        TableColumn("full", "percent"),
        TableColumn("cost per hour", "money", plan.currency),
    )
    rows = [
        ("self-hosted", demand.replicas, demand.utilization_share, demand.self_hosted_cost_per_hour),
        ("API", None, None, demand.api_price_per_hour),
    ]
    return Section("At your demand", tables=(DataTable(columns, rows),))


def _draw_sensitivity(plan: BreakEvenPlan) -> Section:
    columns = (TableColumn("change"), TableColumn("floor", "percent"), TableColumn(""))
    rows = [(s.changed, s.floor_share, "" if s.floor_share <= 1 else NEVER) for s in plan.sensitivities]
    return Section("What moves the floor", tables=(DataTable(columns, rows),))


def _draw_claim(plan: BreakEvenPlan) -> Section:
    claim = plan.claimed_floors
    columns = (TableColumn("network"), TableColumn("against"), TableColumn("floor", "percent"), TableColumn(""))
    rows = [(row.network, row.against, row.floor_share, "" if row.pays else NEVER) for row in claim]
    note = (
        "It compares the two with different APIs, 20 times apart in price. Against the same API the larger network has the "
        "higher floor: it serves fewer tokens for the money. The larger has the lower floor only where its API costs "
        f"{number(lower_floor_needs_price_ratio(claim[0].replica, claim[1].replica))} times as much or more."
    )
    return Section(
        "The claim that 7B needs about 50 % and 13B only 10 %", tables=(DataTable(columns, rows, note=note),)
    )


def _chart_cost(plan: BreakEvenPlan) -> Chart:
    shares = [i / 50 for i in range(2, 51)]
    ceiling = 5 * max(plan.api_price_per_mtok, plan.full_cost_per_mtok)
    costs = [plan.cost_per_mtok(u) if plan.cost_per_mtok(u) <= ceiling else None for u in shares]
    floor = Mark(plan.floor_share, plan.api_price_per_mtok, f"floor {percent(plan.floor_share)}")
    return Chart(
        "Cost of a million tokens by how full the replica is",
        "line",
        shares,
        (Series("self-hosted", costs), Series("API", [plan.api_price_per_mtok] * len(shares), dashed=True)),
        "share of saturated throughput, over all hours",
        f"{plan.currency} per million tokens",
        marks=(floor,) if plan.pays else (),
        references=() if plan.demand is None else (Reference(plan.demand.utilization_share, "your demand", "x"),),
    )


def _state_default(request: BreakEvenRequest) -> tuple[Assumption, ...]:
    if request.model or request.is_measured:
        return ()
    return (Assumption("network", DEFAULT_MODEL, "assumed, as nothing is given; set --model or --tokens-per-s"),)


def _state_api(api: ApiChoice) -> Assumption:
    words = (
        f"{money(api.price.input_price_per_mtok)} in, {money(api.price.output_price_per_mtok)} out per million tokens"
    )
    if api.listed is None:
        return Assumption("API price", words, "your --api-price")
    words += f", {api.name}"
    if api.offers:
        words += f", the middle of {counted(len(api.offers), 'API')} that host this network; set --api"
    return Assumption("API price", words, f"catalog: {api.listed.source}", f"{api.listed.as_of}, {api.listed.status}")


def _list_assumptions(plan: BreakEvenPlan) -> tuple[Assumption, ...]:
    tokens = f"{number(plan.request.input_tokens)} tokens in, {number(plan.request.output_tokens)} out"
    users = f"{counted(plan.requests_per_user_hour, 'request')} each an hour"
    return (
        Assumption("mean request", tokens, "--input-tokens, --output-tokens"),
        Assumption("users", users, "--requests-per-user-hour"),
        Assumption(
            "not counted", "staff, idle spare replicas, retries, quality of the answers", "add them to the GPU-hour"
        ),
    )


def _list_changes(plan: BreakEvenPlan) -> tuple[str, ...]:
    lines = [
        "The API's price: compare with the API your users would really be sent to, and today's price; the floor moves inversely.",
        "Throughput measured with your own lengths and latency limit: a replica held to a tight latency saturates lower.",
    ]
    if plan.pays:
        lines.append("Bursty demand: replicas are sized for the peak, and it is the mean that must clear the floor.")
    else:
        needed = find_gpu_hour_price(plan.replica, plan.api_price, plan.request)
        lines.append(f"A GPU-hour below {money(needed, plan.currency)}: then a replica that is always full would pay.")
    return tuple(lines)
