"""The endpoints answer what the command line answers, in every form; /metrics tells the numbers of the fleet and the server."""

import io
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pytest
from httpx import Response
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOUR, HOURS, MINE, START, THEIRS, serve

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.gauges.exposition import (
    SHOWN,
    SPLITS,
    GaugeSplit,
    MetricFamily,
    name_gauge,
    write_exposition,
)
from loadfactor.interfaces.pages.readings import build_page
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.interfaces.server import log
from loadfactor.interfaces.server.guard import Bounds
from loadfactor.interfaces.server.scrape import GaugeWindow
from loadfactor.metrics import METRICS
from loadfactor.settings.config import CHOSEN, choose_file, take_changes
from loadfactor.store.tokens import create_token


def test_health_is_the_receivers(client: TestClient) -> None:
    """/health says what the receiver says of its sources."""
    answer = client.get("/health")
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "reasons", "sources", "lag_s", "clock"}
    assert set(answer.json()["clock"]) == {"now_utc", "newest_trusted_utc", "ahead_s", "deletions"}


def test_a_write_is_acknowledged_without_content(client: TestClient) -> None:
    """A request that is durable is answered with 204 and nothing else."""
    answer = client.post("/api/v1/write", content=b"good", headers={"Content-Encoding": "snappy"})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (b"bad", {}, 400, "this is no remote_write request"),
        (b"busy", {}, 429, "the queue is full"),
        (b"bug", {}, 500, "an error in loadfactor itself (ZeroDivisionError)"),
        (b"good", {"Content-Encoding": "gzip"}, 415, "only snappy"),
        (b"good", {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, 415, "1.0"),
        (b"x" * 101, {}, 413, "at most 100 bytes"),
    ],
)
def test_a_write_is_refused_in_one_line(
    team_books: Books, capsys: pytest.CaptureFixture[str], body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    """What is wrong is a status and one line of JSON, also in the log, and no secret is in either."""
    with serve(team_books, Bounds(write_bytes=100)) as client:
        answer = client.post("/api/v1/write", content=body, headers={"X-Request-Id": "r-1", **headers})
    assert (answer.status_code, answer.headers["x-request-id"]) == (status, "r-1")
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert answer.headers.get("retry-after") == ("7" if status == 429 else None)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["request_id"], line["status"]) == ("r-1", status)
    assert "MustNotBeSaid" not in json.dumps(line) + answer.text


def test_the_log_has_a_line_a_request(
    client: TestClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the trace that it is part of, as JSON or as text; from a level on, requests that went well have none."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    monkeypatch.setattr(log, "STYLE", log.LogStyle())
    client.get("/api/v1/metrics", headers=headers)
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["path"], line["trace_id"]) == ("info", "/api/v1/metrics", trace)
    log.STYLE.choose("text", "info")
    client.get("/api/v1/metrics", headers=headers)
    assert re.search(
        rf" INFO request_id=\w+ .*path=/api/v1/metrics status=200 .*trace_id={trace}$", capsys.readouterr().err
    )
    log.STYLE.choose("json", "error")
    client.get("/api/v1/metrics", headers=headers)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="no log format called 'xml'"):
        log.STYLE.choose("xml", "info")


def test_a_body_without_a_length_is_bounded_too(team_books: Books) -> None:
    """A body sent in pieces is refused while it comes."""
    with serve(team_books, Bounds(write_bytes=100)) as client:
        assert client.post("/api/v1/write", content=(b"x" * 60 for _ in range(9))).status_code == 413
        assert client.get("/health").status_code == 200


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("metric=utilization&by=device", ShowRequest(metrics=("utilization",), by=("device",))),
        (
            "metric=cost,utilization&metric=power_w&by=team,day",
            ShowRequest(metrics=("cost", "utilization", "power_w"), by=("team", "day")),
        ),
        ("by=team", ShowRequest(by=("team",))),
        (
            "metric=cost&where=team%3Dminerals&last=90min",
            ShowRequest(metrics=("cost",), where=("team=minerals",), last="90min"),
        ),
        (
            "metric=cost&by=device&sort=-cost&limit=2",
            ShowRequest(metrics=("cost",), by=("device",), sort="-cost", limit=2),
        ),
        ("", ShowRequest()),
    ],
)
def test_readings_are_what_show_prints(
    client: TestClient, team_books: Books, query: str, asked: ShowRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readings are the objects of `show --format json`."""
    monkeypatch.setattr(ShowRequest, "books", team_books)
    answer = client.get(f"/api/v1/readings?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["readings"] == json.loads(render_json(build_page(asked)))


def test_rows_come_as_csv_and_arrow(client: TestClient) -> None:
    """CSV and Arrow hold the same readings as JSON, packed only where that is asked for."""
    query = "/api/v1/readings?metric=paid_gpu_hours&by=device,hour&format="
    plain = client.get(query + "json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    lines = client.get(query + "csv").text.splitlines()
    table = pa.ipc.open_stream(io.BytesIO(client.get(query + "arrow").content)).read_all()
    readings = plain.json()["readings"]
    assert len(readings) == len(lines) - 1 == table.num_rows == 4 * HOURS
    assert table["value"].to_pylist() == [r["value"] for r in readings]
    packed = client.get(query + "json", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()


@pytest.mark.long
def test_long_answers_stream(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of many pieces is the same as one of few."""
    query = "/api/v1/readings?by=device,hour&format="
    plain = {"Accept-Encoding": "identity"}
    whole = {form: client.get(query + form, headers=plain).content for form in ("json", "csv")}
    monkeypatch.setattr("loadfactor.interfaces.server.replies.PIECE", 7)
    for form, content in whole.items():
        answer = client.get(query + form, headers=plain)
        assert "content-length" not in answer.headers
        assert answer.content.split() == content.split()


def test_an_answer_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    """The same question of the same books has the same tag; another question has another."""
    first = client.get("/api/v1/readings?metric=cost")
    again = client.get("/api/v1/readings?metric=cost", headers={"If-None-Match": first.headers["etag"]})
    other = client.get("/api/v1/readings?metric=cost&by=team", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, other.status_code) == (304, b"", 200)


@pytest.mark.long
def test_any_number_of_servers_read_one_store(fleet: Path, tmp_path: Path) -> None:
    """Behind one proxy a copy that one gave is right at the other; after a writer came both give what is new, under one tag."""
    writer = Books(tmp_path / "books")
    writer.add("tables", [fleet])
    _, token = create_token(tmp_path / "books", "read", None, "", 0)
    headers = {"Authorization": f"Bearer {token}"}
    with serve(Books(tmp_path / "books")) as one, serve(Books(tmp_path / "books")) as other:

        def ask(client: TestClient, **more: str) -> Response:
            return client.get("/api/v1/readings?metric=cost", headers=headers | more)

        first = ask(one)
        assert ask(other, **{"If-None-Match": first.headers["etag"]}).status_code == 304
        (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,currency\ncontracted,1,USD\n")
        writer.add("tables", [tmp_path / "prices.csv"])
        later = [ask(client, **{"If-None-Match": first.headers["etag"]}) for client in (one, other)]
        assert [answer.status_code for answer in later] == [200, 200]
        assert later[0].headers["etag"] == later[1].headers["etag"] != first.headers["etag"]
        assert later[0].text == later[1].text


def test_a_tag_knows_the_settings(client: TestClient, tmp_path: Path) -> None:
    """A new price in loadfactor.toml is a new answer, also to who holds the answer of before."""
    file, before, answers = tmp_path / "loadfactor.toml", CHOSEN.path, list[Response]()
    question, tag = "/api/v1/readings?metric=cost&basis=owned", ""
    try:
        for price in ("300_000", "1_600_000", "1_600_000"):
            file.write_text(f"[[owned]]\nserver_price = {price}\ngpus_per_server = 8\nserver_kw = 10\n")
            choose_file(file) if not answers else take_changes()
            answers.append(client.get(question, headers={"If-None-Match": tag}))
            tag = answers[-1].headers["etag"]
    finally:
        choose_file(before)
    assert [answer.status_code for answer in answers] == [200, 200, 304]
    assert answers[0].json() != answers[1].json()


@pytest.mark.long
def test_lists(client: TestClient) -> None:
    """Metrics, jobs, devices, imports and coverage are listed, jobs by filters and page by page."""
    assert [m["name"] for m in client.get("/api/v1/metrics").json()["metrics"]] == [m.name for m in METRICS]
    jobs = client.get("/api/v1/jobs").json()["jobs"]
    assert [(j["job"], j["team"], j["gpus"]) for j in jobs] == [(f"job-{t}", t, 2.0) for t in sorted((MINE, THEIRS))]
    assert client.get(f"/api/v1/jobs?where=team%3D{MINE}").json()["jobs"] == [j for j in jobs if j["team"] == MINE]
    assert client.get("/api/v1/jobs?limit=1&offset=1").json()["jobs"] == jobs[1:]
    assert client.get("/api/v1/jobs?where=device%3Dx").status_code == 400
    devices = client.get("/api/v1/devices").json()["devices"]
    assert len(devices) == 4
    assert set(devices[0]) == {"device", "node", "accelerator", "pool", "share", "from", "to"}
    assert [i["number"] for i in client.get("/api/v1/imports").json()["imports"]] == [1]
    assert client.get("/api/v1/coverage?metric=utilization").json()["coverage"][0]["coverage"] == 1
    for path in ("metrics", "jobs", "devices", "imports", "coverage"):
        table = pa.ipc.open_stream(io.BytesIO(client.get(f"/api/v1/{path}?format=arrow").content)).read_all()
        assert table.num_rows == len(client.get(f"/api/v1/{path}").json()[path])


@pytest.mark.long
def test_books_that_know_nothing_answer_with_nothing(empty: Books) -> None:
    """Before the first sample every list is empty."""
    with serve(empty) as client:
        for name in ("readings", "coverage", "jobs", "devices", "imports"):
            for form in ("json", "csv", "arrow"):
                assert client.get(f"/api/v1/{name}?format={form}").status_code == 200, (name, form)
            assert client.get(f"/api/v1/{name}").json() == {name: []}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/v1/readings?metric=utilisation", 400, "did you mean 'utilization'?"),
        ("/api/v1/readings?metric=cost&sort=cost", 400, "say which with by"),
        ("/api/v1/readings?by=device,node,pool,team,user", 400, "5 dimensions"),
        ("/api/v1/readings?metric=cost&from=yesterday", 400, "is no time"),
        ("/api/v1/readings?format=xml", 400, "format: "),
        ("/api/v1/nothing", 404, "no such address"),
        ("/api/v1/write", 405, "not this method"),
        ("/api/v1/readings?metric=" + "x" * 9000, 414, "longer than"),
        ("/api/v1/readings?metric=lf_AbcdefghijklmnopqrstuvwxyZ0123456789-_xyz", 400, "lf_…"),
    ],
)
def test_a_question_is_refused_in_one_line(client: TestClient, path: str, status: int, said: str) -> None:
    """What is wrong with a question is said in one line that names the parameter."""
    answer = client.get(path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert said in answer.json()["error"]


def test_more_groups_than_can_be_held_are_refused(team_books: Books) -> None:
    """GPUs times hours bound the answer before it is worked out."""
    with serve(team_books, Bounds(groups=10)) as client:
        answer = client.get("/api/v1/readings?metric=cost&by=device,hour")
    assert (answer.status_code, "4 GPUs" in answer.text) == (400, True)


def test_an_upload_is_imported_once(fleet: Path, empty: Books) -> None:
    """A file that is uploaded is in the books with a receipt; the same again adds nothing; the audit log says both."""
    content = (fleet / "devices.csv").read_bytes()
    with serve(empty) as client:
        query = "/api/v1/imports?source=tables&filename=devices.csv"
        first, again = (client.post(query, content=content) for _ in range(2))
        assert (first.status_code, first.json()["rows"], first.json()["already"]) == (201, {"devices": 4}, False)
        assert again.json()["already"]
        bad = client.post(query, content=b"device_id\n\n")
        assert bad.status_code == 400
        assert bad.json()["error"].startswith("devices.csv")
        assert client.post("/api/v1/imports?source=tablets&filename=a.csv", content=b"").status_code == 400
        assert client.post("/api/v1/imports?source=tables&filename=../a.csv", content=b"").status_code == 400
    lines = [json.loads(line) for line in (empty.store.folder / "audit.log").read_text().splitlines()]
    assert [(line["action"], line["file"], line["already"]) for line in lines] == [
        ("import", "devices.csv", False),
        ("import", "devices.csv", True),
    ]


def test_a_gzip_bomb_is_refused(empty: Books) -> None:
    """A small file that unpacks to a large one is refused before it is imported."""
    import gzip

    bomb = gzip.compress(b"0" * 3_000_000) + gzip.compress(b"1" * 3_000_000)
    with serve(empty, Bounds(unpacked_bytes=5_000_000)) as client:
        answer = client.post("/api/v1/imports?source=tables&filename=devices.csv.gz", content=bomb)
    assert answer.status_code == 413
    assert not empty.imports


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


@pytest.mark.long
def test_the_fleet_over_the_last_hour(client: TestClient) -> None:
    """Gauges speak of the last hour, of all and of each part, with the coverage of each metric."""
    found = scrape(client)
    assert found["loadfactor_paid_gpu_hours"] == 4
    assert found["loadfactor_utilization_ratio"] == pytest.approx((0.5 + 0.7654321) / 2)
    assert found[f'loadfactor_team_utilization_ratio{{team="{MINE}"}}'] == pytest.approx(0.5)
    assert found[f'loadfactor_pool_cost_usd{{pool="pool-{THEIRS}"}}'] == pytest.approx(2 * 7919)
    assert found['loadfactor_coverage_ratio{metric="utilization"}'] == 1
    assert "loadfactor_power_watts" not in found


@pytest.mark.long
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


@pytest.mark.long
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
        assert all(name.startswith(("loadfactor_server_", "process_")) for name in scrape(client))


@pytest.mark.long
def test_the_process_is_measured(client: TestClient) -> None:
    """As Prometheus' own clients name it, and `promtool` has nothing to say of the names and types of the server."""
    before, found, now_s = time.process_time(), scrape(client), time.time()
    assert before <= found["process_cpu_seconds_total"] <= time.process_time() + 0.1
    assert 1e7 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 3 < found["process_open_fds"] < found["process_max_fds"]
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert found["process_start_time_seconds"] == pytest.approx(now_s - uptime_s + ticks, abs=5)
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's prometheus)")
    own = re.compile(r"(# (HELP|TYPE) )?(loadfactor_server|process)_")
    lines = [line for line in client.get("/metrics").text.splitlines(keepends=True) if own.match(line)]
    done = subprocess.run(
        ["promtool", "check", "metrics"], input="".join(lines), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done


def test_names_of_gauges_are_names(client: TestClient) -> None:
    """Every metric has a name of its own that Prometheus takes."""
    assert client
    names = [split.name(metric, "USD") for split in SPLITS for metric in split.metrics]
    names += [name_gauge(metric, "USD", ("job",), "whole") for metric in SHOWN]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"loadfactor(_[a-z0-9]+)+", name) for name in names)


@pytest.mark.long
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


@pytest.mark.long
def test_what_rules_of_alerts_watch(client: TestClient) -> None:
    """The value that a rule compares is told over its window, of the groups that may be judged."""
    found = scrape(client)
    watched = "loadfactor_watched_30m_team_utilization_ratio"
    assert found[f'{watched}{{rule="team_utilization_low",team="{MINE}"}}'] == pytest.approx(0.5)
    assert found[f'{watched}{{rule="team_utilization_low",team="{THEIRS}"}}'] == pytest.approx(0.7654321)
    assert 'loadfactor_watched_30m_utilization_ratio{rule="fleet_utilization_low"}' in found


@pytest.mark.long
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
