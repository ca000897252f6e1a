"""Objects of the Kubernetes API as it writes them (v1.29 to 1.34, Kueue v1beta1), and hours of a story to put into them."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from loadfactor.sources.base import Gap, Input, ReadOptions
from loadfactor.sources.kubernetes.saved import decode_objects
from loadfactor.store.row_checks import validate_rows

Object = dict[str, Any]
DAY = datetime(2026, 11, 2, tzinfo=UTC)
_NUMBERS = count(1)


def at(hour: float) -> str:
    """An hour of the story as the API writes instants: to the second."""
    return (DAY + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ms(hour: float) -> int:
    return round((DAY + timedelta(hours=hour)).timestamp() * 1000)


def condition(kind: str, status: str, since: float, reason: str = "", message: str = "") -> Object:
    told = {"reason": reason, "message": message}
    return {"type": kind, "status": status, "lastTransitionTime": at(since), **{k: v for k, v in told.items() if v}}


def owner(kind: str, name: str, uid: str, api: str = "batch/v1") -> Object:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}


def node(name: str, gpus: int = 8, *, ready: Object | None = None, **more: Any) -> Object:
    """A node with H100s; `labels`, `annotations`, `resources` and `spec` are added."""
    resources = {"cpu": "192", "memory": "2113481012Ki", "pods": "110"}
    resources |= more.pop("resources", {"nvidia.com/gpu": str(gpus)})
    of_gpus = {"present": "true", "product": "NVIDIA-H100-80GB-HBM3", "count": gpus, "memory": 81559, "replicas": 1}
    labels = {"kubernetes.io/hostname": name, "nvidia.com/mig.strategy": "mixed"}
    labels |= {f"nvidia.com/gpu.{key}": str(value) for key, value in of_gpus.items()} | more.get("labels", {})
    metadata = {"name": name, "uid": f"node-{name}", "creationTimestamp": at(-100), "labels": labels}
    metadata["annotations"] = more.get("annotations", {})
    conditions = [
        condition("MemoryPressure", "False", -100, "KubeletHasSufficientMemory"),
        ready or condition("Ready", "True", -100, "KubeletReady", "kubelet is posting ready status"),
    ]
    status = {"capacity": resources, "allocatable": resources, "conditions": conditions}
    status["nodeInfo"] = {"kubeletVersion": "v1.31.4"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": more.get("spec", {}), "status": status}


def container(resources: Object | None = None, name: str = "main", **more: Any) -> Object:
    limits = {"nvidia.com/gpu": "1"} if resources is None else resources
    image = "nvcr.io/nvidia/pytorch:25.01-py3"
    return {"name": name, "image": image, "resources": {"limits": limits, "requests": limits}, **more}


def pod(name: str, created: float, **more: Any) -> Object:
    """A pod of team-a that asks for one GPU: `node` and `bound` (an hour) put it somewhere, `ended` and `phase` end it."""
    namespace, bound, ended = more.get("namespace", "team-a"), more.get("bound"), more.get("ended")
    phase = more.get("phase", "Pending" if bound is None else "Succeeded" if ended is not None else "Running")
    conditions = [condition("PodScheduled", "True", bound)] if bound is not None else [
        condition("PodScheduled", "False", created, more.get("why", "Unschedulable"),
                  more.get("message", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."))
    ]  # fmt: skip
    if ended is not None and phase in ("Succeeded", "Failed"):
        conditions.append(condition("Ready", "False", ended, "PodCompleted"))
    conditions += more.get("conditions", [])
    status: Object = {"phase": phase, "qosClass": "Guaranteed", "conditions": conditions}
    if bound is not None:
        status["startTime"] = at(bound)
        state = {"running": {"startedAt": at(bound)}}
        if ended is not None:
            state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "reason": more.get("exit", "Completed"),
                                    "startedAt": at(bound), "finishedAt": at(ended)}}  # fmt: skip
        status["containerStatuses"] = [{"name": "main", "ready": ended is None, "restartCount": 0, "state": state}]
    status |= more.get("status", {})
    spec: Object = {"containers": more.get("containers", [container()]), "restartPolicy": "Never"}
    spec |= more.get("spec", {})
    if more.get("node"):
        spec["nodeName"] = more["node"]
    metadata: Object = {"name": name, "namespace": namespace, "uid": more.get("uid") or f"pod-{next(_NUMBERS)}-{name}"}
    metadata |= {"resourceVersion": str(next(_NUMBERS)), "creationTimestamp": at(created)}
    metadata |= {"labels": more.get("labels", {}), "annotations": more.get("annotations", {})}
    if more.get("owner"):
        metadata["ownerReferences"] = [more["owner"]]
    if more.get("deleted") is not None:
        metadata |= {"deletionTimestamp": at(more["deleted"]), "deletionGracePeriodSeconds": 30}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def owned(kind: str, name: str, uid: str, above: Object | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "team-a", "uid": uid, "creationTimestamp": at(0), **more}
    if above:
        metadata["ownerReferences"] = [above]
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {}, "status": {}}


def workload(name: str, created: float, conditions: list[Object], **more: Any) -> Object:
    """A workload of Kueue: `pods` pods of `gpus` GPUs each, in the local queue `research`."""
    limits, count = {"nvidia.com/gpu": str(more.get("gpus", 1))}, more.get("pods", 1)
    metadata: Object = {"name": f"job-{name}-3f2a1", "namespace": "team-a", "creationTimestamp": at(created)}
    metadata["uid"] = more.get("uid", f"workload-{name}")
    metadata["ownerReferences"] = [owner("Job", name, more.get("owner", f"job-{name}"))]
    pods = {"name": "main", "count": count, "template": {"spec": {"containers": [container(limits)]}}}
    spec = {"active": True, "queueName": "research", "priorityClassName": "normal", "podSets": [pods]}
    status: Object = {"conditions": conditions}
    if any(c["type"] == "QuotaReserved" and c["status"] == "True" for c in conditions):
        assigned = {"name": "main", "count": count, "flavors": {"nvidia.com/gpu": "h100"}, "resourceUsage": limits}
        status["admission"] = {"clusterQueue": "gpus", "podSetAssignments": [assigned]}
    status |= more.get("status", {})
    api = "kueue.x-k8s.io/v1beta1"
    return {"apiVersion": api, "kind": "Workload", "metadata": metadata, "spec": spec, "status": status}


def listed(*objects: Object) -> Object:
    """What `kubectl get` prints of several."""
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


Rows = dict[str, list[dict[str, Any]]]


def decode(*documents: Any, at_ms: int | None = None) -> Rows:
    """Rows by table, without empty cells, each as the store would take it; gaps under `gaps`."""
    content = "\n".join(json.dumps(one) for one in documents).encode()
    found: Rows = defaultdict(list)
    for item in decode_objects([Input("pods.json", [content])], ReadOptions(at_ms=at_ms)):
        if isinstance(item, Gap):
            found["gaps"].append({"what": item.what, "count": item.count})
            continue
        rows = validate_rows(item, 0).to_pylist()
        found[item.table] += [{k: v for k, v in row.items() if v is not None} for row in rows]
    return found


def gpu_hours(rows: Rows) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for row in rows["allocations"]:
        gpus = row.get("gpus", 1) * row.get("share", 1)
        found[row["job_id"]] += gpus * (row["to_utc"] - row["from_utc"]) / 3_600_000
    return {job: round(hours, 9) for job, hours in found.items()}
