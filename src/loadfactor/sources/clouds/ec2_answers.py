"""What EC2 answers about instances with GPUs: themselves, their types, and requests and prices of the spot market, as JSON."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_S
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.clouds.cloud_series import as_list, as_object
from loadfactor.sources.slurm.tres import MOST_ON_NODE

OVER: Final = frozenset(("shutting-down", "terminated", "stopping", "stopped"))
_INTERRUPTED: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_NOTICE: Final = "marked-for-"
_ENDED_BY_SPOT: Final = re.compile(
    r"instance-(?:terminated|stopped)-(?:by-price|no-capacity|capacity-oversubscribed|launch-group-constraint)"
    r"|marked-for-(?:termination|stop)"
)
_KUBERNETES: Final = re.compile(r"kubernetes\.io/cluster/|(?:aws:)?eks:cluster-name$")
_CLUSTERS: Final = re.compile(rf"{_KUBERNETES.pattern}|parallelcluster:cluster-name$|AWSBatchServiceTag$")
"""Tags of machines that a scheduler fills; who holds them is for it to say."""
_OF_VPC: Final = " (Amazon VPC)"
"""What the history of prices may say after a platform; instances do not."""


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
        """What its GPUs are called before their number. Where others list the GPUs of the node, too, those known by their number
        alone (`node:gpu0`) count once with them."""
        return f"{self.name}/" if self.node == self.name else f"{self.node}:gpu"


@dataclass(frozen=True)
class SpotRequest:
    """What became of a request for a spot instance: the code of its status, and since when."""

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
    """All that was said, of one account or several."""

    types: dict[str, InstanceType] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)
    """Types of which it is known whether they have GPUs."""
    instances: dict[tuple[str, int], Instance] = field(default_factory=dict)
    requests: list[SpotRequest] = field(default_factory=list)
    spot_prices: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=dict)
    """US dollars for an hour of an instance, by when (ms) it became so much; of each market."""

    def put(self, said: Any, label: str) -> None:
        """One answer. Raises SourceError for what is none."""
        answer = as_object(said, label)
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
                said_of = f"{type(error).__name__}: {error}"
                raise SourceError(f"{label}: {kind} are not as EC2 writes them ({said_of}); is it whole?") from None

    def _put_instances(self, reservations: Iterable[dict[str, Any]]) -> None:
        for reservation in reservations:
            for said in reservation["Instances"]:
                one = read_instance(said)
                self.instances[one.name, one.began_ms] = one

    def _put_types(self, types: Iterable[dict[str, Any]]) -> None:
        for said in types:
            self.described.add(str(said["InstanceType"]))
            for gpu in (said.get("GpuInfo") or {}).get("Gpus") or ():
                kind = _read_type(gpu)
                if kind.gpus > 0 and kind.share > 0:
                    self.types[str(said["InstanceType"])] = kind

    def _put_spot(self, requests: Iterable[dict[str, Any]]) -> None:
        for said in requests:
            if said.get("InstanceId"):
                at_ms = read_instant(said["Status"]["UpdateTime"])
                self.requests.append(SpotRequest(said["InstanceId"], str(said["Status"]["Code"]), at_ms))

    def _put_prices(self, prices: Iterable[dict[str, Any]]) -> None:
        for said in prices:
            platform = str(said["ProductDescription"]).removesuffix(_OF_VPC)
            market = str(said["InstanceType"]), str(said["AvailabilityZone"]), platform
            self.spot_prices.setdefault(market, {})[read_instant(said["Timestamp"])] = float(said["SpotPrice"])

    def find_prices(self, instance: Instance, end_ms: int | None) -> Iterator[tuple[int, int | None, float]]:
        """What a spot instance cost an hour, in US dollars: from and to (ms; None: until further notice), and how much."""
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


def read_instance(said: Mapping[str, Any]) -> Instance:
    """An instance of DescribeInstances. Raises KeyError, TypeError or ValueError where it is none."""
    found = _AT.search(str(said.get("StateTransitionReason") or ""))
    state, kind = str(said["State"]["Name"]), str(said["InstanceType"])
    market = (
        kind,
        str((said.get("Placement") or {}).get("AvailabilityZone")),
        str(said.get("PlatformDetails", "Linux/UNIX")),
    )
    return Instance(
        name=str(said["InstanceId"]),
        type_name=kind,
        began_ms=read_instant(said["LaunchTime"]),
        is_over=state in OVER,
        ended_ms=read_instant(f"{found[1]}+00:00") if found and state in OVER else None,
        was_interrupted=(said.get("StateReason") or {}).get("Code") in _INTERRUPTED,
        tags={str(tag["Key"]): str(tag["Value"]) for tag in said.get("Tags") or ()},
        market=market if said.get("InstanceLifecycle") == "spot" else None,
        dns_name=str(said.get("PrivateDnsName") or ""),
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
