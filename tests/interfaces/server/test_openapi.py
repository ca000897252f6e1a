"""The OpenAPI document describes every endpoint, and the server keeps to it whatever it is asked."""

import shutil
from collections.abc import Iterator
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
from tests.interfaces.server.conftest import LOCAL, MINE, THEIRS, serve

from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import NEEDS
from loadfactor.interfaces.server.endpoints import DIAGNOSIS, SAVINGS
from loadfactor.metrics import METRICS
from loadfactor.tables.schema import DIMENSIONS

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
