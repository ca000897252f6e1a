"""What does the answer to `plan breakeven` say?"""

from dataclasses import dataclass
from typing import Any

from loadfactor.catalog.token_prices import token_prices
from loadfactor.faces.answer import Answer, Assumption, Column, Table
from loadfactor.faces.charts import Chart, Mark, Reference, Series
from loadfactor.faces.formats import counted, money, number, percent
from loadfactor.planner.economics.breakeven import (
    ApiPrice,
    BreakEven,
    Demand,
    Replica,
    Request,
    at_demand,
    break_even,
    claimed_floors,
    gpu_hour_for_floor,
    lower_floor_needs_price_ratio,
    sensitivities,
)

NEVER = "never"


@dataclass(frozen=True)
class BreakEvenQuestion:
    """What is asked."""

    replica: Replica
    price: ApiPrice
    request: Request
    requests_per_s: float | None
    peak_ratio: float
    requests_per_user_hour: float
    api_name: str


def answer_about_break_even(question: BreakEvenQuestion, assumptions: tuple[Assumption, ...]) -> Answer:
    """The whole page; it is a no where self-hosting never pays, or not at the demand given."""
    found = break_even(question.replica, question.price, question.request)
    demand = None
    if question.requests_per_s is not None:
        demand = at_demand(
            question.replica, question.price, question.request, question.requests_per_s, question.peak_ratio
        )
    tables = [_floor(question, found)]
    if demand is not None:
        tables.append(_bills(demand))
    tables += [_sensitivity(question), _claim()]
    return Answer(
        sentence=_sentence(question, found, demand),
        tables=tables,
        charts=(_chart(found, demand),),
        assumptions=(
            *assumptions,
            Assumption(
                "mean request",
                f"{number(question.request.input_tokens)} tokens in, {number(question.request.output_tokens)} out",
                "--input-tokens, --output-tokens",
            ),
            Assumption(
                "users",
                f"{counted(question.requests_per_user_hour, 'request')} each an hour",
                "--requests-per-user-hour",
            ),
            Assumption(
                "not counted", "staff, idle spare replicas, retries, quality of the answers", "add them to the GPU-hour"
            ),
        ),
        would_change=_would_change(question, found),
        data=_data(question, found, demand),
        is_no=not found.pays or (demand is not None and not demand.self_hosting_pays),
    )


def list_of_prices() -> Answer:
    """Every token price of the catalog."""
    prices = token_prices()
    return Answer(
        f"{len(prices)} list prices of hosted models; name one with --api.",
        tables=(
            Table(
                "$ per million tokens",
                (Column("model"), Column("input", "money"), Column("output", "money"), Column("as of")),
                [(p.id, p.input_price_per_mtok, p.output_price_per_mtok, p.as_of) for p in prices],
            ),
        ),
        data={"prices": prices},
    )


def _sentence(question: BreakEvenQuestion, found: BreakEven, demand: Demand | None) -> str:
    if not found.pays:
        return (
            f"Use the API: self-hosting never pays. Even always full, a million tokens costs {money(found.full_cost_per_mtok)} "
            f"against {money(found.api_price_per_mtok)} at {question.api_name}."
        )
    floor = (
        f"{percent(found.floor_share)} of saturated throughput, nights included: {number(found.floor_requests_per_s)} requests/s "
        f"on each replica, about {number(found.floor_users(question.requests_per_user_hour))} users"
    )
    if demand is None:
        return f"Self-host only above {floor}; below that {question.api_name} is the cheaper machine."
    fleet = f"{counted(demand.replicas, 'replica')} {percent(demand.utilization_share)} full"
    self_hosted, api = money(demand.self_hosted_cost_per_hour), money(demand.api_price_per_hour)
    bills = f"{fleet} cost {self_hosted} an hour, the API {api}"
    if demand.self_hosting_pays:
        return f"Self-host: {bills}. The floor is {floor}."
    return f"Use the API or bring demand first: {bills}. The floor is {floor}."


def _floor(question: BreakEvenQuestion, found: BreakEven) -> Table:
    reached = found.pays
    return Table(
        "The floor",
        (Column("what"), Column("value")),
        [
            (
                "utilization floor",
                percent(found.floor_share) if reached else f"{NEVER} ({percent(found.floor_share)} would be needed)",
            ),
            ("API, per million tokens of this mix", money(found.api_price_per_mtok)),
            ("self-hosted and always full", money(found.full_cost_per_mtok)),
            ("one replica, saturated", f"{number(found.saturated_requests_per_s)} requests/s"),
            ("demand at the floor", f"{number(found.floor_requests_per_s)} requests/s" if reached else NEVER),
            ("users at the floor", number(found.floor_users(question.requests_per_user_hour)) if reached else NEVER),
        ],
    )


def _bills(demand: Demand) -> Table:
    return Table(
        "At your demand",
        (Column("way"), Column("replicas", "number"), Column("full", "percent"), Column("$ per hour", "money")),
        [
            ("self-hosted", demand.replicas, demand.utilization_share, demand.self_hosted_cost_per_hour),
            ("API", None, None, demand.api_price_per_hour),
        ],
    )


def _sensitivity(question: BreakEvenQuestion) -> Table:
    rows = sensitivities(question.replica, question.price, question.request)
    return Table(
        "What moves the floor",
        (Column("change"), Column("floor", "percent"), Column("")),
        [(s.changed, s.floor_share, "" if s.floor_share <= 1 else NEVER) for s in rows],
    )


def _claim() -> Table:
    claim = claimed_floors()
    return Table(
        "The claim that 7B needs about 50 % and 13B only 10 %",
        (Column("network"), Column("against"), Column("floor", "percent"), Column("")),
        [(row.network, row.against, row.floor.floor_share, "" if row.floor.pays else NEVER) for row in claim],
        note="It compares the two with different APIs, 20 times apart in price. Against the same API the larger network has the "
        "higher floor: it serves fewer tokens per dollar. The larger has the lower floor only where its API costs "
        f"{number(lower_floor_needs_price_ratio(claim[0].replica, claim[1].replica))} times as much or more.",
    )


def _chart(found: BreakEven, demand: Demand | None) -> Chart:
    shares = [i / 50 for i in range(2, 51)]
    ceiling = 5 * max(found.api_price_per_mtok, found.full_cost_per_mtok)
    costs = [found.cost_per_mtok(u) if found.cost_per_mtok(u) <= ceiling else None for u in shares]
    floor = Mark(found.floor_share, found.api_price_per_mtok, f"floor {percent(found.floor_share)}")
    return Chart(
        "Cost of a million tokens by how full the replica is",
        "line",
        shares,
        (Series("self-hosted", costs), Series("API", [found.api_price_per_mtok] * len(shares), dashed=True)),
        "share of saturated throughput, over all hours",
        "$ per million tokens",
        marks=(floor,) if found.pays else (),
        references=() if demand is None else (Reference(demand.utilization_share, "your demand", "x"),),
    )


def _would_change(question: BreakEvenQuestion, found: BreakEven) -> tuple[str, ...]:
    lines = [
        "The API's price: compare with the API your users would really be sent to, and today's price; the floor moves inversely.",
        "Throughput measured with your own lengths and latency limit: a replica held to a tight latency saturates lower.",
    ]
    if found.pays:
        lines.append("Bursty demand: replicas are sized for the peak, and it is the mean that must clear the floor.")
    else:
        needed = gpu_hour_for_floor(question.replica, question.price, question.request)
        lines.append(f"A GPU-hour below {money(needed)}: then a replica that is always full would pay.")
    return tuple(lines)


def _data(question: BreakEvenQuestion, found: BreakEven, demand: Demand | None) -> dict[str, Any]:
    return {
        **vars(found),
        "pays": found.pays,
        "floor_users": found.floor_users(question.requests_per_user_hour) if found.pays else None,
        "replica": question.replica,
        "api": question.api_name,
        "api_price": question.price,
        "request": question.request,
        "demand": None if demand is None else {**vars(demand), "self_hosting_pays": demand.self_hosting_pays},
        "sensitivities": sensitivities(question.replica, question.price, question.request),
        "claimed_floors": [
            {"network": c.network, "against": c.against, "floor_share": c.floor.floor_share, "pays": c.floor.pays}
            for c in claimed_floors()
        ],
    }
