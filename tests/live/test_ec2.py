"""`loadfactor up` and EC2, as moto serves it, through Amazon's own client: the books are what is installed, and who holds it."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.fake_cloudwatch import FakeCloudWatch
from tests.live.fake_ec2 import REGION, FakeEc2
from tests.live.up_process import UpProcess

from loadfactor.books.books import Books
from loadfactor.collect import amazon as ec2
from loadfactor.collect.amazon import Ec2Instances, find_refused
from loadfactor.collect.polling import NotPermittedError
from loadfactor.settings.sources import CloudWatchAccount
from loadfactor.sources.clouds.live_instances import INSTANCES

LONGEST_S = 240.0
ACCOUNT = CloudWatchAccount(name="prod", region=REGION)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloudWatch]:
    """An empty account, and credentials for it."""
    with FakeCloudWatch() as found:
        for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "ENDPOINT_URL": found.url}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield found


def read(books: Path, table: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by GPU, without what is not known."""
    rows = Books(books).table(table).execute().to_dict("records")
    return {row["device_id"]: {k: v for k, v in row.items() if v == v and v is not None} for row in rows}


def wait(up: UpProcess, is_there: Callable[[], bool]) -> None:
    """Until it is so."""
    end = time.monotonic() + LONGEST_S
    while not is_there():
        assert time.monotonic() < end, (up.ask("/health"), up.log.read_text()[-2000:])
        time.sleep(0.5)


@pytest.mark.long
def test_the_books_follow_what_users_and_amazon_do(tmp_path: Path, server: FakeCloudWatch) -> None:
    """Throttled, refused in part, killed and started again: what runs is open, what ended has its end, each once."""
    fake = FakeEc2(server.url)
    large, small = fake.launch("p4d.24xlarge", Name="train", experiment="e7"), fake.launch("g5.xlarge")
    fake.launch("t3.micro")
    spot = fake.launch_spot("g5.xlarge")
    server.throttle = {"DescribeInstances": 2, "DescribeInstanceTypes": 1}
    server.refuse = {"DescribeSpotPriceHistory"}
    config = tmp_path / "loadfactor.toml"
    config.write_text(
        f'[server]\nflush_every = "1s"\n[[cloudwatch]]\nname = "prod"\nregion = "{REGION}"\nevery = "1s"\n'
    )
    up = UpProcess(tmp_path / "books", config=config, environment=os.environ)
    with up:
        wait(up, lambda: len(read(up.store, "devices")) == 10)
        assert all("to_utc" not in row for row in read(up.store, "devices").values())
        said = {one["name"]: (one["status"], one["error"] or "") for one in up.ask("/health")["sources"]}
        assert said["ec2 prod: instances"] == ("ok", "")
        assert said["ec2 prod: spot prices"][0] == "absent"
        assert '"Action": "ec2:DescribeSpotPriceHistory"' in said["ec2 prod: spot prices"][1]
        up.kill()
        fake.client.stop_instances(InstanceIds=[small])
        fake.client.terminate_instances(InstanceIds=[spot])
        fake.client.create_tags(Resources=[large], Tags=[{"Key": "team", "Value": "nlp"}])
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()).encode()
        server.altered["DescribeSpotInstanceRequests"] = [
            (b"<code>fulfilled</code>", b"<code>instance-terminated-no-capacity</code>"),
            (b"<updateTime>2015-01-01T00:00:00.000Z</updateTime>", b"<updateTime>" + now + b"</updateTime>"),
        ]
        up.start()
        wait(up, lambda: read(up.store, "allocations")[f"{spot}/0"].get("end_state") == "preempted")
        wait(up, lambda: "team" in read(up.store, "allocations")[f"{large}/0"]["tags"])
        held = read(up.store, "allocations")
    assert sorted(held) == sorted([*(f"{large}/{i}" for i in range(8)), f"{small}/0", f"{spot}/0"])
    assert {name for name, row in held.items() if "to_utc" in row} == {f"{small}/0", f"{spot}/0"}
    assert server.throttle == {"DescribeInstances": 0, "DescribeInstanceTypes": 0}


def test_a_question_that_may_not_be_asked_names_the_line_of_the_policy(
    server: FakeCloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are answered, over pages; types are asked for once."""
    monkeypatch.setattr(ec2, "PAGE", 5)
    fake = FakeEc2(server.url)
    names = sorted(fake.launch("g5.xlarge") for _ in range(7))
    server.requests.clear()
    instances = Ec2Instances(ACCOUNT)
    assert sorted(one["InstanceId"] for one in instances.ask(INSTANCES)[INSTANCES]) == names
    assert sorted(one["InstanceId"] for one in instances.ask(INSTANCES)[INSTANCES]) == names
    assert (server.requests.count("DescribeInstances"), server.requests.count("DescribeInstanceTypes")) == (4, 1)
    assert not instances.ask(ec2.SPOT_REQUESTS), "nobody is asked for spot instances where there are none"
    server.refuse = {"DescribeInstances"}
    with pytest.raises(
        NotPermittedError, match=r'^may not ec2:DescribeInstances; add \{"Effect": "Allow", "Action": "ec2:Desc'
    ):
        instances.ask(INSTANCES)
    refused = dict(find_refused(ACCOUNT))
    assert [part for part, why in refused.items() if why] == [INSTANCES]
