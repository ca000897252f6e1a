"""Series of kube-state-metrics → the objects of Kubernetes that they tell of, which the decoder of Kubernetes makes rows of.

https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics has the names. In labels and names of resources each
character but letters and digits is an underscore: those that concern GPUs are spelled as Kubernetes does again.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.kubernetes.cluster import POD_SET
from loadfactor.sources.kubernetes.decoder import NODE, POD, KubernetesDecoder
from loadfactor.sources.kubernetes.nodes import (
    CORDON_TAINT,
    CORES,
    MEMORY_MB,
    MEMORY_PERCENT,
    PRODUCT_LABELS,
    is_gpu,
    sounds_like_gpu,
)
from loadfactor.sources.kubernetes.pods import CONTROLLER_LABELS, QUEUE_LABEL, TEMPLATE_HASH, WORKLOAD_ANNOTATION
from loadfactor.sources.kubernetes.saved import drain_saved
from loadfactor.sources.prometheus.remote_write import Points

_OF_PODS: Final = frozenset(
    f"kube_pod_{name}"
    for name in (
        *("info", "owner", "labels", "annotations", "created", "start_time", "completion_time", "deletion_timestamp"),
        *("status_phase", "status_reason", "status_scheduled_time", "status_unschedulable"),
        *("container_resource_requests", "container_resource_limits", "container_status_terminated_reason"),
        *("init_container_resource_requests", "init_container_resource_limits"),
    )
)
_OF_NODES: Final = frozenset(
    f"kube_node_{name}"
    for name in (
        *("info", "labels", "annotations", "created", "spec_unschedulable", "status_condition"),
        *("status_capacity", "status_allocatable"),
    )
)
_OWNERS: Final = {"kube_replicaset_owner": ("ReplicaSet", "replicaset"), "kube_job_owner": ("Job", "job_name")}
NAMES: Final = tuple(sorted(_OF_PODS | _OF_NODES | _OWNERS.keys()))
"""The metrics that tell who holds GPUs, and which nodes have some."""
FIRST: Final = 1 << 30
"""Numbers of these series begin here: above those of the decoder of Prometheus."""
_EXPORTED: Final = "exported_"
_KNOWN: Final = (
    *PRODUCT_LABELS,
    *(f"nvidia.com/gpu.{name}" for name in ("count", "memory", "present", "replicas")),
    *("cloud.google.com/gke-gpu-partition-size", "cloud.google.com/gke-max-shared-clients-per-gpu"),
    *(
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/amd-gpu",
        "hami.io/node-nvidia-register",
    ),
    *(QUEUE_LABEL, TEMPLATE_HASH, WORKLOAD_ANNOTATION, POD_SET, *(name for name, _ in CONTROLLER_LABELS)),
)
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9]")
_SPELLED: Final = {_NO_NAME.sub("_", name): name for name in _KNOWN}
_MIG: Final = re.compile(r"nvidia_com_mig_(\d+g)_(\d+gb)(?:_me)?(_shared)?(_replicas)?")
_DOMAIN: Final = re.compile(r"([a-z0-9_]+?_(?:com|io|ai|org))_(\w+)")
Key = tuple[str, str, str]
"""Of a pod: its namespace, its name, and its uid where a series has it; of a node two empty texts around its name."""


def spell_resource(name: str) -> str:
    """A resource as Kubernetes names it.

    >>> [spell_resource(name) for name in ("nvidia_com_gpu", "nvidia_com_mig_1g_10gb", "k8s_amazonaws_com_vgpu", "cpu")]
    ['nvidia.com/gpu', 'nvidia.com/mig-1g.10gb', 'k8s.amazonaws.com/vgpu', 'cpu']
    """
    mig = _MIG.fullmatch(name)
    if mig is not None:
        return f"nvidia.com/mig-{mig[1]}.{mig[2]}{'.shared' if mig[3] else ''}"
    if name in ("nvidia_com_gpu_shared", "nvidia_com_gpumem_percentage"):
        return {"nvidia_com_gpu_shared": "nvidia.com/gpu.shared"}.get(name, MEMORY_PERCENT)
    domain = _DOMAIN.fullmatch(name)
    return f"{domain[1].replace('_', '.')}/{domain[2]}" if domain else name


def spell_label(name: str) -> str:
    """A label as Kubernetes names it, where it concerns GPUs or owners; others stay as they are.

    >>> spell_label("nvidia_com_gpu_product"), spell_label("nvidia_com_mig_1g_10gb_replicas"), spell_label("team")
    ('nvidia.com/gpu.product', 'nvidia.com/mig-1g.10gb.replicas', 'team')
    """
    mig = _MIG.fullmatch(name)
    if mig is not None and mig[4]:
        return f"{spell_resource(name.removesuffix('_replicas'))}.replicas"
    return _SPELLED.get(name, name)


@dataclass
class _Series:
    """One series: what it is of, its metric and labels, and its samples in the order they came."""

    cluster: str
    key: Key
    name: str
    labels: Mapping[str, str]
    at_ms: list[NDArray[np.int64]] = field(default_factory=list)
    value: list[NDArray[np.float64]] = field(default_factory=list)


@dataclass(frozen=True)
class _Course:
    """The samples of a series in the order of time."""

    name: str
    labels: Mapping[str, str]
    at_ms: NDArray[np.int64]
    value: NDArray[np.float64]

    def cut(self, from_ms: int, to_ms: int) -> "_Course | None":
        """What of it was sampled then; None where nothing was."""
        kept = (self.at_ms >= from_ms) & (self.at_ms <= to_ms)
        return _Course(self.name, self.labels, self.at_ms[kept], self.value[kept]) if kept.any() else None


class ClusterStates:
    """What kube-state-metrics told of clusters: series as they come, rows at the end."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[str, str], ...], int] = {}
        self._series: list[_Series] = []

    def number(self, labels: Mapping[str, str]) -> int | None:
        """The number of a series, from FIRST on; None for one that tells nothing of GPUs, nodes or who holds them."""
        name = labels.get("__name__", "")
        if name not in _OF_PODS and name not in _OF_NODES and name not in _OWNERS:
            return None
        own = {**labels, **{k.removeprefix(_EXPORTED): v for k, v in labels.items() if k.startswith(_EXPORTED)}}
        if "resource" in own:
            own["resource"] = spell_resource(own["resource"])
        identity = tuple(sorted(labels.items()))
        if identity not in self._numbers:
            self._numbers[identity] = len(self._series)
            if name in _OWNERS:
                key = (own.get("namespace", ""), own.get(_OWNERS[name][1], ""), "")
            elif name in _OF_PODS:
                key = (own.get("namespace", ""), own.get("pod", ""), own.get("uid", ""))
            else:
                key = ("", own.get("node", ""), "")
            self._series.append(_Series(own.get("cluster", ""), key, name, own))
        return FIRST + self._numbers[identity]

    def take(self, points: Points) -> Points:
        """The points of other series; those of these are kept here."""
        mine = points.series >= FIRST
        if not mine.any():
            return points
        numbers, at_ms, value = points.series[mine] - FIRST, points.at_ms[mine], points.value[mine]
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, cuts):
            series = self._series[int(numbers[part[0]])]
            series.at_ms.append(at_ms[part])
            series.value.append(value[part])
        return Points(points.series[~mine], points.at_ms[~mine], points.value[~mine])

    def decode(self, where: str) -> Iterator[Rows | Gap]:
        """The rows of all clusters: what still runs is held until the newest sample."""
        for cluster in sorted({series.cluster for series in self._series}):
            yield from _decode_cluster(cluster, [s for s in self._series if s.cluster == cluster and s.at_ms], where)


def _decode_cluster(cluster: str, all_series: list[_Series], where: str) -> Iterator[Rows | Gap]:
    owners: dict[Key, list[_Course]] = defaultdict(list)
    nodes: dict[Key, list[_Course]] = defaultdict(list)
    pods: dict[Key, list[_Course]] = defaultdict(list)
    newest_ms: int | None = None
    for series in all_series:
        at_ms, value = np.concatenate(series.at_ms), np.concatenate(series.value)
        order = np.argsort(at_ms, kind="stable")
        order = order[np.isfinite(value[order])]
        if not len(order) or not series.key[1]:
            continue
        course = _Course(series.name, series.labels, at_ms[order], value[order])
        newest_ms = max(newest_ms or 0, int(course.at_ms[-1]))
        of = owners if series.name in _OWNERS else pods if series.name in _OF_PODS else nodes
        of[series.key].append(course)
    if newest_ms is None:
        return
    decoder = KubernetesDecoder(cluster)
    for (namespace, name, _), courses in owners.items():
        for course in courses:
            decoder.feed(_OWNERS[course.name][0], _make_owner(namespace, name, course), newest_ms)
    step_ms = _find_step(course for of in (nodes, pods) for courses in of.values() for course in courses)
    events = [event for (_, name, _), courses in nodes.items() for event in _list_node_events(name, courses)]
    for changed_ms, found in sorted(events, key=lambda event: event[0]):
        decoder.feed(NODE, found, changed_ms)
    seen_until = _find_last(course for courses in nodes.values() for course in courses)
    for (_, name, _), courses in nodes.items():
        last_ms = _find_last(courses)
        if last_ms + 1.5 * step_ms < seen_until:
            decoder.remove(NODE, {"metadata": {"name": name}}, last_ms)
    seen_until = _find_last(course for courses in pods.values() for course in courses)
    for (namespace, name, uid), courses in _join_pods(pods).items():
        last_ms = _find_last(courses)
        found = _make_pod(namespace, name, uid, courses)
        decoder.feed(POD, found, last_ms)
        if found["status"].get("phase") not in ("Succeeded", "Failed") and last_ms + 1.5 * step_ms < seen_until:
            decoder.remove(POD, found, last_ms)
    yield from drain_saved(decoder, where, newest_ms, "the newest sample of kube-state-metrics")


def _find_last(courses: Iterable[_Course]) -> int:
    return max((int(course.at_ms[-1]) for course in courses), default=0)


def _find_step(courses: Iterable[_Course]) -> float:
    """The usual distance of samples, ms; 0 where there is one of each series."""
    longest = max(courses, key=lambda course: len(course.at_ms))
    return float(np.median(np.diff(longest.at_ms))) if len(longest.at_ms) > 1 else 0.0


def _join_pods(pods: Mapping[Key, list[_Course]]) -> dict[Key, list[_Course]]:
    """The series of each pod; those without a uid (earlier versions gave it to one metric) are of who was there."""
    named: dict[Key, list[_Course]] = {key: list(courses) for key, courses in pods.items() if key[2]}
    spans: dict[tuple[str, str], list[tuple[Key, int, int]]] = defaultdict(list)
    for key, courses in named.items():
        spans[key[:2]].append((key, min(int(course.at_ms[0]) for course in courses), _find_last(courses)))
    for (namespace, name, uid), courses in pods.items():
        if uid:
            continue
        there = spans.get((namespace, name))
        if there is None:
            named[namespace, name, ""] = list(courses)
            continue
        for key, from_ms, to_ms in there:
            named[key] += [part for course in courses if (part := course.cut(from_ms, to_ms)) is not None]
    return named


def _make_owner(namespace: str, name: str, course: _Course) -> dict[str, Any]:
    kind = _OWNERS[course.name][0]
    metadata = {"namespace": namespace, "name": name, "uid": _name_owner(kind, namespace, name)}
    return {"kind": kind, "metadata": {**metadata, **_list_references(namespace, course.labels)}}


def _name_owner(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}"


def _list_references(namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    kind, name = labels.get("owner_kind", ""), labels.get("owner_name", "")
    if not kind or not name or "<none>" in (kind, name):
        return {}
    is_controller = labels.get("owner_is_controller") != "false"
    uid = _name_owner(kind, namespace, name)
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": uid, "controller": is_controller}]}


def _list_texts(labels: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {spell_label(k.removeprefix(prefix)): v for k, v in labels.items() if k.startswith(prefix) and v}


def _write_instant(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / MS_PER_S, UTC).isoformat()


def _read_instant(course: _Course | None) -> str:
    """The instant that a series has as its value, in seconds; empty where there is none."""
    at_ms = 0.0 if course is None else float(course.value[-1]) * MS_PER_S
    return _write_instant(at_ms) if EARLIEST_MS <= at_ms <= LATEST_MS else ""


def _list_node_events(name: str, courses: list[_Course]) -> Iterator[tuple[int, dict[str, Any]]]:
    """A node as it was each time something of it changed."""
    metadata: dict[str, Any] = {"name": name, "labels": {}, "annotations": {}}
    changes: list[tuple[int, tuple[str, ...], float]] = []
    for course in courses:
        if course.name == "kube_node_created":
            metadata["creationTimestamp"] = _read_instant(course)
        elif course.name in ("kube_node_labels", "kube_node_annotations"):
            kind = course.name.removeprefix("kube_node_")
            metadata[kind] |= _list_texts(course.labels, f"{kind.removesuffix('s')}_")
        else:
            what = course.name, *(course.labels.get(label, "") for label in ("resource", "condition", "status"))
            is_new = np.append(True, np.diff(course.value) != 0)
            changes += [
                (int(at), what, float(v)) for at, v in zip(course.at_ms[is_new], course.value[is_new], strict=True)
            ]
    changes.sort(key=lambda change: change[0])
    capacity: dict[str, dict[str, str]] = {"capacity": {}, "allocatable": {}}
    ready: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    for place, (at_ms, (metric, resource, condition, status), value) in enumerate(changes):
        if metric.startswith("kube_node_status_") and resource:
            capacity[metric.removeprefix("kube_node_status_")][resource] = f"{value:g}"
        elif condition == "Ready" and value and ready.get("status") != status.capitalize():
            ready = {"type": "Ready", "status": status.capitalize(), "lastTransitionTime": _write_instant(at_ms)}
        elif metric == "kube_node_spec_unschedulable" and bool(value) != bool(spec):
            taint = {"key": CORDON_TAINT, "effect": "NoSchedule", "timeAdded": _write_instant(at_ms)}
            spec = {"unschedulable": True, "taints": [taint]} if value else {}
        if place + 1 == len(changes) or changes[place + 1][0] != at_ms:
            status_now = {**{k: dict(v) for k, v in capacity.items()}, "conditions": [ready] if ready else []}
            yield at_ms, {"kind": NODE, "metadata": metadata, "spec": spec, "status": status_now}
    if not changes:
        yield _find_last(courses), {"kind": NODE, "metadata": metadata, "spec": {}, "status": {}}


def _make_pod(namespace: str, name: str, uid: str, courses: list[_Course]) -> dict[str, Any]:
    """A pod as it was seen last."""
    metadata: dict[str, Any] = {"namespace": namespace, "name": name, "uid": uid, "labels": {}, "annotations": {}}
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {"conditions": []}
    containers: dict[str, dict[str, dict[str, Any]]] = {"containers": {}, "initContainers": {}}
    of = {course.name.removeprefix("kube_pod_"): course for course in courses}
    for course in sorted(courses, key=lambda course: int(course.at_ms[-1])):
        what, labels, value = course.name.removeprefix("kube_pod_"), course.labels, float(course.value[-1])
        if labels.get("node") and (what == "info" or "_resource_" in what):  # of others it may be that of the exporter
            spec["nodeName"] = labels["node"]
        if what == "owner":
            metadata |= _list_references(namespace, labels)
        elif what in ("labels", "annotations"):
            metadata[what] |= _list_texts(labels, f"{what.removesuffix('s')}_")
        elif what.endswith(("_requests", "_limits")):
            resource, amount = labels.get("resource", ""), float(course.value.max())
            if is_gpu(resource) or sounds_like_gpu(resource) or resource in (MEMORY_MB, MEMORY_PERCENT, CORES):
                kind = "initContainers" if what.startswith("init_") else "containers"
                container = labels.get("container", "")
                one = containers[kind].setdefault(container, {"name": container, "resources": {}})
                one["resources"].setdefault(what.rpartition("_")[2], {})[resource] = f"{amount:g}"
        elif what == "status_phase" and value:
            status["phase"] = labels.get("phase", "")
        elif what == "status_reason" and value:
            status["reason"] = labels.get("reason", "")
    for key, what in (("creationTimestamp", "created"), ("deletionTimestamp", "deletion_timestamp")):
        metadata[key] = _read_instant(of.get(what))
    status["startTime"] = _read_instant(of.get("start_time"))
    if spec.get("nodeName"):
        scheduled = {"lastTransitionTime": _read_instant(of.get("status_scheduled_time"))}
        status["conditions"].append({"type": "PodScheduled", "status": "True", **scheduled})
    elif "status_unschedulable" in of:
        status["conditions"].append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    if status.get("phase") in ("Succeeded", "Failed"):
        ended = _read_instant(of.get("completion_time")) or _find_end(courses)
        killed = any(
            course.labels.get("reason") == "OOMKilled" and course.value[-1]
            for course in courses
            if course.name == "kube_pod_container_status_terminated_reason"
        )
        terminated = {"finishedAt": ended, **({"reason": "OOMKilled"} if killed else {})}
        status["containerStatuses"] = [{"state": {"terminated": terminated}}]
    spec |= {kind: list(of_kind.values()) for kind, of_kind in containers.items()}
    return {"kind": POD, "metadata": metadata, "spec": spec, "status": status}


def _find_end(courses: list[_Course]) -> str:
    """When a pod was first seen to have ended."""
    ends = [
        int(course.at_ms[np.argmax(course.value > 0)])
        for course in courses
        if course.name == "kube_pod_status_phase" and course.labels.get("phase") in ("Succeeded", "Failed")
        if (course.value > 0).any()
    ]
    return _write_instant(min(ends))
