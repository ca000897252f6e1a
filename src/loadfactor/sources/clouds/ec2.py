"""EC2: saved answers about instances with GPUs → what is installed, who holds it, what spot costs, and what was taken away.

GPUs are called as those of CloudWatch's agent are, by instance and number: `i-0abc/0`; those of a node of Kubernetes by its name
there. Answers say what was just then; what is in the next ones, too, did not end in between.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_S, S_PER_HOUR
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import as_list, as_object
from loadfactor.sources.clouds.live_instances import Listed, LiveInstanceDecoder, read_documents, write_instance_tags
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.cells import TableRow, write_tables
from loadfactor.sources.slurm.gpus import MOST_ON_NODE
from loadfactor.tables.schema import LIST, SEEN

OVER: Final = frozenset(("shutting-down", "terminated", "stopping", "stopped"))
_INTERRUPTED: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_NOTICE: Final = "marked-for-"
_NAMED: Final = 5  # types in a refusal
_ENDED_BY_SPOT: Final = re.compile(
    r"instance-(?:terminated|stopped)-(?:by-price|no-capacity|capacity-oversubscribed|launch-group-constraint)"
    r"|marked-for-(?:termination|stop)"
)
_KUBERNETES: Final = re.compile(r"kubernetes\.io/cluster/|(?:aws:)?eks:cluster-name$")
_CLUSTERS: Final = re.compile(rf"{_KUBERNETES.pattern}|parallelcluster:cluster-name$|AWSBatchServiceTag$")
"""Tags of machines that a scheduler fills; who holds them is for it to say."""
_OF_VPC: Final = " (Amazon VPC)"
"""A word that the history of prices may write after a platform; instances do not."""


@dataclass(frozen=True)
class InstanceType:
    """The GPUs of a type: how many, of which model, and which part of one each is."""

    gpus: int
    accelerator: str
    share: float = 1.0


@dataclass(frozen=True)
class Instance:
    """An instance since it was started last. `ended_ms` is None while it runs, and where nobody says when it ended."""

    name: str
    type_name: str
    began_ms: int
    is_over: bool
    ended_ms: int | None
    was_interrupted: bool
    tags: Mapping[str, str]
    market: tuple[str, str, str] | None = None
    """Of a spot instance: its type, zone and platform, which together have a price."""
    dns_name: str = ""

    @property
    def is_of_cluster(self) -> bool:
        """Whether its tags say that a scheduler fills it."""
        return any(map(_CLUSTERS.match, self.tags))

    @property
    def node(self) -> str:
        """The node that it is: a node of Kubernetes is called by its private name in DNS, as kubelets and Container Insights do."""
        is_node = self.dns_name and any(map(_KUBERNETES.match, self.tags))
        return self.dns_name if is_node else self.name

    @property
    def gpu_prefix(self) -> str:
        """The names of its GPUs before their number. Where others list the GPUs of the node, too, those known by their number
        alone (`node:gpu0`) count once with them."""
        return f"{self.name}/" if self.node == self.name else f"{self.node}:gpu"


@dataclass(frozen=True)
class SpotRequest:
    """The outcome of a request for a spot instance: the code of its status, and since when."""

    instance: str
    code: str
    at_ms: int

    @property
    def is_notice(self) -> bool:
        """Whether the instance is about to be taken away."""
        return self.code.startswith(_NOTICE)

    @property
    def is_interruption(self) -> bool:
        """Whether Amazon took the instance away, or is about to."""
        return _ENDED_BY_SPOT.fullmatch(self.code) is not None


@dataclass
class Ec2Answers:
    """All that was listed, of one account or several."""

    types: dict[str, InstanceType] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)
    """Types of which it is known whether they have GPUs."""
    instances: dict[tuple[str, int], Instance] = field(default_factory=dict)
    requests: list[SpotRequest] = field(default_factory=list)
    spot_prices: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=dict)
    """US dollars for an hour of an instance, by when (ms) it became so much; of each market."""

    def add(self, listed: Any, label: str) -> None:
        """One answer. Raises SourceError for what is none."""
        answer = as_object(listed, label)
        kinds = {
            "Reservations": self._put_instances,
            "InstanceTypes": self._put_types,
            "SpotInstanceRequests": self._put_spot,
            "SpotPriceHistory": self._put_prices,
        }
        known = [kind for kind in kinds if kind in answer]
        if not known:
            raise SourceError(f"{label} is no answer of EC2: it has none of {', '.join(kinds)}")
        for kind in known:
            try:
                kinds[kind]([as_object(one, label) for one in as_list(answer[kind], label)])
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise SourceError(f"{label}: {kind} are not as EC2 writes them ({reason}); is it whole?") from None

    def _put_instances(self, reservations: Iterable[dict[str, Any]]) -> None:
        for reservation in reservations:
            for listed in reservation["Instances"]:
                one = read_instance(listed)
                self.instances[one.name, one.began_ms] = one

    def _put_types(self, types: Iterable[dict[str, Any]]) -> None:
        for listed in types:
            self.described.add(str(listed["InstanceType"]))
            for gpu in (listed.get("GpuInfo") or {}).get("Gpus") or ():
                kind = _read_type(gpu)
                if kind.gpus > 0 and kind.share > 0:
                    self.types[str(listed["InstanceType"])] = kind

    def _put_spot(self, requests: Iterable[dict[str, Any]]) -> None:
        for listed in requests:
            if listed.get("InstanceId"):
                at_ms = read_instant(listed["Status"]["UpdateTime"])
                self.requests.append(SpotRequest(listed["InstanceId"], str(listed["Status"]["Code"]), at_ms))

    def _put_prices(self, prices: Iterable[dict[str, Any]]) -> None:
        for listed in prices:
            platform = str(listed["ProductDescription"]).removesuffix(_OF_VPC)
            market = str(listed["InstanceType"]), str(listed["AvailabilityZone"]), platform
            self.spot_prices.setdefault(market, {})[read_instant(listed["Timestamp"])] = float(listed["SpotPrice"])

    def find_prices(self, instance: Instance, end_ms: int | None) -> Iterator[tuple[int, int | None, float]]:
        """The price of an hour of a spot instance, in US dollars: from and to (ms; None: until further notice), and how much."""
        steps = sorted(self.spot_prices.get(instance.market or ("", "", ""), {}).items())
        ends = [*(at_ms for at_ms, _ in steps[1:]), None]
        for (at_ms, price), next_ms in zip(steps, ends, strict=False):
            from_ms = max(at_ms, instance.began_ms)
            to_ms = min((end for end in (next_ms, end_ms) if end is not None), default=None)
            if to_ms is None or from_ms < to_ms:
                yield from_ms, to_ms, price

    def find_end(self, instance: Instance) -> int | None:
        """When an instance ended (ms), as it says, or the request for it; None where nobody says."""
        taken = self.find_interruption(instance)
        return instance.ended_ms or (taken.at_ms if taken else None)

    def find_interruption(self, instance: Instance) -> SpotRequest | None:
        """Amazon's word that it takes this instance away, or took it: the last one."""
        found = [one for one in self.requests if one.instance == instance.name and one.is_interruption]
        return max((one for one in found if one.at_ms >= instance.began_ms), key=lambda one: one.at_ms, default=None)


def read_instant(text: Any) -> int:
    """An instant (ms since 1970 UTC). Raises ValueError for what is none, or has no zone."""
    at = datetime.fromisoformat(str(text))
    if at.tzinfo is None:
        raise ValueError(f"{str(text)[:40]!r} has no time zone")
    return round(at.timestamp() * MS_PER_S)


def read_instance(listed: Mapping[str, Any]) -> Instance:
    """An instance of DescribeInstances. Raises KeyError, TypeError or ValueError where it is none."""
    found = _AT.search(str(listed.get("StateTransitionReason") or ""))
    state, kind = str(listed["State"]["Name"]), str(listed["InstanceType"])
    market = (
        kind,
        str((listed.get("Placement") or {}).get("AvailabilityZone")),
        str(listed.get("PlatformDetails", "Linux/UNIX")),
    )
    return Instance(
        name=str(listed["InstanceId"]),
        type_name=kind,
        began_ms=read_instant(listed["LaunchTime"]),
        is_over=state in OVER,
        ended_ms=read_instant(f"{found[1]}+00:00") if found and state in OVER else None,
        was_interrupted=(listed.get("StateReason") or {}).get("Code") in _INTERRUPTED,
        tags={str(tag["Key"]): str(tag["Value"]) for tag in listed.get("Tags") or ()},
        market=market if listed.get("InstanceLifecycle") == "spot" else None,
        dns_name=str(listed.get("PrivateDnsName") or ""),
    )


def _read_type(gpu: Mapping[str, Any]) -> InstanceType:
    """A GPU of DescribeInstanceTypes; where GPUs are divided there are logical ones, each a part of one."""
    name = f"{gpu['Manufacturer']} {gpu['Name']}"
    memory_gib = round(((gpu.get("MemoryInfo") or {}).get("SizeInMiB") or 0) * BYTES_PER_MIB / BYTES_PER_GIB)
    known = find_accelerator(f"{name} {memory_gib}GB") or find_accelerator(name)
    count = int(gpu.get("LogicalGpuCount") or gpu["Count"])
    if count > MOST_ON_NODE:
        raise ValueError(f"{count} GPUs of one instance")
    return InstanceType(count, known.id if known else name, float(gpu.get("GpuPartitionSize") or 1.0))


NOT_DESCRIBED: Final = "instances of a type that DescribeInstanceTypes does not describe here"
NO_END: Final = "instances that are over, nobody says since when: taken to end when the answers were taken"
_PREEMPTED: Final = "preempted"
_PRICED: Final = {"basis": "list", "currency": "USD", "source": "EC2's history of spot prices"}


def decode_ec2(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of all answers together. Raises SourceError for what is none, or where nothing says when they were taken."""
    answers, label = Ec2Answers(), inputs[0].label
    for where, document in read_documents(inputs, "EC2"):
        answers.add(document, where)
    if options.at_ms is None:
        raise SourceError(f"{label}: answers of EC2 do not say when they were taken: give --at; docs/connect-clouds.md")
    if not answers.instances or not answers.described:
        missing = "describe-instance-types" if answers.instances else "describe-instances"
        kinds = " ".join(sorted({one.type_name for one in answers.instances.values()})[:_NAMED])
        ask = f"{missing} --instance-types {kinds}" if kinds else missing
        raise SourceError(
            f"{label}: the answer of `aws ec2 {missing}` is missing; save `aws ec2 {ask} --output json` and name both files"
        )
    rows: list[TableRow] = []
    gaps: Counter[str] = Counter()
    for instance in answers.instances.values():
        gaps[NOT_DESCRIBED] += instance.type_name not in answers.described
        has_gpus = instance.type_name in answers.types
        gaps[NO_END] += has_gpus and instance.is_over and answers.find_end(instance) is None
        rows += list_instance_rows(answers, instance, options.at_ms, options.at_ms, options.pool)
    if not rows:
        raise SourceError(f"{label}: no instance with GPUs is among the {len(answers.instances):,} that are listed")
    yield from write_tables(rows, label)
    yield from (Gap(label, what, count) for what, count in gaps.items() if count)


def list_instance_rows(
    answers: Ec2Answers, instance: Instance, at_ms: int, until_ms: int | None, pool: str | None = None
) -> Iterator[TableRow]:
    """The rows of an instance; none of a type without GPUs. `at_ms`: when it was listed; `until_ms`: until when what goes on is
    known, None where that is to be seen.
    """
    kind = answers.types.get(instance.type_name)
    if kind is None:
        return
    taken = answers.find_interruption(instance)
    end_ms, ended_ms = until_ms, None
    if instance.is_over:
        ended_ms = answers.find_end(instance)
        end_ms = at_ms if ended_ms is None else ended_ms
    if end_ms is not None and end_ms <= instance.began_ms:
        return
    names = [f"{instance.gpu_prefix}{number}" for number in range(kind.gpus)]
    span = {"from_utc": instance.began_ms, "to_utc": end_ms}
    share = kind.share if kind.share < 1 else None
    facts = {"node": instance.node, "accelerator": kind.accelerator, "pool": pool, "share": share, **span}
    facts["known_from"] = SEEN if ended_ms is None else LIST
    yield from (("devices", {"device_id": name, **facts}) for name in names)
    if not instance.is_of_cluster:
        is_taken = instance.is_over and (instance.was_interrupted or taken is not None)
        end_state = _PREEMPTED if is_taken else None
        tags = write_instance_tags(instance.tags.get("Name", ""), instance.tags)
        held: dict[str, Any] = {"job_id": instance.name, "tags": tags, "end_state": end_state, "share": share, **span}
        yield from (("allocations", {"device_id": name, **held}) for name in names)
    for from_ms, to_ms, price in answers.find_prices(instance, end_ms):
        day = datetime.fromtimestamp(max(from_ms, at_ms) / MS_PER_S, UTC).date().isoformat()
        paid: dict[str, Any] = {
            "from_utc": from_ms,
            "to_utc": to_ms,
            "price_per_gpu_hour": price / (kind.gpus * kind.share),
        }
        yield from (("prices", {"device_id": name, **paid, **_PRICED, "retrieved_on": day}) for name in names)
    if taken is not None and taken.is_notice:
        detail = f"spot interruption notice: {taken.code}"
        event = {"at_utc": taken.at_ms, "kind": "other", "detail": detail}
        yield from (("device_events", {"device_id": name, **event}) for name in names)


SOURCE = Source(
    "ec2",
    find_with((".json",), "JSON of EC2"),
    read_with(decode_ec2),
    float(S_PER_HOUR),
    watches=True,
    uses=("at", "pool", "job"),
)
TYPES, REQUESTS, PRICES = "InstanceTypes", "SpotInstanceRequests", "SpotPriceHistory"
"""Kinds of events, as EC2's answers name what is in them."""
_UNSEEN: Final = "terminated"


class LiveEc2Decoder(LiveInstanceDecoder):
    """The rows of one account in one region."""

    family: ClassVar[str] = "ec2"

    def name_run(self, listed: Listed) -> tuple[str, str]:
        """By its id, and since when it runs."""
        return str(listed["InstanceId"]), f"{listed['InstanceId']} {listed['LaunchTime']}"

    def is_over(self, listed: Listed) -> bool:
        """Whether it is stopped or terminated, or on the way there."""
        return listed["State"]["Name"] in OVER

    def write_end(self, listed: Listed, at_ms: int) -> Listed:
        """As EC2 writes of instances that somebody ended."""
        at = datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
        return {
            **listed,
            "State": {"Name": _UNSEEN},
            "StateTransitionReason": f"Seen last ({at:%Y-%m-%d %H:%M:%S} UTC)",
        }

    def needs(self, kind: str, listed: Listed, names: set[str]) -> bool:
        """Types and prices are few; requests count while their instance is known."""
        return kind != REQUESTS or listed.get("InstanceId") in names

    def list_runs(self) -> Iterator[tuple[str, list[TableRow]]]:
        """The rows that `loadfactor import ec2` would make of the answers; what runs has no end."""
        answers = Ec2Answers()
        for kind, some in self.others.items():
            answers.add({kind: list(some.values())}, self.label)
        for run, (at_ms, listed) in self.runs.items():
            yield run, list(list_instance_rows(answers, read_instance(listed), at_ms, None))
