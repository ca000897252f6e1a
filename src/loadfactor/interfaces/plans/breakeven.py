"""Page of `plan breakeven`: the utilization from which serving a model yourself beats an API, and what that means."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.catalog.token_prices import TokenPrice, token_prices
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Assumption, Document, Section
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
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.breakeven import (
    DEFAULT_MODEL,
    ApiChoice,
    BreakEvenPlan,
    MeanRequest,
    MeasuredLoad,
    ReplicaCost,
    choose_api,
    choose_model,
    find_gpu_hour_price,
    lower_floor_needs_price_ratio,
    plan_break_even,
)
from loadfactor.planner.economics.request import BreakEvenRequest
from loadfactor.planner.serving.service import Traffic, choose_throughput, measured_tokens_per_s
from loadfactor.planner.serving.simulation.fleet import Slo

NEVER = "never"


@dataclass(frozen=True)
class TokenPriceList:
    """Every list price of the catalog."""

    prices: tuple[TokenPrice, ...]


def build_document(request: BreakEvenRequest) -> Document:
    """The page of a request; it is a no where self-hosting never pays, or not at the demand given."""
    if request.api == "list":
        return _list_prices()
    load = find_load(request)
    price = choose_measured_price(request.accelerator, request.price_per_gpu_hour, load)
    is_busiest = load is not None and not (request.is_measured or request.model)
    if load is not None:
        request = _fill_from_load(request, load)
    model = choose_model(request)
    api = choose_api(request, model)
    stated = _read_throughput(request) if request.is_measured else _plan_throughput(request, model)
    throughput = state_busiest(load, stated.gpus) if load is not None and is_busiest else stated.about
    plan = plan_break_even(
        ReplicaCost(price.per_gpu_hour * stated.gpus, stated.tokens_per_s, stated.gpus),
        api.name,
        api.price,
        MeanRequest(request.input_tokens, request.output_tokens),
        request.requests_per_s,
        request.peak_ratio,
        request.requests_per_user_hour,
        load,
        stated.range,
    )
    of_load = () if load is None else (draw_load(load, stated.tokens_per_s / stated.gpus, plan.floor_share),)
    return Document(
        headline=_write_headline(plan),
        sections=(_draw_floor(plan), *of_load, *_draw_tables(plan)),
        assumptions=(
            state_price("GPU of the replica", price),
            *(() if load is None else (state_load(load),)),
            throughput,
            *_list_assumptions(request, plan, api),
        ),
        notes=_list_changes(plan),
        data=plan,
        is_no=not plan.self_hosting_pays,
    )


def _list_prices() -> Document:
    prices = token_prices()
    listed = table(
        prices,
        col("model", "id"),
        col("input per Mtok", "input_price_per_mtok", "money"),
        col("output per Mtok", "output_price_per_mtok", "money"),
        col("as of", "as_of"),
    )
    return Document(
        f"{len(prices)} list prices of hosted models; name one with --api.",
        (Section("Per million tokens", tables=(listed,)),),
        data=TokenPriceList(prices),
    )


def _fill_from_load(request: BreakEvenRequest, load: MeasuredLoad) -> BreakEvenRequest:
    """The request with the demand, the lengths and, where neither it nor a network gives one, the throughput of the load."""
    filled = replace(
        request,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens_each,
        requests_per_s=load.requests_per_s,
        peak_ratio=load.peak_ratio,
    )
    if request.model:
        return filled
    gpus = request.gpus or load.gpus_per_replica
    if request.is_measured:
        return replace(filled, gpus=gpus)
    return replace(filled, gpus=gpus, tokens_per_s=load.busiest_tokens_per_gpu_s * gpus)


@dataclass(frozen=True)
class StatedThroughput:
    """Tokens per second, input and output together, GPUs of a replica, where from; `range` where it is planned: factors on it."""

    tokens_per_s: float
    gpus: int
    about: Assumption
    range: tuple[float, float] | None = None


def _read_throughput(request: BreakEvenRequest) -> StatedThroughput:
    tokens_per_s = measured_tokens_per_s(
        request.tokens_per_s, request.output_tokens_per_s, request.input_tokens, request.output_tokens
    )
    if request.tokens_per_s is not None:
        about = Assumption("throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s")
    else:
        words = f"{request.output_tokens_per_s:g} output tokens/s saturated, with the input read beside them"
        about = Assumption("throughput", words, "your --output-tokens-per-s")
    return StatedThroughput(tokens_per_s, request.gpus or 1, about)


def _plan_throughput(request: BreakEvenRequest, model: str) -> StatedThroughput:
    """The throughput of the layout with the most requests per GPU that keeps the objective.

    Raises InputError where the network does not fit, or keeps the objective on no layout (or not on the GPUs requested).
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


plan_breakeven = make_function(
    "plan_breakeven", BreakEvenRequest, build_document, "The answer of `loadfactor plan breakeven` as a page."
)


def _write_headline(plan: BreakEvenPlan) -> str:
    """The choice in a sentence, and that it is open where it turns inside the range of the throughput."""
    text = _write_choice(plan)
    if not plan.is_open or plan.floor_range is None:
        return text
    low, high = (percent(share) for share in plan.floor_range)
    turns = f"in four of five cases the floor lies between {low} and {high}, which turns it"
    return f"{text} The choice is open: {turns}; measure the throughput."


def _write_choice(plan: BreakEvenPlan) -> str:
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
    self_hosted = money(plan.demand.self_hosted_cost_per_hour, plan.currency)
    bills = f"{fleet} cost {self_hosted} an hour, the API {money(plan.demand.api_price_per_hour, plan.currency)}"
    lead = "Self-host" if plan.demand.self_hosting_pays else "Use the API or bring demand first"
    return f"{lead}: {bills}. The floor is {floor}."


def _draw_floor(plan: BreakEvenPlan) -> Section:
    floor, pays = percent(plan.floor_share), plan.pays
    rows = [("utilization floor", floor if pays else f"{NEVER} ({floor} would be needed)")]
    if plan.floor_range is not None:
        low, high = plan.floor_range
        rows.append(("in four of five cases", f"{percent(low)} to {percent(high) if high <= 1 else NEVER}"))
    rows += [
        ("API, per million tokens of this mix", money(plan.api_price_per_mtok, plan.currency)),
        ("self-hosted and always full, per million tokens", money(plan.full_cost_per_mtok, plan.currency)),
        ("one replica, saturated", f"{number(plan.saturated_requests_per_s)} requests/s"),
        ("demand at the floor", f"{number(plan.floor_requests_per_s)} requests/s" if pays else NEVER),
        ("users at the floor", short(plan.floor_users) if pays else NEVER),
    ]
    return Section("The floor", charts=(_chart_cost(plan),), tables=(table(rows, col("what"), col("value")),))


def _draw_tables(plan: BreakEvenPlan) -> Iterator[Section]:
    """The bills at the demand given, what moves the floor, and a much quoted claim."""
    if plan.demand is not None:
        demand = plan.demand
        rows = [
            ("self-hosted", demand.replicas, demand.utilization_share, demand.self_hosted_cost_per_hour),
            ("API", None, None, demand.api_price_per_hour),
        ]
        bills = table(
            rows,
            col("way"),
            col("replicas", style="number"),
            col("full", style="percent"),
            col("cost per hour", style="money"),
            currency=plan.currency,
        )
        yield Section("At your demand", tables=(bills,))
    changes = table(
        plan.sensitivities,
        col("change", "changed"),
        col("floor", "floor_share", "percent"),
        col("", lambda s: "" if s.floor_share <= 1 else NEVER),
    )
    yield Section("What moves the floor", tables=(changes,))
    claim = plan.claimed_floors
    claimed = table(
        claim,
        col("network", "network"),
        col("against", "against"),
        col("floor", "floor_share", "percent"),
        col("", lambda row: "" if row.pays else NEVER),
        note="It compares the two with different APIs, 20 times apart in price. Against the same API the larger network has the "
        "higher floor: it serves fewer tokens for the money. The larger has the lower floor only where its API costs "
        f"{number(lower_floor_needs_price_ratio(claim[0].replica, claim[1].replica))} times as much or more.",
    )
    yield Section("The claim that 7B needs about 50 % and 13B only 10 %", tables=(claimed,))


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


def _list_assumptions(request: BreakEvenRequest, plan: BreakEvenPlan, api: ApiChoice) -> Iterator[Assumption]:
    if not (request.model or request.is_measured):
        yield Assumption("network", DEFAULT_MODEL, "assumed, as nothing is given; set --model or --tokens-per-s")
    yield _state_api(api)
    tokens = f"{number(plan.request.input_tokens)} tokens in, {number(plan.request.output_tokens)} out"
    yield Assumption("mean request", tokens, "--input-tokens, --output-tokens")
    users = f"{counted(plan.requests_per_user_hour, 'request')} each an hour"
    yield Assumption("users", users, "--requests-per-user-hour")
    left_out = "staff, idle spare replicas, retries, quality of the answers"
    yield Assumption("not counted", left_out, "add them to the GPU-hour")


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
