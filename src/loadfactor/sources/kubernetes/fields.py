"""Fields of objects that anybody may have written: what is not there, or is something else, reads as nothing."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import BYTES_PER_KB, BYTES_PER_KIB, MS_PER_S
from loadfactor.sources.parsing.environment_tags import tag_variables

Object = Mapping[str, Any]
"""An object of the API, or a part of one."""
_NOTHING: Final[Object] = {}
_BINARY: Final = {f"{letter}i": BYTES_PER_KIB ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL: Final = {letter: BYTES_PER_KB ** (power + 1) for power, letter in enumerate("kMGTPE")}
_SMALL: Final = {"m": BYTES_PER_KB**-1, "u": BYTES_PER_KB**-2, "n": BYTES_PER_KB**-3}
_SUFFIXES: Final = {**_BINARY, **_DECIMAL, **_SMALL}
MOST_BYTES: Final = 4 * BYTES_PER_KIB
"""Of all tags of a pod; what comes after that in the order of names is left out."""
LONGEST_TEXT: Final = 200
_NO_LABELS: Final = ("pod-template-hash", "controller-uid", "controller-revision-hash", "pod-template-generation")
"""Names, or ends of names, of labels that only number things."""
_NO_ANNOTATIONS: Final = re.compile(
    r"^(kubectl\.kubernetes\.io|kubernetes\.io|cni\.|k8s\.|k8s\.v1\.cni|checksum|prometheus\.io|sidecar\.istio\.io|istio\.io"
    r"|deployment\.kubernetes\.io|autoscaling\.|policies\.|cluster-autoscaler\.|hami\.io/(?!.*name))"
)
"""Annotations that controllers write for themselves; kubectl's holds whole objects."""
_SECRET: Final = re.compile(
    r"secret|passw|token|credential|api[-_.]?key|private[-_.]?key|auth(?!or)|cookie|session", re.IGNORECASE
)
Kept = Mapping[str, Any]
"""Names of an object's parts that are kept: None for all of one, else what is kept of it, or of each item of a list."""


def part(of: object, *names: str) -> Object:
    """The object under these names, an empty one where there is none.

    >>> part({"status": {"phase": "Running"}}, "status"), part({"status": None}, "status", "conditions")
    ({'phase': 'Running'}, {})
    """
    for name in names:
        of = of.get(name) if isinstance(of, Mapping) else None
    return of if isinstance(of, Mapping) else _NOTHING


def parts(of: object, name: str) -> Iterator[Object]:
    """The objects in the list of this name."""
    found = part(of).get(name)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, Mapping):
            yield one


def text(of: object, name: str) -> str:
    """The text of this name, without spaces around it; empty where there is none."""
    found = part(of).get(name)
    return _clean(found).strip() if isinstance(found, str) else ""


def texts(of: object, name: str) -> dict[str, str]:
    """The texts of a map, such as labels."""
    return {_clean(k): _clean(v) for k, v in part(of, name).items() if isinstance(k, str) and isinstance(v, str)}


def instant(of: object, name: str) -> int | None:
    """The instant of this name (RFC 3339) in ms UTC; None where there is none in the years that books know.

    >>> instant({"at": "2026-11-02T08:00:00Z"}, "at"), instant({"at": "0001-01-01T00:00:00Z"}, "at")
    (1793606400000, None)
    """
    try:
        found = datetime.fromisoformat(text(of, name))
        at_ms = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * MS_PER_S)
    except (ValueError, OverflowError):
        return None
    return at_ms if EARLIEST_MS <= at_ms <= LATEST_MS else None


def quantity(of: object, name: str) -> float | None:
    """The quantity of this name; None where there is none, or one that cannot be.

    >>> quantity({"n": "500m"}, "n"), quantity({"n": "10Gi"}, "n"), quantity({"n": 2}, "n"), quantity({"n": "x"}, "n")
    (0.5, 10737418240.0, 2.0, None)
    """
    found = part(of).get(name)
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    digits, factor = found, 1.0
    if isinstance(found, str):
        suffix = next((s for s in _SUFFIXES if found.endswith(s)), "")
        digits, factor = found.removesuffix(suffix), _SUFFIXES.get(suffix, 1.0)
    try:
        value = float(digits) * factor
    except (ValueError, OverflowError):
        return None
    return value if 0 <= value < float("inf") else None


def condition(of: object, kind: str) -> Object:
    """The condition of this type in the status of an object."""
    return next((c for c in parts(part(of, "status"), "conditions") if text(c, "type") == kind), _NOTHING)


def is_true(condition: Object) -> bool:
    """Whether a condition holds."""
    return text(condition, "status") == "True"


def since(condition: Object) -> int | None:
    """Since when a condition is as it is, ms UTC."""
    return instant(condition, "lastTransitionTime")


def _clean(found: str) -> str:
    """Text that can be stored: halves of characters, which JSON can write, are question marks."""
    return found if found.isascii() else found.encode(errors="replace").decode()


def choose_texts(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Labels and annotations worth keeping, as label.KEY and annotation.KEY.

    >>> choose_texts({"experiment": "e1", "pod-template-hash": "5d8"}, {"slack-token": "xoxb", "owner": "ann"})
    {'label.experiment': 'e1', 'annotation.owner': 'ann'}
    """
    found = {
        f"label.{name}": value
        for name, value in sorted(labels.items())
        if value and not name.endswith(_NO_LABELS) and not _SECRET.search(name)
    }
    found |= {
        f"annotation.{name}": value
        for name, value in sorted(annotations.items())
        if value
        and len(value) <= LONGEST_TEXT
        and not value.startswith(("{", "["))
        and not _NO_ANNOTATIONS.match(name)
        and not _SECRET.search(name)
    }
    return found


def list_variables(container: Object) -> list[tuple[str, str]]:
    """The variables of a container's environment that tags are made of, as far as they are written there.

    >>> list_variables({"env": [{"name": "WANDB_PROJECT", "value": "llm"}, {"name": "WANDB_RUN_ID", "value": "$(POD_NAME)"}]})
    [('WANDB_PROJECT', 'llm')]
    """
    found = [(text(variable, "name"), text(variable, "value")) for variable in parts(container, "env")]
    return [(name, value) for name, value in found if "$(" not in value and tag_variables([(name, value)])]


def tag_environment(spec: Object) -> dict[str, str]:
    """The tags of the environments of a pod's containers."""
    return tag_variables(v for container in parts(spec, "containers") for v in list_variables(container))


def write_tags(texts: Mapping[str, str]) -> str | None:
    """Texts as the JSON object of the column `tags`; None where there is none. Those without a value are left out."""
    kept: dict[str, str] = {}
    size = 2
    for name, value in texts.items():
        if not value:
            continue
        size += len(json.dumps({name: value}, ensure_ascii=False).encode(errors="replace"))
        if size > MOST_BYTES:
            break
        kept[name] = value
    return json.dumps(kept, sort_keys=True, ensure_ascii=False) if kept else None


def _list_environment(container: Object) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in list_variables(container)]


_CONTAINER: Final[Kept] = {"name": None, "resources": None, "restartPolicy": None, "env": _list_environment}
_CONTAINERS: Final[Kept] = {"containers": _CONTAINER, "initContainers": _CONTAINER}
_STATE: Final[Kept] = {"state": {"terminated": {"finishedAt": None, "reason": None}}}
_REQUEST: Final[Kept] = dict.fromkeys(("deviceClassName", "count", "allocationMode", "adminAccess", "selectors"))
_REQUESTS: Final[Kept] = {**_REQUEST, "exactly": _REQUEST, "firstAvailable": _REQUEST}
_RESULT: Final[Kept] = dict.fromkeys(("driver", "pool", "device", "adminAccess", "shareID", "consumedCapacity"))
_SPEC: Final[Mapping[str, Kept]] = {
    "Pod": {"nodeName": None, "resourceClaims": None, **_CONTAINERS},
    "Node": {"unschedulable": None, "taints": None},
    "Workload": {
        **dict.fromkeys(("active", "queueName", "priorityClassName", "priorityClassRef")),
        "podSets": {"name": None, "count": None, "template": {"spec": _CONTAINERS}},
    },
    "ClusterQueue": dict.fromkeys(("cohort", "cohortName", "resourceGroups")),
    "Cohort": dict.fromkeys(("parent", "parentName", "resourceGroups")),
    "LocalQueue": {"clusterQueue": None},
    "ResourceFlavor": {"nodeLabels": None},
    "ResourceSlice": dict.fromkeys(("driver", "pool", "nodeName", "devices")),
    "ResourceClaim": {"devices": {"requests": _REQUESTS}},
}
_STATUS: Final[Mapping[str, Kept]] = {
    "Pod": {
        **dict.fromkeys(("phase", "reason", "startTime", "resourceClaimStatuses")),
        "containerStatuses": _STATE,
        "initContainerStatuses": _STATE,
    },
    "Node": {"allocatable": None, "capacity": None},
    "Workload": {"admission": None, "requeueState": None},
    "ResourceClaim": {"reservedFor": None, "allocation": {"devices": {"results": _RESULT}}},
}
_METADATA: Final = dict.fromkeys(
    ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "ownerReferences")
)
_WITH_GENERATION: Final = {**_METADATA, "generation": None}
_CONDITION: Final = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"))


def prune(kind: str, found: Object) -> dict[str, Any]:
    """The parts of an object that `KubernetesDecoder` reads: of environments the runs they name, nothing that may be secret."""
    metadata = part(found, "metadata")
    labels, annotations = texts(metadata, "labels"), texts(metadata, "annotations")
    if kind == "Node":
        annotations = _keep(annotations, {"hami.io/node-nvidia-register": None})
    else:
        chosen = choose_texts(labels, annotations)
        annotations = {
            name.removeprefix("annotation."): v for name, v in chosen.items() if name.startswith("annotation.")
        }
        kept = {name.removeprefix("label."): v for name, v in chosen.items() if name.startswith("label.")}
        labels = kept | _keep(
            labels, {"pod-template-hash": None}
        )  # says which part of a ReplicaSet's name was generated
    conditions = [c for c in parts(part(found, "status"), "conditions") if kind != "Node" or text(c, "type") == "Ready"]
    is_quota = kind in ("ClusterQueue", "Cohort")
    return {
        "kind": kind,
        "metadata": {
            **_keep(metadata, _WITH_GENERATION if is_quota else _METADATA),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": _keep(part(found, "spec"), _SPEC.get(kind, {})),
        "status": {
            **_keep(part(found, "status"), _STATUS.get(kind, {})),
            "conditions": [_keep(c, _CONDITION) for c in conditions],
        },
    }


def _keep(found: Object, kept: Kept) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, below in kept.items():
        value = found.get(name)
        if callable(below):
            if made := below(found):
                out[name] = made
        elif below is None:
            if name in found:
                out[name] = value
        elif isinstance(value, Mapping):
            out[name] = _keep(value, below)
        elif isinstance(value, list):
            out[name] = [_keep(item, below) for item in value if isinstance(item, Mapping)]
    return out
