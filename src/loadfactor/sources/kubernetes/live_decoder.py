"""Decoder of a cluster that is watched: lists and events as they come, and what of it outlasts a restart.

An event is [when it came (ms), kind, what, object]. `what` is ADDED, MODIFIED or DELETED as the API says it; LISTING before and
LISTED after the objects of a list, so that what is not in it is known to be gone; ALIVE where nothing changed until then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.kubernetes.claims import ClaimFacts, Device, DeviceFacts, Installed, SliceFacts
from loadfactor.sources.kubernetes.cluster import PodGrants
from loadfactor.sources.kubernetes.decoder import KubernetesDecoder, name_object
from loadfactor.sources.kubernetes.nodes import Held, NodeFacts
from loadfactor.sources.kubernetes.pods import OwnerFacts, PodFacts, WorkloadFacts
from loadfactor.sources.kubernetes.quotas import QueueFacts
from loadfactor.sources.live_state import pack_state, unpack_state

LISTING, LISTED, ALIVE = "LISTING", "LISTED", "ALIVE"
ADDED, DELETED = "ADDED", "DELETED"
Event = Sequence[Any]


@dataclass
class ClusterState:
    """The state of a watched cluster that outlasts a restart; see `KubernetesDecoder` and `ClusterFacts`."""

    pods: dict[str, PodFacts]
    nodes: dict[str, NodeFacts]
    workloads: dict[str, WorkloadFacts]
    claims: dict[str, ClaimFacts]
    owners: dict[str, OwnerFacts]
    devices: list[tuple[Device, DeviceFacts]]
    given: dict[str, PodGrants]
    slices: dict[str, SliceFacts]
    installed: dict[str, Installed]
    held: dict[str, Held]
    queues: dict[str, QueueFacts]
    local_queues: dict[str, str]
    flavors: dict[str, str]
    emitted: dict[str, dict[str, int]]
    outages: dict[str, tuple[int, str]]
    last_ms: dict[str, int]
    listing: dict[str, tuple[int, set[str]]]
    version: Literal[3] = 3


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
            self._restore(unpack_state(ClusterState, state, "a cluster"))

    def feed(self, events: Sequence[Event]) -> None:
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
                    self._listing[kind][1].add(name_object(kind, found))
                self._decoder.feed(kind, found, at_ms)
            if kind not in self._listing:
                self._last_ms[kind] = max(at_ms, self._last_ms.get(kind, 0))

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        return self._decoder.drain()

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        decoder, facts = self._decoder, self._decoder.cluster
        needed = {pod.owner[0] for pod in facts.pods.values() if pod.owner}
        for uid in list(needed):  # and those above them
            while (owner := facts.owners.get(uid)) is not None and owner.above and owner.above[0] not in needed:
                uid = owner.above[0]
                needed.add(uid)
        facts.owners = {uid: owner for uid, owner in facts.owners.items() if uid in needed}
        state = ClusterState(
            pods=facts.pods,
            nodes=facts.nodes,
            workloads=facts.workloads,
            claims=facts.claims,
            owners=facts.owners,
            devices=list(facts.granted.devices.items()),
            given=facts.granted.given,
            slices=decoder.inventory.slices,
            installed=decoder.inventory.installed,
            held=facts.held,
            queues=facts.quotas.queues,
            local_queues=facts.quotas.local_queues,
            flavors=facts.quotas.flavors,
            emitted=decoder.emitted,
            outages=decoder.outages.open,
            last_ms=self._last_ms,
            listing=self._listing,
        )
        return pack_state(state)

    def _restore(self, state: ClusterState) -> None:
        decoder, facts = self._decoder, self._decoder.cluster
        facts.pods |= state.pods
        facts.nodes, facts.claims, facts.owners, facts.held = state.nodes, state.claims, state.owners, state.held
        for workload in state.workloads.values():
            facts.keep_workload(workload)
        facts.granted.devices = dict(state.devices)
        for uid, given in state.given.items():
            facts.granted.keep(uid, given)
        for pod in facts.pods.values():
            facts.granted.settle(pod, facts.find_claims(pod))
        facts.quotas.queues, facts.quotas.local_queues = state.queues, state.local_queues
        facts.quotas.flavors = state.flavors
        decoder.inventory.slices, decoder.inventory.installed = state.slices, state.installed
        decoder.emitted, decoder.outages.open = state.emitted, state.outages
        self._last_ms, self._listing = state.last_ms, state.listing
