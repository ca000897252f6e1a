"""Devices that claims gave to pods, and how much of each a pod holds from when to when.

Pods that share a claim, or a device of which nobody says how it is divided, hold equal parts of it at each moment: of what those
leave that were given a part by its capacity. So the time of a pod is cut where others join or leave and that changes its part, and
what is held of a device is never more than the device.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from loadfactor.sources.kubernetes.claims import ClaimFacts, Device, DeviceFacts, Grant, find_part
from loadfactor.sources.kubernetes.pods import REFUSED, PodFacts
from loadfactor.tables.schema import ALWAYS

ROUNDING: Final = 1e-9
Slot = tuple[Device, str, float | None]
"""A device, or a part of it by its name, and which part that is; None: what others leave of it."""


class PodGrants(NamedTuple):
    """What a pod was given when it was bound, and the pods that its claims were reserved for then."""

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
        """`pods`: all that are known, by uid."""
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
        asked = total + (rest if None in sizes.values() else 0.0)
        own = self._name_slot(grant)
        part = (rest if own[2] is None else own[2]) / (asked if asked > 1.0 + ROUNDING else 1.0)
        return (known.share if known else 1.0) * part / (slots.count(own) + unseen)

    def _list_slots(self, uid: str) -> set[Slot]:
        return {self._name_slot(grant) for grant in self.given[uid].grants}

    def _name_slot(self, grant: Grant) -> Slot:
        """What pods hold together: a device, or a part of one that was given by its capacity."""
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
