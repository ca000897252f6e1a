"""Page of `plan breakeven`: the utilization from which serving a model yourself beats an API, and what that means."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loadfactor.base.units import H_PER_DAY, H_PER_MONTH, MS_PER_S, S_PER_DAY, TOKENS_PER_MTOK
from loadfactor.catalog.prices import ChosenPrice
from loadfactor.catalog.token_prices import TokenPrice, token_prices
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import (
    ask_serving,
    choose_measured_price,
    draw_load,
    find_load,
    show_search,
    state_busiest,
    state_load,
    state_price,
)
from loadfactor.interfaces.plans.marginal import count_node_gpus, draw_marginal
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.breakeven import (
    ApiChoice,
    BreakEvenPlan,
    Fleet,
    MeanRequest,
    ReplicaCost,
    add_replicas,
    choose_api,
    choose_model,
    find_gpu_hour_price,
    lower_floor_needs_price_ratio,
    plan_break_even,
)
from loadfactor.planner.economics.measured_load import MeasuredLoad
from loadfactor.planner.economics.request import BreakEvenRequest
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.hardware.workload import MODEL
from loadfactor.planner.serving.calibration import read_ranges
from loadfactor.planner.serving.demand import peak_over_mean
from loadfactor.planner.serving.fleet_floor import find_floor_fleet
from loadfactor.planner.serving.fleet_size import list_layout_options, rank_layouts, size_fleet
from loadfactor.planner.serving.marginal_fleet import enlarge_fleet
from loadfactor.planner.serving.service import LayoutOption, measured_tokens_per_s

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
    stated = _read_throughput(request, price) if request.is_measured else _plan_throughput(request, model, api, price)
    replica = stated.replica
    throughput = state_busiest(load, replica.gpus) if load is not None and is_busiest else stated.about
    if request.peak_ratio is None:
        request = replace(request, peak_ratio=peak_over_mean(request.shape))
    plan = plan_break_even(replica, api, request, price, stated.fleet, load, stated.range)
    if request.marginal:
        plan = replace(plan, marginal=stated.marginal or add_replicas(plan, count_node_gpus(request.accelerator)))
    of_load = () if load is None else (draw_load(load, replica.tokens_per_s / replica.gpus, plan.floor_share),)
    return Document(
        headline=_write_headline(plan),
        sections=(_draw_ways(plan), *_draw_more(plan), _draw_floor(plan), *of_load, *_draw_tables(plan)),
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
    )
    if request.model:
        return filled
    filled = replace(filled, peak_ratio=load.peak_ratio)
    gpus = request.gpus or load.gpus_per_replica
    if request.is_measured:
        return replace(filled, gpus=gpus)
    return replace(filled, gpus=gpus, tokens_per_s=load.busiest_tokens_per_gpu_s * gpus)


@dataclass(frozen=True)
class StatedThroughput:
    """A replica, where its throughput is from, and the fleets and the factors on it where it is planned."""

    replica: ReplicaCost
    about: Assumption
    fleet: Fleet | None = None
    range: tuple[float, float] | None = None
    marginal: tuple[Marginal, ...] = ()


def _read_throughput(request: BreakEvenRequest, price: ChosenPrice) -> StatedThroughput:
    tokens_per_s = measured_tokens_per_s(
        request.tokens_per_s, request.output_tokens_per_s, request.input_tokens, request.output_tokens
    )
    if request.tokens_per_s is not None:
        about = Assumption("throughput", f"{tokens_per_s:g} tokens/s saturated, in and out", "your --tokens-per-s")
    else:
        words = f"{request.output_tokens_per_s:g} output tokens/s saturated, with the input read beside them"
        about = Assumption("throughput", words, "your --output-tokens-per-s")
    gpus = request.gpus or 1
    return StatedThroughput(ReplicaCost(price.per_gpu_hour * gpus, tokens_per_s, gpus), about)


def _plan_throughput(request: BreakEvenRequest, model: str, api: ApiChoice, price: ChosenPrice) -> StatedThroughput:
    """The fleets that `plan serve` recommends for the demand, and for the smallest that pays; closed forms where a peak is given.

    Raises InputError where the network does not fit, or keeps the objective on no layout (or not on the GPUs requested).
    """
    users = max(1.0, request.mean_requests_per_s * S_PER_DAY / request.requests_per_user_day)
    each = {"requests_per_user": request.requests_per_user_day, "gpus_per_replica": request.gpus}
    question = ask_serving(request, users, price, model=model, **each)
    mean, fleet = MeanRequest(request.input_tokens, request.output_tokens), None
    more: tuple[Marginal, ...] = ()
    chosen = rank_layouts(question, list_layout_options(question))[0]

    def describe(of: LayoutOption) -> ReplicaCost:
        gpus = of.replica.layout.gpus
        return ReplicaCost(price.per_gpu_hour * gpus, of.require_capacity().requests_per_s * mean.tokens, gpus)

    if request.peak_ratio is None:
        with show_search() as shown:
            sized = size_fleet(question, shown.update)
            shown.update("looking for the smallest fleet that pays")
            floor = find_floor_fleet(question, mean.cost(api.price) / mean.tokens * TOKENS_PER_MTOK)
            if request.marginal:
                shown.update("looking for the most users whom more GPUs carry")
                node, per_user = count_node_gpus(request.accelerator), request.requests_per_user_day
                more = enlarge_fleet(question, sized.chosen, sized.replicas, per_user, node)
        chosen = floor.fleet.chosen if floor else sized.chosen
        fleet = Fleet(describe(sized.chosen), sized.replicas, floor.fleet.replicas if floor else 0)
    replica, engine = describe(chosen), chosen.replica.engine
    words = (
        f"{number(replica.tokens_per_s)} tokens/s in and out on {counted(replica.gpus, 'GPU')}, {model} in "
        f"{request.engine}, while the first token comes within {duration(request.ttft)} and the next every "
        f"{duration(request.tpot / MS_PER_S)}"
    )
    status = "estimate" if engine.is_estimate else "equations with constants fitted to measurements"
    about = Assumption("throughput", words, "the serving planner", status)
    return StatedThroughput(replica, about, fleet, read_ranges(engine, chosen.replica.network)["tokens_per_s"], more)


plan_breakeven = make_function(
    "plan_breakeven", BreakEvenRequest, build_document, "The answer of `loadfactor plan breakeven` as a page."
)


def _write_headline(plan: BreakEvenPlan) -> str:
    """The bills of one demand, the floor, and that the choice is open where it turns inside the ranges."""
    text = f"{_write_bills(plan)} {_write_floor(plan)}"
    if not plan.is_open or plan.floor_range is None:
        return text
    low, high = (percent(share) for share in plan.floor_range)
    turns = f"in four of five cases, at the prices listed, the floor lies between {low} and {high}, which turns it"
    return f"{text} The choice is open: {turns}; measure the throughput."


def _write_bills(plan: BreakEvenPlan) -> str:
    """What one demand costs a month in each way, and when the cheapest changes."""
    names = {
        "API": f"at {plan.api}",
        "rented": f"on {plan.ways[1].gpus:,} rented {plan.accelerator}",
        "owned": "on owned ones",
    }
    bills = ", ".join(f"{money(way.cost_per_month, plan.currency)} {names[way.name]}" for way in plan.ways)
    turn, best = plan.turn, plan.cheapest.name
    first = min((way for way in plan.ways if way.life_months is None), key=lambda way: way.cost_per_month).name
    cheapest = f"{best} is the cheapest in every month"
    if turn is not None:
        cheapest = f"{first} is cheapest at first, {turn.name} from month {turn.month} on, when its price is paid off"
    return f"{short(plan.users)} users cost a month {bills}: {cheapest}."


def _write_floor(plan: BreakEvenPlan) -> str:
    if not plan.pays:
        full, api = (money(cost, plan.currency) for cost in (plan.full_cost_per_mtok, plan.api_price_per_mtok))
        if plan.floor_share > 1:
            return f"Self-hosting never pays: even always full, a million tokens costs {full} against {api}."
        return (
            f"Self-hosting never pays: it takes a fleet {percent(plan.floor_share)} full, nights included, and one that keeps the "
            f"objective at its peaks is at most {percent(plan.reach_share)} full."
        )
    fleet = "each replica" if plan.floor_replicas == 1 else f"each of {plan.floor_replicas} replicas"
    return (
        f"Self-host only above {percent(plan.floor_share)} of saturated throughput, nights included: "
        f"{number(plan.floor_requests_per_s)} requests/s on {fleet}, about {short(plan.floor_users)} users."
    )


def _draw_ways(plan: BreakEvenPlan) -> Section:
    turn = plan.turn
    changes = "The cheapest does not change within the life of the servers."
    if turn is not None:
        changes = f"{turn.name.capitalize()} has cost the least by month {turn.month}, its servers paid."
    ways = table(
        plan.ways,
        col("way", "name"),
        col("GPUs", "gpus", "number"),
        col("a month", "cost_per_month", "money"),
        col("per M tokens", "cost_per_mtok", "money"),
        col("paid first", "upfront_cost", "money"),
        col("then a month", "paid_per_month", "money"),
        currency=plan.currency,
        note=f"{changes} A month of owned GPUs writes their price off over their life.",
    )
    full = f"{counted(plan.demand.replicas, 'replica')}, {percent(plan.demand.utilization_share)} full"
    lead = f"{number(plan.demand.requests_per_s)} requests/s on average: {full}."
    return Section(f"{short(plan.users)} users, served in each way", lead, tables=(ways,))


def _draw_more(plan: BreakEvenPlan) -> tuple[Section, ...]:
    """Users whom more GPUs carry, beside what the API takes for one."""
    user = plan.demand.api_price_per_hour * H_PER_MONTH / plan.users
    return draw_marginal(
        plan.marginal, plan.currency, " a month", f"At {plan.api} a user costs {money(user, plan.currency)} a month."
    )


def _draw_floor(plan: BreakEvenPlan) -> Section:
    floor, pays = percent(plan.floor_share), plan.pays
    rows = [("utilization floor", floor if pays else f"{NEVER} ({floor} would be needed)")]
    if plan.floor_range is not None:
        low, high = plan.floor_range
        rows.append(
            ("in four of five cases", f"{percent(low)} to {percent(high) if high <= plan.reach_share else NEVER}")
        )
    rows += [
        ("API, per million tokens of this mix", money(plan.api_price_per_mtok, plan.currency)),
        ("self-hosted and always full, per million tokens", money(plan.full_cost_per_mtok, plan.currency)),
        ("one replica, saturated", f"{number(plan.saturated_requests_per_s)} requests/s"),
        ("demand at the floor", f"{number(plan.floor_requests_per_s)} requests/s" if pays else NEVER),
        ("users at the floor", short(plan.floor_users) if pays else NEVER),
    ]
    return Section("The floor", charts=(_chart_cost(plan),), tables=(table(rows, col("what"), col("value")),))


def _draw_tables(plan: BreakEvenPlan) -> Iterator[Section]:
    """What moves the floor, and a much quoted claim."""
    changes = table(
        plan.sensitivities,
        col("change", "changed"),
        col("floor", "floor_share", "percent"),
        col("", lambda s: "" if s.floor_share <= plan.reach_share else NEVER),
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
        references=(Reference(plan.demand.utilization_share, f"{short(plan.users)} users", "x"),),
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
        yield Assumption("network", MODEL, "assumed, as nothing is given; set --model or --tokens-per-s")
    yield _state_api(api)
    tokens = f"{number(plan.request.input_tokens)} tokens in, {number(plan.request.output_tokens)} out"
    yield Assumption("mean request", tokens, "--input-tokens, --output-tokens")
    users = f"{number(plan.requests_per_user_hour * H_PER_DAY)} requests each an average day, {request.shape} hours"
    yield Assumption("users", users, "--requests-per-user, --shape")
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
