"""Diagnoses, savings and statements over HTTP, in the reach of a token, and the OpenAPI document that the server keeps to."""

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOUR, LOCAL, MINE, START, THEIRS, serve, write_csv, write_fleet
from tests.waiting import LONGEST_S

from loadfactor.base.errors import BusyError, InputError
from loadfactor.books.books import Books
from loadfactor.books.charging.bridge import Bridge
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.books.job_summary import JobLoss, JobSummary
from loadfactor.insight.changes import Change, ChangedHolder, ChangePart
from loadfactor.insight.comparison import ComparedValue, RunComparison
from loadfactor.insight.diagnosis.finding import (
    CannotTell,
    CauseFinding,
    CauseTotal,
    FleetDiagnosis,
    JobDiagnosis,
    Range,
)
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.savings import (
    FleetSavings,
    GroupSaving,
    LeverFollowUp,
    LeverHolder,
    LeverSaving,
    UnknownHours,
    WorkPerCost,
)
from loadfactor.interfaces.insights import build_diagnosis_page as build_diagnosis
from loadfactor.interfaces.insights import build_savings_page as build_savings
from loadfactor.interfaces.pages.bridge import build_page as build_bridge
from loadfactor.interfaces.pages.chargeback import build_page as build_statements
from loadfactor.interfaces.pages.compare import build_page as build_comparison
from loadfactor.interfaces.pages.why_changed import build_page as build_change_page
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.reports.seff import SeffAnswer
from loadfactor.interfaces.requests import (
    BridgeRequest,
    ChargebackRequest,
    DiagnoseRequest,
    RunsRequest,
    SavingsRequest,
    WhyChangedRequest,
)
from loadfactor.interfaces.server.app import NEEDS
from loadfactor.interfaces.server.endpoints import DIAGNOSIS, SAVINGS
from loadfactor.interfaces.server.guard import Bounds
from loadfactor.interfaces.server.questions import limit_time
from loadfactor.metrics import METRICS
from loadfactor.money.lines import Statement
from loadfactor.store.tokens import create_token
from loadfactor.tables.schema import DIMENSIONS


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", DiagnoseRequest()),
        (f"job=job-{MINE}", DiagnoseRequest(job=f"job-{MINE}")),
        (f"team={THEIRS}&last=90min", DiagnoseRequest(team=THEIRS, last="90min")),
        ("jobs=1", DiagnoseRequest(jobs=1)),
    ],
)
def test_a_diagnosis_is_what_diagnose_prints(
    client: TestClient, team_books: Books, query: str, asked: DiagnoseRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job, a team or the fleet it is the object of `diagnose --format json`."""
    monkeypatch.setattr(DiagnoseRequest, "books", team_books)
    answer = client.get(f"/api/v1/diagnosis?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(render_json(build_diagnosis(asked)))
    assert answer.json()["jobs"]


@pytest.mark.long
def test_savings_are_what_savings_prints(
    client: TestClient, team_books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By team and with other prices they are the object of `savings --format json`; unchanged books are not asked again."""
    asked = SavingsRequest(by=("team",), commit_price=1.5)
    monkeypatch.setattr(SavingsRequest, "books", team_books)
    answer = client.get("/api/v1/savings?by=team&commit_price=1.5")
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(render_json(build_savings(asked)))
    assert {row["by"]["team"] for row in answer.json()["rows"]} == {MINE, THEIRS}
    again = client.get("/api/v1/savings?by=team&commit_price=1.5", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        *(FleetDiagnosis, JobDiagnosis, CauseFinding, CauseTotal, CannotTell, Range, FleetSavings, LeverSaving),
        *(RunComparison, ComparedValue, Change, ChangePart, ChangedHolder, FleetChargeback, Statement, Bridge),
        *(SeffAnswer, JobSummary, JobLoss),
        *(LeverHolder, GroupSaving, UnknownHours, PriceSaving, LeverFollowUp, WorkPerCost),
    ],
)
def test_openapi_describes_every_field_of_an_answer(client: TestClient, kind: type) -> None:
    """OpenAPI describes every field and property that an answer has, and no other."""
    own = {item.name for item in fields(kind)} | {n for n, of in vars(kind).items() if isinstance(of, property)}
    described = client.get("/openapi.json").json()["components"]["schemas"][kind.__name__]
    assert {name.rstrip("_") for name in own} == set(described["properties"]) == set(described["required"])


@pytest.mark.long
def test_two_runs_are_what_compare_prints(
    client: TestClient, team_books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs side by side are the object of `compare --format json`; a name of nothing is refused."""
    asked = RunsRequest(first=f"job-{MINE}", second=f"job-{THEIRS}")
    monkeypatch.setattr(RunsRequest, "books", team_books)
    answer = client.get(f"/api/v1/compare?first=job-{MINE}&second=job-{THEIRS}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(render_json(build_comparison(asked)))
    assert client.get(f"/api/v1/compare?first=job-{MINE}&second=nobody").status_code == 400


def test_a_change_is_what_why_changed_prints(
    client: TestClient, team_books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a change are the object of `why-changed --format json`; what cannot be divided is refused."""
    monkeypatch.setattr(WhyChangedRequest, "books", team_books)
    answer = client.get("/api/v1/why-changed?metric=cost&last=1h&by=team")
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(
        render_json(build_change_page(WhyChangedRequest(metric="cost", last="1h", by=("team",))))
    )
    assert client.get("/api/v1/why-changed?metric=queue_wait_s_p50").status_code == 400


def test_statements_and_bridges_are_what_the_commands_print(
    client: TestClient, team_books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements are the object of `chargeback --format json`, a bridge that of `bill bridge --format json`."""
    for kind in (ChargebackRequest, BridgeRequest):
        monkeypatch.setattr(kind, "books", team_books)
    for query, page in (
        ("statements", build_statements(ChargebackRequest())),
        (
            "statements?month=2026-09&by=team,user&timezone=Asia/Kolkata",
            build_statements(ChargebackRequest(month="2026-09", by=("team", "user"), timezone="Asia/Kolkata")),
        ),
        ("bridge", build_bridge(BridgeRequest())),
        (f"bridge?team={THEIRS}&month=2026-09", build_bridge(BridgeRequest(team=THEIRS, month="2026-09"))),
    ):
        answer = client.get(f"/api/v1/{query}")
        assert (answer.status_code, answer.json()) == (200, json.loads(render_json(page))), query


def test_a_token_of_a_team_sees_its_jobs_alone_by_seff(team_books: Books, tmp_path: Path) -> None:
    """Another team's job and one that there is not are answered alike."""
    shutil.copytree(team_books.store.folder, tmp_path / "books")
    _, secret = create_token(tmp_path / "books", "read-team", MINE, "", 1)
    with serve(Books(tmp_path / "books")) as client:
        asked = {"Authorization": f"Bearer {secret}"}
        mine, theirs, none = (
            client.get(f"/api/v1/seff?job={job}", headers=asked)
            for job in (f"job-{MINE}", f"job-{THEIRS}", "job-of-none")
        )
    assert (mine.status_code, [of["job"] for of in mine.json()["jobs"]]) == (200, [f"job-{MINE}"])
    assert theirs.status_code == none.status_code == 400
    assert theirs.json()["error"].replace(THEIRS, "") == none.json()["error"].replace("of-none", "")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("diagnosis?job=nobody", "'nobody'"),
        (f"diagnosis?team={THEIRS[:-1]}", "team"),
        (f"diagnosis?job=job-{MINE}&team={MINE}", "job and team both say of whom"),
        ("diagnosis?jobs=0", "jobs: "),
        ("savings?by=node", "team or user"),
        ("savings?spot_price=0", "spot_price: "),
    ],
)
def test_mistakes_are_said_in_one_line(client: TestClient, path: str, said: str) -> None:
    """What is wrong is 400 and one line that names the parameter or the name."""
    answer = client.get(f"/api/v1/{path}")
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert said in answer.json()["error"]


def test_what_takes_too_long_ends(team_books: Books) -> None:
    """After its time a question ends between two jobs or levers, and says what asks for less."""
    with serve(team_books, Bounds(long_question_s=-1)) as client:
        for path in ("diagnosis", "savings"):
            answer = client.get(f"/api/v1/{path}")
            assert answer.status_code == 400
            assert "shorter window or fewer jobs" in answer.json()["error"]


def test_time_is_limited_from_its_begin() -> None:
    """A limit of 60 s is quiet at 59 s and ends at 61 s."""
    now = [1000.0]
    tell = limit_time(60, lambda: now[0])
    now[0] += 59
    tell("diagnosing", 0.5)
    now[0] += 2
    with pytest.raises(InputError, match="longer than 60 s"):
        tell("diagnosing", 0.9)


def test_one_is_worked_on_and_others_are_told_to_come_back(team_books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none may wait, another one is refused with 429 meanwhile, and short questions go on."""
    begun, go = threading.Event(), threading.Event()

    def work(*_: Any) -> Any:
        begun.set()
        assert go.wait(LONGEST_S)
        raise BusyError("over", 1)

    monkeypatch.setattr("loadfactor.interfaces.server.endpoints.answer_diagnosis", work)
    with serve(team_books, Bounds(waiting_long_questions=0)) as client:
        first = threading.Thread(target=client.get, args=("/api/v1/diagnosis",))
        first.start()
        try:
            assert begun.wait(LONGEST_S)
            refused = client.get("/api/v1/savings")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            assert client.get("/api/v1/readings?metric=cost").status_code == 200
        finally:
            go.set()
            first.join()
        assert client.get("/api/v1/savings").status_code == 200


@pytest.fixture
def shared_books(tmp_path: Path) -> Books:
    """The same fleet; both teams also held a GPU as one job `both`, an hour each, before."""
    tables = write_fleet(tmp_path / "tables")
    rows = [
        {"team": team, "job_id": "both", "device_id": f"GPU-{team}-0", "from_utc": START - HOUR, "to_utc": START}
        for team in (MINE, THEIRS)
    ]
    write_csv(tmp_path / "allocations.csv", rows)
    books = Books(tmp_path / "books")
    books.add("tables", [tables])
    (tmp_path / "more").mkdir()
    (tmp_path / "allocations.csv").rename(tmp_path / "more" / "allocations.csv")
    books.add("tables", [tmp_path / "more"])
    return books


@pytest.mark.long
def test_a_team_reads_its_own_diagnosis(shared_books: Books) -> None:
    """A token of a team is told of its jobs, of no other team's, of none that it shares with another, and no savings."""
    _, secret = create_token(shared_books.store.folder, "read-team", MINE, "", 1)
    asked = {"Authorization": f"Bearer {secret}"}
    with serve(shared_books) as client:
        whole = client.get("/api/v1/diagnosis", headers=asked).json()
        assert (whole["of"], [job["job"] for job in whole["jobs"]]) == (f"team {MINE}", [f"job-{MINE}"])
        assert client.get(f"/api/v1/diagnosis?job=job-{MINE}", headers=asked).json()["jobs"] == whole["jobs"]
        assert client.get(f"/api/v1/diagnosis?team={THEIRS}", headers=asked).status_code == 403
        refused = client.get("/api/v1/diagnosis?job=both", headers=asked)
        assert (refused.status_code, "not of this team alone" in refused.json()["error"]) == (400, True)
        hidden = client.get(f"/api/v1/diagnosis?job=job-{THEIRS}", headers=asked)
        assert (hidden.status_code, "in what team" in hidden.json()["error"]) == (400, True)
        assert client.get("/api/v1/savings", headers=asked).status_code == 403


def test_a_team_reads_its_own_statements(shared_books: Books) -> None:
    """A token of a team has the statements and the bridge of that team, and no amount, sum or name of another one."""
    _, secret = create_token(shared_books.store.folder, "read-team", MINE, "", 1)
    asked = {"Authorization": f"Bearer {secret}"}
    with serve(shared_books) as client:
        own = client.get("/api/v1/statements", headers=asked)
        assert [of["amounts"]["EffectiveCost"] for of in own.json()["statements"]] == ["16.00"], "2 GPUs, 4 h, $2"
        bridge = client.get("/api/v1/bridge", headers=asked)
        assert (bridge.json()["team"], bridge.json()["steps"][-1]["amount"]) == (MINE, "16.00")
        by_user = client.get("/api/v1/statements?by=team,user", headers=asked)
        assert len(by_user.json()["statements"]) == 1
        assert not any(name in answer.text for answer in (own, bridge, by_user) for name in (THEIRS, "7919", "63368"))
        assert client.get(f"/api/v1/bridge?team={THEIRS}", headers=asked).status_code == 403
        assert client.get("/api/v1/statements?by=user", headers=asked).status_code == 400
        other = client.get("/api/v1/bridge?month=2020-01", headers=asked)
        assert (other.status_code, THEIRS in other.text) == (400, False)


def test_books_that_know_nothing_say_so(empty: Books) -> None:
    """Before the first sample there is nothing to diagnose, and that is said."""
    with serve(empty) as client:
        for path in ("diagnosis", "savings", "statements", "bridge"):
            assert client.get(f"/api/v1/{path}").status_code == 400


load_all_checks()
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
CASES, SLOWER = [15, pytest.param(60, marks=pytest.mark.long)], 5
"""Requests to each endpoint; by how much fewer to those that take a second each."""
DESCRIBED = sorted(set(NEEDS) - {("GET", "/openapi.json")})

SENT = ("method", "url", "params", "headers", "content", "data")
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "metric": st.lists(st.sampled_from([m.name for m in METRICS]), max_size=3),
        "by": st.lists(st.sampled_from(list(DIMENSIONS)), max_size=3),
        "where": st.sampled_from([f"team={MINE}", f"job=job-{THEIRS}", f"team={MINE},pool=pool-{THEIRS}"]),
        "last": st.sampled_from(["90min", "2h", "7d"]),
        "timezone": st.sampled_from(["Asia/Kolkata", "UTC"]),
        "limit": st.integers(1, 5),
        "sort": st.sampled_from(["-cost", "team", "nothing"]),
        "source": st.sampled_from(["tables", "dcgm", "prices", "nvidia-smi"]),
        "filename": st.sampled_from(["devices.csv", "a.csv.gz", "x.parquet"]),
    },
)
"""Names that mean something, so that some of the requests are understood."""


@schemathesis.serializer("application/x-protobuf", "application/x-ndjson")
def send_bytes(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    """A body as it was drawn."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def fuzzed(team_books: Books, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server over a copy of the books, into which anything may be imported."""
    books = Books(tmp_path_factory.mktemp("fuzzed") / "books")
    with team_books.store.read():
        shutil.copytree(team_books.store.folder, books.store.folder, dirs_exist_ok=True)
    with serve(books) as client:
        yield client


def test_every_endpoint_is_described(client: TestClient) -> None:
    """The document names every endpoint but itself, with its errors and whether it needs a token."""
    document = client.get("/openapi.json").json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(DESCRIBED)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["security"] == ([] if path == "/health" else [{"token": []}, {}])
            assert {"400", "401", "403", "429", "500"} <= set(operation["responses"])
            assert "422" not in operation["responses"]
    assert {"ErrorAnswer", "ReadingsAnswer", "ReceiptAnswer"} <= set(document["components"]["schemas"])


@pytest.mark.long
@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize(("method", "path"), DESCRIBED)
def test_whatever_is_asked_is_answered_as_described(fuzzed: TestClient, method: str, path: str, cases: int) -> None:
    """No request makes the server fail, and every answer has a status, a type and a shape that the document names."""
    schema = schemathesis.openapi.from_dict(fuzzed.get("/openapi.json").json())
    operation = schema[path][method]

    @settings(
        max_examples=cases // SLOWER if path in (DIAGNOSIS, SAVINGS) else cases,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=operation.as_strategy(), known=KNOWN)
    def ask(case: schemathesis.Case, known: dict[str, Any]) -> None:
        case.query = {**(case.query or {}), **known}
        asked = case.as_transport_kwargs(base_url=LOCAL)
        answer = fuzzed.request(**{name: value for name, value in asked.items() if name in SENT})
        case.validate_response(answer, checks=CHECKS)

    ask()
