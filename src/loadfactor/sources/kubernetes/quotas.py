"""Kueue's quotas: how many GPUs of each flavor a ClusterQueue may hold, borrow and lend, and which LocalQueues lead to it.

The API is kueue.x-k8s.io: v1beta1 calls a cohort `cohort`, v1beta2 `cohortName`. A Cohort may have quotas of its own,
beside those of its queues, and a cohort above it (`parentName`, at first `parent`). It becomes a queue called `cohort/NAME`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from loadfactor.sources.kubernetes.fields import Object, instant, part, parts, quantity, text, texts
from loadfactor.sources.kubernetes.nodes import (
    CORES,
    MEMORY_MB,
    MEMORY_PERCENT,
    PRODUCT_LABELS,
    Ask,
    NodeFacts,
    find_share,
    is_gpu,
    sounds_like_gpu,
)
from loadfactor.tables.quotas import OF_COHORT

Row = dict[str, Any]
_OF_A_GPU: Final = (MEMORY_MB, MEMORY_PERCENT, CORES)


class QueueQuota(NamedTuple):
    """Units of a resource in one flavor; `borrowing` and `lending`: None where nothing limits them."""

    flavor: str
    resource: str
    nominal: float
    borrowing: float | None = None
    lending: float | None = None


@dataclass(frozen=True)
class QueueFacts:
    """The quotas of a ClusterQueue, and since when they are so."""

    name: str
    cohort: str
    quotas: tuple[QueueQuota, ...]
    from_ms: int | None
    unknown: tuple[str, ...] = ()
    """Resources that sound like GPUs and that nobody here knows."""


def read_cluster_queue(found: Object) -> QueueFacts | None:
    """The facts of a ClusterQueue; None where it has no name. Its quotas of other resources than GPUs are left out."""
    spec = part(found, "spec")
    name = text(part(found, "metadata"), "name")
    return _read_quotas(found, name, text(spec, "cohortName") or text(spec, "cohort")) if name else None


def read_cohort(found: Object) -> QueueFacts | None:
    """The same of a Cohort, named as the books do; one with a cohort above it and no GPUs has a quota of none."""
    spec, name = part(found, "spec"), name_cohort(found)
    if not name:
        return None
    facts = _read_quotas(found, name, text(spec, "parentName") or text(spec, "parent"))
    return replace(facts, quotas=facts.quotas or (QueueQuota("", "", 0.0),)) if facts.cohort else facts


def name_cohort(found: Object) -> str:
    """The name of a Cohort in the books; empty where it has no name."""
    name = text(part(found, "metadata"), "name")
    return f"{OF_COHORT}{name}" if name else ""


def _read_quotas(found: Object, name: str, cohort: str) -> QueueFacts:
    metadata, spec = part(found, "metadata"), part(found, "spec")
    quotas = {
        (text(flavor, "name"), text(resource, "name")): resource
        for group in parts(spec, "resourceGroups")
        for flavor in parts(group, "flavors")
        for resource in parts(flavor, "resources")
    }
    return QueueFacts(
        name,
        cohort,
        tuple(
            QueueQuota(
                flavor,
                resource,
                nominal,
                quantity(limits, "borrowingLimit") if cohort else 0.0,
                quantity(limits, "lendingLimit") if cohort else 0.0,
            )
            for (flavor, resource), limits in quotas.items()
            if is_gpu(resource) and (nominal := quantity(limits, "nominalQuota")) is not None
        ),
        instant(metadata, "creationTimestamp") if metadata.get("generation", 1) == 1 else None,
        tuple(sorted({r for _, r in quotas if sounds_like_gpu(r) and not is_gpu(r) and r not in _OF_A_GPU})),
    )


def read_local_queue(found: Object) -> tuple[str, str] | None:
    """The namespace/name of a LocalQueue and the ClusterQueue that it leads to; None where it leads nowhere."""
    metadata, cluster_queue = part(found, "metadata"), text(part(found, "spec"), "clusterQueue")
    name = text(metadata, "name")
    return (f"{text(metadata, 'namespace') or 'default'}/{name}", cluster_queue) if name and cluster_queue else None


def read_flavor(found: Object) -> tuple[str, str] | None:
    """The name of a ResourceFlavor, and the model of the GPUs of its nodes where its labels say it."""
    name, labels = text(part(found, "metadata"), "name"), texts(part(found, "spec"), "nodeLabels")
    return (name, next((labels[label] for label in PRODUCT_LABELS if labels.get(label)), "")) if name else None


class Quotas:
    """The quotas of a cluster as they are, and the rows of those that began, changed or ended."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueFacts] = {}
        self.local_queues: dict[str, str] = {}
        """ClusterQueues by the namespace/name of the LocalQueue that leads to them."""
        self.flavors: dict[str, str] = {}
        """Models of GPUs by flavor; empty where it names none."""
        self._changed: set[str] = set()
        self._ended: list[tuple[QueueFacts, int]] = []

    def put(self, queue: QueueFacts, at_ms: int | None) -> bool:
        """A ClusterQueue as it is now; whether that is new."""
        before = self.queues.get(queue.name)
        if before is not None:
            if (before.cohort, before.quotas) == (queue.cohort, queue.quotas):
                return False
            from_ms = before.from_ms if at_ms is None else at_ms
            if from_ms != before.from_ms:
                self.remove(queue.name, at_ms)
        else:
            from_ms = queue.from_ms or at_ms
        self.queues[queue.name] = QueueFacts(queue.name, queue.cohort, queue.quotas, from_ms, queue.unknown)
        self._changed.add(queue.name)
        return True

    def divide_again(self) -> None:
        """Tell all quotas anew: nodes or flavors say otherwise which part of a GPU a unit is."""
        self._changed |= set(self.queues)

    def remove(self, name: str, at_ms: int | None) -> None:
        """A ClusterQueue is gone."""
        queue = self.queues.pop(name, None)
        if queue is not None and at_ms is not None:
            self._ended.append((queue, at_ms))

    def take(self, nodes: Mapping[str, NodeFacts]) -> Iterator[Row]:
        """The rows since they were taken last, in whole GPUs as `nodes` divide them."""
        for queue, at_ms in self._ended:
            yield from self._list_rows(queue, nodes, max(at_ms, queue.from_ms or at_ms))
        for name in sorted(self._changed & set(self.queues)):
            yield from self._list_rows(self.queues[name], nodes, None)
        self._ended, self._changed = [], set()

    def _list_rows(self, queue: QueueFacts, nodes: Mapping[str, NodeFacts], to_ms: int | None) -> Iterator[Row]:
        for quota in queue.quotas if queue.from_ms is not None else ():
            share = self._find_share(quota, nodes)
            yield {
                "queue": queue.name,
                "cohort": queue.cohort or None,
                "flavor": quota.flavor or None,
                "resource": quota.resource or None,
                "gpus": quota.nominal * share,
                "borrowing_gpus": None if quota.borrowing is None else quota.borrowing * share,
                "lending_gpus": None if quota.lending is None else quota.lending * share,
                "from_utc": queue.from_ms,
                "to_utc": to_ms,
            }

    def _find_share(self, quota: QueueQuota, nodes: Mapping[str, NodeFacts]) -> float:
        """The part of a GPU that a unit is: as the nodes of its flavor divide theirs, where these agree; else all of it."""
        product, ask = self.flavors.get(quota.flavor, ""), Ask(quota.resource, 1.0)
        there = [node for node in nodes.values() if node.has_gpus and product in ("", node.product)]
        shares = {find_share(ask, node) for node in there}
        found = shares.pop() if len(shares) == 1 else find_share(ask, NodeFacts(quota.flavor, product=product))
        return 1.0 if found is None else found
