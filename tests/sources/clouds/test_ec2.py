"""EC2's answers, as Amazon's own client gives them of moto's EC2, saved or live: what is installed, who holds it, what ended.

Types are as in Amazon's documentation of describe-instance-types.
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.sources.reading import Seen, see

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.clouds.ec2 import PRICES, REQUESTS, SOURCE, TYPES, LiveEc2Decoder, decode_ec2
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES, KEPT_MS, SEEN

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)
Instance = dict[str, Any]
EIGHTH = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}
ANSWERED_TYPES = {
    "InstanceTypes": [
        {"InstanceType": "g5.xlarge", "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 1}]}},
        {"InstanceType": "g6f.large", "GpuInfo": {"Gpus": [EIGHTH]}},
        {"InstanceType": "m5.large"},
    ]
}


def at(minutes: float) -> str:
    """An instant of the day, as the AWS CLI writes it."""
    return (BEGAN + timedelta(minutes=minutes)).isoformat()


def ms(minutes: float) -> int:
    return round((BEGAN + timedelta(minutes=minutes)).timestamp() * MS_PER_S)


def instance(name: str, kind: str = "g5.xlarge", state: str = "running", minutes: float = 0, **said: Any) -> Instance:
    """An instance that was launched so many minutes after ten."""
    return {"InstanceId": name, "InstanceType": kind, "LaunchTime": at(minutes), "State": {"Name": state}, **said}


def see_answers(folder: Path, minutes: float, instances: list[dict[str, Any]], *others: dict[str, Any]) -> Seen:
    """What answers are, taken so many minutes after ten."""
    return see(SOURCE, *write_answers(folder, instances, *others), at_ms=ms(minutes))


def write_answers(folder: Path, instances: list[dict[str, Any]], *others: dict[str, Any]) -> tuple[Path, ...]:
    paths = []
    for i, said in enumerate(({"Reservations": [{"Instances": instances}]}, ANSWERED_TYPES, *others)):
        paths.append(folder / f"answer{i}.json")
        paths[-1].write_text(json.dumps(said))
    return tuple(paths)


@pytest.mark.long
@mock_aws
def test_answers_through_amazons_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with eight GPUs and with one, tags, a machine without GPUs, and one that was ended: over pages of the client."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    client = boto3.client("ec2", region_name="us-east-1")
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def launch(kind: str, **tags: str) -> str:
        said = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}] if tags else []
        made = client.run_instances(ImageId=image, InstanceType=kind, MinCount=1, MaxCount=1, TagSpecifications=said)
        return str(made["Instances"][0]["InstanceId"])

    large = launch("p4d.24xlarge", Name="train-1", team="nlp", experiment="e7")
    small = launch("g5.xlarge", **{"kubernetes.io/cluster/prod": "owned"})
    launch("t3.micro")
    ended = launch("g5.xlarge")
    client.terminate_instances(InstanceIds=[ended])
    pages = client.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    kinds = client.describe_instance_types(InstanceTypes=["p4d.24xlarge", "g5.xlarge", "t3.micro"])
    path = tmp_path / "ec2.json"
    path.write_text("\n".join(json.dumps(one, default=datetime.isoformat) for one in (*pages, kinds)))
    taken_ms = round((datetime.now(UTC) + timedelta(hours=1)).timestamp() * MS_PER_S)
    seen = see(SOURCE, path, at_ms=taken_ms)
    there = {row["device_id"]: row for row in seen.devices if row["to_utc"] == taken_ms}
    node = client.describe_instances(InstanceIds=[small])["Reservations"][0]["Instances"][0]["PrivateDnsName"]
    assert sorted(there) == sorted([*(f"{large}/{i}" for i in range(8)), f"{node}:gpu0"])
    assert (there[f"{large}/0"]["accelerator"], there[f"{node}:gpu0"]["accelerator"]) == ("a100-sxm-40gb", "a10g")
    holders = {row["job_id"]: row for row in seen.allocations if row["job_id"] != ended}
    assert list(holders) == [large], "whom a cluster's machine serves is for the cluster to say"
    assert sum(row["job_id"] == large for row in seen.allocations) == 8
    expected = {"job_name": "train-1", "tag.Name": "train-1", "tag.experiment": "e7", "tag.team": "nlp"}
    assert json.loads(str(holders[large]["tags"])) == expected


def test_what_ends_ends_when_it_is_said(tmp_path: Path) -> None:
    """By a user, or by Amazon, at the time that EC2 says; where nobody says it, when the answers were taken."""
    requests = {
        "SpotInstanceRequests": [
            {"InstanceId": "i-3", "Status": {"Code": "instance-terminated-no-capacity", "UpdateTime": at(40)}},
            {"InstanceId": "i-5", "Status": {"Code": "marked-for-termination", "UpdateTime": at(58)}},
            {"InstanceId": "i-2", "Status": {"Code": "instance-terminated-by-user", "UpdateTime": at(30)}},
            {"Status": {"Code": "capacity-not-available", "UpdateTime": at(30)}},
        ]
    }
    taken = {"StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "…"}}
    instances = [
        instance("i-1"),
        instance("i-2", state="stopped", StateTransitionReason="User initiated (2026-11-20 10:30:00 GMT)"),
        instance("i-3", state="terminated", **taken),
        instance("i-4", state="terminated"),
        instance("i-5"),
        *(instance(*kind) for kind in (("i-6", "g6f.large"), ("i-7", "m5.large"), ("i-8", "p9.large"))),
    ]
    seen = see_answers(tmp_path, 60, instances, requests)
    ends = {row["job_id"]: (row["to_utc"], row["end_state"]) for row in seen.allocations}
    assert ends == {
        "i-1": (ms(60), None),
        "i-2": (ms(30), None),
        "i-3": (ms(40), "preempted"),
        "i-4": (ms(60), None),
        "i-5": (ms(60), None),
        "i-6": (ms(60), None),
    }
    assert {row["device_id"]: row["share"] for row in seen.devices}["i-6/0"] == 0.125
    assert [(row["device_id"], row["at_utc"], row["detail"]) for row in seen.device_events] == [
        ("i-5/0", ms(58), "spot interruption notice: marked-for-termination")
    ]
    assert seen.gaps == {
        "instances of a type that DescribeInstanceTypes does not describe here": 1,
        "instances that are over, nobody says since when: taken to end when the answers were taken": 1,
    }


@pytest.mark.long
def test_a_spot_instance_costs_what_the_history_says(tmp_path: Path) -> None:
    """Of its type, zone and platform, from step to step, for each of its GPUs; one that is no spot instance has no price."""
    where = {"Placement": {"AvailabilityZone": "eu-west-1a"}, "PlatformDetails": "Linux/UNIX"}
    spot = instance("i-1", "g5.12xlarge", InstanceLifecycle="spot", **where)
    gpus = {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 4}]}
    types = {"InstanceTypes": [{"InstanceType": "g5.12xlarge", "GpuInfo": gpus}]}
    market = {"InstanceType": "g5.12xlarge", "AvailabilityZone": "eu-west-1a", "ProductDescription": "Linux/UNIX"}
    history = {
        "SpotPriceHistory": [
            {**market, "SpotPrice": "4.000000", "Timestamp": at(30)},
            {**market, "SpotPrice": "2.000000", "Timestamp": at(-30)},
            {**market, "SpotPrice": "9.000000", "Timestamp": at(20), "AvailabilityZone": "eu-west-1b"},
            {**market, "SpotPrice": "9.000000", "Timestamp": at(20), "ProductDescription": "Windows"},
        ]
    }
    paths = write_answers(tmp_path, [spot, instance("i-2", **where)], types, history)
    books = Books.open(tmp_path / "books", create=True)
    books.add("ec2", paths, ReadOptions(at_ms=ms(60)))
    books.add("ec2", paths, ReadOptions(at_ms=ms(90)))
    rows = books.table("prices").execute().sort_values(["device_id", "from_utc"])
    assert rows[["device_id", "from_utc", "to_utc", "price_per_gpu_hour"]].values.tolist() == [
        [f"i-1/{gpu}", *step] for gpu in range(4) for step in ((ms(0), ms(30), 0.5), (ms(30), ms(90), 1.0))
    ]
    assert set(rows["basis"]) == {"list"}
    (cost,) = books.show(["cost"], basis="list", where={"node": "i-1"})
    assert cost.value == pytest.approx(2.0 * 0.5 + 4.0 * 1.0)


ZONE = {"AvailabilityZone": "eu-west-1a"}
SPOT: dict[str, Any] = {"InstanceLifecycle": "spot", "Placement": ZONE, "PlatformDetails": "Linux/UNIX"}
MARKET = {"InstanceType": "g5.xlarge", **ZONE, "ProductDescription": "Linux/UNIX"}
WHOLE: dict[str, Any] = {
    "Reservations": [
        {"Instances": [instance("i-1", **SPOT, StateReason={"Code": "x"}, Tags=[{"Key": "team", "Value": "nlp"}])]}
    ],
    "InstanceTypes": ANSWERED_TYPES["InstanceTypes"],
    "SpotInstanceRequests": [{"InstanceId": "i-1", "Status": {"Code": "marked-for-stop", "UpdateTime": at(5)}}],
    "SpotPriceHistory": [{**MARKET, "SpotPrice": "1.0", "Timestamp": at(0)}],
}


def break_each(of: Any) -> Iterator[Any]:
    """A document with one value, or one object or list of it, replaced by another, for each place and some others."""
    yield from (None, 5, 10**30, -1.5, math.inf, "x", [], {}, [None], {"x": 1})
    for key, value in of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ():
        for broken in break_each(value):
            copy = of.copy()
            copy[key] = broken
            yield copy


def test_whatever_is_broken_is_read_or_refused() -> None:
    """Rows, or an error of one line: never anything else."""
    count = 0
    for broken in [WHOLE, *break_each(WHOLE)]:
        source = Input("x.json", [json.dumps(broken).encode()])
        try:
            count += len(list(decode_ec2([source], ReadOptions(at_ms=ms(60)))))
        except SourceError:
            count += 1
    assert count > len(WHOLE)


@pytest.mark.long
def test_gpus_that_are_sampled_too_count_once(tmp_path: Path) -> None:
    """Answers of every hour are one span, cut where an instance vanished; a GPU that CloudWatch names is the same one."""
    store = tmp_path / "books"
    books = Books.open(store, create=True)
    for minutes, names in ((60, ("i-1", "i-2")), (120, ("i-1",))):
        paths = write_answers(tmp_path, [instance(name) for name in names])
        books.add("ec2", paths, ReadOptions(at_ms=ms(minutes)))
    dimensions = {"InstanceId": "i-1", "index": "0", "name": "NVIDIA A10G"}
    value = {"max": 50.0, "min": 50.0, "sum": 50.0, "count": 1.0}
    said = {"namespace": "CWAgent", "metric_name": "nvidia_smi_utilization_gpu", "dimensions": dimensions}
    lines = [json.dumps({**said, "timestamp": ms(i), "value": value, "unit": "Percent"}) for i in range(120)]
    (tmp_path / "stream.jsonl").write_text("\n".join(lines))
    books.add("cloudwatch", [tmp_path / "stream.jsonl"])
    names = ("paid_gpu_hours", "allocated_gpu_hours", "observed_gpu_hours", "unobserved_gpu_hours")
    assert [one.value for one in books.show(names)] == pytest.approx([3, 3, 2, 1])


@pytest.mark.long
def test_a_node_of_a_cluster_whose_gpus_an_exporter_names_counts_once(tmp_path: Path) -> None:
    """It is called as the exporter calls it; GPUs known by their number count beyond those that are named."""
    books = Books.open(tmp_path / "books", create=True)
    node = "ip-10-0-0-1.eu-west-1.compute.internal"
    tags = [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}]
    paths = write_answers(tmp_path, [instance("i-1", PrivateDnsName=node, Tags=tags)])
    books.add("ec2", paths, ReadOptions(at_ms=ms(120)))
    assert [one.value for one in books.show(["paid_gpu_hours"])] == pytest.approx([2])
    table = tmp_path / "own" / "devices.csv"
    table.parent.mkdir()
    table.write_text(f"device_id,node,from_utc,to_utc\nGPU-1,{node},{at(60)},{at(120)}\n")
    books.add("tables", [table.parent])
    assert [one.value for one in books.show(["paid_gpu_hours"])] == pytest.approx([2])


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """When the answers were taken, the types, or what EC2 did not write: one line with what to do."""
    instances, types = write_answers(tmp_path, [instance("i-1")])
    with pytest.raises(SourceError, match=r"do not say when they were taken: give --at"):
        see(SOURCE, instances, types)
    with pytest.raises(SourceError, match=r"describe-instance-types --instance-types \S.* --output json"):
        see(SOURCE, instances, at_ms=ms(60))
    with pytest.raises(SourceError, match=r"no instance with GPUs is among the 1 that are listed"):
        see_answers(tmp_path, 60, [instance("i-1", "m5.large")])
    with pytest.raises(SourceError, match=r"Reservations are not as EC2 writes them \(KeyError: 'LaunchTime'\)"):
        see_answers(tmp_path, 60, [{"InstanceId": "i-1", "InstanceType": "g5.xlarge", "State": {"Name": "running"}}])
    for text, said in (('{"Volumes": []}', "is no answer of EC2"), ("not json", "is no JSON of EC2")):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(SourceError, match=said):
            see(SOURCE, tmp_path / "other.json", at_ms=ms(60))


KINDS = [
    {"InstanceType": name, "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": count}]}}
    for name, count in (("g5.xlarge", 1), ("g5.12xlarge", 4))
]


class Account:
    """What a decoder says, folded as the books fold it: of rows with one key the later one counts whole."""

    def __init__(self) -> None:
        self.decoder = LiveEc2Decoder("prod")
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.told = 0
        self.gaps: dict[str, int] = {}

    def say(self, minutes: float, *instances: dict[str, Any], **others: list[dict[str, Any]]) -> None:
        """EC2 lists these then, all of them."""
        events = [[ms(minutes), kind, some] for kind, some in {TYPES: KINDS, **others}.items()]
        names = sorted(one["InstanceId"] for one in instances)
        self.decoder.feed([*events, [ms(minutes), INSTANCES, list(instances)], [ms(minutes), ALL, names]])
        self.take()

    def take(self) -> None:
        for item in self.decoder.drain():
            if isinstance(item, Gap):
                self.gaps[item.what] = self.gaps.get(item.what, 0) + item.count
                continue
            assert isinstance(item, Rows)
            assert item.where == "ec2:prod"
            for row in item.data.to_pylist():
                self.told += 1
                self.rows[item.table, row.get("job_id"), row["device_id"], row.get("from_utc", row.get("at_utc"))] = row

    def restart(self) -> None:
        self.decoder = LiveEc2Decoder("prod", self.decoder.state())

    def spans(self, table: str) -> list[tuple[Any, ...]]:
        """Device, from, to of each row of a table, in minutes."""
        of = [row for key, row in self.rows.items() if key[0] == table]
        found = ((row["device_id"], _minutes(row["from_utc"]), _minutes(row.get("to_utc"))) for row in of)
        return sorted(found, key=str)


def _minutes(at_ms: int | None) -> float | None:
    return None if at_ms is None else (at_ms - ms(0)) / 60_000


def test_what_runs_is_open_and_ends_when_it_is_said() -> None:
    """Started again it is another run, of another type too; who did not see it end takes when it was seen last."""
    account = Account()
    account.say(1, instance("i-1"), instance("i-2"), instance("i-3"))
    assert account.spans("devices") == [("i-1/0", 0, None), ("i-2/0", 0, None), ("i-3/0", 0, None)]
    account.decoder.feed([[ms(9), SEEN, None]])
    stopped = instance("i-2", state="stopped", StateTransitionReason="User initiated (2026-11-20 10:08:00 GMT)")
    account.say(10, instance("i-1"), stopped)
    account.restart()
    account.say(30, instance("i-1", "g5.12xlarge", minutes=20), stopped)
    again = [(f"i-1/{gpu}", 20, None) for gpu in range(4)]
    spans = [("i-1/0", 0, 10), *again, ("i-2/0", 0, 8), ("i-3/0", 0, 9)]
    assert account.spans("devices") == account.spans("allocations") == spans
    assert account.gaps == {"instances that ended while nobody watched: taken to end when they were seen last": 2}


def test_what_is_said_again_makes_no_rows_and_changed_tags_count_for_the_run() -> None:
    """Also after a restart; an instance that became a node of a cluster afterwards is not there twice."""
    account = Account()
    account.say(1, instance("i-1", PrivateDnsName="ip-10-0-0-1.ec2.internal"))
    told = account.told
    account.restart()
    account.say(2, instance("i-1", PrivateDnsName="ip-10-0-0-1.ec2.internal"))
    assert account.told == told
    account.say(3, instance("i-1", Tags=[{"Key": "team", "Value": "nlp"}]))
    (held,) = (row for key, row in account.rows.items() if key[0] == "allocations")
    assert (json.loads(held["tags"]), _minutes(held["from_utc"])) == ({"tag.team": "nlp"}, 0)
    owned = [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}]
    account.say(5, instance("i-1", PrivateDnsName="ip-10-0-0-1.ec2.internal", Tags=owned))
    assert account.spans("devices") == [("i-1/0", 0, 5), ("ip-10-0-0-1.ec2.internal:gpu0", 0, None)]
    assert account.spans("allocations") == [("i-1/0", 0, 5)]


def test_amazon_takes_a_spot_instance_away() -> None:
    """A notice is an event of its GPU; it ends as preempted when Amazon says; its price goes on until it is another or it ends."""
    market = MARKET | {"ProductDescription": "Linux/UNIX (Amazon VPC)"}
    account = Account()
    account.say(1, instance("i-1", **SPOT), **{PRICES: [{**market, "SpotPrice": "2", "Timestamp": at(-9)}]})
    assert account.spans("prices") == [("i-1/0", 0, None)]
    notice = {"InstanceId": "i-1", "Status": {"Code": "marked-for-termination", "UpdateTime": at(28)}}
    account.decoder.feed(
        [[ms(29), REQUESTS, [notice]], [ms(29), PRICES, [{**market, "SpotPrice": "3", "Timestamp": at(20)}]]]
    )
    account.take()
    assert account.spans("devices") == [("i-1/0", 0, None)]
    taken = {"InstanceId": "i-1", "Status": {"Code": "instance-terminated-no-capacity", "UpdateTime": at(30)}}
    code = {"StateReason": {"Code": "Server.SpotInstanceTermination"}}
    account.say(31, instance("i-1", state="terminated", **SPOT, **code), **{REQUESTS: [taken]})
    assert account.spans("prices") == [("i-1/0", 0, 20), ("i-1/0", 20, 30)]
    (held,) = (row for key, row in account.rows.items() if key[0] == "allocations")
    assert (_minutes(held["to_utc"]), held["end_state"]) == (30, "preempted")
    (event,) = (row for key, row in account.rows.items() if key[0] == "device_events")
    assert (event["detail"], _minutes(event["at_utc"])) == ("spot interruption notice: marked-for-termination", 28)
    assert not account.gaps
    account.decoder.feed([[ms(32), ALL, []], [ms(33) + KEPT_MS, SEEN, None], [ms(34) + KEPT_MS, ALL, []]])
    account.take()
    assert not account.decoder.runs, "what is over is not known for ever"
