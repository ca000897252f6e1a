"""Objects cut down to what the books need before they are kept: of environments the runs they name, nothing that may be secret."""

from collections.abc import Mapping
from typing import Any, Final

from loadfactor.sources.kubernetes.fields import Object, part, parts, text, texts
from loadfactor.sources.kubernetes.tags import choose_texts, list_variables

_METADATA: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "ownerReferences")
_SPEC: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("nodeName", "resourceClaims"),
    "Node": ("unschedulable", "taints"),
    "Workload": ("active", "queueName", "priorityClassName", "priorityClassRef"),
    "ClusterQueue": ("cohort", "cohortName", "resourceGroups"),
    "Cohort": ("parent", "parentName", "resourceGroups"),
    "LocalQueue": ("clusterQueue",),
    "ResourceFlavor": ("nodeLabels",),
    "ResourceSlice": ("driver", "pool", "nodeName", "devices"),
}
_STATUS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("phase", "reason", "startTime", "resourceClaimStatuses"),
    "Node": ("allocatable", "capacity"),
    "Workload": ("admission", "requeueState"),
}
_GIVEN: Final = ("driver", "pool", "device", "adminAccess", "shareID", "consumedCapacity")
_ASKED: Final = ("deviceClassName", "count", "allocationMode", "adminAccess", "selectors")
_NODE_ANNOTATIONS: Final = "hami.io/node-nvidia-register"


def prune(kind: str, found: Object) -> dict[str, Any]:
    """The parts of an object that `KubernetesDecoder` reads."""
    metadata = part(found, "metadata")
    labels, annotations = texts(metadata, "labels"), texts(metadata, "annotations")
    kept = choose_texts(labels if kind != "Node" else {}, annotations)
    pruned: dict[str, Any] = {
        "kind": kind,
        "metadata": {
            **_pick(metadata, _METADATA),
            "labels": labels if kind == "Node" else _strip(kept, "label.") | _pick_hash(labels),
            "annotations": _pick(annotations, (_NODE_ANNOTATIONS,)) if kind == "Node" else _strip(kept, "annotation."),
        },
        "spec": _pick(part(found, "spec"), _SPEC.get(kind, ())),
        "status": _pick(part(found, "status"), _STATUS.get(kind, ())),
    }
    if kind == "Pod":
        pruned["spec"] |= _prune_containers(part(found, "spec"))
        for name in ("containerStatuses", "initContainerStatuses"):
            pruned["status"][name] = [_prune_state(c) for c in parts(part(found, "status"), name)]
    if kind in ("ClusterQueue", "Cohort"):
        pruned["metadata"] |= _pick(metadata, ("generation",))
    if kind == "ResourceClaim":
        pruned |= _prune_claim(part(found, "spec", "devices"), part(found, "status"))
    if kind == "Workload":
        pruned["spec"]["podSets"] = [
            {**_pick(s, ("name", "count")), "template": {"spec": _prune_containers(part(s, "template", "spec"))}}
            for s in parts(part(found, "spec"), "podSets")
        ]
    pruned["status"]["conditions"] = [
        _pick(c, ("type", "status", "reason", "message", "lastTransitionTime"))
        for c in parts(part(found, "status"), "conditions")
        if kind != "Node" or text(c, "type") == "Ready"
    ]
    return pruned


def _pick(of: Object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: of[name] for name in names if name in of}


def _pick_hash(labels: Mapping[str, str]) -> dict[str, str]:
    """The label that says which part of a ReplicaSet's name was generated."""
    return _pick(labels, ("pod-template-hash",))


def _strip(kept: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)}


def _prune_containers(spec: Object) -> dict[str, Any]:
    return {name: [_prune_container(c) for c in parts(spec, name)] for name in ("containers", "initContainers")}


def _prune_container(container: Object) -> dict[str, Any]:
    """What a container asks for, and of its environment the variables that tags are made of."""
    told = [{"name": name, "value": value} for name, value in list_variables(container)]
    return _pick(container, ("name", "resources", "restartPolicy")) | ({"env": told} if told else {})


def _prune_claim(asked: Object, status: Object) -> dict[str, Any]:
    """Which devices a claim asks for and which it was given, without the configurations of drivers."""
    requests = [
        _pick(request, _ASKED)
        | {"exactly": _pick(part(request, "exactly"), _ASKED)}
        | {"firstAvailable": [_pick(one, _ASKED) for one in parts(request, "firstAvailable")]}
        for request in parts(asked, "requests")
    ]
    given = [_pick(result, _GIVEN) for result in parts(part(status, "allocation", "devices"), "results")]
    allocation = {"allocation": {"devices": {"results": given}}} if part(status, "allocation") else {}
    return {"spec": {"devices": {"requests": requests}}, "status": _pick(status, ("reservedFor",)) | allocation}


def _prune_state(container: Object) -> dict[str, Any]:
    """Whether a container has ended, when and why; nothing of its image."""
    state = part(container, "state")
    if "terminated" not in state:
        return {"state": {}}
    return {"state": {"terminated": _pick(part(state, "terminated"), ("finishedAt", "reason"))}}
