"""Bills in a bucket, through Amazon's own client from moto's S3 on loopback: pages of listing, throttling, and what goes wrong."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from typer.testing import CliRunner
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from loadfactor.base.errors import InputError, SourceError
from loadfactor.books.books import Books
from loadfactor.collect.cloud_bills import fetch_bills
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
