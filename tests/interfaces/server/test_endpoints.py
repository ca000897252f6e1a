"""The endpoints answer what the command line answers, in every form."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOURS, MINE, THEIRS, serve

from loadfactor.books.books import Books
from loadfactor.interfaces.pages.readings import build_page
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.interfaces.server.guard import Bounds
from loadfactor.metrics import METRICS


def test_health_is_the_receivers(client: TestClient) -> None:
    """/health says what the receiver says of its sources."""
    answer = client.get("/health")
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "sources", "lag_s"}


def test_a_write_is_acknowledged_without_content(client: TestClient) -> None:
    """A request that is durable is answered with 204 and nothing else."""
    answer = client.post("/api/v1/write", content=b"good", headers={"Content-Encoding": "snappy"})
    assert (answer.status_code, answer.content) == (204, b"")


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


def test_a_body_without_a_length_is_bounded_too(team_books: Books) -> None:
    """A body sent in pieces is refused while it comes."""
    with serve(team_books, Bounds(write_bytes=100)) as client:
        assert client.post("/api/v1/write", content=(b"x" * 60 for _ in range(9))).status_code == 413
        assert client.get("/health").status_code == 200


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
