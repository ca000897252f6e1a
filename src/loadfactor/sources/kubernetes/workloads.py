"""Kueue's workloads: what waits for a quota, since when, why, and when it was admitted or evicted.

A wait runs from the creation of a workload, or from its eviction, until it is admitted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from loadfactor.sources.kubernetes.asked import Asks, is_gpu, list_asked
from loadfactor.sources.kubernetes.fields import (
    Object,
    condition,
    instant,
    is_true,
    part,
    parts,
    quantity,
    since,
    text,
    texts,
)
from loadfactor.sources.kubernetes.owners import find_controller
from loadfactor.sources.kubernetes.tags import choose_texts, tag_environment

_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True)
class WorkloadFacts:
    """A workload as it was seen last. `pod_sets`: how many pods, and what each asks for."""

    uid: str
    namespace: str
    name: str
    owner: tuple[str, str, str] | None
    queue: str
    cluster_queue: str
    priority: str
    created_ms: int | None
    admitted_ms: int | None
    evicted_ms: int | None
    evicted_why: str
    was_evicted: bool
    """An earlier admission ended, or may have: the wait since creation is not one."""
    finished_ms: int | None
    waits_for: str
    """Why it was not admitted, before it was for the first time."""
    is_held: bool
    pod_sets: tuple[tuple[float, tuple[Asks, ...]], ...]
    texts: tuple[tuple[str, str], ...]
    flavors: tuple[tuple[str, str], ...] = ()
    """The flavor of the GPUs of each pod set that was admitted, by its name."""

    @property
    def job_id(self) -> str:
        """What the books call its wait: as its owner."""
        return f"{self.namespace}/{self.owner[2] if self.owner else self.name}"


def read_workload(workload: Object) -> WorkloadFacts | None:
    """The facts of a workload; None where none of its pods asks for a GPU, or it says too little of itself."""
    metadata, spec, status = (part(workload, name) for name in ("metadata", "spec", "status"))
    counts = {text(a, "name"): quantity(a, "count") for a in parts(part(status, "admission"), "podSetAssignments")}
    pod_sets = tuple(
        (count, stages)
        for pods in parts(spec, "podSets")
        if (stages := list_asked(part(pods, "template", "spec")))
        and (count := counts.get(text(pods, "name")) or quantity(pods, "count"))
    )
    if not text(metadata, "name") or not pod_sets:
        return None
    environment: dict[str, str] = {}
    for pods in parts(spec, "podSets"):
        environment = tag_environment(part(pods, "template", "spec")) | environment
    was_evicted = bool(part(status, "requeueState")) or any(
        condition(workload, name) for name in ("Evicted", "Requeued")
    )
    admitted, evicted, reserved = (condition(workload, name) for name in ("Admitted", "Evicted", "QuotaReserved"))
    finished = condition(workload, "Finished")
    priority = text(spec, "priorityClassName") or text(part(spec, "priorityClassRef"), "name")
    return WorkloadFacts(
        text(metadata, "uid") or text(metadata, "name"),
        text(metadata, "namespace") or "default",
        text(metadata, "name"),
        find_controller(metadata),
        text(spec, "queueName"),
        text(part(status, "admission"), "clusterQueue"),
        priority,
        instant(metadata, "creationTimestamp"),
        since(admitted) if is_true(admitted) else None,
        since(evicted) if is_true(evicted) else None,
        _explain(evicted) if is_true(evicted) else "",
        was_evicted,
        since(finished) if is_true(finished) else None,
        "" if is_true(admitted) or was_evicted else _explain(reserved),
        spec.get("active") is False,
        pod_sets,
        tuple((environment | choose_texts(texts(metadata, "labels"), texts(metadata, "annotations"))).items()),
        tuple(_list_flavors(part(status, "admission"))),
    )


def _list_flavors(admission: Object) -> Iterator[tuple[str, str]]:
    """Pod sets with the flavor of their GPUs; of several resources that are GPUs the first one's."""
    for assigned in parts(admission, "podSetAssignments"):
        flavors = texts(assigned, "flavors")
        found = next((flavors[resource] for resource in sorted(flavors) if is_gpu(resource)), "")
        if found:
            yield text(assigned, "name"), found


def _explain(found: Object) -> str:
    """Reason and message of a condition, in one line."""
    told = ": ".join(t for t in (text(found, "reason"), text(found, "message")) if t)
    return " ".join(told.split())[:_REASON_CHARACTERS]
