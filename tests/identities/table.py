"""The table of identities: every quantity with the places that say it, each a function from a fleet to its value.

A quantity that appears in a new place is a new reader of it here. Money is compared to the cent, other numbers to nine digits.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_books
from loadfactor.insight.savings import find_savings
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.gauges.measured import measure_budgets
from loadfactor.interfaces.pages.bridge import build_bridge
from loadfactor.interfaces.pages.budgets import build_budgets
from loadfactor.interfaces.pages.chargeback import build_chargeback
from loadfactor.interfaces.pages.diagnosis import build_diagnosis
from loadfactor.interfaces.pages.savings import build_savings
from loadfactor.interfaces.pages.waterfall import build_waterfall
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.interfaces.reports.page import build_document
from loadfactor.metrics.fullness import DROPS
from loadfactor.metrics.query.calendar import Window

Value = Decimal | float | None
Values = Mapping[str, Value]
"""Values by whatever the quantity is split by: a team, a pool; "" for the fleet."""


@dataclass(frozen=True)
class Fleet:
    """Books of a random fleet, a month of them, and the zone in which they are asked."""

    books: Books
    folder: Path
    month: str
    window: Window
    zone: tzinfo
    teams: tuple[str, ...]
    has_bill: bool

    def cents(self, amount: Any) -> Decimal:
        """An amount to the cent, as pages round it."""
        return Decimal(str(amount)).quantize(Decimal("0.01"))

    @property
    def limits(self) -> dict[str, Any]:
        """The window as `show` takes it."""
        from loadfactor.metrics.query.calendar import instant

        start, end = (instant(ms).astimezone(self.zone) for ms in self.window.limits)
        return {"start": start, "end": end, "timezone": self.zone}

    def page(self, document: Document) -> Any:
        """What a page says in JSON."""
        return json.loads(render_json(document))

    def bridge(self, team: str | None) -> dict[str, Decimal]:
        """The steps of a bridge, as its page says them."""
        page = self.page(build_bridge(self.books.bridge(team, self.month, self.zone)))
        first, last = page["steps"][0], page["steps"][-1]
        changes = sum((Decimal(step["change"]) for step in page["steps"]), Decimal(0))
        assert Decimal(first["amount"]) + changes == Decimal(last["amount"]), "a bridge sums to its last amount"
        return {step["name"]: Decimal(step["amount"]) for step in page["steps"]}

    def bridged(self, step: str) -> Values:
        """One step of the bridges of all teams and of the fleet, 0 where it is not walked."""
        return {name: self.bridge(name or None).get(step, Decimal(0)) for name in ("", *self.teams)}

    def show(self, metric: str, by: tuple[str, ...] = ()) -> dict[str, float]:
        """Readings of a metric in the month, by one dimension, "" for nobody."""
        found = self.books.show(metric, by, **self.limits)
        return {
            str(next(iter(reading.by.values()), None) or ""): float(reading.value)
            for reading in found
            if isinstance(reading.value, int | float)
        }

    def report(self) -> Any:
        """The report of the month in JSON, its sections by name."""
        start, end = self.limits["start"], self.limits["end"]
        with self.books.snapshot() as snapshot:
            page = self.page(build_document(Inquiry(snapshot, ("team",), start, end, self.zone)))
        return {section["name"]: section for section in page["sections"]}


@dataclass(frozen=True)
class Quantity:
    """A quantity and its readers by the name of the place. Readers give values by the same keys."""

    name: str
    readers: Mapping[str, Callable[[Fleet], Values]]
    is_money: bool = True


def read_cost(fleet: Fleet) -> Values:
    """What `show cost --by team` says, in all and of each team."""
    whole, split = fleet.show("cost")[""], fleet.show("cost", ("team",))
    return {"": fleet.cents(whole), **{team: fleet.cents(split.get(team, 0)) for team in fleet.teams}}


def read_statements(fleet: Fleet) -> Values:
    """What `chargeback` charges, in all and each team."""
    page = fleet.page(build_chargeback(fleet.books.chargeback(fleet.month, timezone=fleet.zone), ""))
    charged = dict.fromkeys(fleet.teams, Decimal(0))
    for statement in page["statements"]:
        if statement["by"]["team"] in charged:
            charged[statement["by"]["team"]] += Decimal(statement["amounts"]["EffectiveCost"])
    return {"": Decimal(page["totals"]["EffectiveCost"]["charged"]), **charged}


def read_budgets(fleet: Fleet) -> Values:
    """What `budget` says is spent."""
    page = fleet.page(build_budgets(fleet.books.budgets(fleet.month, timezone=fleet.zone)))
    return {status["budget"]["team"] or "": fleet.cents(status["spent"]) for status in page["statuses"]}


def read_gauges(fleet: Fleet) -> Values:
    """What `/metrics` says is spent, of the period of the last complete day; its zone is that of the settings."""
    with fleet.books.snapshot() as snapshot:
        families = {family.name: family.samples for family in measure_budgets(snapshot)}
    names = {"all": "", **{team: team for team in fleet.teams}}
    return {names[of["budget"]]: fleet.cents(spent) for of, spent in families["loadfactor_budget_spent_usd"]}


def read_reported_chain(fleet: Fleet) -> Values:
    """What the report's bridge says that each team and the fleet is charged."""
    with fleet.books.snapshot() as snapshot:
        chain = snapshot.read_chain((fleet.month,), fleet.zone)
    return {
        "": chain.fleet["statement"],
        **{t: chain.teams.get(t, {"statement": Decimal(0)})["statement"] for t in fleet.teams},
    }


def read_report_statements(fleet: Fleet) -> Values:
    """The statements of the report; those of `chargeback` where there is no bill and so no such section."""
    section = fleet.report().get("chargeback")
    if section is None:
        return read_statements(fleet)
    charged = dict.fromkeys(fleet.teams, Decimal(0))
    for statement in section["chargeback"]["statements"]:
        if statement["by"]["team"] in charged:
            charged[statement["by"]["team"]] += Decimal(statement["amounts"]["EffectiveCost"])
    return {"": Decimal(section["chargeback"]["totals"]["EffectiveCost"]["charged"]), **charged}


def read_month_of_show(fleet: Fleet) -> Values:
    """Held GPU-hours of each team in the local month, of all that the books know."""
    found = fleet.books.show("allocated_gpu_hours", ("month", "team"), timezone=fleet.zone)
    held = {str(r.by["team"]): r.value for r in found if r.by["month"] == fleet.month}
    return {team: held.get(team) or 0.0 for team in fleet.teams}  # type: ignore[misc]


def read_window_of_show(fleet: Fleet) -> Values:
    """The same of the month as a window."""
    held = fleet.show("allocated_gpu_hours", ("team",))
    return {team: held.get(team, 0.0) for team in fleet.teams}


def read_held_of_statements(fleet: Fleet) -> Values:
    """The same of statements."""
    found = fleet.books.chargeback(fleet.month, timezone=fleet.zone)
    held = {s.by["team"]: float(s.hours.total) for s in found.statements if s.pool is None}
    return {team: held.get(team, 0.0) for team in fleet.teams}


def read_coverage(fleet: Fleet) -> Values:
    """The part of the cost that has its team, of statements."""
    return {"": fleet.books.chargeback(fleet.month, timezone=fleet.zone).tag_coverage_share}


def read_coverage_of_budgets(fleet: Fleet) -> Values:
    """The same beside budgets."""
    return {"": fleet.books.budgets(fleet.month, timezone=fleet.zone).tag_coverage_share}


WAY = {
    "paid": "paid",
    "down": "down",
    "unallocated": "unallocated",
    "unobserved": "unobserved",
    "observed": "observed",
    "idle": "idle",
    "not_idle": "busy",
    "underused": "underused",
    "active": "effective",
}
"""Steps of the waterfall by name, and the metric that says the same."""


def read_way_of_metrics(fleet: Fleet) -> Values:
    """Steps as metrics say them, each by its own name."""
    return {step: fleet.show(f"{metric}_gpu_hours").get("", 0.0) for step, metric in WAY.items()}


def read_cost_of_metrics(fleet: Fleet) -> Values:
    """The same in money."""
    named = {step: "cost" if metric == "paid" else f"{metric}_cost" for step, metric in WAY.items()}
    return {
        step: fleet.cents(fleet.show(metric).get("", 0))
        for step, metric in named.items()
        if step not in ("observed", "not_idle")
    }


def pick_steps(group: Any, unit: str = "gpu_hours") -> Values:
    """Steps of a group of a waterfall in JSON."""
    return {step["name"]: step[unit] for step in group["steps"] if step["name"] in WAY}


@cache
def read_way(fleet: Fleet) -> Any:
    """The page of `waterfall` in JSON."""
    return fleet.page(build_waterfall(fleet.books.waterfall((), **fleet.limits)))


@cache
def read_way_of_report(fleet: Fleet) -> Any:
    """The waterfall of the report in JSON."""
    return fleet.report()["useful"]["waterfall"]


def price_steps(fleet: Fleet, group: Any) -> Values:
    """Steps of a group of a waterfall in money."""
    costs = pick_steps(group, "cost")
    return {step: fleet.cents(cost or 0) for step, cost in costs.items() if step not in ("observed", "not_idle")}


def read_lost(fleet: Fleet) -> Values:
    """Losses of the waterfall, and what of it nobody knows."""
    hours = read_way(fleet)["all"]["gpu_hours"]
    lost = sum(hours[drop.name] for drop in DROPS if not drop.is_unknown)
    return {"lost": lost, "unobserved": hours["unobserved"], "uncounted": hours["uncounted"]}


def read_lost_of_savings(fleet: Fleet) -> Values:
    """The same of `savings`."""
    start, end = fleet.limits["start"], fleet.limits["end"]
    page = fleet.page(build_savings(find_savings(fleet.books, (), start, end)))
    return {"lost": page["lost_gpu_hours"], **{name: page["unknown"][name] for name in ("unobserved", "uncounted")}}


def read_jobs_of_metrics(fleet: Fleet) -> Values:
    """Idle and underused GPU-hours of jobs."""
    jobs = read_diagnosed(fleet)
    return {
        f"{name} {job}": hours
        for name in ("idle", "underused")
        for job, hours in fleet.show(f"{name}_gpu_hours", ("job",)).items()
        if job in jobs
    }


def read_jobs_of_diagnoses(fleet: Fleet) -> Values:
    """The same of `diagnose`."""
    return {
        f"{name} {job}": said[f"{name}_gpu_hours"]
        for name in ("idle", "underused")
        for job, said in read_diagnosed(fleet).items()
    }


@cache
def read_diagnosed(fleet: Fleet) -> dict[str, Any]:
    """The jobs of `diagnose`, the three that lost most."""
    window = fleet.limits["start"], fleet.limits["end"]
    page = fleet.page(build_diagnosis(diagnose_books(fleet.books, None, None, window, 3)))
    return {job["job"]: job for job in page["jobs"]}


IDENTITIES = (
    Quantity(
        "GPU-hours of each step from paid to effective",
        {
            "show": read_way_of_metrics,
            "waterfall": lambda fleet: pick_steps(read_way(fleet)["all"]),
            "report, from paid to useful": lambda fleet: pick_steps(read_way_of_report(fleet)["all"]),
        },
        is_money=False,
    ),
    Quantity(
        "cost of each step from paid to effective",
        {
            "show": read_cost_of_metrics,
            "waterfall": lambda fleet: price_steps(fleet, read_way(fleet)["all"]),
            "report, from paid to useful": lambda fleet: price_steps(fleet, read_way_of_report(fleet)["all"]),
        },
    ),
    Quantity(
        "lost GPU-hours, and what nobody knows",
        {"waterfall": read_lost, "savings": read_lost_of_savings},
        is_money=False,
    ),
    Quantity(
        "idle and underused GPU-hours of jobs",
        {"show --by job": read_jobs_of_metrics, "diagnose": read_jobs_of_diagnoses},
        is_money=False,
    ),
    Quantity(
        "cost of GPU-hours",
        {
            "show cost --by team": read_cost,
            "bill bridge, step `cost of GPU-hours`": lambda fleet: fleet.bridged("cost of GPU-hours"),
        },
    ),
    Quantity(
        "charged",
        {
            "chargeback": read_statements,
            "bill bridge, step `statement`": lambda fleet: fleet.bridged("statement"),
            "bill bridge, step `budget spent`": lambda fleet: fleet.bridged("budget spent"),
            "budget, spent": read_budgets,
            "/metrics, loadfactor_budget_spent_usd": read_gauges,
            "report, who paid": read_report_statements,
            "report, from the bill to statements": read_reported_chain,
        },
    ),
    Quantity(
        "held GPU-hours of a month",
        {
            "show --by month,team": read_month_of_show,
            "show --by team of the month": read_window_of_show,
            "chargeback, GPU-hours held": read_held_of_statements,
        },
        is_money=False,
    ),
    Quantity(
        "part of the cost that has its team",
        {"chargeback": read_coverage, "budget": read_coverage_of_budgets},
        is_money=False,
    ),
)
"""Every quantity with the places that say it."""
