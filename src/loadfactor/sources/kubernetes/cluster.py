"""A cluster as its objects tell it one after the other, and the rows that follow from what is known of them now."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from loadfactor.sources.kubernetes.claims import ClaimFacts, Device, DeviceFacts, Grant, find_part
from loadfactor.sources.kubernetes.fields import choose_texts, write_tags
from loadfactor.sources.kubernetes.nodes import Held, NodeFacts, add_up
from loadfactor.sources.kubernetes.pods import (
    CANCELLED,
    EVICTED,
    PREEMPTED,
    PURPOSES,
    REFUSED,
    OwnerFacts,
    PodFacts,
    WorkloadFacts,
    follow_up,
)
from loadfactor.sources.kubernetes.quotas import Quotas
from loadfactor.sources.parsing.cells import TableRow
from loadfactor.tables.schema import ALWAYS, LABELS

ROUNDING: Final = 1e-9
Slot = tuple[Device, str, float | None]
"""A device, or a part of it by its name, and which part that is; None: what others leave of it."""
Row = dict[str, Any]
RUNNING = "running"
POD_SET: Final = "kueue.x-k8s.io/podset"
"""The label of pods that names their set among those of a workload."""


class PodGrants(NamedTuple):
    """Devices given to a pod when it was bound, and the pods that its claims were reserved for then."""

    grants: tuple[Grant, ...]
    reserved_for: tuple[str, ...]


class Piece(NamedTuple):
    """A time in which a pod holds the same part of each device: GPUs in all, and by the UUID of each that is known."""

    from_ms: int
    to_ms: int | None
    gpus: float
    by_gpu: tuple[tuple[str, float], ...]


class GrantedDevices:
    """The devices that bound pods hold by their claims."""

    def __init__(self, pods: Mapping[str, PodFacts]) -> None:
        self.devices: dict[Device, DeviceFacts] = {}
        self.given: dict[str, PodGrants] = {}
        """By uid of a pod: settled when it is first seen bound and all its claims are known."""
        self._pods = pods
        self._holders: dict[Device, set[str]] = {}  # uids by device

    def settle(self, pod: PodFacts, claims: tuple[ClaimFacts, ...]) -> None:
        """Know what a bound pod was given by its claims: they are given to others after it."""
        if not pod.claims or pod.from_ms is None or pod.uid in self.given or len(claims) < len(pod.claims):
            return
        if all(claim.is_allocated for claim in claims):
            reserved = {uid for claim in claims if claim.grants for uid in claim.reserved_for}
            grants = tuple(dict.fromkeys(grant for claim in claims for grant in claim.grants))
            self.keep(pod.uid, PodGrants(grants, tuple(sorted(reserved))))

    def keep(self, uid: str, given: PodGrants) -> None:
        """Know what a pod was given."""
        self.given[uid] = given
        for grant in given.grants:
            self._holders.setdefault(grant.device, set()).add(uid)

    def forget(self, uid: str) -> None:
        """Know a pod no longer."""
        for grant in self.given.pop(uid, PodGrants((), ())).grants:
            self._holders[grant.device].discard(uid)
            if not self._holders[grant.device]:
                del self._holders[grant.device]

    def list_sharing(self, uid: str) -> set[str]:
        """The other pods that hold a part of the same devices as this one at a time at which it does, too."""
        devices = {grant.device for grant in self.given[uid].grants} if uid in self.given else set()
        holders = set().union(*(self._holders[device] for device in devices)) - {uid}
        from_ms, to_ms = self._find_span(uid) if holders else (0, 0)
        spans = {other: self._find_span(other) for other in holders}
        return {other for other, (begin, end) in spans.items() if begin < min(end, to_ms) and from_ms < end}

    def count_unnamed(self) -> int:
        """Bound pods with a device that no slice lists."""
        return sum(any(g.device not in self.devices for g in given.grants) for given in self.given.values())

    def list_pieces(self, uid: str) -> Iterator[Piece]:
        """The pieces of the time of a pod; none where it holds no devices by claims."""
        given = self.given.get(uid)
        if given is None or not given.grants:
            return
        from_ms, to_ms = self._find_span(uid)
        sharing = {other: self._find_span(other) for other in self.list_sharing(uid)}
        unseen = sum(other not in self._pods and other != uid for other in given.reserved_for)
        inside = {at for span in sharing.values() for at in span if from_ms < at < to_ms}
        bounds = [from_ms, *sorted(inside), to_ms]
        last: Piece | None = None
        for begin, end in pairwise(bounds):
            there = {other for other, span in sharing.items() if span[0] <= begin < span[1]}
            parts = [(grant, self._find_part(grant, {uid, *there}, unseen)) for grant in given.grants]
            by_gpu: dict[str, float] = {}
            for grant, part in parts:
                known = self.devices.get(grant.device)
                if known and known.device_id:
                    by_gpu[known.device_id] = by_gpu.get(known.device_id, 0.0) + part
            named = tuple((name, min(1.0, part)) for name, part in by_gpu.items())
            piece = Piece(begin, None if end == ALWAYS[1] else end, sum(part for _, part in parts), named)
            if last is not None and last[2:] == piece[2:]:
                piece = last._replace(to_ms=piece.to_ms)
            elif last is not None:
                yield last
            last = piece
        if last is not None:
            yield last

    def _find_part(self, grant: Grant, holders: set[str], unseen: int) -> float:
        """The part of a GPU that one of `holders` has by a grant, beside the others of them and `unseen` ones of its claim."""
        known = self.devices.get(grant.device)
        slots = [slot for uid in holders for slot in self._list_slots(uid) if slot[0] == grant.device]
        sizes = {share: size for _, share, size in slots}
        total = sum(size for size in sizes.values() if size is not None)
        rest = max(0.0, 1.0 - total) or 1.0  # of those who were given no part
        taken = total + (rest if None in sizes.values() else 0.0)
        own = self._name_slot(grant)
        part = (rest if own[2] is None else own[2]) / (taken if taken > 1.0 + ROUNDING else 1.0)
        return (known.share if known else 1.0) * part / (slots.count(own) + unseen)

    def _list_slots(self, uid: str) -> set[Slot]:
        return {self._name_slot(grant) for grant in self.given[uid].grants}

    def _name_slot(self, grant: Grant) -> Slot:
        """The thing that pods hold together: a device, or a part of one that was given by its capacity."""
        size = find_part(grant, self.devices.get(grant.device))
        return grant.device, grant.share if size is not None else "", size

    def _find_span(self, uid: str) -> tuple[int, int]:
        """From when to when a pod holds what it was given; nothing of it where its node refused it."""
        pod = self._pods[uid]
        from_ms = pod.from_ms or 0
        end_state, to_ms = pod.ended
        if end_state == REFUSED:
            return from_ms, from_ms
        return from_ms, ALWAYS[1] if not end_state or to_ms is None else max(to_ms, from_ms)


@dataclass
class ClusterFacts:
    """The objects that are there, as far as they concern GPUs: pods, workloads and owners by uid, nodes and claims by name."""

    name: str = ""
    pods: dict[str, PodFacts] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    workloads: dict[str, WorkloadFacts] = field(default_factory=dict)
    claims: dict[str, ClaimFacts] = field(default_factory=dict)
    owners: dict[str, OwnerFacts] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    """GPUs that bound pods hold by resources, by uid: as their node divided its GPUs when they were first seen."""
    granted: GrantedDevices = field(init=False)
    """Devices that they hold by claims."""
    quotas: Quotas = field(default_factory=Quotas)
    _workload_of: dict[str, str] = field(default_factory=dict)  # by namespace/name, and by the uid of its owner

    def __post_init__(self) -> None:
        self.granted = GrantedDevices(self.pods)

    def find_held(self, pod: PodFacts) -> Held:
        """How many GPUs a pod holds or asks for by resources."""
        if pod.uid in self.held:
            return self.held[pod.uid]
        found = add_up(pod.stages, self.nodes.get(pod.node))
        if pod.from_ms is not None and found.is_sure:
            self.held[pod.uid] = found
        return found

    def find_claims(self, pod: PodFacts) -> tuple[ClaimFacts, ...]:
        """The claims of a pod, as far as they are known."""
        return tuple(c for name in pod.claims if (c := self.claims.get(f"{pod.namespace}/{name}")) is not None)

    def keep_workload(self, workload: WorkloadFacts) -> None:
        """Know a workload as it is now."""
        self.workloads[workload.uid] = workload
        for name in _names_of(workload):
            self._workload_of[name] = workload.uid

    def drop_workload(self, workload: WorkloadFacts) -> None:
        """A workload is gone."""
        del self.workloads[workload.uid]
        for name in _names_of(workload):
            self._workload_of.pop(name, None)

    def find_workload(self, pod: PodFacts) -> WorkloadFacts | None:
        """The workload of Kueue that a pod is of: it says so, or an owner of the pod owns the workload too."""
        owner = follow_up(pod.owner, {}, self.owners)
        names = (f"{pod.namespace}/{pod.workload}", pod.uid, *(owner.uids if owner else ()))
        uid = next((self._workload_of[name] for name in names if name in self._workload_of), None)
        return None if uid is None else self.workloads[uid]

    def settle_end(self, pod: PodFacts) -> PodFacts:
        """The pod with how it ended: one that was deleted because Kueue evicted its workload says nothing of that itself."""
        workload = self.find_workload(pod) if pod.gone_as == CANCELLED else None
        evicted_ms = workload.evicted_ms if workload else None
        if workload is None or evicted_ms is None or evicted_ms < (pod.from_ms or 0):
            return pod
        return replace(pod, gone_as=PREEMPTED if "Preempt" in workload.evicted_why else EVICTED)

    def make_pod_rows(self, pod: PodFacts) -> Iterator[TableRow]:
        """The rows of a pod: where claims say which GPUs it holds, one more for each, as labels would tell it."""
        held = self.find_held(pod)
        pieces = list(self.granted.list_pieces(pod.uid))
        by_claims = sum(claim.requested for claim in self.find_claims(pod)) if pod.from_ms is None else 0.0
        if held.total + by_claims <= 0 and not pieces:
            return
        workload = self.find_workload(pod)
        owner = follow_up(pod.owner, dict(pod.labels), self.owners)
        who = {
            "job_id": pod.job_id,
            "team": pod.namespace,
            "queue": pod.queue or (workload.queue if workload else "") or None,
            "tags": write_tags(
                {
                    "cluster": self.name,
                    "namespace": pod.namespace,
                    "owner": f"{owner.kind}/{owner.name}" if owner else "",
                    "purpose_hint": PURPOSES.get(owner.kind, "") if owner else "",
                    **(self._name_queue(workload) | {"flavor": _find_flavor(workload, pod)} if workload else {}),
                    **choose_texts(dict(owner.labels if owner else ()), dict(owner.annotations if owner else ())),
                    **dict(pod.texts),
                }
            ),
        }
        if pod.from_ms is None or pod.end_state == REFUSED:
            if workload is None:
                yield from _make_wait_rows(pod, who | {"gpus": held.total + by_claims})
            return
        yield from self._make_hold_rows(pod, who, held, pieces, workload is None)

    def _make_hold_rows(
        self, pod: PodFacts, who: Row, held: Held, pieces: list[Piece], has_waited: bool
    ) -> Iterator[TableRow]:
        assert pod.from_ms is not None
        end_state, to_ms = pod.ended
        to_ms = None if to_ms is None else max(to_ms, pod.from_ms)
        submitted_ms = (
            pod.created_ms if has_waited else None
        )  # a workload's wait is emitted once, not by each of its pods
        if submitted_ms is not None:
            who = {**who, "submitted_utc": min(submitted_ms, pod.from_ms)}
        for piece in pieces or [Piece(pod.from_ms, to_ms, 0.0, ())]:
            share = None if piece.gpus else held.share
            yield (
                "allocations",
                {
                    **who,
                    "node": pod.node,
                    "gpus": held.total + piece.gpus if piece.gpus else held.gpus,
                    "share": share,
                    "from_utc": piece.from_ms,
                    "to_utc": piece.to_ms,
                    "end_state": (end_state or RUNNING) if piece.to_ms == to_ms else None,
                },
            )
            for device_id, part in piece.by_gpu:
                facts = {"share": part, "from_utc": piece.from_ms, "to_utc": piece.to_ms, "known_from": LABELS}
                yield "allocations", {"job_id": pod.job_id, "device_id": device_id, **facts}
            who = {**who, "submitted_utc": None}

    def make_workload_rows(
        self, workload: WorkloadFacts, was_known: bool, gone_ms: int | None = None
    ) -> Iterator[TableRow]:
        """The queue events of a workload. `was_known`: it was known before it was evicted for the first time."""
        requested = [(count, add_up(stages, None)) for count, stages in workload.pod_sets]
        event = {
            "job_id": workload.job_id,
            "gpus": sum(count * held.total for count, held in requested),
            "team": workload.namespace,
            "queue": workload.queue or None,
            "tags": write_tags(
                {
                    "cluster": self.name,
                    "namespace": workload.namespace,
                    "owner": "/".join(workload.owner[1:]) if workload.owner else "",
                    "purpose_hint": PURPOSES.get(workload.owner[1], "") if workload.owner else "",
                    **self._name_queue(workload),
                    **dict(workload.texts),
                }
            ),
        }
        events: list[tuple[str, int | None, str]] = []
        if was_known or not workload.was_evicted:
            events.append(("submitted", workload.created_ms, workload.waits_for))
        events.append(("requeued", workload.evicted_ms, workload.evicted_why))
        events.append(("started", workload.admitted_ms, ""))
        if workload.admitted_ms is None:
            events.append(("cancelled", workload.finished_ms or gone_ms, ""))
        for name, at_ms, reason in events:
            if at_ms is not None:
                yield "queue_events", event | {"event": name, "at_utc": at_ms, "reason": reason or None}

    def _name_queue(self, workload: WorkloadFacts) -> dict[str, str]:
        leads_to = self.quotas.local_queues.get(f"{workload.namespace}/{workload.queue}", "")
        return {"cluster_queue": workload.cluster_queue or leads_to, "priority": workload.priority}


def _find_flavor(workload: WorkloadFacts, pod: PodFacts) -> str:
    """The flavor of the GPUs of a pod: of its pod set, else the only one."""
    flavors = dict(workload.flavors)
    return flavors.get(dict(pod.labels).get(POD_SET, "")) or (
        flavors.popitem()[1] if len({*flavors.values()}) == 1 else ""
    )


def _names_of(workload: WorkloadFacts) -> tuple[str, ...]:
    name = f"{workload.namespace}/{workload.name}"
    return (name, workload.owner[0]) if workload.owner else (name,)


def _make_wait_rows(pod: PodFacts, who: Mapping[str, Any]) -> Iterator[TableRow]:
    if pod.created_ms is None:
        return
    yield "queue_events", {**who, "event": "submitted", "at_utc": pod.created_ms, "reason": pod.waits_for or None}
    _, ended_ms = pod.ended
    if ended_ms is not None:
        reason = {"reason": pod.end_state or None}
        yield "queue_events", {**who, **reason, "event": "cancelled", "at_utc": max(ended_ms, pod.created_ms)}
