"""`loadfactor up` with CloudWatch and with a metric stream in S3, as moto serves both: the books are what was put there, once."""

import asyncio
import gzip
import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.live.fake_cloudwatch import FakeCloudWatch
from tests.live.up_process import UpProcess

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect import amazon as cloudwatch
from loadfactor.collect.amazon import CloudWatchMetrics, S3Objects
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.metric_stream import MetricStreamWatch
from loadfactor.collect.payloads import unpack_events
from loadfactor.collect.pull import CloudPull
from loadfactor.interfaces.cli.importing import find_input
from loadfactor.settings.sources import CloudWatchAccount
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.clouds.cloudwatch import SET_ASIDE, LiveMetricStreamDecoder

SECRET = "do-not-tell-this"
REGION = "eu-west-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}
MINUTES = 20
MS_PER_MIN = 60_000
OTHER_GPUS = 130
"""Each with four metrics: more than a page of list_metrics and a request of get_metric_data hold."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloudWatch]:
    """An empty CloudWatch, and credentials for it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with FakeCloudWatch() as found:
        yield found


def put(server: FakeCloudWatch, name: str, index: int, values: dict[int, float], instance: str = "i-1") -> None:
    """Values of a GPU of the agent by the instant (ms) at which their minute begins."""
    said = {"InstanceId": instance, "index": str(index), "name": "NVIDIA A10G", "arch": "Ampere", "host": "ip-10-0-0-1"}
    dimensions = [{"Name": key, "Value": value} for key, value in sorted(said.items())]  # moto compares them in order
    data: list[dict[str, Any]] = [
        {
            "MetricName": f"nvidia_smi_{name}",
            "Dimensions": dimensions,
            "Timestamp": datetime.fromtimestamp(at / MS_PER_S, UTC),
            "Value": value,
        }
        for at, value in values.items()
    ]
    client = boto3.client("cloudwatch", endpoint_url=server.url, region_name=REGION)
    client.put_metric_data(Namespace="CWAgent", MetricData=data)


def put_fleet(server: FakeCloudWatch, began_ms: int, first: int, last: int) -> None:
    """Two GPUs in the minutes first … last - 1: one at 80 %, one doing nothing but moving memory."""
    minutes = [began_ms + i * MS_PER_MIN for i in range(first, last)]
    for name, busy, idle in (
        ("utilization_gpu", 80.0, 0.0),
        ("utilization_memory", 99.0, 99.0),
        ("memory_used", 10_240.0, 1.0),
        ("memory_total", 23_028.0, 23_028.0),
        ("power_draw", 200.0, 50.0),
        ("temperature_gpu", 60.0, 30.0),
        ("clocks_current_sm", 1_710.0, 210.0),
    ):
        put(server, name, 0, dict.fromkeys(minutes, busy))
        put(server, name, 1, dict.fromkeys(minutes, idle))


def read_samples(books: Path) -> list[dict[str, Any]]:
    """The samples of the books, without what was not measured."""
    rows = Books(books).table("samples").execute().sort_values(["device_id", "to_utc"])
    return [{k: v for k, v in row.items() if v == v and v is not None} for row in rows.to_dict("records")]


def configure(folder: Path, server: FakeCloudWatch) -> Path:
    """An account that is asked every second."""
    path = folder / "loadfactor.toml"
    path.write_text(
        '[server]\nflush_every = "1s"\n'
        f'[[cloudwatch]]\nname = "prod"\nregion = "{REGION}"\nevery = "1s"\nbackfill = "1h"\nendpoint_url = "{server.url}"\n'
        "instances = false\n"
    )
    return path


@pytest.mark.long
def test_the_books_are_what_the_agent_put_there_after_restarts(tmp_path: Path, server: FakeCloudWatch) -> None:
    """Throttled, killed and started again: each minute of each GPU is one sample, with its values in our units."""
    began_ms = int(time.time() * MS_PER_S) // MS_PER_MIN * MS_PER_MIN - 40 * MS_PER_MIN
    put_fleet(server, began_ms, 0, MINUTES)
    server.throttle = {"ListMetrics": 2, "GetMetricData": 2}
    up = UpProcess(tmp_path / "books", config=configure(tmp_path, server), environment=os.environ)
    with up:
        up.wait_until(lambda: len(read_samples(up.store)) >= 2 * MINUTES)
        wanted = {"cloudwatch prod": "ok", "cloudwatch:prod": "ok"}
        up.wait_for_health(lambda said: {one["name"]: one["status"] for one in said["sources"]} == wanted)
        up.kill()
        asked, minute = len(server.requests), int(time.time()) // 60
        up.start()
        assert up.stop() == 0
    minutes = int(time.time()) // 60 - minute
    assert server.requests[asked:].count("GetMetricData") <= 1 + minutes, "what was taken is not asked for again"
    assert server.throttle == {"ListMetrics": 0, "GetMetricData": 0}
    rows = read_samples(up.store)
    assert [row["to_utc"] for row in rows] == [began_ms + (i + 1) * MS_PER_MIN for i in range(MINUTES)] * 2
    assert {row["device_id"] for row in rows} == {"i-1/0", "i-1/1"}
    busy, idle = rows[5], rows[MINUTES + 5]
    assert busy["busy_share"] == pytest.approx(0.8)
    assert "dram_active_share" not in busy, "utilization_memory is time, not occupancy, and is not kept"
    assert (busy["mem_used_bytes"], busy["mem_total_bytes"]) == (10_240 * BYTES_PER_MIB, 23_028 * BYTES_PER_MIB)
    assert (busy["power_w"], busy["temperature_c"], busy["sm_clock_hz"]) == (200, 60, 1_710_000_000)
    assert (idle["busy_share"], idle["mem_used_bytes"], idle["power_w"]) == (0, BYTES_PER_MIB, 50)
    assert all(row["to_utc"] - row["from_utc"] == MS_PER_MIN for row in rows)
    devices = Books(up.store).table("devices").execute().sort_values("device_id")
    assert devices[["node", "accelerator"]].values.tolist() == [["i-1", "a10g"], ["i-1", "a10g"]]
    assert SECRET not in up.log.read_text() + (up.store / "sources.json").read_text()


@pytest.mark.long
def test_an_account_that_refuses_is_said_and_stops_no_other(tmp_path: Path, server: FakeCloudWatch) -> None:
    """Errors of Amazon stand in /health; nothing of the credentials does."""
    server.forbid = True
    with UpProcess(tmp_path / "books", config=configure(tmp_path, server), environment=os.environ) as up:
        said = up.wait_for_health(lambda said: said["sources"][0]["status"] == "failing")
        assert said["sources"][0]["name"] == "cloudwatch prod"
        assert said["sources"][0]["error"] == "AccessDeniedException: you may not"
        up.stop()
    assert SECRET not in json.dumps(said) + up.log.read_text()


def test_more_metrics_than_a_page_and_a_request_hold(server: FakeCloudWatch) -> None:
    """All series come, each once: listed over pages, asked for 500 at a time."""
    began_ms = int(time.time() * MS_PER_S) // MS_PER_MIN * MS_PER_MIN - 10 * MS_PER_MIN
    client = boto3.client("cloudwatch", endpoint_url=server.url, region_name=REGION)
    for name in ("utilization_gpu", "memory_used", "memory_total", "power_draw"):
        data: list[dict[str, Any]] = [
            {
                "MetricName": f"nvidia_smi_{name}",
                "Dimensions": [{"Name": "InstanceId", "Value": f"i-{i:03}"}, {"Name": "index", "Value": "0"}],
                "Timestamp": datetime.fromtimestamp(began_ms / MS_PER_S, UTC),
                "Value": float(i % 100),
            }
            for i in range(OTHER_GPUS)
        ]
        client.put_metric_data(Namespace="CWAgent", MetricData=data)
    account = CloudWatchAccount(name="prod", region=REGION, endpoint_url=server.url, namespaces=("CWAgent",))
    series = CloudWatchMetrics(account).read(began_ms, began_ms + 5 * MS_PER_MIN)
    assert len({(one.labels["__name__"], one.labels["hostname"]) for one in series}) == len(series) == 4 * OTHER_GPUS
    assert all(one.points == [(began_ms + MS_PER_MIN, float(one.labels["hostname"][2:]) % 100)] for one in series)
    assert (server.requests.count("ListMetrics"), server.requests.count("GetMetricData")) == (2, 2)


def test_values_over_pages_come_whole_though_throttled_between(server: FakeCloudWatch) -> None:
    """A metric whose values lie on several pages is one series, each value once; a page that is throttled is asked for again."""
    began_ms = int(time.time() * MS_PER_S) // MS_PER_MIN * MS_PER_MIN - 40 * MS_PER_MIN
    put_fleet(server, began_ms, 0, MINUTES)
    server.requests.clear()
    server.page_values, server.throttle_every = 37, 3
    account = CloudWatchAccount(name="prod", region=REGION, endpoint_url=server.url, namespaces=("CWAgent",))
    series = CloudWatchMetrics(account).read(began_ms, began_ms + MINUTES * MS_PER_MIN)
    assert len(series) == 2 * 6, "utilization_memory is not asked for"
    ends = [began_ms + (i + 1) * MS_PER_MIN for i in range(MINUTES)]
    assert all([at for at, _ in one.points] == ends for one in series)
    pages = -(-12 * MINUTES // server.page_values)
    throttled = len(server.requests) // server.throttle_every
    assert server.requests.count("ListMetrics") + server.requests.count("GetMetricData") == 1 + pages + throttled


@pytest.mark.long
def test_an_account_that_goes_on_throttling_loses_nothing(
    server: FakeCloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some tries it is an error in Amazon's words; asked again, later, everything is there."""
    monkeypatch.setattr(cloudwatch, "TRIES", 2)
    began_ms = int(time.time() * MS_PER_S) // MS_PER_MIN * MS_PER_MIN - 40 * MS_PER_MIN
    put_fleet(server, began_ms, 0, 3)
    server.throttle = {"GetMetricData": 2}
    account = CloudWatchAccount(name="prod", region=REGION, endpoint_url=server.url, namespaces=("CWAgent",))
    metrics = CloudWatchMetrics(account)
    with pytest.raises(FetchError, match=r"^ThrottlingException: Rate exceeded$"):
        metrics.read(began_ms, began_ms + 3 * MS_PER_MIN)
    assert [len(one.points) for one in metrics.read(began_ms, began_ms + 3 * MS_PER_MIN)] == [3] * 12


def test_an_account_without_a_metric_that_is_understood_says_so(server: FakeCloudWatch) -> None:
    """It is asked as before; once a metric is listed nothing is lacking."""

    async def take(_answer: bytes, _from_ms: int, _to_ms: int) -> None:
        pass

    began_ms = int(time.time() * MS_PER_S) // MS_PER_MIN * MS_PER_MIN - 40 * MS_PER_MIN
    client = boto3.client("cloudwatch", endpoint_url=server.url, region_name=REGION)
    client.put_metric_data(Namespace="CWAgent", MetricData=[{"MetricName": "nvidia_smi_renamed", "Value": 1.0}])
    account = CloudWatchAccount(name="prod", region=REGION, endpoint_url=server.url, namespaces=("CWAgent",))
    pull = CloudPull("cloudwatch prod", CloudWatchMetrics(account), 60.0, began_ms, take)
    asyncio.run(pull.catch_up(began_ms + 10 * MS_PER_MIN))
    said = "no metric of a GPU that is understood is listed in CWAgent; docs/connect-clouds.md"
    assert (pull.status.status, pull.status.error) == ("degraded", said)
    put(server, "power_draw", 0, {began_ms: 100.0})
    pull = CloudPull("cloudwatch prod", CloudWatchMetrics(account), 60.0, began_ms, take)
    asyncio.run(pull.catch_up(began_ms + 10 * MS_PER_MIN))
    assert (pull.status.status, pull.status.error) == ("ok", "")


BUCKET = "metrics"
BEGAN_MS = 1_795_168_800 * MS_PER_S
"""2026-11-20 10:00 UTC."""
MINUTE_MS = 60 * MS_PER_S


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloudWatch]:
    """An account with an empty bucket, and credentials for it."""
    with FakeCloudWatch() as found:
        for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "ENDPOINT_URL": found.url}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        boto3.client("s3", region_name=REGION).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield found


def write(key: str, content: bytes) -> None:
    """Put an object under the prefix."""
    boto3.client("s3", region_name=REGION).put_object(Bucket=BUCKET, Key=f"gpus/{key}", Body=content)


def write_minutes(first: int, last: int, name: str = "utilization_gpu", key: str = "") -> None:
    """The minutes first … last - 1 of a GPU as Firehose puts them there."""
    value = {"max": 80.0, "min": 80.0, "sum": 160.0, "count": 2.0}
    said = {
        "namespace": "CWAgent",
        "metric_name": f"nvidia_smi_{name}",
        "dimensions": {"InstanceId": "i-1", "index": "0"},
    }
    minutes = [
        {**said, "timestamp": BEGAN_MS + i * MINUTE_MS, "value": value, "unit": "Percent"} for i in range(first, last)
    ]
    content = "".join(json.dumps(one) + "\n" for one in minutes).encode()
    write(key or f"2026/11/20/10/stream-1-2026-11-20-10-{first:02}-00-{first:08x}-0000", gzip.compress(content))


class Process:
    """A watch and the decoder behind it, as `loadfactor up` has them; `restart` makes them anew from what was kept."""

    def __init__(self) -> None:
        self.cursor: dict[str, str] = {}
        self.rows: dict[int, dict[str, Any]] = {}
        self.gaps: list[Gap] = []
        self.bodies = 0
        self.unreadable = ""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._decoder = LiveMetricStreamDecoder("prod")
        self.restart()

    def restart(self) -> None:
        """Go on in another process."""
        self._decoder = LiveMetricStreamDecoder("prod", self._decoder.state())
        objects = S3Objects(CloudWatchAccount(name="prod", region=REGION), f"s3://{BUCKET}/gpus/")
        self.watch = MetricStreamWatch("metric-stream prod", objects, 60.0, 1, self.cursor, self._take)
        self.watch._loop = self._loop

    async def _take(self, body: bytes) -> None:
        said = unpack_events(body)
        self.bodies += 1
        self._decoder.feed(said.events)
        self.cursor |= said.cursor
        for item in self._decoder.drain():
            if isinstance(item, Gap):
                self.gaps.append(item)
            elif isinstance(item, Rows) and item.table == "samples":
                assert item.where == "cloudwatch:prod"
                for row in item.data.to_pylist():
                    known = self.rows.setdefault((row["to_utc"] - BEGAN_MS) // MINUTE_MS, {})
                    known.update({key: value for key, value in row.items() if value is not None})

    def read(self) -> int:
        """Read what is new; how many bodies that were."""
        before = self.bodies
        self.unreadable = self.watch._read_new()
        return self.bodies - before


@pytest.mark.usefixtures("account")
def test_each_object_is_read_once_in_order_and_late_ones_too() -> None:
    """Over restarts; an object whose key is older than those read counts, and so does another metric of minutes that are known."""
    process = Process()
    write_minutes(0, 5)
    write_minutes(10, 15)
    assert (process.read(), process.read()) == (1, 0)
    assert sorted(process.rows) == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
    write_minutes(15, 20)
    process.restart()
    assert (process.read(), process.read()) == (1, 0)
    write_minutes(5, 10)
    write_minutes(0, 20, "power_draw", "2026/11/20/09/stream-1-2026-11-20-09-00-00-0000aaaa-0000")
    process.restart()
    assert (process.read(), process.read()) == (1, 0)
    assert sorted(process.rows) == list(range(1, 21))
    assert {(row["busy_share"], row["power_w"]) for row in process.rows.values()} == {(0.8, 80.0)}
    assert not process.gaps


@pytest.mark.usefixtures("account")
def test_what_cannot_be_read_is_set_aside_and_said() -> None:
    """Half an object, and one that is none of a stream: the others are read; written again whole, it is read."""
    process = Process()
    key = "2026/11/20/10/stream-1-2026-11-20-10-05-00-00000005-0000"
    write_minutes(0, 5)
    write(key, gzip.compress(b'{"namespace": "CWAgent"}\n' * 100)[:40])
    write("2026/11/20/10/notes.csv", b"a,b\n1,2\n")
    write("2026/11/", b"")
    assert process.read() == 1
    assert sorted(process.rows) == [1, 2, 3, 4, 5]
    assert [(gap.what, gap.count) for gap in process.gaps] == [(SET_ASIDE, 2)]
    unreadable = process.unreadable
    assert unreadable.startswith(
        "objects of the last day that cannot be read: 2, of them the last: s3://metrics/gpus/2026/11/20/10/"
    )
    process.restart()
    assert (process.read(), process.unreadable) == (0, unreadable)
    write_minutes(5, 10, key=key)
    assert process.read() == 1
    assert sorted(process.rows) == list(range(1, 11))


@pytest.mark.usefixtures("account")
def test_a_folder_of_a_stream_is_imported_by_hand(tmp_path: Path) -> None:
    """With its name and all folders in it; the prefix of another stream is not part of it."""
    write_minutes(0, 5)
    write_minutes(5, 10)
    write_minutes(10, 15, key="2026/11x/other")
    found = find_input("s3://metrics/gpus/2026/11", tmp_path, "cloudwatch", lambda *_: None)
    assert len([path for path in found.rglob("*") if path.is_file()]) == 2
    books = Books.open(tmp_path / "books", create=True)
    books.add("cloudwatch", [found])
    assert len(books.table("samples").execute()) == 10


def test_a_bucket_that_refuses_names_the_line_of_the_policy(account: FakeCloudWatch) -> None:
    """And one that is not there says so in Amazon's words."""
    process = Process()
    other = S3Objects(CloudWatchAccount(name="prod", region=REGION), "s3://nothing-here/x")
    with pytest.raises(FetchError, match=r"^NoSuchBucket: "):
        list(other.list_after(""))
    account.refuse_objects = True
    with pytest.raises(FetchError, match=r'^may not s3:ListBucket; add \{.*"arn:aws:s3:::metrics"\} to its policy'):
        process.read()
