"""Dashboards are declared over metrics, written by Grafana's own builders, and hold together."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from loadfactor.interfaces.gauges.exposition import OF_WHOLE_JOBS, SPLITS, name_gauge
from loadfactor.interfaces.grafana.panels import WIDTH, Gauges
from loadfactor.interfaces.grafana.write import DASHBOARDS, list_files
from loadfactor.metrics import METRICS

FILES = list_files("USD", "http://prometheus:9090", "https://docs.example/lf")
WRITTEN = {name: json.loads(text) for name, text in FILES.items() if name.endswith(".json")}
GAUGE = re.compile(r"loadfactor_[a-z0-9_]+")
TOLD_BY_THE_SERVER = ("loadfactor_server_", "loadfactor_budget", "loadfactor_books_end_")


def panels_of(written: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows and panels of a dashboard."""
    return list(written["panels"])


def queries_of(written: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(panel, query) for panel in panels_of(written) for query in panel.get("targets", ())]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_dashboard_is_one_of_grafana(name: str) -> None:
    """What is written is read by Grafana's own schema, and comes out of it as it went in."""
    written = WRITTEN[name]
    again = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
    assert again == written
    assert written["schemaVersion"] >= 36
    assert written["uid"] == name.removeprefix("dashboards/").removesuffix(".json")
    assert len(written["uid"]) <= 40


@pytest.mark.parametrize("name", WRITTEN)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    """No two panels have one id or lie on each other; rows of panels fill the width; queries of a panel have their own letters."""
    panels = panels_of(WRITTEN[name])
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= WIDTH for place in places)
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (a, b)
    for panel in panels:
        letters = [query["refId"] for query in panel.get("targets", ())]
        assert len(set(letters)) == len(letters)


def test_dashboards_are_known_by_names_that_stay() -> None:
    """Their addresses are these, whatever their titles become."""
    assert [written["uid"] for written in WRITTEN.values()] == [
        "loadfactor-cluster", "loadfactor-team", "loadfactor-job", "loadfactor-money", "loadfactor-telemetry",
    ]  # fmt: skip


@pytest.mark.parametrize("currency", ["USD", "XAU"])
def test_every_gauge_is_one_that_the_server_shows(currency: str) -> None:
    """Each name in an expression or a variable is a gauge of `/metrics`, in the currency of the books."""
    shown = {split.name(metric, currency) for split in SPLITS for metric in split.metrics}
    shown |= {name_gauge(metric, currency, ("job",), "whole") for metric in OF_WHOLE_JOBS}
    for name, text in list_files(currency, "http://prometheus:9090", "").items():
        if not name.endswith(".json"):
            continue
        written = json.loads(text)
        asked = [query["expr"] for _, query in queries_of(written)]
        asked += [v["query"]["query"] for v in written["templating"]["list"] if v["type"] == "query"]
        for gauge in GAUGE.findall(" ".join(asked)):
            if not gauge.startswith(TOLD_BY_THE_SERVER) and "_coverage_ratio" not in gauge and not gauge.endswith("_"):
                assert gauge in shown


def test_the_unit_of_a_panel_is_that_of_its_metrics() -> None:
    """Shares are shown as percent, seconds as times, money in its currency."""
    for written in WRITTEN.values():
        for panel, query in queries_of(written):
            unit, expression = panel["fieldConfig"]["defaults"]["unit"], query["expr"]
            assert (unit == "percentunit") == ("_ratio" in expression), expression
            assert (unit == "currencyUSD") == ("_usd" in expression), expression
            assert (unit == "s") == ("_seconds{" in expression or "_seconds" in expression), expression


def test_every_metric_has_a_unit_of_grafana() -> None:
    """Any metric that is declared can be put into a panel."""
    for metric in METRICS:
        assert Gauges("EUR").ask(metric.name).unit


def test_limits_are_those_of_the_rules() -> None:
    """Utilization is red below the limit of the rule, yellow until it is clear again, and links to its runbook."""
    first = next(panel for panel in panels_of(WRITTEN["dashboards/loadfactor-cluster.json"]) if panel["type"] == "stat")
    steps = [(step["value"], step["color"]) for step in first["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    assert steps == [(None, "red"), (0.5, "yellow"), (0.55, "green")]
    assert [link["url"] for link in first["links"]] == ["https://docs.example/lf/alerts.md#fleet_utilization_low"]


def test_links_lead_to_dashboards_that_there_are() -> None:
    """A click on a job, a team or a node opens its dashboard, which has a variable of that name."""
    variables = {page.uid: {v.label for v in page.variables} for page in (build(Gauges("USD")) for build in DASHBOARDS)}
    links = [
        link["url"]
        for written in WRITTEN.values()
        for panel in panels_of(written)
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", ())
    ]
    assert links
    for url in links:
        found = re.fullmatch(
            r"/d/([a-z-]+)\?var-([a-z_]+)=\$\{__field\.labels\.\2:percentencode\}&\$\{__url_time_range\}", url
        )
        assert found, url
        assert found[2] in variables[found[1]]


def test_names_are_quoted_where_grafana_puts_them_in() -> None:
    """A variable stands in an expression with Grafana's quoting, never bare or between quotes that a name could end."""
    for written in WRITTEN.values():
        for _, query in queries_of(written):
            assert not re.search(r"\$(?!\{[a-z_]+:doublequote\})", query["expr"])
