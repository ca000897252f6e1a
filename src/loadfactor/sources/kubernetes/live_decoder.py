"""Decoder of a cluster that is watched: lists and events as they come, and what of it outlasts a restart.

An event is [when it came (ms), kind, what, object]. `what` is ADDED, MODIFIED or DELETED as the API says it; LISTING before and
LISTED after the objects of a list, so that what is not in it is known to be gone; ALIVE where nothing changed until then.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.kubernetes.claims import ClaimFacts, DeviceFacts, Grant, Installed, SliceFacts, SliceGpu
from loadfactor.sources.kubernetes.cluster import PodGrants
from loadfactor.sources.kubernetes.decoder import CLAIM, CLUSTER_QUEUE, COHORT, NODE, SLICE, KubernetesDecoder
from loadfactor.sources.kubernetes.fields import Object, part, text
from loadfactor.sources.kubernetes.nodes import Ask, Held, NodeFacts
from loadfactor.sources.kubernetes.pods import OwnerFacts, PodFacts, WorkloadFacts
from loadfactor.sources.kubernetes.quotas import QueueFacts, QueueQuota, name_cohort

LISTING, LISTED, ALIVE = "LISTING", "LISTED", "ALIVE"
ADDED, DELETED = "ADDED", "DELETED"
_VERSION: Final = 2
_BEFORE_DEVICES: Final = 1
"""A state that knew of claims how many GPUs they are, not which."""
_QUICK: Final = 1
_CLAIMS: Final = [one.name for one in fields(PodFacts)].index("claims")
Event = Sequence[Any]


class LiveKubernetesDecoder:
    """The rows of one cluster, and its state."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the cluster. `state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        self._decoder = KubernetesDecoder(name, f"kubernetes:{name}" if name else "kubernetes", is_watch=True)
        self._last_ms: dict[str, int] = {}
        """When each kind was seen last."""
        self._listing: dict[str, tuple[int, set[str]]] = {}
        """Kinds of which a list is under way: when they were seen last before it, and what is in it so far."""
        if state:
            self._restore(state)

    def put(self, events: Sequence[Event]) -> None:
        """Events in the order in which they came."""
        for at_ms, kind, what, found in events:
            if what == LISTING:
                self._listing[kind] = self._last_ms.get(kind, int(at_ms)), set()
            elif what == LISTED:
                last_ms, there = self._listing.pop(kind, (at_ms, set()))
                self._decoder.vanish(kind, there, last_ms)
            elif what == DELETED:
                self._decoder.remove(kind, found, at_ms)
            elif what != ALIVE:
                if kind in self._listing:
                    self._listing[kind][1].add(_name(kind, found))
                self._decoder.put(kind, found, at_ms)
            if kind not in self._listing:
                self._last_ms[kind] = max(at_ms, self._last_ms.get(kind, 0))

    def take(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        return self._decoder.take()

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        decoder, facts = self._decoder, self._decoder.cluster
        needed = {pod.owner[0] for pod in facts.pods.values() if pod.owner}
        for uid in list(needed):  # and those above them
            while (owner := facts.owners.get(uid)) is not None and owner.above and owner.above[0] not in needed:
                uid = owner.above[0]
                needed.add(uid)
        facts.owners = {uid: owner for uid, owner in facts.owners.items() if uid in needed}
        said = {
            "version": _VERSION,
            "pods": [_list_values(one) for one in facts.pods.values()],
            "nodes": [_list_values(one) for one in facts.nodes.values()],
            "workloads": [_list_values(one) for one in facts.workloads.values()],
            "claims": [_list_values(one) for one in facts.claims.values()],
            "owners": [_list_values(one) for one in facts.owners.values()],
            "devices": [[*device, *known] for device, known in facts.granted.devices.items()],
            "given": {uid: list(given) for uid, given in facts.granted.given.items()},
            "slices": [list(one) for one in decoder.inventory.slices.values()],
            "installed": decoder.inventory.installed,
            "held": {uid: list(held) for uid, held in facts.held.items()},
            "queues": [_list_values(one) for one in facts.quotas.queues.values()],
            "local_queues": facts.quotas.local_queues,
            "flavors": facts.quotas.flavors,
            "told": decoder.told,
            "outages": decoder.outages.open,
            "last_ms": self._last_ms,
            "listing": {kind: [last_ms, sorted(there)] for kind, (last_ms, there) in self._listing.items()},
        }
        return zlib.compress(json.dumps(said, separators=(",", ":")).encode(), _QUICK)

    def _restore(self, state: bytes) -> None:
        facts = self._decoder.cluster
        try:
            said = json.loads(zlib.decompress(state))
            if said["version"] == _BEFORE_DEVICES:
                said |= _know_no_devices(said)
            elif said["version"] != _VERSION:
                raise SourceError(
                    f"the state of a cluster is of version {said['version']!r}; this is another loadfactor"
                )
            facts.pods |= {pod.uid: pod for pod in map(_read_pod, said["pods"])}
            facts.nodes = {node.name: node for node in (NodeFacts(*_freeze(one)) for one in said["nodes"])}
            for one in said["workloads"]:
                facts.keep_workload(_read_workload(one))
            facts.claims = {claim.name: claim for claim in map(_read_claim, said["claims"])}
            facts.owners = {owner.uid: owner for owner in (OwnerFacts(*_freeze(one)) for one in said["owners"])}
            facts.granted.devices = {
                (driver, pool, device): DeviceFacts(*_freeze(known)) for driver, pool, device, *known in said["devices"]
            }
            for uid, (grants, reserved_for) in said["given"].items():
                facts.granted.keep(uid, PodGrants(_read_grants(grants), tuple(reserved_for)))
            slices = (_read_slice(one) for one in said.get("slices", ()))
            self._decoder.inventory.slices = {one.name: one for one in slices}
            installed = said.get("installed", {})
            self._decoder.inventory.installed = {name: Installed(*one) for name, one in installed.items()}
            facts.held = {uid: Held(*held) for uid, held in said["held"].items()}
            facts.quotas.queues = {queue.name: queue for queue in map(_read_queue, said.get("queues", ()))}
            facts.quotas.local_queues, facts.quotas.flavors = said.get("local_queues", {}), said.get("flavors", {})
            for pod in facts.pods.values():
                facts.granted.settle(pod, facts.find_claims(pod))
            self._decoder.told = said["told"]
            self._decoder.outages.open = {key: (since, why) for key, (since, why) in said["outages"].items()}
            self._last_ms = said["last_ms"]
            self._listing = {kind: (last_ms, set(there)) for kind, (last_ms, there) in said["listing"].items()}
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(f"the state of a cluster cannot be read ({type(error).__name__}: {error})") from error


def _name(kind: str, found: Object) -> str:
    """What `KubernetesDecoder.vanish` knows an object by."""
    metadata = part(found, "metadata")
    if kind == CLAIM:
        return f"{text(metadata, 'namespace') or 'default'}/{text(metadata, 'name')}"
    if kind == COHORT:
        return name_cohort(found)
    return (
        text(metadata, "name")
        if kind in (NODE, CLUSTER_QUEUE, SLICE)
        else text(metadata, "uid") or text(metadata, "name")
    )


def _list_values(of: Any) -> list[Any]:
    return [getattr(of, one.name) for one in fields(of)]


def _freeze(value: Any) -> Any:
    return tuple(_freeze(one) for one in value) if isinstance(value, list) else value


def _read_stages(stages: Any) -> tuple[tuple[Ask, ...], ...]:
    return tuple(tuple(Ask(*ask) for ask in stage) for stage in stages)


def _read_grants(grants: list[list[Any]]) -> tuple[Grant, ...]:
    return tuple(Grant(*_freeze(grant)) for grant in grants)


def _read_claim(values: list[Any]) -> ClaimFacts:
    name, grants, *rest = values
    return ClaimFacts(name, _read_grants(grants), *_freeze(rest))


def _read_slice(values: list[Any]) -> SliceFacts:
    facts = SliceFacts(*values)
    return facts._replace(gpus=tuple(SliceGpu(*_freeze(gpu)) for gpu in facts.gpus))


def _read_queue(values: list[Any]) -> QueueFacts:
    name, cohort, quotas, *rest = values
    return QueueFacts(name, cohort, tuple(QueueQuota(*quota) for quota in quotas), *_freeze(rest))


def _know_no_devices(said: dict[str, Any]) -> dict[str, Any]:
    """What a state of before tells of claims and devices: pods of claims hold what these were given then."""
    claims = [[name, given, [], True] for name, given, _ in said["claims"]]
    uids = {pod[0] for pod in said["pods"] if pod[_CLAIMS]}
    held = {uid: held for uid, held in said["held"].items() if uid not in uids}
    return {"claims": claims, "devices": said["shares"], "given": {}, "held": held}


def _read_pod(values: list[Any]) -> PodFacts:
    said = dict(zip((one.name for one in fields(PodFacts)), map(_freeze, values), strict=True))
    return PodFacts(**{**said, "stages": _read_stages(said["stages"])})


def _read_workload(values: list[Any]) -> WorkloadFacts:
    said = dict(zip((one.name for one in fields(WorkloadFacts)), map(_freeze, values), strict=False))  # before flavors
    return WorkloadFacts(
        **{**said, "pod_sets": tuple((count, _read_stages(stages)) for count, stages in said["pod_sets"])}
    )
