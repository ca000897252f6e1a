"""Machines of EC2, as moto serves it, and of Compute Engine on loopback, through the clouds' own clients."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.live.fake_cloudwatch import FakeCloudWatch
from tests.live.fake_compute_engine import ZONES, FakeComputeEngine, make_instance
from tests.live.up_process import UpProcess

from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect import amazon as ec2
from loadfactor.collect import google_cloud as gce
from loadfactor.collect.amazon import Ec2Instances, find_refused
from loadfactor.collect.google_cloud import GceInstances
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.polling import NotPermittedError
from loadfactor.settings.sources import CloudWatchAccount, GcpProject
from loadfactor.sources.base import Rows
from loadfactor.sources.clouds.gce import PREEMPTIONS, LiveGceDecoder
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES

REGION = "eu-west-1"


class FakeEc2:
    """The instances of one region, changed as a user or Amazon would."""

    def __init__(self, url: str) -> None:
        self.client = boto3.client("ec2", endpoint_url=url, region_name=REGION)
        self._image = self.client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def launch(self, kind: str, **tags: str) -> str:
        """Start an instance; its id."""
        said: list[Any] = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]
        made = self.client.run_instances(
            ImageId=self._image, InstanceType=kind, MinCount=1, MaxCount=1, TagSpecifications=said if tags else []
        )
        return str(made["Instances"][0]["InstanceId"])

    def launch_spot(self, kind: str) -> str:
        """Have an instance by a request for a spot instance; its id."""
        specification: Any = {"ImageId": self._image, "InstanceType": kind}
        made = self.client.request_spot_instances(
            SpotPrice="5", InstanceCount=1, Type="one-time", LaunchSpecification=specification
        )
        request = made["SpotInstanceRequests"][0]["SpotInstanceRequestId"]
        said = self.client.describe_spot_instance_requests(SpotInstanceRequestIds=[request])
        return str(said["SpotInstanceRequests"][0]["InstanceId"])


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
        up.wait_until(lambda: len(read(up.store, "devices")) == 10)
        assert all("to_utc" not in row for row in read(up.store, "devices").values())
        wanted = {("ec2 prod: instances", "ok"), ("ec2 prod: spot prices", "absent")}
        health = up.wait_for_health(lambda said: wanted <= {(one["name"], one["status"]) for one in said["sources"]})
        said = {one["name"]: (one["status"], one["error"] or "") for one in health["sources"]}
        assert said["ec2 prod: instances"] == ("ok", "")
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
        up.wait_until(lambda: read(up.store, "allocations")[f"{spot}/0"].get("end_state") == "preempted")
        up.wait_until(lambda: "team" in read(up.store, "allocations")[f"{large}/0"]["tags"])
        held = read(up.store, "allocations")
    assert sorted(held) == sorted([*(f"{large}/{i}" for i in range(8)), f"{small}/0", f"{spot}/0"])
    assert {name for name, row in held.items() if "to_utc" in row} == {f"{small}/0", f"{spot}/0"}
    assert server.throttle == {"DescribeInstances": 0, "DescribeInstanceTypes": 0}


@pytest.mark.long
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


START_MS = 1_795_168_800 * MS_PER_S
"""2026-11-20 10:00 UTC, when instances were started."""
NOW_MS = START_MS + 3_600 * MS_PER_S


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeComputeEngine]:
    """A project without instances."""
    monkeypatch.setattr(gce, "FIRST_RETRY_S", 0.01)
    with FakeComputeEngine() as found:
        yield found


def ask(project: FakeComputeEngine) -> GceInstances:
    """The project through Google's client."""
    return GceInstances(GcpProject(name="prod", project="p", compute_endpoint=project.endpoint))


def decode(decoder: LiveGceDecoder, project: GceInstances, at_ms: int) -> dict[str, list[dict[str, Any]]]:
    """The rows that are new after asking, by table."""
    said = {part: project.ask(part)[part] for part in project.parts}
    names = [project.name(one) for one in said[INSTANCES]]
    decoder.feed([[at_ms, PREEMPTIONS, said[PREEMPTIONS]], [at_ms, INSTANCES, said[INSTANCES]], [at_ms, ALL, names]])
    return {item.table: item.data.to_pylist() for item in decoder.drain() if isinstance(item, Rows)}


@pytest.mark.long
def test_instances_of_all_zones_and_pages_though_a_quota_is_used_up(project: FakeComputeEngine) -> None:
    """Each instance with GPUs once, with its labels; machines without GPUs and those that are not there yet are none."""
    project.instances[ZONES[0]] = [make_instance(n, f"train-{n}", 2, labels={"team": "nlp"}) for n in range(1, 4)]
    project.instances[ZONES[1]] = [
        make_instance(4, "train-1", zone=ZONES[1]),
        make_instance(5, "small", 0, machineType="zones/x/machineTypes/e2-small"),
        make_instance(6, "coming", status="PROVISIONING"),
        make_instance(7, "gke-a-1", zone=ZONES[1], labels={"goog-k8s-cluster-name": "a"}),
    ]
    project.failures = [429, 503]
    rows = decode(LiveGceDecoder("prod"), ask(project), NOW_MS)
    assert sum("/instances?" in path for path in project.requests) == 4 + 2
    assert sorted(row["device_id"] for row in rows["devices"]) == sorted(
        [f"train-{n}:gpu{i}" for n in (2, 3) for i in (0, 1)]
        + [f"train-1.{ZONES[0]}.c.p.internal:gpu{i}" for i in (0, 1)]
        + [f"train-1.{ZONES[1]}.c.p.internal:gpu0", "gke-a-1:gpu0"]
    )
    assert {(row["accelerator"], row["from_utc"]) for row in rows["devices"]} == {("l4", START_MS)}
    held = {row["node"]: (row["gpus"], row["tags"]) for row in rows["allocations"]}
    assert "gke-a-1" not in held, "whom a cluster's machine serves is for the cluster to say"
    assert held["train-2"] == (2, '{"job_name": "train-2", "tag.team": "nlp"}')


def test_one_that_is_taken_away_ends_when_it_was(project: FakeComputeEngine) -> None:
    """Stopped or deleted by Compute Engine, it ends as preempted; started again it is another run."""
    decoder, instances = LiveGceDecoder("prod"), ask(project)
    project.instances[ZONES[0]] = [make_instance(1, "spot-1"), make_instance(2, "spot-2"), make_instance(3, "own")]
    assert all(row.get("to_utc") is None for row in decode(decoder, instances, NOW_MS)["devices"])
    decoder = LiveGceDecoder("prod", decoder.state())
    taken = {"operationType": "compute.instances.preempted", "insertTime": "2026-11-20T11:30:00Z"}
    project.operations[ZONES[0]] = [{"kind": "compute#operation", **taken, "targetId": number} for number in ("1", "2")]
    project.instances[ZONES[0]] = [
        make_instance(1, "spot-1", status="TERMINATED", lastStopTimestamp="2026-11-20T03:31:00-08:00"),
        make_instance(3, "own", lastStartTimestamp="2026-11-20T12:00:00Z"),
    ]
    rows = decode(decoder, instances, NOW_MS + 7_200 * MS_PER_S)
    held = {(row["job_id"], row["from_utc"]): (row.get("to_utc"), row.get("end_state")) for row in rows["allocations"]}
    minute = 60 * MS_PER_S
    assert held == {
        ("spot-1", START_MS): (START_MS + 91 * minute, "preempted"),
        ("spot-2", START_MS): (START_MS + 90 * minute, "preempted"),
        ("own", START_MS): (NOW_MS, None),
        ("own", START_MS + 120 * minute): (None, None),
    }
    events = {(row["device_id"], row["at_utc"], row["detail"]) for row in rows["device_events"]}
    assert events == {(f"spot-{n}:gpu0", START_MS + 90 * minute, "preempted by Compute Engine") for n in (1, 2)}


def test_what_may_not_be_asked_and_zones_that_are_away_are_said(project: FakeComputeEngine) -> None:
    """The permission is named; an answer without a zone is none, so that nothing ends in it."""
    instances = ask(project)
    project.instances[ZONES[0]] = [make_instance(1, "a")]
    project.forbidden = {"operations"}
    assert len(instances.ask(INSTANCES)[INSTANCES]) == 1
    with pytest.raises(
        NotPermittedError, match=r"give it compute\.globalOperations\.list \(the role roles/compute\.viewer"
    ):
        instances.ask(PREEMPTIONS)
    assert [part for part, why in instances.find_refused() if why] == [PREEMPTIONS]
    project.away = {ZONES[1]}
    with pytest.raises(FetchError, match=f"^zones/{ZONES[1]}: UNREACHABLE"):
        instances.ask(INSTANCES)
