"""Pages of the server as people read them: the sentence at the top, tiles and tables, each figure beside what `show` says.

A new page of `PAGES` (interfaces/web/pages.py) is a line of `WEB_PAGES` where it shows metrics. What else it shows is a reader of
its quantity in table.py, called "page `/path`".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.identities.fleet import Fleet, Row
from tests.identities.metric_places import (
    CURRENCY,
    NUMBERS,
    OF_JOB_PAGE,
    TEAM,
    ByMetric,
    MetricPlace,
    key,
    list_readings,
)
from tests.identities.values import Value, read_shown

from loadfactor.interfaces.pages.readings import NO_NAME, STYLES
from loadfactor.interfaces.reports.inquiry import UNTAGGED
from loadfactor.interfaces.reports.tiles import TILES
from loadfactor.interfaces.web.builders import OF_A_GPU, OF_A_GROUP, OF_A_JOB, OF_A_WAIT, OVER_TIME
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.query.question import UNKNOWN_HOLDER

COLUMNS: Final = {
    of.title if of.unit in STYLES else f"{of.title} ({CURRENCY if of.is_money else of.unit})": of.name
    for of in METRICS
    if of.name in NUMBERS
}
"""Metrics by the titles of their columns."""
WAITED: Final = {
    "median": "queue_wait_s_p50", "90 % within": "queue_wait_s_p90", "99 % within": "queue_wait_s_p99",
    "cancelled or pending": "queue_waiting",
}  # fmt: skip
"""The same of the table of waits."""
FULL: Final = r"was (?P<load_factor>\S+ %) full and cost (?P<cost>\S+)\."
DIGESTED: Final = (
    r"was (?P<load_factor>\S+ %) full and cost (?P<cost>[^\s,]\S*?)(?:, (?P<idle_cost>\S+) of it idle)?\.$"
)
HIGHEST: Final = r"(?P<name>\S+) has the highest cost: (?P<cost>\S+)\."


@dataclass(frozen=True)
class WebPage:
    """A page that shows metrics: what splits its tables, and which metrics tiles and the sentence at the top say.

    `thing`: the dimension of which it shows one, in place of `{id}`. `headline`: a pattern whose groups are called after metrics,
    and "name" whom they are of. `parts`: whether a table of it has the parts of a job's time.
    """

    path: str
    metrics: Sequence[str]
    by: Sequence[Sequence[str]] = ()
    tiles: Sequence[str] = ()
    headline: str = ""
    thing: str = ""
    parts: bool = False
    window: str = "month"


@dataclass(frozen=True)
class Seen:
    """What people see of a page."""

    headline: str
    tiles: Mapping[str, str]
    rows: Sequence[Row]


WEB_PAGES: Final = (
    WebPage("/", (*TILES, "idle_gpu_hours"), (("job",),), TILES, FULL),
    WebPage("/time", OVER_TIME, (("day",),)),
    WebPage("/teams", OF_A_GROUP, (TEAM,), headline=HIGHEST),
    WebPage("/teams/{id}", (*TILES, *OF_A_JOB), (("job",), ("project",)), TILES, FULL, "team"),
    WebPage("/jobs", OF_A_JOB, (("job",),)),
    WebPage(
        "/jobs/{id}", OF_JOB_PAGE, (), ("cost", "effective_cost", "utilization", "mfu"),
        r"cost (?P<cost>\S+) for (?P<allocated_gpu_hours>\S+) GPU-hours", "job", parts=True,
    ),
    WebPage("/gpus", OF_A_GPU, (("device",),)),
    WebPage("/gpus/{id}", (*TILES, *OF_A_JOB), (("job",),), TILES, r"a utilization of (?P<utilization>\S+ %)\.", "device"),
    WebPage(
        "/queue", (*OF_A_WAIT, "queue_wait_s_p99"), (("team", "pool"),),
        headline=r"at most (?P<queue_wait_s_p50>\S+ \w+), one in ten longer than (?P<queue_wait_s_p90>\S+ \w+)\.",
    ),
    WebPage("/money", OF_A_GROUP, (TEAM,), headline=HIGHEST),
    WebPage("/quality", ("observed_gpu_hours", "unobserved_gpu_hours", "paid_gpu_hours", "cost"), (("node",),)),
    WebPage(
        "/quality", ("paid_gpu_hours", "cost"), window="all",
        headline=r": (?P<paid_gpu_hours>\S+) of \S+ GPU-hours booked, (?P<cost>\S+) of ",
    ),
)  # fmt: skip


def see(fleet: Fleet, path: str) -> Seen:
    """A page of the month in HTML, of one fleet in four; of the others nothing."""
    if not fleet.draws:
        return Seen("", {}, ())
    return fleet.once(f"page {path}", lambda fleet: read_seen(fleet, path))  # type: ignore[no-any-return]


def read_seen(fleet: Fleet, path: str) -> Seen:
    """The same, asked anew."""
    text, rows = fleet.open(path, **fleet.span)
    tiles = re.findall(r'<div class="tile"><span>(.*?)</span><b>(.*?)</b>', text)
    (headline,) = re.findall(r"<h1>(.*?)</h1>", text)
    return Seen(headline, dict(tiles), rows)


def list_things(fleet: Fleet, thing: str) -> list[str]:
    """The values of a dimension that `show` splits the month by."""

    def read(fleet: Fleet) -> list[str]:
        hours = fleet.show("month", (thing,), ("allocated_gpu_hours",))
        return sorted({of["by"][thing] for of in hours if of["value"]} - {None, UNKNOWN_HOLDER})

    return fleet.once(f"one {thing}", read)  # type: ignore[no-any-return]


def choose(fleet: Fleet, thing: str) -> str:
    """One of the things of a dimension that `show` splits the month by; nothing where there is none."""
    found = list_things(fleet, thing)
    return fleet.once(f"the {thing}", lambda fleet: fleet.random.choice(found) if found else "")  # type: ignore[no-any-return]


def read_page(page: WebPage) -> Callable[[Fleet], ByMetric]:
    """What a page says of each metric by window and group."""

    def read(fleet: Fleet) -> ByMetric:
        name = choose(fleet, page.thing) if page.thing and fleet.draws else ""
        if page.thing and not name:
            return {}
        seen = see(fleet, page.path.replace("{id}", name))
        out: dict[str, dict[str, Value]] = {}
        for metric_name, group, text in list_figures(page, seen, name):
            out.setdefault(metric_name, {})[group] = read_shown(text)
        return out

    return read


def list_figures(page: WebPage, seen: Seen, name: str) -> Iterator[tuple[str, str, str]]:
    """Metric, key and text of every figure that a page shows."""
    whole = key(page.window, (page.thing,) if page.thing else (), name)
    found = re.search(page.headline, seen.headline) if page.headline else None
    figures = found.groupdict() if found else {}
    of = figures.pop("name", None)
    yield from ((of_metric, key("month", TEAM, of) if of else whole, text) for of_metric, text in figures.items())
    for of_metric in page.tiles:
        title = {"effective_cost": "Effective"}.get(of_metric, metric(of_metric).title)
        if title in seen.tiles:
            yield of_metric, whole, seen.tiles[title]
    for row in seen.rows:
        by = next((by for by in page.by if {*by} <= {*row}), None)
        titles: Mapping[str, str] = COLUMNS
        group = whole
        if page.parts and "part" in row:
            of_part = row["part"].lower()
            titles = {"GPU-hours": f"{of_part}_gpu_hours", "cost": f"{of_part}_cost"}
            if of_part == "total":
                titles = {"GPU-hours": "allocated_gpu_hours", "cost": "cost"}
        elif "median" in row and page.by:
            titles = WAITED
            team = row["team"].replace(UNTAGGED, "")
            group = key("month") if team == "all" else key("month", TEAM, team)
        elif by is None or (by == ("job",) and row["job"] in (NO_NAME, UNKNOWN_HOLDER)):
            continue  # of jobs without a name, one row of several
        else:
            group = key("month", by, ", ".join(row[of].replace(NO_NAME, "") for of in by))
        yield from ((titles[title], group, row[title]) for title in row if titles.get(title) in page.metrics)


def read_beside(fleet: Fleet) -> ByMetric:
    """What the page of a job beside another says of each of the two, by metric."""
    jobs = sorted({choose(fleet, "job"), *list_things(fleet, "job")[:1]} - {""}) if fleet.draws else []
    if len(jobs) < 2:
        return {}
    text, rows = fleet.open(f"/jobs/{jobs[0]}", **fleet.span, beside=jobs[1])
    assert f"Job {jobs[0]} cost " in text
    out: dict[str, dict[str, Value]] = {}
    for row in rows:
        if (of := COLUMNS.get(row["metric"])) in OF_JOB_PAGE:
            out[of] = {key("month", ("job",), job): read_shown(row[job]) for job in jobs}
    return out


def read_digest(fleet: Fleet) -> ByMetric:
    """The digest of the month in JSON."""
    asked = {"every": "month", "on": f"{fleet.month}-01", "tz": str(fleet.zone), "format": "json"}
    return list_readings(fleet.get("/digest", **asked)["readings"], key("month"))


def see_digest(fleet: Fleet) -> ByMetric:
    """Its headline and tiles in HTML, of one fleet in four."""
    if not fleet.draws:
        return {}
    text, _ = fleet.open("/digest", every="month", on=f"{fleet.month}-01", timezone=str(fleet.zone))
    tiles = dict(re.findall(r'<div class="tile"><span>(.*?)</span><b>(.*?)</b>', text))
    (headline,) = re.findall(r"<h1>(.*?)</h1>", text)
    said = re.search(DIGESTED, headline)
    shown = {name: tiles[metric(name).title] for name in TILES if metric(name).title in tiles}
    shown |= {name: value for name, value in (said.groupdict() if said else {}).items() if value is not None}
    return {name: {key("month"): read_shown(value)} for name, value in shown.items()}


WEB_PLACES: Final = (
    *(
        MetricPlace(f"page `{of.path}`" + (", balance" if of.window == "all" else ""), read_page(of), {*of.metrics})
        for of in WEB_PAGES
    ),
    MetricPlace("page `/jobs/{id}?beside=`", read_beside, {*OF_JOB_PAGE} & {*COLUMNS.values()}),
    MetricPlace("page `/digest`, JSON", read_digest, TILES),
    MetricPlace("page `/digest`", see_digest, {*TILES, "idle_cost"}),
)
"""The pages as places of metrics."""
