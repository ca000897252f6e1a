"""A metric stream in S3, as moto serves it, through Amazon's own client: each object once, late ones too, also after restarts."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.live.fake_cloudwatch import FakeCloudWatch

from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect.amazon import S3Objects
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.metric_stream import MetricStreamWatch
from loadfactor.collect.payloads import unpack_events
from loadfactor.interfaces.cli.importing import find_input
from loadfactor.settings.sources import CloudWatchAccount
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.clouds.cloudwatch import SET_ASIDE, LiveMetricStreamDecoder

REGION = "eu-west-1"
BUCKET = "metrics"
BEGAN_MS = 1_795_168_800 * MS_PER_S
"""2026-11-20 10:00 UTC."""
MINUTE_MS = 60 * MS_PER_S


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloudWatch]:
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


@pytest.mark.usefixtures("server")
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


@pytest.mark.usefixtures("server")
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


@pytest.mark.usefixtures("server")
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


def test_a_bucket_that_refuses_names_the_line_of_the_policy(server: FakeCloudWatch) -> None:
    """And one that is not there says so in Amazon's words."""
    process = Process()
    other = S3Objects(CloudWatchAccount(name="prod", region=REGION), "s3://nothing-here/x")
    with pytest.raises(FetchError, match=r"^NoSuchBucket: "):
        list(other.list_after(""))
    server.refuse_objects = True
    with pytest.raises(FetchError, match=r'^may not s3:ListBucket; add \{.*"arn:aws:s3:::metrics"\} to its policy'):
        process.read()
