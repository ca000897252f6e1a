"""Instances of EC2 as they are asked for again and again: what starts, stops, changes and is taken away, and restarts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.clouds.ec2 import PRICES, REQUESTS, TYPES, LiveEc2Decoder
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES, KEPT_MS, SEEN

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)
KINDS = [
    {"InstanceType": name, "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": count}]}}
    for name, count in (("g5.xlarge", 1), ("g5.12xlarge", 4))
]


def at(minutes: float) -> str:
    """An instant of the day, as events have it."""
    return (BEGAN + timedelta(minutes=minutes)).isoformat()


def ms(minutes: float) -> int:
    """The same in milliseconds."""
    return round((BEGAN + timedelta(minutes=minutes)).timestamp() * MS_PER_S)


def instance(
    name: str, minutes: float = 0, kind: str = "g5.xlarge", state: str = "running", **said: Any
) -> dict[str, Any]:
    """An instance that was launched then."""
    return {"InstanceId": name, "InstanceType": kind, "LaunchTime": at(minutes), "State": {"Name": state}, **said}


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
        """Take what is new."""
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
        """Go on in another process."""
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
    account.say(30, instance("i-1", 20, "g5.12xlarge"), stopped)
    assert (
        account.spans("devices")
        == account.spans("allocations")
        == [
            ("i-1/0", 0, 10),
            ("i-1/0", 20, None),
            ("i-1/1", 20, None),
            ("i-1/2", 20, None),
            ("i-1/3", 20, None),
            ("i-2/0", 0, 8),
            ("i-3/0", 0, 9),
        ]
    )
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
    where = {
        "InstanceLifecycle": "spot",
        "Placement": {"AvailabilityZone": "eu-west-1a"},
        "PlatformDetails": "Linux/UNIX",
    }
    market = {
        "InstanceType": "g5.xlarge",
        "AvailabilityZone": "eu-west-1a",
        "ProductDescription": "Linux/UNIX (Amazon VPC)",
    }
    account = Account()
    account.say(1, instance("i-1", **where), **{PRICES: [{**market, "SpotPrice": "2", "Timestamp": at(-9)}]})
    assert account.spans("prices") == [("i-1/0", 0, None)]
    notice = {"InstanceId": "i-1", "Status": {"Code": "marked-for-termination", "UpdateTime": at(28)}}
    account.decoder.feed(
        [[ms(29), REQUESTS, [notice]], [ms(29), PRICES, [{**market, "SpotPrice": "3", "Timestamp": at(20)}]]]
    )
    account.take()
    assert account.spans("devices") == [("i-1/0", 0, None)]
    taken = {"InstanceId": "i-1", "Status": {"Code": "instance-terminated-no-capacity", "UpdateTime": at(30)}}
    code = {"StateReason": {"Code": "Server.SpotInstanceTermination"}}
    account.say(31, instance("i-1", state="terminated", **where, **code), **{REQUESTS: [taken]})
    assert account.spans("prices") == [("i-1/0", 0, 20), ("i-1/0", 20, 30)]
    (held,) = (row for key, row in account.rows.items() if key[0] == "allocations")
    assert (_minutes(held["to_utc"]), held["end_state"]) == (30, "preempted")
    (event,) = (row for key, row in account.rows.items() if key[0] == "device_events")
    assert (event["detail"], _minutes(event["at_utc"])) == ("spot interruption notice: marked-for-termination", 28)
    assert not account.gaps
    account.decoder.feed([[ms(32), ALL, []], [ms(33) + KEPT_MS, SEEN, None], [ms(34) + KEPT_MS, ALL, []]])
    account.take()
    assert not account.decoder.runs, "what is over is not known for ever"
