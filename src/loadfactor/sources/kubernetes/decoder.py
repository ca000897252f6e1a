"""Decoder of Kubernetes: objects come in one after the other, rows come out once, and again where they changed."""

import json
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from loadfactor.base.limits import MOST_CLUSTER_GPUS
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.base import Gap, Gaps, Rows
from loadfactor.sources.kubernetes.claims import (
    Inventory,
    name_capacity,
    read_capacity,
    read_claim,
    read_listed,
    read_slice,
)
from loadfactor.sources.kubernetes.cluster import ClusterFacts, Row
from loadfactor.sources.kubernetes.fields import Object, part, text
from loadfactor.sources.kubernetes.nodes import NodeOutages, read_node
from loadfactor.sources.kubernetes.pods import (
    PodFacts,
    WorkloadFacts,
    find_deletion,
    name_deletion,
    read_owner,
    read_pod,
    read_workload,
)
from loadfactor.sources.kubernetes.quotas import (
    name_cohort,
    read_cluster_queue,
    read_cohort,
    read_flavor,
    read_local_queue,
)
from loadfactor.sources.parsing.cells import TableRow, write_tables
from loadfactor.tables.quotas import OF_COHORT
from loadfactor.tables.schema import LABELS, SCHEDULED

POD, NODE, WORKLOAD, CLAIM, SLICE = "Pod", "Node", "Workload", "ResourceClaim", "ResourceSlice"
FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, COHORT = "ResourceFlavor", "ClusterQueue", "LocalQueue", "Cohort"
KINDS: Final = (NODE, FLAVOR, COHORT, CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, SLICE, CLAIM, POD)
"""Kinds that are understood, in the order in which they explain each other. Others can be owners."""
KNOWN_MS: Final = 15 * S_PER_MIN * MS_PER_S
"""A pod that is gone is known for so long."""
UNPLACED: Final = "GPUs of resourceslices that name no node: not listed"
FULL: Final = f"nodes whose GPUs are more than {MOST_CLUSTER_GPUS:,} in all: not listed"
VANISHED: Final = "vanished"
"""How a pod ended that was gone when the pods were listed again."""


def name_object(kind: str, found: Object) -> str:
    """The name or uid by which an object of a kind is known: of cohorts their name in the books, of claims namespace/name."""
    metadata = part(found, "metadata")
    name = text(metadata, "name")
    if kind == CLAIM:
        return f"{text(metadata, 'namespace') or 'default'}/{name}"
    if kind == COHORT:
        return name_cohort(found)
    return name if kind in (NODE, CLUSTER_QUEUE, SLICE) else text(metadata, "uid") or name


class KubernetesDecoder:
    """The objects of one cluster on their way to rows."""

    def __init__(self, name: str = "", where: str = "kubernetes", is_watch: bool = False) -> None:
        """`name`: of the cluster, in tags; `where`: the label of rows and gaps; `is_watch`: objects come when they change."""
        self.cluster = ClusterFacts(name)
        self.outages = NodeOutages()
        self.inventory = Inventory(backdates=not is_watch)
        self.emitted: dict[str, dict[str, int]] = {}
        """By uid: the checksum of each row that was emitted of an object."""
        self.changed: set[str] = set()
        """Uids of pods whose rows must be emitted again."""
        self._where = where
        self._rows: dict[str, dict[str, Row]] = {}  # by table and what identifies them: the last of each counts
        self._gaps = Gaps()
        self._newest_ms = 0
        self._namespaces: set[str] = set()
        """Of pods, two at most: with a second one, those of all are known."""

    def feed(self, kind: str, found: Object, at_ms: int | None) -> None:
        """An object as it is now. `at_ms`: when that was seen; None where nobody says."""
        put: dict[str, Callable[[Object, int | None], None]] = {
            POD: self._put_pod, NODE: self._put_node, WORKLOAD: self._put_workload, CLAIM: self._put_claim, SLICE: self._put_slice,
            FLAVOR: self._put_flavor, LOCAL_QUEUE: self._put_local_queue,
        }  # fmt: skip
        if kind in (COHORT, CLUSTER_QUEUE):
            queue = read_cohort(found) if kind == COHORT else read_cluster_queue(found)
            if queue is not None and self.cluster.quotas.put(queue, at_ms):
                for resource in queue.unknown:
                    self._gaps.add(self._where, f"quotas of {resource}, which nobody here knows")
        else:
            put.get(kind, self._put_owner)(found, at_ms)

    def remove(self, kind: str, found: Object, at_ms: int | None) -> None:
        """An object is gone; `found` is how it was last."""
        name = name_object(kind, found)
        if kind != POD:
            self._forget(kind, name, at_ms)
            return
        self._put_pod(found, at_ms)
        if (pod := self.cluster.pods.get(name)) is not None and not pod.gone_as:
            self._end_pod(pod, find_deletion(found, pod.from_ms, at_ms), name_deletion(found))

    def vanish(self, kind: str, there: set[str], last_ms: int) -> None:
        """Of this kind only those `there` exist, by `name_object`. The others ended by `last_ms`, when they were seen last."""
        if kind == POD:
            gone = [pod for uid, pod in self.cluster.pods.items() if uid not in there and not pod.gone_as]
            running = [pod for pod in gone if pod.from_ms is not None and not pod.end_state]
            self._gaps.add(
                self._where, "pods that ended while nobody watched: they end when they were seen last", len(running)
            )
            for pod in gone:
                self._end_pod(pod, max(last_ms, pod.from_ms or 0), VANISHED)
            return
        queues = self.cluster.quotas.queues
        known: dict[str, Collection[str]] = {
            WORKLOAD: self.cluster.workloads, NODE: self.cluster.nodes, CLAIM: self.cluster.claims,
            SLICE: self.inventory.list_drivers(),
            COHORT: [name for name in queues if name.startswith(OF_COHORT)],
            CLUSTER_QUEUE: [name for name in queues if not name.startswith(OF_COHORT)],
        }  # fmt: skip
        for name in [name for name in known.get(kind, ()) if name not in there]:
            self._forget(kind, name, last_ms)

    def _forget(self, kind: str, name: str, gone_ms: int | None) -> None:
        if kind == WORKLOAD and (workload := self.cluster.workloads.get(name)) is not None:
            self._emit(name, self.cluster.make_workload_rows(workload, self._was_submitted(workload), gone_ms))
            self.cluster.drop_workload(workload)
            self.emitted.pop(name, None)
        elif kind == NODE:
            self.outages.end(name, gone_ms)
            self.inventory.remove(name_capacity(name), gone_ms)
            self.cluster.nodes.pop(name, None)
        elif kind in (CLUSTER_QUEUE, COHORT):
            self.cluster.quotas.remove(name, gone_ms)
        elif kind == SLICE:
            self.inventory.remove(name, gone_ms)  # what its devices were stays known: pods hold them
        elif kind == CLAIM:
            self.cluster.claims.pop(name, None)  # pods keep what they were given

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were drained last."""
        there = {uid for uid in self.changed if uid in self.cluster.pods}
        for uid in sorted(there.union(*map(self.cluster.granted.list_sharing, there))):
            pod = self.cluster.pods[uid]
            self._retract(pod, self._emit(uid, self.cluster.make_pod_rows(pod)))
        self.changed = set()
        self._forget_pods()
        rows = list(self.inventory.take())
        counted = self.inventory.list_counted() if len(self._namespaces) > 1 else ()  # pods of all namespaces are known
        for row in rows:
            if row["device_id"] in counted and "known_from" not in row:
                row["known_from"] = SCHEDULED
            self._rows.setdefault("devices", {})[f"{row['device_id']} {row['from_utc']}"] = row
        for row in self.outages.take():
            self._rows.setdefault("outages", {})[f"{row['node']} {row['from_utc']}"] = row
        for row in self.cluster.quotas.take(self.cluster.nodes):
            key = f"{row['queue']} {row['flavor']} {row['resource']} {row['from_utc']}"
            self._rows.setdefault("quotas", {})[key] = {**row, "cluster": self.cluster.name or None}
        taken, self._rows = self._rows, {}
        yield from write_tables(((name, row) for name, named in taken.items() for row in named.values()), self._where)
        yield from self._gaps.drain()

    def count_unsure(self) -> int:
        """How many pods are on nodes that do not say how they divide their GPUs."""
        return sum(
            pod.from_ms is not None and not self.cluster.find_held(pod).is_sure for pod in self.cluster.pods.values()
        )

    def count_divided(self) -> int:
        """How many pods hold parts of GPUs, by what they requested."""
        held = [self.cluster.find_held(pod) for pod in self.cluster.pods.values() if pod.from_ms is not None]
        return sum(one.share is not None or one.gpus % 1 > 0 for one in held)

    def _put_pod(self, found: Object, at_ms: int | None) -> None:
        self._newest_ms = max(self._newest_ms, at_ms or 0)
        if len(self._namespaces) < 2:
            self._namespaces.add(text(part(found, "metadata"), "namespace"))
        pod = read_pod(found)
        if pod is None or (pod.uid in self.cluster.pods and self.cluster.pods[pod.uid].gone_as):
            return
        if pod.uid not in self.cluster.pods:
            for name in pod.unknown:
                self._gaps.add(self._where, f"pods that ask for {name}, which nobody here knows")
        elif (before := self.cluster.pods[pod.uid]).from_ms is not None:
            pod = replace(pod, from_ms=before.from_ms, node=before.node)  # what was emitted stays: it names the row
        if pod.end_state and pod.to_ms is None and at_ms is not None:  # it is over, and nobody says since when
            pod = replace(pod, to_ms=max(at_ms, pod.from_ms or 0))
        self.cluster.pods[pod.uid] = pod
        self.cluster.granted.settle(pod, self.cluster.find_claims(pod))
        self.changed.add(pod.uid)

    def _put_node(self, found: Object, at_ms: int | None) -> None:
        node = read_node(found)
        if node is None:
            return
        if not node.has_gpus and self.inventory.has_gpus(node.name):
            node = replace(node, has_gpus=True)
        self.outages.see(node, at_ms)
        capacity = read_capacity(found, node)
        if self.inventory.has_room(capacity):
            self.inventory.put(capacity, at_ms)
        else:
            self._gaps.add(self._where, FULL)
        if node != self.cluster.nodes.get(node.name):
            self.cluster.nodes[node.name] = node
            self.cluster.quotas.divide_again()
            self.changed |= {uid for uid, pod in self.cluster.pods.items() if pod.node == node.name}

    def _put_workload(self, found: Object, _at_ms: int | None) -> None:
        workload = read_workload(found)
        if workload is None:
            return
        before = self.cluster.workloads.get(workload.uid)
        if before is not None and not workload.cluster_queue:  # an eviction takes these away
            workload = replace(workload, cluster_queue=before.cluster_queue, flavors=before.flavors)
        if before is not None and not workload.waits_for:  # an admission takes away why it waited until then
            workload = replace(workload, waits_for=before.waits_for)
        if workload == before:
            return
        self.cluster.keep_workload(workload)
        rows = self.cluster.make_workload_rows(workload, self._was_submitted(workload))
        self._emit(workload.uid, rows)  # now: what it was in between, nobody says again
        for uid in self._list_pods(workload.namespace):
            self.cluster.pods[uid] = self.cluster.settle_end(self.cluster.pods[uid])
            self.changed.add(uid)

    def _put_claim(self, found: Object, _at_ms: int | None) -> None:
        claim = read_claim(found)
        if claim is None:
            return
        if claim.name not in self.cluster.claims or claim.unknown != self.cluster.claims[claim.name].unknown:
            for driver in claim.unknown:
                self._gaps.add(self._where, f"claims of devices of {driver}, which nobody here knows")
        self.cluster.claims[claim.name] = claim
        namespace, _, name = claim.name.partition("/")
        for pod in self.cluster.pods.values():
            if name in pod.claims and pod.namespace == namespace:
                self.cluster.granted.settle(pod, self.cluster.find_claims(pod))
                self.changed.add(pod.uid)

    def _put_slice(self, found: Object, at_ms: int | None) -> None:
        granted, listed = self.cluster.granted, read_listed(found)
        if listed is not None and self.inventory.put(listed, at_ms):
            self._gaps.add(self._where, UNPLACED, sum(not gpu.node for gpu in listed.gpus))
            for name in {gpu.node for gpu in listed.gpus} & self.cluster.nodes.keys():
                node = self.cluster.nodes[name] = replace(self.cluster.nodes[name], has_gpus=True)
                self.outages.see(node, at_ms)
        new = {device: facts for device, facts in read_slice(found).items() if granted.devices.get(device) != facts}
        granted.devices |= new
        for uid, given in granted.given.items():
            if any(grant.device in new for grant in given.grants):
                self.changed.add(uid)

    def _put_flavor(self, found: Object, _at_ms: int | None) -> None:
        flavor = read_flavor(found)
        if flavor is not None and self.cluster.quotas.flavors.get(flavor[0]) != flavor[1]:
            self.cluster.quotas.flavors[flavor[0]] = flavor[1]
            self.cluster.quotas.divide_again()

    def _put_local_queue(self, found: Object, _at_ms: int | None) -> None:
        queue = read_local_queue(found)
        if queue is None or self.cluster.quotas.local_queues.get(queue[0]) == queue[1]:
            return
        self.cluster.quotas.local_queues[queue[0]] = queue[1]
        for workload in self.cluster.workloads.values():
            if f"{workload.namespace}/{workload.queue}" == queue[0] and not workload.cluster_queue:
                self._emit(workload.uid, self.cluster.make_workload_rows(workload, self._was_submitted(workload)))

    def _put_owner(self, found: Object, _at_ms: int | None) -> None:
        owner = read_owner(found)
        if owner is not None and owner != self.cluster.owners.get(owner.uid):
            self.cluster.owners[owner.uid] = owner
            self.changed.update(self._list_pods(text(part(found, "metadata"), "namespace")))

    def _list_pods(self, namespace: str) -> list[str]:
        return [uid for uid, pod in self.cluster.pods.items() if namespace in ("", pod.namespace)]

    def _end_pod(self, pod: PodFacts, gone_ms: int | None, gone_as: str) -> None:
        """A pod is gone; known for a while, because another watch may tell why a little later."""
        gone = replace(pod, gone_ms=gone_ms, gone_as=gone_as, learnt_ms=self._newest_ms)
        self.cluster.pods[pod.uid] = self.cluster.settle_end(gone)
        self.changed.add(pod.uid)

    def _forget_pods(self) -> None:
        old_ms = self._newest_ms - KNOWN_MS
        old = {uid for uid, pod in self.cluster.pods.items() if pod.gone_as and pod.learnt_ms < old_ms}
        for uid in [uid for uid in old if self.cluster.granted.list_sharing(uid) <= old]:  # else others' parts need it
            del self.cluster.pods[uid]
            self.cluster.held.pop(uid, None)
            self.cluster.granted.forget(uid)
            self.emitted.pop(uid, None)

    def _was_submitted(self, workload: WorkloadFacts) -> bool:
        return f"queue_events submitted {workload.created_ms}" in self.emitted.get(workload.uid, {})

    def _emit(self, uid: str, rows: Iterator[TableRow]) -> set[str]:
        """Keep the rows that were not emitted just like this before; the keys of all."""
        emitted, keys = self.emitted.setdefault(uid, {}), set()
        for name, row in rows:
            key = f"{name} {row.get('event', '')} {row.get('at_utc', row.get('from_utc'))} {row.get('device_id', '')}".strip()
            keys.add(key)
            check = zlib.crc32(json.dumps(row, sort_keys=True).encode())
            if emitted.get(key) != check:
                emitted[key] = check
                self._rows.setdefault(name, {})[f"{uid} {key}"] = row
        return keys

    def _retract(self, pod: PodFacts, keys: set[str]) -> None:
        """Rows of a pod that do not hold any more become holds of no time."""
        gone = [key for key in self.emitted[pod.uid] if key not in keys and key.startswith("allocations")]
        for key in gone:
            _, _, at, *device = key.split(" ")
            where = {"device_id": device[0], "known_from": LABELS} if device else {"node": pod.node}
            span = {"from_utc": int(at), "to_utc": int(at)}
            keys |= self._emit(pod.uid, iter([("allocations", {"job_id": pod.job_id, **where, **span})]))
