"""/metrics tells the fleet's numbers under names with the unit last, and the server's own; unknown is left out."""

import re

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOUR, HOURS, MINE, START, THEIRS, serve

from loadfactor.books.books import Books
from loadfactor.interfaces.gauges.exposition import (
    SHOWN,
    SPLITS,
    GaugeSplit,
    MetricFamily,
    name_gauge,
    write_exposition,
)
from loadfactor.interfaces.server.scrape import GaugeWindow

LINE = re.compile(
    r'(?P<name>[a-z][a-z0-9_]*)(\{(?P<labels>[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*)\})? (?P<value>[-+0-9.e]+)'
)


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
    with serve(team_books, window=GaugeWindow((GaugeSplit(("team",), largest=1),), wait_s=60)) as client:
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
    names = [split.name(metric, "USD") for split in SPLITS for metric in split.metrics]
    names += [name_gauge(metric, "USD", ("job",), "whole") for metric in SHOWN]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"loadfactor(_[a-z0-9]+)+", name) for name in names)


def test_a_day_a_job_and_its_gpus(client: TestClient) -> None:
    """The last 24 hours, and each job, have names of their own; a GPU of a job has its hours by activity."""
    found = scrape(client)
    assert found["loadfactor_24h_paid_gpu_hours"] == 16
    assert found['loadfactor_job_paid_gpu_hours{job_id="job-hushhush"}'] == 2
    assert found['loadfactor_whole_job_paid_gpu_hours{job_id="job-hushhush"}'] == 8
    assert found['loadfactor_whole_job_cost_usd{job_id="job-hushhush"}'] == pytest.approx(8 * 7919)
    gpu = f'job_id="job-{MINE}",device_id="GPU-{MINE}-0"'
    name = "loadfactor_24h_job_device_utilization_histogram_gpu_hours"
    hours = {key: value for key, value in found.items() if key.startswith(f"{name}{{{gpu},")}
    assert len(hours) == 20
    assert sum(hours.values()) == pytest.approx(4)
    assert hours[f'{name}{{{gpu},activity="50-55%"}}'] == pytest.approx(4)
    assert found[f'loadfactor_team_coverage_ratio{{team="{MINE}",metric="utilization"}}'] == 1
    assert found["loadfactor_books_end_timestamp_seconds"] == (START + HOURS * HOUR) / 1000


def test_what_rules_of_alerts_watch(client: TestClient) -> None:
    """The value that a rule compares is told over its window, of the groups that may be judged."""
    found = scrape(client)
    watched = "loadfactor_watched_30m_team_utilization_ratio"
    assert found[f'{watched}{{rule="team_utilization_low",team="{MINE}"}}'] == pytest.approx(0.5)
    assert found[f'{watched}{{rule="team_utilization_low",team="{THEIRS}"}}'] == pytest.approx(0.7654321)
    assert 'loadfactor_watched_30m_utilization_ratio{rule="fleet_utilization_low"}' in found


def test_sources_say_when_they_were_heard_of(client: TestClient) -> None:
    """Each source has whether it is well, and the time of its last sample."""
    found = scrape(client)
    assert found['loadfactor_server_source_up{source="dcgm:a"}'] == 1
    assert found['loadfactor_server_source_last_sample_timestamp_seconds{source="dcgm:a"}'] == 1_790_812_800


def test_labels_are_escaped() -> None:
    """A name cannot end its quotes or its line, and what is not finite has no line."""
    family = MetricFamily("x", "a\nb", "gauge", [({"team": 'a"b\\c\nd'}, 1.0), ({"team": "e"}, float("nan"))])
    assert write_exposition([family]).decode().splitlines() == [
        "# HELP x a\\nb",
        "# TYPE x gauge",
        'x{team="a\\"b\\\\c\\nd"} 1.0',
    ]
