"""The table of identities: every quantity with the places that say it, each a function from a fleet to its values.

A quantity that appears in a new place is a new reader of it here, a metric in a new place a line of `METRIC_PLACES`. Money that is
charged is compared to the cent, other numbers to nine digits, what is rounded to its last digit.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
from tests.identities import judged
from tests.identities.documents import read_file
from tests.identities.fleet import Fleet, Row
from tests.identities.fleets import cut_fleet, read_bill_lines
from tests.identities.metric_places import METRIC_PLACES, NUMBERS, MetricPlace
from tests.identities.values import Quantity, Reader, Value, Values, cents, read_shown
from tests.identities.web_pages import WEB_PLACES, see

import loadfactor
from loadfactor.base.units import H_PER_MONTH
from loadfactor.metrics.query.calendar import instant
from loadfactor.tables.schema import BASES

SERVICE: Final = {
    "model": "llama-3.1-8b", "requests_per_user": 5.0, "input_tokens": 200.0, "output_tokens": 50.0, "shape": "office"
}  # fmt: skip
"""A service small enough that its day is simulated within a second."""
COLUMN: Final = "EffectiveCost"
ALL_USED: Final = "all of these"
"""The line of `bill commitments` with all of its use."""


def charge(fleet: Fleet, statements: Any, totals: Any) -> Values:
    """What statements charge, in all and each team."""
    charged = dict.fromkeys(fleet.teams, Decimal(0))
    for statement in statements:
        if statement["by"]["team"] in charged:
            charged[statement["by"]["team"]] += Decimal(statement["amounts"][COLUMN])
    return {"": Decimal(totals[COLUMN]["charged"]), **charged}


def read_statements(fleet: Fleet) -> Values:
    """What `chargeback` charges."""
    page = fleet.page("chargeback", **fleet.of_month)
    return charge(fleet, page["statements"], page["totals"])


def print_statements(face: str) -> Reader:
    """What its table of statements says, in a printed page."""

    def read(fleet: Fleet) -> Values:
        return list_charged(fleet, fleet.rows(face, "chargeback", **fleet.of_month))

    return read


def read_states(fleet: Fleet) -> Values:
    """GPU-hours of each state, and of all."""
    found = {
        row["by"]["state"]: row["value"] for row in fleet.show("all", ("state",), ("paid_gpu_hours",)) if row["value"]
    }
    return {**found, "": fsum(found.values())}


def export(subject: str, files: str) -> Reader:
    """The same of what `export` writes, added up by another program."""

    def read(fleet: Fleet) -> Values:
        with TemporaryDirectory() as folder:
            fleet.build("export", subject=subject, output=f"{folder}/out")
            pattern = f"{folder}/out/{files if '/' in files else f'*/{files}'}"
            sql = f"SELECT state, sum(gpu_s) / 3600 FROM '{pattern}' GROUP BY state HAVING sum(gpu_s) > 0"
            found = dict(duckdb.sql(sql).fetchall())
        return {**found, "": fsum(found.values())}

    return read


def read_owner_statements(fleet: Fleet) -> Values:
    """What statements of teams and pools charge; lines sum to each, direct and shared parts too, and all of them to the whole."""
    page = fleet.page("statement", **fleet.of_month)
    charged = dict.fromkeys(fleet.teams, Decimal(0))
    sums = Decimal(0)
    for of in page["statements"]:
        amount = Decimal(of["amounts"][COLUMN])
        assert amount == sum((Decimal(line["amounts"][COLUMN]) for line in of["lines"]), Decimal(0))
        assert amount == Decimal(of["direct"][COLUMN]) + Decimal(of["shared"][COLUMN])
        sums += amount
        if of["team"] in charged:
            charged[of["team"]] += amount
    assert sums == Decimal(page["totals"][COLUMN])
    return {"": sums, **charged}


def see_owner_statement(fleet: Fleet) -> Values:
    """The page of the server with the statement of one team, of one fleet in four: its tile, its table and its JSON agree."""
    known = {of["team"] for of in fleet.page("statement", **fleet.of_month)["statements"]} & {*fleet.teams}
    if not fleet.draws or not known:
        return {}
    team, asked = min(known), {"month": fleet.month, "timezone": str(fleet.zone)}
    found = fleet.get(f"/teams/{team}/statement", format="json", month=fleet.month, tz=str(fleet.zone))
    amount = Decimal(found["amounts"][COLUMN])
    text, rows = fleet.open(f"/teams/{team}/statement", **asked)
    title = f"effective cost, {fleet.books.store.currency}"
    assert {Decimal(row[title].replace(",", "")) for row in rows if title in row and "total" in row.values()} == {
        amount
    }
    assert f"<b>{amount:,f} {fleet.books.store.currency}</b>" in text
    return {team: amount}


def print_owner_statements(face: str) -> Reader:
    """What its table of statements says, in a printed page."""

    def read(fleet: Fleet) -> Values:
        title = f"effective cost, {fleet.books.store.currency}"
        rows = [row for row in fleet.rows(face, "statement", **fleet.of_month) if title in row and "observed" in row]
        known = {"total": "", **{team: team for team in fleet.teams}}
        return {known[row[""]]: Decimal(row[title].replace(",", "")) for row in rows if row[""] in known}

    return read


def list_charged(fleet: Fleet, rows: Sequence[Row], title: str = "") -> Values:
    """Statements in rows of a page, by a column of their chain or as the table of statements has them."""
    column = title or f"effective cost, {fleet.books.store.currency}"
    own = [row for row in rows if column in row and (title or "GPU-hours held" in row)]
    return {row["team"]: Decimal(row[column].replace(",", "")) for row in own if row.get("team") in fleet.teams}


def read_tenants(fleet: Fleet) -> Values:
    """What tenants bear of the jobs that serve, by job and tenant; the rest of each without a tenant."""
    serving = fleet.page("show", metrics=("cost",), by=("job", "tenant"), **fleet.span)
    found = {(of["by"]["job"], of["by"]["tenant"]): of["value"] for of in serving}
    used = {job for job, tenant in found if tenant is not None}
    return {f"{job}, {tenant}": cost for (job, tenant), cost in found.items() if job in used}


def read_uses(fleet: Fleet) -> Values:
    """The same by the pages of the first three of these jobs, which divide it further."""
    jobs = sorted({key.partition(", ")[0] for key in fleet.once("tenants", read_tenants)})[:3]
    out: dict[str, Value] = {}
    for job in jobs:
        sections = {of["name"]: of for of in fleet.page("report", job=job, **fleet.span)["sections"]}
        use = sections["use"]["use"]
        costs = {f"{job}, None": fsum((use["unlogged_cost"] or 0, use["idle_cost"] or 0))}
        for of in use["uses"]:
            key = f"{job}, {of['team']}"
            costs[key] = costs.get(key, 0) + (of["cost"] or 0)
        out |= {key: cost if cost else None for key, cost in costs.items()}
    return out


def bridge(step: str) -> Reader:
    """One step of the bridges of all teams and of the fleet, 0 where it is not walked."""

    def read(fleet: Fleet) -> Values:
        out: dict[str, Value] = {}
        for team in ("", *fleet.teams):
            steps = fleet.page("bill bridge", team=team or None, **fleet.of_month)["steps"]
            changes = sum((Decimal(of["change"]) for of in steps), Decimal(0))
            assert Decimal(steps[0]["amount"]) + changes == Decimal(steps[-1]["amount"]), "it sums to its last amount"
            out[team] = next((Decimal(of["amount"]) for of in steps if of["name"] == step), Decimal(0))
        return out

    return read


def get_statements(fleet: Fleet) -> Values:
    """What statements of the server charge."""
    found = fleet.get("/api/v1/statements", **fleet.of_month)
    return charge(fleet, found["statements"], found["totals"])


def get_bridge(step: str) -> Reader:
    """One step of the bridges of the server, of the fleet and of one team: each takes as long as a page."""

    def read(fleet: Fleet) -> Values:
        teams = {"": {}, fleet.teams[0]: {"team": fleet.teams[0]}}
        found = {of: fleet.get("/api/v1/bridge", **named, **fleet.of_month)["steps"] for of, named in teams.items()}
        return {of: Decimal(next(at["amount"] for at in steps if at["name"] == step)) for of, steps in found.items()}

    return read


def read_cost(fleet: Fleet) -> Values:
    """What `show cost --by team` says, in all and of each team."""
    found = {of["by"]["team"]: of["value"] for of in fleet.show("month", ("team",), ("cost",))}
    (whole,) = fleet.show("month", (), ("cost",))
    return {"": cents(whole["value"]), **{team: cents(found.get(team) or 0) for team in fleet.teams}}


def read_budgets(fleet: Fleet) -> Values:
    """What `budget` says is spent."""
    return list_spent(fleet.page("budget", **fleet.of_month))


def list_spent(review: Any) -> Values:
    """Spent amounts of budgets in JSON."""
    return {of["budget"]["team"] or "": cents(of["spent"]) for of in review["statuses"]}


def print_budgets(face: str) -> Reader:
    """What its table says, in a printed page."""

    def read(fleet: Fleet) -> Values:
        return list_budgets(fleet.rows(face, "budget", **fleet.of_month))

    return read


def list_budgets(rows: Sequence[Row]) -> Values:
    """Spent amounts in rows of a page."""
    return {("" if row[""] == "all" else row[""]): read_shown(row["spent"]) for row in rows if "spent" in row}


def read_spent_gauges(fleet: Fleet) -> Values:
    """What `/metrics` says is spent, of the period of the last complete day; its zone is that of the settings."""
    found = fleet.gauges[f"loadfactor_budget_spent_{fleet.books.store.currency.lower()}"]
    return {of["budget"] if of["budget"] in fleet.teams else "": cents(spent) for of, spent in found}


def read_forecasts(fleet: Fleet) -> Values:
    """What budgets come to in the period of the last complete day, by their labels."""
    found = fleet.page("budget", timezone=str(fleet.zone))["statuses"]
    names = {of["budget"]["team"] or "all": of["forecast"] for of in found}
    return {name: None if of is None else cents(of["total"]) for name, of in names.items()}


def read_forecast_gauges(fleet: Fleet) -> Values:
    """The same of `/metrics`."""
    found = fleet.gauges.get(f"loadfactor_budget_forecast_{fleet.books.store.currency.lower()}", ())
    return {of["budget"]: cents(forecast) for of, forecast in found}


def section(fleet: Fleet, name: str) -> Any:
    """A section of the report of the month in JSON; None where it has nothing to say."""
    return next((of for of in fleet.page("report", **fleet.span)["sections"] if of["name"] == name), None)


def read_report_statements(fleet: Fleet) -> Values:
    """Statements of the report, where there is a bill."""
    found = section(fleet, "chargeback")
    return {} if found is None else charge(fleet, found["chargeback"]["statements"], found["chargeback"]["totals"])


def read_report_budgets(fleet: Fleet) -> Values:
    """Budgets of the report."""
    return list_spent(section(fleet, "budget")["review"])


def read_report_chain(step: str) -> Reader:
    """A step of the report's chain from the bill to statements."""

    def read(fleet: Fleet) -> Values:
        found = section(fleet, "bridge")
        if found is None:
            return {}
        chain = found["chain"]
        teams = {team: Decimal(of[step]) for team, of in chain["teams"].items() if team in fleet.teams and step in of}
        return {"": Decimal(chain["fleet"][step]), **teams}

    return read


def read_coverage(words: str) -> Reader:
    """The part of the cost that has its team."""

    def read(fleet: Fleet) -> Values:
        share = fleet.page(words, **fleet.of_month)["tag_coverage_share"]
        return {"": None if share is None else float(share)}

    return read


def read_steps(of: str) -> Callable[[Fleet], dict[str, Value]]:
    """The steps from paid to useful of `waterfall`, in GPU-hours or money."""
    return lambda fleet: list_steps(fleet.page("waterfall", **fleet.span)["all"], of)


def list_steps(group: Any, of: str) -> dict[str, Value]:
    """Steps of a waterfall in JSON."""
    return {step["name"]: step[of] for step in group["steps"]}


def read_report_steps(of: str) -> Reader:
    """Those of the report."""

    def read(fleet: Fleet) -> Values:
        found = section(fleet, "useful")
        return {} if found is None else list_steps(found["waterfall"]["all"], of)

    return read


def print_steps(face: str, words: str, of: str) -> Reader:
    """Those of a printed page, by the titles that JSON says."""

    def read(fleet: Fleet) -> Values:
        return list_printed_steps(fleet, fleet.rows(face, words, **fleet.span), of)

    return read


def see_steps(of: str) -> Reader:
    """Those of the first page of the server."""
    return lambda fleet: list_printed_steps(fleet, see(fleet, "/").rows, of)


def list_printed_steps(fleet: Fleet, rows: Sequence[Row], of: str) -> Values:
    """Steps in rows of a page."""
    titles = {step["title"]: step["name"] for step in fleet.page("waterfall", **fleet.span)["all"]["steps"]}
    column = {"gpu_hours": "GPU-hours", "cost": "cost"}[of]
    own = [(row[""].lstrip("=−? "), row) for row in rows if "step" in row]
    return {titles[title]: read_shown(row[column]) for title, row in own if title in titles and column in row}


WAY: Final = {
    "paid": "paid", "down": "down", "unallocated": "unallocated", "unobserved": "unobserved", "observed": "observed",
    "idle": "idle", "not_idle": "busy", "underused": "underused", "active": "effective",
}  # fmt: skip
"""Steps of the waterfall by name, and the metric that says the same."""


def read_way(of: str) -> Reader:
    """Steps as metrics say them."""

    def read(fleet: Fleet) -> Values:
        known = {reading["metric"]: reading["value"] for reading in fleet.show("month")}
        names = {step: "cost" if (of, name) == ("cost", "paid") else f"{name}_{of}" for step, name in WAY.items()}
        return {step: known[name] or 0.0 for step, name in names.items() if name in known}

    return read


def read_lost(fleet: Fleet) -> Values:
    """Losses of the waterfall, and what of it nobody knows."""
    hours = fleet.page("waterfall", **fleet.span)["all"]["gpu_hours"]
    lost = ("down", "unallocated", "idle", "underused", "not_math", "lost_work", "failed_work")
    return {"lost": sum(hours[of] for of in lost), **{of: hours[of] for of in ("unobserved", "uncounted")}}


def list_lost(found: Any) -> Values:
    """The same of savings in JSON."""
    return {"lost": found["lost_gpu_hours"], **{of: found["unknown"][of] for of in ("unobserved", "uncounted")}}


def list_saved(found: Any) -> Values:
    """What levers would have saved, in all and each."""
    hours = {of["lever"]: of["gpu_hours"] for of in found["levers"]}
    money = {f"{of['lever']}, money": of["saved"] for of in found["levers"]}
    return {"": found["saved_gpu_hours"], "money": found["saved_at_most"], **hours, **money}


def add_saved(found: Any) -> Values:
    """The sums of the levers."""
    hours = sum(of["gpu_hours"] for of in found["levers"])
    return {"": hours, "money": sum(of["saved"] or 0 for of in found["levers"]) if found["lost"] is not None else None}


def read_savings(fleet: Fleet) -> Any:
    """The page of `savings` in JSON."""
    return fleet.page("savings", jobs=1, **fleet.span)


def get_savings(fleet: Fleet) -> Any:
    """The same of the server."""
    return fleet.get("/api/v1/savings", jobs=1, **fleet.span)


def see_savings(fleet: Fleet) -> Any:
    """The page of savings of the server in JSON, of as many jobs as it takes; None of most fleets."""
    asked = {"start": fleet.span["start"], "end": fleet.span["end"], "tz": fleet.span["timezone"]}
    return fleet.get("/savings", format="json", **asked) if fleet.draws else None


def list_stakes(found: Any) -> Values:
    """GPU-hours at stake by cause of a diagnosis, in JSON."""
    return {f"{of['cause']}, {end}": of["gpu_hours"][end] for of in found["causes"] for end in ("low", "high")}


def get_stakes(fleet: Fleet) -> Values:
    """The same of the server."""
    return list_stakes(fleet.get("/api/v1/diagnosis", jobs=3, **fleet.span)) if fleet.draws else {}


def add_stakes(found: Any) -> Values:
    """The same added up over the jobs that were looked at."""
    out: dict[str, float] = {}
    for job in found["jobs"]:
        for of in job["findings"]:
            for end in ("low", "high"):
                name = f"{of['cause']}, {end}"
                out[name] = out.get(name, 0.0) + of["gpu_hours"][end]
    return out


def list_waited(fleet: Fleet) -> Values:
    """GPU-hours waited by size of jobs, and medians, of `waits`."""
    rows = fleet.page("waits", **fleet.span)["rows"]
    hours = {f"{of['by']['size']}, GPU-hours waited": of["gpu_hours_waited"] for of in rows}
    return {**hours, **{f"{of['by']['size']}, median": of["wait_s_p50_gpu_weighted"]["value"] for of in rows}}


def list_of_stores(fleet: Fleet) -> Values:
    """Lists row by row, and sums, of a fleet that is merged from two stores."""
    return {**list_waited(fleet), **read_states(fleet)}


def cut_once(fleet: Fleet) -> Fleet:
    """The fleet merged from a store per node."""
    return fleet.once("two stores", lambda of: cut_fleet(of, of.random))  # type: ignore[no-any-return]


def print_waited(face: str) -> Reader:
    """The same in a printed page."""

    def read(fleet: Fleet) -> Values:
        rows = [row for row in fleet.rows(face, "waits", **fleet.span) if "GPU-hours waited" in row and "size" in row]
        out = {f"{row['size']}, GPU-hours waited": read_shown(row["GPU-hours waited"]) for row in rows}
        return {of: value for of, value in out.items() if not of.startswith("all")}

    return read


def read_owned(fleet: Fleet) -> Values:
    """What `owned` says that owned GPUs cost."""
    return {"": sum(of["cost"] for of in fleet.page("owned"))} if fleet.has_owned else {}


def read_owned_cost(fleet: Fleet) -> Values:
    """What `show` says in own costs."""
    (found,) = fleet.page("show", metrics=("cost",), basis="owned") if fleet.has_owned else ({"value": None},)
    return {"": found["value"]}


def draw_basis(fleet: Fleet) -> str:
    """A kind of money, drawn once for each fleet."""
    return fleet.once("basis", lambda fleet: fleet.random.choice(BASES))  # type: ignore[no-any-return]


def read_basis(fleet: Fleet) -> Values:
    """The cost in that money of `show`, known or not."""
    basis = draw_basis(fleet)
    (found,) = fleet.page("show", metrics=("cost",), basis=basis, **fleet.span)
    return {basis: found["value"]}


def get_basis(fleet: Fleet) -> Values:
    """The same of the server."""
    basis = draw_basis(fleet)
    (found,) = fleet.get("/api/v1/readings", metric="cost", basis=basis, **fleet.span)["readings"]
    return {basis: found["value"]}


def read_basis_of_way(fleet: Fleet) -> Values:
    """The same of the waterfall: what it begins with."""
    basis = draw_basis(fleet)
    group = fleet.page("waterfall", basis=basis, **fleet.span)["all"]
    return {basis: None if group["cost"] is None else next(step["cost"] for step in group["steps"])}


def read_bill(fleet: Fleet) -> Values:
    """What the file of the bill adds up to in the month."""
    return {"": None if fleet.billed is None else cents(fleet.billed)}


def read_bill_of_statements(fleet: Fleet) -> Values:
    """The bill that statements begin with."""
    found = fleet.page("chargeback", **fleet.of_month)["totals"][COLUMN]["bill"]
    return {} if fleet.billed is None else {"": cents(found)}


def read_billed(fleet: Fleet) -> Values:
    """What the lines of machines cost in its file."""
    lines = read_bill_lines(fleet)
    return {ALL_USED: cents(sum(Decimal(of["EffectiveCost"]) for of in lines))} if lines else {}


def read_commitments(fleet: Fleet) -> Values:
    """What `bill commitments` says of the same: used, not used, and covered by none."""
    if fleet.billed is None:
        return {}
    found = fleet.page("bill commitments")["together"]
    return {ALL_USED: cents(sum(Decimal(found[of]) for of in ("used_cost", "unused_cost", "uncovered_cost")))}


def print_commitments(face: str) -> Reader:
    """What its table says in the line of all."""

    def read(fleet: Fleet) -> Values:
        rows = fleet.rows(face, "bill commitments") if fleet.billed is not None else ()
        return {row[""]: read_shown(row["used"]) for row in rows if row[""] == ALL_USED}

    return read


def compare_bill(fleet: Fleet) -> Any:
    """Bills beside the books in JSON, and the instants between which they are compared."""
    found = fleet.page("bill compare", **fleet.of_month)
    return found, *(instant(found[of]) for of in ("from_ms", "to_ms"))


def read_seen(fleet: Fleet) -> Values:
    """What `show` says is installed, and what lines of the file cost, in the time of that comparison."""
    if fleet.billed is None:
        return {}
    _, start, end = compare_bill(fleet)
    (paid,) = fleet.page("show", metrics=("paid_gpu_hours",), start=start.isoformat(), end=end.isoformat())
    cost = 0.0
    for of in read_bill_lines(fleet):
        first, last = (datetime.fromisoformat(of[f"ChargePeriod{limit}"]) for limit in ("Start", "End"))
        inside = max(timedelta(0), min(last, end) - max(first, start))
        cost += float(of["EffectiveCost"]) * (inside / (last - first))
    return {"installed": paid["value"], "billed": cost}


def read_comparison(fleet: Fleet) -> Values:
    """The same of `bill compare`."""
    if fleet.billed is None:
        return {}
    found, _, _ = compare_bill(fleet)
    return {"installed": found["seen_gpu_hours"], "billed": found["billed_cost"]}


def read_differences(fleet: Fleet) -> Values:
    """Amounts of differences of bills in JSON, and their sums net and gross."""
    if fleet.billed is None:
        return {}
    found, _, _ = compare_bill(fleet)
    amounts = {f"{of['kind']}, {of['of']}": of["amount"] for of in found["differences"]}
    return {**amounts, "net": abs(found["net_amount"]), "gross": found["amount"]}


def add_differences(fleet: Fleet) -> Values:
    """The sums of the amounts in JSON."""
    if fleet.billed is None:
        return {}
    signed = [(of["direction"], abs(of["amount"] or 0)) for of in compare_bill(fleet)[0]["differences"]]
    more, less = (sum(of for way, of in signed if way == f"billed {which}") for which in ("more", "less"))
    return {"net": abs(more - less), "gross": more + less}


def print_differences(face: str) -> Reader:
    """Those of the printed page, and of its headline."""

    def read(fleet: Fleet) -> Values:
        if fleet.billed is None:
            return {}
        rows = [row for row in fleet.rows(face, "bill compare", **fleet.of_month) if {"difference", "of"} <= {*row}]
        amounts = {f"{row['difference']}, {row['of']}": read_shown(row.get("amount", "–")) for row in rows}
        said = re.search(
            r"net (\S+) (?:more|less).*gross (\S+)\.", fleet.build("bill compare", **fleet.of_month).headline
        )
        return {**amounts, **({"net": read_shown(said[1]), "gross": read_shown(said[2])} if said and rows else {})}

    return read


def plan(fleet: Fleet) -> dict[str, Any] | None:
    """Pages of a service of so many users at a price, drawn by the fleet; None for most fleets."""
    if not fleet.plans:
        return None
    price, api_price = round(fleet.random.uniform(1, 6), 2), round(10 ** fleet.random.uniform(-1.5, 1), 3)
    users = float(fleet.random.randint(200, 3_000))
    return {
        "serve": loadfactor.plan_serving(**SERVICE, users=users, price_per_gpu_hour=price).data,
        "breakeven": loadfactor.plan_breakeven(
            **SERVICE, users=users, price_per_gpu_hour=price, api_price=(api_price,)
        ).data,
        "own": loadfactor.plan_ownership(**SERVICE, users=users, rent_price=price).data,
        "size": loadfactor.plan_size(**SERVICE, users=users, rent_price=price).data,
        "rl": loadfactor.plan_reinforcement(**TRAINED, **ALIKE, gpus=8, placement="colocated").data,
        "train": loadfactor.plan_training(
            **TRAINED, gpus=(8,), seq=2048, global_batch=1024, traits=("skips_other_documents=yes",)
        ).data,
    }


TRAINED: Final = {"model": "llama-3.1-8b", "tp": (2,), "pp": (1,), "cp": (1,), "micro_batch": (1,), "zero": (1,)}
ALIKE: Final = {"prompt_tokens": 512, "response_tokens": 1536, "response_p99": 1536, "response_most": 1536}
"""1,024 responses of one length, which fill 1,024 sequences."""


def read_plan(read: Callable[[dict[str, Any]], dict[str, Value]]) -> Reader:
    """What pages of plans say, of the fleets that have some."""

    def _read(fleet: Fleet) -> Values:
        pages = fleet.once("plans", plan)
        return {} if pages is None else read(pages)

    return _read


def rented(pages: dict[str, Any]) -> Any:
    """The way of break-even that rents."""
    return next(of for of in pages["breakeven"].ways if of.name == "rented")


def owned(pages: dict[str, Any]) -> Any:
    """The way of break-even that owns."""
    return next(of for of in pages["breakeven"].ways if of.name == "owned")


def pick(place: MetricPlace, name: str) -> Reader:
    """What a place says of one metric."""
    return lambda fleet: fleet.once(place.name, place.read).get(name, {})


METRICS_OF_TABLE: Final = tuple(
    Quantity(
        f"`{name}`",
        {place.name: pick(place, name) for place in (*METRIC_PLACES, *WEB_PLACES) if name in {*place.metrics}},
    )
    for name in NUMBERS
)
MONEY: Final = (
    Quantity(
        "bill",
        {
            "the bill's file": read_bill,
            "`bill bridge`, step `bill`": lambda fleet: {"": bridge("bill")(fleet)[""]} if fleet.billed else {},
            "`chargeback`, totals": read_bill_of_statements,
        },
    ),
    Quantity(
        "cost of GPU-hours, to the cent",
        {
            "`show cost --by team`": read_cost,
            "`bill bridge`, step `cost of GPU-hours`": bridge("cost of GPU-hours"),
            "`report`, from the bill to statements": read_report_chain("cost of GPU-hours"),
        },
    ),
    Quantity(
        "cost of jobs that serve, by tenant",
        {"`show cost --by job,tenant`": read_tenants, "`report --job`, who used it": read_uses},
    ),
    Quantity(
        "charged",
        {
            "`chargeback`, JSON": read_statements,
            "`chargeback`, terminal": print_statements("terminal"),
            "`chargeback`, HTML": print_statements("HTML"),
            "`statement`, JSON": read_owner_statements,
            "`statement`, terminal": print_owner_statements("terminal"),
            "`statement`, HTML": print_owner_statements("HTML"),
            "`statement`, CSV": read_file("csv"),
            "`statement`, spreadsheet": read_file("xlsx"),
            "`statement`, PDF": read_file("pdf"),
            "page `/teams/{id}/statement`": see_owner_statement,
            "`GET /api/v1/statements`": get_statements,
            "`bill bridge`, step `statement`": bridge("statement"),
            "`GET /api/v1/bridge`": get_bridge("statement"),
            "`bill bridge`, step `budget spent`": bridge("budget spent"),
            "`budget`, JSON": read_budgets,
            "`budget`, terminal": print_budgets("terminal"),
            "`budget`, HTML": print_budgets("HTML"),
            "`/metrics`, `loadfactor_budget_spent_usd`": read_spent_gauges,
            "`report`, who paid": read_report_statements,
            "`report`, budgets": read_report_budgets,
            "`report`, from the bill to statements": read_report_chain("statement"),
            "page `/money`, who paid": lambda fleet: list_charged(fleet, see(fleet, "/money").rows),
            "page `/money`, from the bill to statements": lambda fleet: list_charged(
                fleet, see(fleet, "/money").rows, "statement"
            ),
            "page `/money`, budgets": lambda fleet: list_budgets(see(fleet, "/money").rows),
        },
    ),
    Quantity(
        "forecast of budgets",
        {
            "`budget`": read_forecasts,
            "`/metrics`, `loadfactor_budget_forecast_usd`": read_forecast_gauges,
        },
    ),
    Quantity(
        "part of the cost that has its team",
        {"`chargeback`": read_coverage("chargeback"), "`budget`": read_coverage("budget")},
    ),
    Quantity(
        "cost by kind of money",
        {
            "`show --basis`": read_basis,
            "`GET /api/v1/readings`, with basis": get_basis,
            "`waterfall --basis`": read_basis_of_way,
        },
    ),
    Quantity(
        "billed for machines",
        {
            "the bill's file": read_billed,
            "`bill commitments`, JSON": read_commitments,
            "`bill commitments`, terminal": print_commitments("terminal"),
            "`bill commitments`, HTML": print_commitments("HTML"),
        },
    ),
    Quantity(
        "installed GPU-hours and billed cost where a bill is compared",
        {"`show`, and the bill's file": read_seen, "`bill compare`, JSON": read_comparison},
    ),
    Quantity(
        "differences of bills, net and gross",
        {
            "`bill compare`, JSON": read_differences,
            "`bill compare`, differences added up": add_differences,
            "`bill compare`, terminal": print_differences("terminal"),
            "`bill compare`, HTML": print_differences("HTML"),
        },
    ),
    Quantity("cost of owned GPUs", {"`show cost --basis owned`": read_owned_cost, "`owned`": read_owned}),
)
WAYS: Final = (
    Quantity(
        "GPU-hours of each step from paid to useful",
        {
            "`waterfall`, JSON": read_steps("gpu_hours"),
            "`show`": read_way("gpu_hours"),
            "`report`, from paid to useful, JSON": read_report_steps("gpu_hours"),
            "`waterfall`, terminal": print_steps("terminal", "waterfall", "gpu_hours"),
            "`waterfall`, HTML": print_steps("HTML", "waterfall", "gpu_hours"),
            "`report`, from paid to useful, terminal": print_steps("terminal", "report", "gpu_hours"),
            "`report`, from paid to useful, HTML": print_steps("HTML", "report", "gpu_hours"),
            "page `/`, from paid to useful": see_steps("gpu_hours"),
        },
    ),
    Quantity(
        "cost of each step from paid to useful",
        {
            "`waterfall`, JSON": read_steps("cost"),
            "`show`": read_way("cost"),
            "`report`, from paid to useful, JSON": read_report_steps("cost"),
            "`waterfall`, terminal": print_steps("terminal", "waterfall", "cost"),
            "`waterfall`, HTML": print_steps("HTML", "waterfall", "cost"),
            "`report`, from paid to useful, terminal": print_steps("terminal", "report", "cost"),
            "`report`, from paid to useful, HTML": print_steps("HTML", "report", "cost"),
            "page `/`, from paid to useful": see_steps("cost"),
        },
    ),
    Quantity(
        "lost GPU-hours, and what nobody knows",
        {
            "`waterfall`": read_lost,
            "`savings`": lambda fleet: list_lost(read_savings(fleet)),
            "`GET /api/v1/savings`": lambda fleet: list_lost(get_savings(fleet)),
            "page `/savings`": lambda fleet: list_lost(found) if (found := see_savings(fleet)) else {},
        },
    ),
    Quantity(
        "saved by each lever",
        {
            "`savings`": lambda fleet: list_saved(read_savings(fleet)),
            "`savings`, levers added up": lambda fleet: add_saved(read_savings(fleet)),
            "`GET /api/v1/savings`": lambda fleet: list_saved(get_savings(fleet)),
        },
    ),
    Quantity(
        "saved by each lever, of as many jobs as are looked at by default",
        {
            "`savings`": lambda fleet: list_saved(fleet.page("savings", **fleet.span)) if fleet.draws else {},
            "page `/savings`": lambda fleet: list_saved(found) if (found := see_savings(fleet)) else {},
        },
    ),
    Quantity(
        "GPU-hours at stake by cause",
        {
            "`diagnose`": lambda fleet: list_stakes(fleet.page("diagnose", jobs=3, **fleet.span)),
            "`diagnose`, jobs added up": lambda fleet: add_stakes(fleet.page("diagnose", jobs=3, **fleet.span)),
            "`GET /api/v1/diagnosis`": get_stakes,
        },
    ),
    Quantity(
        "GPU-hours waited by size of jobs",
        {
            "`waits`, JSON": list_waited,
            "`waits`, terminal": print_waited("terminal"),
            "`waits`, HTML": print_waited("HTML"),
        },
    ),
    Quantity(
        "waits by size and GPU-hours by state of a fleet in two stores",
        {
            "`waits`, `show --by state`": list_of_stores,
            "the same, merged from two stores": lambda fleet: list_of_stores(cut_once(fleet)),
        },
    ),
    Quantity(
        "utilization that rules compared",
        {
            "`show`": judged.read_show,
            "`alerts test`": lambda fleet: judged.list_values(fleet, judged.replay(fleet)),
            "`alerts`": lambda fleet: judged.list_values(fleet, judged.read_page(fleet)),
            "`GET /api/v1/alerts`": lambda fleet: judged.list_values(fleet, judged.get_alerts(fleet)),
            "page `/alerts`": lambda fleet: judged.list_values(fleet, judged.see_alerts(fleet)),
        },
    ),
    Quantity(
        "GPU-hours paid, by state, as exported",
        {
            "`show paid_gpu_hours --by state`": read_states,
            "`export`, ledger": export("ledger", "*.parquet"),
            "`export`, sums": export("sums", "ledger_by_team/*/*.parquet"),
        },
    ),
)
PLANS: Final = (
    Quantity(
        "GPUs, cost a month and cost per million tokens of a service",
        {
            "`plan serve`": read_plan(
                lambda of: {
                    "gpus": of["serve"].gpus,
                    "rented a month": of["serve"].cost_per_hour * H_PER_MONTH,
                    "owned a month": of["serve"].gpus * of["own"].cost_per_available_gpu_hour * H_PER_MONTH,
                    "owned GPU-hour": of["own"].cost_per_available_gpu_hour,
                    "owned GPUs": of["own"].owned_gpus,
                    "per Mtok": of["serve"].total.cost_per_mtok,
                }
            ),
            "`plan breakeven`": read_plan(
                lambda of: {
                    "gpus": rented(of).gpus,
                    "rented a month": rented(of).cost_per_month,
                    "owned a month": owned(of).cost_per_month,
                    "per Mtok": rented(of).cost_per_mtok,
                }
            ),
            "`plan own`": read_plan(lambda of: {"owned GPUs": of["own"].owned_gpus}),
            "`plan size`": read_plan(
                lambda of: {
                    "gpus": of["size"].peak_gpus,
                    "owned GPU-hour": of["size"].price_per_gpu_hour,
                    "owned GPUs": of["size"].keep_gpus,
                }
            ),
        },
    ),
    Quantity(
        "seconds of an update",
        {
            "`plan train`": read_plan(lambda of: {"update": of["train"].plans[0].step_s}),
            "`plan rl`": read_plan(lambda of: {"update": of["rl"].best.updates.update_s}),
        },
    ),
)
IDENTITIES: Final = (*METRICS_OF_TABLE, *WAYS, *MONEY, *PLANS)
"""Every quantity with the places that say it."""
