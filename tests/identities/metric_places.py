"""Places of metrics: each shows several metrics at once, by window and group, as `show` says them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from tests.identities.fleet import Fleet
from tests.identities.values import Shown, Value, Values, read_shown

from loadfactor.base.units import ONES_PER_MILLION
from loadfactor.books.job_account import SPENT_ON
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.comparison import COMPARED
from loadfactor.interfaces.gauges.exposition import OF_WHOLE_JOBS, SHOWN, SPLITS, GaugeSplit, name_gauge
from loadfactor.interfaces.gauges.measured import NAMELESS, WHOLE
from loadfactor.interfaces.gauges.rules import name_watched
from loadfactor.interfaces.grafana.panels import Gauges, Query
from loadfactor.interfaces.grafana.write import DASHBOARDS
from loadfactor.interfaces.pages.energy import ENERGY
from loadfactor.interfaces.prometheus_rules.files import list_own_rules
from loadfactor.interfaces.prometheus_rules.rule_file import TranslatedRule
from loadfactor.interfaces.reports.sections import BARS, CELLS
from loadfactor.interfaces.reports.tiles import TILES as OF_TILES
from loadfactor.interfaces.web.builders import OF_A_GPU, OF_A_JOB, OF_A_WAIT, OVER_TIME
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.query.calendar import instant, milliseconds
from loadfactor.metrics.query.question import UNKNOWN_HOLDER

ByMetric = Mapping[str, Values]
NUMBERS: Final = tuple(of.name for of in SHOWN)
"""Names of all metrics that are one number."""
CURRENCY: Final = "USD"
TEAM: Final = ("team",)
WATCHED: Final = "utilization"
"""The metric that rules with a threshold watch."""
OF_JOBS: Final = tuple(of.name for of in OF_WHOLE_JOBS)
DIAGNOSED: Final = {
    "held": "allocated_gpu_hours", "unobserved": "unobserved_gpu_hours", "idle": "idle_gpu_hours",
    "underused": "underused_gpu_hours",
}  # fmt: skip
OF_HELD: Final = tuple(DIAGNOSED.values())
OF_JOB_PAGE: Final = (
    "cost", "allocated_gpu_hours", "utilization", "mfu", *(f"{of}_{unit}" for of in SPENT_ON for unit in ("gpu_hours", "cost"))
)  # fmt: skip
"""What the page of a job says."""
HELD: Final = {"total": "allocated_gpu_hours", **{of: f"{of}_gpu_hours" for of in ("idle", "unobserved", "effective")}}
CHANGED: Final = ("cost", "utilization", "effective_gpu_hours")
DRAWN: Final = 3
"""So many metrics by team are read from the text of each fleet."""


@dataclass(frozen=True)
class MetricPlace:
    """A place, the metrics that it shows, and what it says of them by key."""

    name: str
    read: Callable[[Fleet], ByMetric]
    metrics: Collection[str] = NUMBERS


def key(window: str, by: Sequence[str] = (), group: str = "") -> str:
    """The key of a group in a window: "24 h by team: vision"."""
    return f"{window}{' by ' + ', '.join(by) if by else ''}{': ' + group if by else ''}"


def list_readings(found: Iterable[Any], window: str, by: Sequence[str] = ()) -> dict[str, dict[str, Value]]:
    """Readings in JSON by metric and key."""
    out: dict[str, dict[str, Value]] = {}
    for of in found:
        if not isinstance(of["value"], list):
            group = ", ".join(of["by"][name] or "" for name in by)
            out.setdefault(of["metric"], {})[key(window, by, group)] = of["value"]
    return out


def join(*parts: ByMetric) -> dict[str, dict[str, Value]]:
    """Several windows and splits as one."""
    out: dict[str, dict[str, Value]] = {}
    for part in parts:
        for name, values in part.items():
            out.setdefault(name, {}).update(values)
    return out


def name_hours(split: GaugeSplit) -> str:
    """The window of a split of gauges."""
    return f"{split.window_s // 3600} h"


def read_show(fleet: Fleet) -> ByMetric:
    """What `show` says in JSON: the month whole, by team and by job; the last hour and day by all splits of gauges; jobs whole."""
    asked: list[tuple[str, Sequence[str], Sequence[Any]]] = [
        ("month", (), ()), ("month", TEAM, ()), ("month", ("job",), OF_HELD), ("all", (), ()),
        ("all", ("job",), (*OF_JOBS, *OF_HELD)), ("all", ("project",), ("cost",)),
        *((name_hours(split), split.by, [of for of in split.metrics if of.name in NUMBERS]) for split in SPLITS),
    ]  # fmt: skip
    if fleet.draws:  # what pages of the server split by
        asked += [
            ("month", ("job",), OF_JOB_PAGE), ("month", ("project",), OF_A_JOB), ("month", ("device",), (*OF_A_GPU, *OF_TILES)),
            ("month", ("day",), OVER_TIME), ("month", ("team", "pool"), OF_A_WAIT),
            ("month", ("node",), ("observed_gpu_hours", "unobserved_gpu_hours", "paid_gpu_hours")),
        ]  # fmt: skip
    found = (list_readings(fleet.show(window, by, names), window, by) for window, by, names in asked)
    return join(*found, read_window_of_watched(fleet))


def read_text(face: str) -> Callable[[Fleet], ByMetric]:
    """What `show` prints: of the month every metric, of the teams a few."""

    def read(fleet: Fleet) -> ByMetric:
        out: dict[str, dict[str, Value]] = {}
        for row in fleet.rows(face, "show", **fleet.span):
            if row[""] in NUMBERS:
                out[row[""]] = {"month": read_cell(row[""], row["value"], row.get("unit", ""))}
        for name in fleet.once("drawn", lambda fleet: fleet.random.sample(NUMBERS, DRAWN)):
            for row in fleet.rows(face, "show", metrics=(name,), by=TEAM, **fleet.span):
                title = list(row)[2] if len(row) > 2 and list(row)[2] != "coverage" else ""
                if title and row[""] in fleet.teams:
                    out.setdefault(name, {})[key("month", TEAM, row[""])] = read_cell(name, row[title], title)
        return out

    return read


def read_cell(name: str, text: str, unit: str = "") -> Shown | None:
    """A cell of a metric; a unit cost may be shown for a million."""
    is_million = "per million" in unit and "million" not in name
    return read_shown(text, Decimal(1) / ONES_PER_MILLION if is_million else Decimal(1))


def read_months(fleet: Fleet) -> ByMetric:
    """What `show --by month` says of the month, of all that the books know."""
    whole = [of for of in fleet.show("all", ("month",)) if of["by"]["month"] == fleet.month]
    teams = fleet.show("all", ("month", *TEAM), ("allocated_gpu_hours", "cost"))
    return join(
        list_readings(whole, "month"),
        list_readings([of for of in teams if of["by"]["month"] == fleet.month], "month", TEAM),
    )


def read_endpoint(fleet: Fleet) -> ByMetric:
    """What the server answers of the month, in all and by team."""
    ask = {**fleet.window_of("month")}
    whole, teams = (fleet.get("/api/v1/readings", **ask, **by)["readings"] for by in ({}, {"by": "team"}))
    return join(list_readings(whole, "month"), list_readings(teams, "month", TEAM))


def read_report(fleet: Fleet) -> ByMetric:
    """The readings of the whole report."""
    return list_readings(fleet.page("report", **fleet.span)["readings"], "month")


def read_groups(fleet: Fleet) -> ByMetric:
    """Those of its costs by team."""
    sections = {of["name"]: of for of in fleet.page("report", **fleet.span)["sections"]}
    return list_readings(sections["groups"]["readings"], "month", TEAM)


TILES: Final = {
    "Load factor": "load_factor", "Utilization": "utilization", "Allocation": "allocation", "Cost": "cost",
    "Cost per effective GPU-hour": "cost_per_effective_gpu_hour", "Median queue wait": "queue_wait_s_p50",
    "Energy": "energy_kwh", "Carbon": "carbon_kg",
}  # fmt: skip
COLUMNS: Final = dict(
    zip(
        ("cost", "paid GPU-hours", "utilization", "idle cost", "underused cost", "cost per effective GPU-hour"),
        CELLS,
        strict=True,
    )
)


def read_tiles(fleet: Fleet) -> ByMetric:
    """The tiles of the report."""
    tiles = {tile.title: tile.value for tile in fleet.build("report", **fleet.span).tiles}
    return {name: {"month": read_shown(tiles[title])} for title, name in TILES.items() if title in tiles}


def read_groups_text(face: str) -> Callable[[Fleet], ByMetric]:
    """Its table of costs by team, as printed."""

    def read(fleet: Fleet) -> ByMetric:
        rows = [row for row in fleet.rows(face, "report", **fleet.span) if "paid GPU-hours" in row]
        return {
            name: {key("month", TEAM, row[""]): read_shown(row[title]) for row in rows if row[""] in fleet.teams}
            for title, name in COLUMNS.items()
            if all(title in row for row in rows)
        }

    return read


def find_pair(fleet: Fleet) -> list[str]:
    """Two teams that held GPUs; fewer where there are not two."""
    held = {
        of["by"]["team"] for of in fleet.show("month", TEAM) if of["metric"] == "allocated_gpu_hours" and of["value"]
    }
    return sorted(held & set(fleet.teams))[:2]


def list_compared(pair: Sequence[str], found: Any) -> ByMetric:
    """Both sides of a comparison in JSON."""
    return {
        of["metric"]: {key("month", TEAM, team): of[side] for team, side in zip(pair, ("first", "second"), strict=True)}
        for of in found["values"]
    }


def read_compared(fleet: Fleet) -> ByMetric:
    """Two teams side by side."""
    if len(pair := find_pair(fleet)) < 2:
        return {}
    ask = {"first": f"team={pair[0]}", "second": f"team={pair[1]}", **fleet.span}
    return list_compared(pair, fleet.page("compare", **ask))


def get_compared(fleet: Fleet) -> ByMetric:
    """The same of the server."""
    if len(pair := find_pair(fleet)) < 2 or not fleet.draws:
        return {}
    ask = {"first": f"team={pair[0]}", "second": f"team={pair[1]}", **fleet.span}
    return list_compared(pair, fleet.get("/api/v1/compare", **ask))


def list_changed(fleet: Fleet, ask: Callable[[str, Mapping[str, str]], Any]) -> ByMetric:
    """What `why-changed` says of the month, beside itself: where `show` knows it. Money is in cents."""
    month, shown = key("month"), read_show(fleet)
    span = {**fleet.span, "against": f"{fleet.span['start']}/{fleet.span['end']}"}
    out: dict[str, dict[str, Value]] = {}
    for name in CHANGED:
        if shown.get(name, {}).get(month) is not None:
            found = ask(name, span)
            after = found["after"]
            out[name] = {
                month: Shown(str(after), Decimal(str(after)), Decimal("0.005")) if found["unit"] == CURRENCY else after
            }
    return out


def read_changed(fleet: Fleet) -> ByMetric:
    """The month in `why-changed`."""
    return list_changed(fleet, lambda name, span: fleet.page("why-changed", metric=name, **span))


def get_changed(fleet: Fleet) -> ByMetric:
    """The same of the server."""
    if not fleet.draws:
        return {}
    return list_changed(fleet, lambda name, span: fleet.get("/api/v1/why-changed", metric=name, **span))


def read_gauges(fleet: Fleet) -> ByMetric:
    """Samples of `/metrics`, of every group of its splits that `show` knows; jobs whole."""
    shown, out = read_show(fleet), dict[str, dict[str, Value]]()
    for split in SPLITS:
        before, is_named = key(name_hours(split), split.by), not NAMELESS & {*split.by}
        for of in (of for of in split.metrics if of.name in shown):
            samples = fleet.samples.get(split.name(of, CURRENCY), {})
            for name in shown[of.name]:
                begin, _, group = name.partition(": ")
                if f"{begin}{': ' * bool(split.by)}" == before and (is_named or all(group.split(", "))):
                    out.setdefault(of.name, {})[name] = samples.get(group)
    return join(out, read_whole_jobs(fleet))


def read_whole_jobs(fleet: Fleet) -> ByMetric:
    """Gauges of jobs since they began."""
    return {
        of.name: {
            key("all", ("job",), labels["job_id"]): value
            for labels, value in fleet.gauges.get(name_gauge(of, CURRENCY, ("job",), WHOLE), ())
        }
        for of in OF_WHOLE_JOBS
    }


SELECTOR: Final = re.compile(r"(loadfactor_\w+)\{([^}]*)\}")
MATCHER: Final = re.compile(r"(\w+)=\$\{\w+:doublequote\}")


def list_queries() -> Iterator[tuple[str, Query]]:
    """Every query of every dashboard, with the words that stand at it."""
    for build in DASHBOARDS:
        for row in build(Gauges(CURRENCY)).rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield " ".join((row.title, panel.title, panel.about, query.legend)), query


MEANT: Final = {of.meaning: of.name for of in METRICS}


def read_dashboards(fleet: Fleet) -> ByMetric:
    """What panels show under their titles: the window that the title says, the metric whose meaning stands beside it."""
    out: dict[str, dict[str, Value]] = {}
    for words, query in list_queries():
        found = SELECTOR.search(query.expression)
        name = MEANT.get(query.about)
        if found is None or name not in NUMBERS:
            continue
        window, by = say_window(words), re.findall(r"\b(job_id|team|user|node|pool)\b", query.legend + found[2])
        names = list(dict.fromkeys("job" if of == "job_id" else of for of in by))
        for labels, value in fleet.gauges.get(found[1], ()):
            order = [of for of in ("job", "team", "user") if of in names] if "job" in names else names
            group = ", ".join(labels[{"job": "job_id"}.get(of, of)].replace("(none)", "") for of in order)
            if len(order) in (len(labels), 0):
                out.setdefault(name, {})[key(window, order, group)] = value
    return out


def say_window(words: str) -> str:
    """The window that people read off the words at a query: a legend says more than the title before it."""
    if "Since the job began" in words:
        return "all"
    return {"24 h": "24 h", "per day": "24 h"}.get(
        (re.findall(r"24 h|per day|last hour|1 h", words) or [""])[-1], "1 h"
    )


def read_watched(fleet: Fleet) -> ByMetric:
    """Values that rules compare with their thresholds, as `/metrics` shows them and as rules for Prometheus name them."""
    translated = {
        of.rule.name: of.expression
        for of in list_own_rules(configure(RULES, ()), CURRENCY)
        if isinstance(of, TranslatedRule)
    }
    out: dict[str, Value] = {}
    for rule in RULES:
        if isinstance(rule.condition, Threshold) and rule.condition.metric == WATCHED:
            gauge = name_watched(rule, CURRENCY)
            assert gauge in translated[rule.name]
            for labels, value in fleet.gauges.get(gauge, ()):
                if labels["rule"] == rule.name:
                    group = ", ".join(of for name, of in labels.items() if name != "rule")
                    out[key("watched", rule.by, group)] = value
    return {WATCHED: out}


def read_window_of_watched(fleet: Fleet) -> ByMetric:
    """The same by `show`: the half hour before the last minute whose samples are in."""
    end = instant((milliseconds(fleet.books.span[1]) - 60_000) // 60_000 * 60_000)
    ask = {"start": (end - timedelta(minutes=30)).isoformat(), "end": end.isoformat()}
    if milliseconds(end) <= milliseconds(fleet.books.span[0]):
        return {}
    splits: tuple[Sequence[str], ...] = ((), TEAM, ("job",))
    pages = [fleet.page("show", metrics=(WATCHED,), by=by, **ask) for by in splits]
    return join(*(list_readings(found, "watched", by) for found, by in zip(pages, splits, strict=True)))


def read_held_of_statements(fleet: Fleet) -> ByMetric:
    """GPU-hours of statements of teams."""
    found = fleet.page("chargeback", **fleet.of_month)["statements"]
    own = {of["by"]["team"]: of["hours"] for of in found if of["pool"] is None and of["by"]["team"] in fleet.teams}
    own = {team: hours for team, hours in own.items() if float(hours["total"] or 0)}  # who held nothing is in no split
    return {
        name: {
            key("month", TEAM, team): None if hours[part] is None else float(hours[part]) for team, hours in own.items()
        }
        for part, name in HELD.items()
    }


def read_energy_of_statements(fleet: Fleet) -> ByMetric:
    """Energy and carbon of statements of teams, where the settings want them."""
    known = {of["team"]: of["energy"] for of in fleet.page("statement", **fleet.of_month)["statements"] if of["energy"]}
    return {name: {key("month", TEAM, team): of[name] for team, of in known.items()} for name in ENERGY}


def read_energy_text(face: str) -> Callable[[Fleet], ByMetric]:
    """The same of the report as printed, by team."""

    def read(fleet: Fleet) -> ByMetric:
        titles = {f"{metric(name).title}, {metric(name).unit}": name for name in ENERGY}
        rows = [
            row for row in fleet.rows(face, "report", **fleet.span) if {*titles} <= {*row} and row[""] in fleet.teams
        ]
        return {
            name: {key("month", TEAM, row[""]): read_shown(row[title]) for row in rows}
            for title, name in titles.items()
        }

    return read


def read_diagnosed(fleet: Fleet) -> ByMetric:
    """GPU-hours of the jobs that `diagnose` looks at."""
    jobs = fleet.page("diagnose", jobs=3, **fleet.span)["jobs"]
    return {
        name: {key("month", ("job",), of["job"]): of[f"{part}_gpu_hours"] for of in jobs}
        for part, name in DIAGNOSED.items()
    }


def read_diagnosis(fleet: Fleet) -> ByMetric:
    """The same of the server."""
    jobs = fleet.get("/api/v1/diagnosis", jobs=3, **fleet.span)["jobs"] if fleet.draws else ()
    return {
        name: {key("month", ("job",), of["job"]): of[f"{part}_gpu_hours"] for of in jobs}
        for part, name in DIAGNOSED.items()
    }


def see_diagnosis(fleet: Fleet) -> ByMetric:
    """The same of the page of the server."""
    asked = {"start": fleet.span["start"], "end": fleet.span["end"], "tz": fleet.span["timezone"]}
    jobs = fleet.get("/diagnosis", format="json", **asked)["jobs"] if fleet.draws else ()
    return {
        name: {key("month", ("job",), of["job"]): of[f"{part}_gpu_hours"] for of in jobs}
        for part, name in DIAGNOSED.items()
    }


def read_doctor(fleet: Fleet) -> ByMetric:
    """The balance of all the books."""
    found = fleet.page("doctor")
    return {"paid_gpu_hours": {"all": found["booked_gpu_hours"]}, "cost": {"all": found["booked_cost"]}}


def read_untagged(fleet: Fleet) -> ByMetric:
    """What was held by somebody, and by an unknown holder."""
    found = fleet.page("untagged", **fleet.span)
    return {
        "allocated_gpu_hours": {"month": found["held"]["gpu_hours"]},
        "unattributed_gpu_hours": {"month": found["unattributed"]["gpu_hours"]},
    }


def read_projects(fleet: Fleet) -> ByMetric:
    """What projects cost so far."""
    return {
        "cost": {
            key("all", ("project",), of["plan"]["name"]): float(of["spent_cost"])
            for of in fleet.page("project")["projects"]
            if float(of["spent_cost"])
        }
    }


def read_job_page(fleet: Fleet) -> ByMetric:
    """The page of a job, as long as it is in the books."""
    known = {of["by"]["job"] for of in fleet.show("all", ("job",), (*OF_JOBS, *OF_HELD))}
    jobs = sorted(of for of in known if of not in (None, UNKNOWN_HOLDER))
    page = fleet.page("report", job=fleet.random.choice(jobs), timezone=str(fleet.zone))
    job = next(of["job"] for of in page["sections"] if "job" in of)
    found = list_readings([{**of, "by": {"job": job}} for of in page["readings"]], "all", ("job",))
    return {name: found[name] for name in (*OF_JOBS, *OF_HELD) if name in found}


SEEN_OF_A_JOB: Final = {
    "gpu_hours": "allocated_gpu_hours", "idle_gpu_hours": "idle_gpu_hours", "cost": "cost", "utilization": "utilization",
    "effective_gpu_hours": "effective_gpu_hours",
}  # fmt: skip


def read_seff(ask: Callable[[Fleet, str], Any]) -> Callable[[Fleet], ByMetric]:
    """What `seff` or its endpoint says of a job."""

    def read(fleet: Fleet) -> ByMetric:
        known = {of["by"]["job"] for of in fleet.show("all", ("job",), (*OF_JOBS, *OF_HELD))}
        job = fleet.random.choice(sorted(of for of in known if of not in (None, UNKNOWN_HOLDER)))
        (found,) = ask(fleet, job)["jobs"]
        return {metric: {key("all", ("job",), job): found[name]} for name, metric in SEEN_OF_A_JOB.items()}

    return read


METRIC_PLACES: Final = (
    MetricPlace("`show`, JSON", read_show),
    MetricPlace("`show`, terminal", read_text("terminal")),
    MetricPlace("`show`, HTML", read_text("HTML")),
    MetricPlace("`show --by month`", read_months),
    MetricPlace("`GET /api/v1/readings`", read_endpoint),
    MetricPlace("`report`, JSON", read_report),
    MetricPlace("`report`, tiles", read_tiles, TILES.values()),
    MetricPlace("`report`, cost by team, JSON", read_groups, {*CELLS, *BARS}),
    MetricPlace("`report`, cost by team, terminal", read_groups_text("terminal"), CELLS),
    MetricPlace("`report`, cost by team, HTML", read_groups_text("HTML"), CELLS),
    MetricPlace("`report --job`", read_job_page, set(OF_JOBS) - {"paid_gpu_hours", "cost_per_effective_gpu_hour"}),
    MetricPlace("`seff`", read_seff(lambda fleet, job: fleet.page("seff", job=job)), SEEN_OF_A_JOB.values()),
    MetricPlace(
        "`GET /api/v1/seff`", read_seff(lambda fleet, job: fleet.get("/api/v1/seff", job=job)), SEEN_OF_A_JOB.values()
    ),
    MetricPlace("`compare`", read_compared, COMPARED),
    MetricPlace("`GET /api/v1/compare`", get_compared, COMPARED),
    MetricPlace("`why-changed`", read_changed, CHANGED),
    MetricPlace("`GET /api/v1/why-changed`", get_changed, CHANGED),
    MetricPlace("`/metrics`", read_gauges),
    MetricPlace("Grafana", read_dashboards, {MEANT[of.about] for _, of in list_queries() if of.about in MEANT}),
    MetricPlace("`/metrics`, rules for Prometheus", read_watched, (WATCHED,)),
    MetricPlace("`chargeback`, GPU-hours", read_held_of_statements, HELD.values()),
    MetricPlace("`statement`, energy", read_energy_of_statements, ENERGY),
    MetricPlace("`report`, energy and carbon, terminal", read_energy_text("terminal"), ENERGY),
    MetricPlace("`report`, energy and carbon, HTML", read_energy_text("HTML"), ENERGY),
    MetricPlace("`diagnose`", read_diagnosed, DIAGNOSED.values()),
    MetricPlace("`GET /api/v1/diagnosis`", read_diagnosis, DIAGNOSED.values()),
    MetricPlace("page `/diagnosis`", see_diagnosis, DIAGNOSED.values()),
    MetricPlace("`doctor`", read_doctor, ("paid_gpu_hours", "cost")),
    MetricPlace("`untagged`", read_untagged, ("allocated_gpu_hours", "unattributed_gpu_hours")),
    MetricPlace("`project`", read_projects, ("cost",)),
)
"""Every place of metrics; the first gives what the others are compared with."""
