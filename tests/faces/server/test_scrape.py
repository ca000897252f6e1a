"""/metrics tells the fleet's numbers under names with the unit last, and the server's own; unknown is left out."""

import re

import pytest
from starlette.testclient import TestClient
from tests.faces.server.conftest import MINE, THEIRS, serve

from loadfactor.books.books import Books
from loadfactor.faces.server.exposition import MetricFamily, name_gauge, write_exposition
from loadfactor.faces.server.fleet_gauges import SHOWN, GaugeWindow

LINE = re.compile(r'(?P<name>[a-z][a-z0-9_]*)(\{(?P<labels>[a-z]+="[^"]*"(,[a-z]+="[^"]*")*)\})? (?P<value>[-+0-9.e]+)')


def scrape(client: TestClient) -> dict[str, float]:
    """The samples by name and labels; every line is well-formed."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("# ")]
    assert all(LINE.fullmatch(line) for line in lines)
    found = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert len(found) == len(lines)
    return found


def test_the_fleet_over_the_last_hour(client: TestClient) -> None:
    """Gauges speak of the last hour, of all and of each part, with the coverage of each metric."""
    found = scrape(client)
    assert found["loadfactor_paid_gpu_hours"] == 4
    assert found["loadfactor_utilization_ratio"] == pytest.approx((0.5 + 0.7654321) / 2)
    assert found[f'loadfactor_team_utilization_ratio{{team="{MINE}"}}'] == pytest.approx(0.5)
    assert found[f'loadfactor_pool_cost_usd{{pool="pool-{THEIRS}"}}'] == pytest.approx(2 * 7919)
    assert found['loadfactor_coverage_ratio{metric="utilization"}'] == 1
    assert "loadfactor_power_watts" not in found


def test_the_server_counts_itself(client: TestClient) -> None:
    """Samples received, acknowledged and refused, the queue, the lag, errors by source and requests are counted."""
    client.post("/api/v1/write", content=b"good")
    client.post("/api/v1/write", content=b"bad")
    client.get("/anything/at/all")
    found = scrape(client)
    assert found["loadfactor_server_rows_acknowledged_total"] == 1
    assert found['loadfactor_server_refused_total{reason="malformed"}'] == 1
    assert found['loadfactor_server_source_errors_total{source="prom:a"}'] == 2
    assert found['loadfactor_server_requests_total{path="/api/v1/write",status="204"}'] == 1
    assert found['loadfactor_server_requests_total{path="other",status="404"}'] == 1
    assert {"loadfactor_server_queue_bytes", "loadfactor_server_lag_seconds"} <= set(found)


def test_what_is_too_small_to_be_shown_is_summed_only_where_sums_are_right(team_books: Books) -> None:
    """With room for one team the others' hours and costs are one line; their utilization has none."""
    with serve(team_books, window=GaugeWindow(dimensions=("team",), largest=1, wait_s=60)) as client:
        found = scrape(client)
    others = {name for name in found if "(others)" in name}
    assert 'loadfactor_team_paid_gpu_hours{team="(others)"}' in others
    assert not [name for name in others if "ratio" in name]


def test_empty_books_show_the_server_alone(empty: Books) -> None:
    """Where nothing is known there is no number of the fleet."""
    with serve(empty) as client:
        assert all(name.startswith("loadfactor_server_") for name in scrape(client))


def test_names_of_gauges_are_names(client: TestClient) -> None:
    """Every metric has a name of its own that Prometheus takes."""
    assert client
    names = {name_gauge(metric, "USD", by) for metric in SHOWN for by in ("", "team")}
    assert len(names) == 2 * len(SHOWN)
    assert all(re.fullmatch(r"loadfactor(_[a-z0-9]+)+", name) for name in names)


def test_labels_are_escaped() -> None:
    """A name cannot end its quotes or its line, and what is not finite has no line."""
    family = MetricFamily("x", "a\nb", "gauge", [({"team": 'a"b\\c\nd'}, 1.0), ({"team": "e"}, float("nan"))])
    assert write_exposition([family]).decode().splitlines() == [
        "# HELP x a\\nb",
        "# TYPE x gauge",
        'x{team="a\\"b\\\\c\\nd"} 1.0',
    ]
