"""Bills in a bucket of moto's S3 and in a BigQuery on loopback, through the clouds' own clients: pages, throttling, errors."""

import json
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from typer.testing import CliRunner
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from loadfactor.base.errors import InputError, SourceError
from loadfactor.books.books import Books
from loadfactor.collect.cloud_bills import fetch_bills, fetch_table, split_address
from loadfactor.interfaces.cli import app

HEAD = "ProviderName,BillingAccountId,SubAccountId,BillingCurrency,BillingPeriodStart,ChargePeriodStart,BilledCost,EffectiveCost\n"
SLOW_DOWN = "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class FakeS3:
    """moto's S3, which throttles every third request and lists two objects a page."""

    def __init__(self) -> None:
        self.requests = 0
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        self.requests += request.method == "GET"
        if request.method == "GET" and self.requests % 3 == 0:
            return Response(SLOW_DOWN, 503, content_type="application/xml")(environ, start_response)
        if "list-type" in request.args:
            environ["QUERY_STRING"] += "&max-keys=2"
        return self._moto(environ, start_response)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket with three parts of a bill, its manifest, and what is none of them."""
    fake = FakeS3()
    for name, value in {
        "AWS_ENDPOINT_URL": fake.url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bills")
    for day in (1, 2, 3):
        row = f"AWS,1,a,USD,2024-09-01,2024-09-0{day},{day}.10,{day}.10\n"
        client.put_object(Bucket="bills", Key=f"cur/20240901-20241001/part-{day}.csv", Body=(HEAD + row).encode())
    for other in ("cur/notes.txt", "cur/20240901-20241001/x-Manifest.json", "cur-old/part.csv", "cur/folder/"):
        client.put_object(Bucket="bills", Key=other, Body=b"{}")
    yield client
    for key in [o["Key"] for o in client.list_objects_v2(Bucket="bills").get("Contents", ())]:
        client.delete_object(Bucket="bills", Key=key)
    fake.close()


@pytest.mark.long
@pytest.mark.usefixtures("bucket")
def test_a_prefix_is_imported_like_a_folder(tmp_path: Path) -> None:
    """Every part once, over pages and throttling; the same again adds nothing."""
    store = tmp_path / "books"
    words = ["import", "focus", "s3://bills/cur", "--store", str(store)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "Imported 3 charges." in done.output
    assert "Already in the books" in CliRunner().invoke(app, words, catch_exceptions=False).output
    with Books.open(store).store.read() as session:
        session.view_table("charges", "charges")
        assert str(session.fetch_one("SELECT sum(BilledCost)::DECIMAL(9, 2) FROM charges")[0]) == "6.30"


def test_what_is_fetched_keeps_its_name_and_age(bucket: Any, tmp_path: Path) -> None:
    """Manifests come along, other files do not; one object is one file."""
    folder = fetch_bills("s3://bills/cur/", tmp_path, lambda *_: None)
    names = sorted(p.name for p in folder.rglob("*") if p.is_file())
    assert names == ["part-1.csv", "part-2.csv", "part-3.csv", "x-Manifest.json"]
    key = "cur/20240901-20241001/part-1.csv"
    said = bucket.head_object(Bucket="bills", Key=key)["LastModified"].timestamp()
    assert (folder / key).stat().st_mtime == said
    assert fetch_bills(f"s3://bills/{key}", tmp_path / "one", lambda *_: None).name == "part-1.csv"


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("s3://", InputError, "names no bucket"),
        ("s3://bills/nothing", SourceError, "holds no bill"),
        ("s3://other/cur", SourceError, "NoSuchBucket: "),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, url: str, kind: type[Exception], said: str) -> None:
    """No bucket, nothing there, another bucket."""
    with pytest.raises(kind, match=said) as error:
        fetch_bills(url, tmp_path, lambda *_: None)
    assert "\n" not in str(error.value)


def test_a_name_that_leaves_the_folder_is_refused(bucket: Any, tmp_path: Path) -> None:
    """Whoever may write to a bucket writes nowhere else."""
    bucket.put_object(Bucket="bills", Key="cur/../../x.csv", Body=b"x")
    with pytest.raises(SourceError, match="cannot be the name of a file"):
        fetch_bills("s3://bills/cur", tmp_path, lambda *_: None)


TABLE = "acme.billing.gcp_billing_export_v1_01"


JOB = {
    "jobReference": {"projectId": "acme", "jobId": "j1", "location": "EU"},
    "status": {"state": "DONE"},
    "configuration": {
        "jobType": "QUERY",
        "query": {"query": "", "destinationTable": {"projectId": "acme", "datasetId": "_anon", "tableId": "t"}},
    },
    "statistics": {"query": {"statementType": "SELECT"}},
}


def field(name: str, kind: str, *fields: dict[str, Any], mode: str = "NULLABLE") -> dict[str, Any]:
    """A field of a schema."""
    return {"name": name, "type": kind, "mode": mode} | ({"fields": list(fields)} if fields else {})


SCHEMA = [
    field("billing_account_id", "STRING"),
    field("cost", "FLOAT"),
    field("cost_at_list", "NUMERIC"),
    field("currency", "STRING"),
    field("usage_start_time", "TIMESTAMP"),
    field("invoice", "RECORD", field("month", "STRING")),
    field("labels", "RECORD", field("key", "STRING"), field("value", "STRING"), mode="REPEATED"),
    field("credits", "RECORD", field("amount", "FLOAT"), field("type", "STRING"), mode="REPEATED"),
]
ROWS = [
    (["A", "0.1", "0.30", "USD", "1790812800000000", ["202610"], [["team", "nlp"]], [["-0.02", "DISCOUNT"]]]),
    (["A", "1.7E-5", None, "USD", "1790899200000000", ["202610"], [], [["-1e-05", "PROMOTION"]]]),
    (["A", "2.5", None, "USD", "1788220800000000", ["202609"], [], []]),
]


def wire(value: Any) -> dict[str, Any]:
    """A value as BigQuery's REST writes it; a list of lists is a repeated record."""
    if not isinstance(value, list):
        return {"v": value}
    if all(isinstance(v, list) for v in value):
        return {"v": [wire(v) for v in value]}
    return {"v": {"f": [wire(v) for v in value]}}


class FakeBigQuery(BaseHTTPRequestHandler):
    """Two rows a page; the first request is throttled; another table than ours is not there."""

    queries: list[str]
    asked: int

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
        type(self).queries.append(query)
        if len(self.queries) == 1:
            return self._refuse(503, "backendError", "try again")
        if TABLE not in query:
            return self._refuse(404, "notFound", "Not found: Table acme:billing.none")
        return self._answer(0)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.endswith("/jobs/j1"):
            return self._send(200, JOB)
        return self._answer(int(parse_qs(parts.query).get("pageToken", ["0"])[0]))

    def _answer(self, start: int) -> None:
        type(self).asked += 1
        month = self.queries[-1].partition("month = '")[2][:6]
        rows = [{"f": [wire(v) for v in row]} for row in ROWS if not month or row[5] == [month]]
        more = {"pageToken": str(start + 2)} if start + 2 < len(rows) else {}
        whole = {"kind": "bigquery#queryResponse", "jobComplete": True, "schema": {"fields": SCHEMA}, **more}
        self._send(200, {**whole, **JOB, "totalRows": str(len(rows)), "rows": rows[start : start + 2]})

    def _refuse(self, code: int, reason: str, message: str) -> None:
        self._send(
            code, {"error": {"code": code, "message": message, "errors": [{"reason": reason, "message": message}]}}
        )

    def _send(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeBigQuery]]:
    """A server of its own, which Google's client is told of."""
    handler = type("Handler", (FakeBigQuery,), {"queries": [], "asked": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", f"http://127.0.0.1:{listening.server_port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield handler
        listening.shutdown()


def sum_billed(store: Path) -> str:
    with Books.open(store).store.read() as session:
        session.view_table("charges", "charges")
        return str(session.fetch_one("SELECT sum(BilledCost) FROM charges")[0].normalize())


def test_a_table_is_imported_page_by_page(server: type[FakeBigQuery], tmp_path: Path) -> None:
    """Every row and credit once, amounts as BigQuery writes them; a failing server is asked again."""
    words = ["import", "gcp-billing", f"bigquery://{TABLE}", "--store", str(tmp_path / "books")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "Imported 4 charges." in done.output
    assert sum_billed(tmp_path / "books") == "2.580007"  # 0.1 - 0.02 + 0.000017 - 0.00001 + 2.5
    assert (len(server.queries), server.asked) == (2, 2)


@pytest.mark.usefixtures("server")
def test_a_month_is_asked_for_alone(tmp_path: Path) -> None:
    """The invoice month; another one that is delivered again replaces only itself."""
    store = tmp_path / "books"
    for month in ("2026-10", "2026-09", "2026-10"):
        words = ["import", "gcp-billing", f"bigquery://{TABLE}/{month}", "--store", str(store)]
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert sum_billed(store) == "2.580007"


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("url", "said"), [("acme.billing.none", "Not found: Table"), (f"{TABLE}/2020-01", "holds no rows")]
)
def test_what_goes_wrong_with_bigquery_is_one_line(tmp_path: Path, url: str, said: str) -> None:
    """A table that is not there, a month without rows."""
    with pytest.raises(SourceError, match=said) as error:
        fetch_table(f"bigquery://{url}", tmp_path, lambda *_: None)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["", "table", "a.b.c/2026-13", "a.b.c` WHERE true --", "a.b.c/2026-1"])
def test_an_address_names_a_table(url: str) -> None:
    """Nothing else is put into a query."""
    with pytest.raises(InputError, match="names no table"):
        split_address(f"bigquery://{url}")
