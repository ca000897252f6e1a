"""What created a pod, followed up: Job, PyTorchJob, RayCluster, LeaderWorkerSet, Deployment, Notebook, and what they are for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadfactor.sources.kubernetes.fields import Object, part, parts, text, texts

_LONGEST_CHAIN: Final = 8

_PURPOSES: Final = {
    "training": ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet", "RayJob"),
    "serving": (
        "Deployment", "LeaderWorkerSet", "InferenceService", "LLMInferenceService", "RayService", "Revision", "Service",
        "InferencePool", "DynamoGraphDeployment", "NIMService",
    ),
    "notebook": ("Notebook", "Workspace", "JupyterServer"),
    "batch": ("Job", "CronJob", "Workflow", "PipelineRun", "SparkApplication", "AppWrapper"),
}  # fmt: skip
PURPOSES: Final = {kind: purpose for purpose, kinds in _PURPOSES.items() for kind in kinds}
"""What things of a kind are usually for: a hint, which a rule may overrule."""

_LABELS: Final = (
    ("training.kubeflow.org/job-name", ""),
    ("ray.io/cluster", "RayCluster"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("serving.kserve.io/inferenceservice", "InferenceService"),
    ("serving.knative.dev/service", "Service"),
    ("notebook-name", "Notebook"),
    ("hub.jupyter.org/username", "Notebook"),
)
"""Labels that controllers put on pods, naming what the pod's own owner belongs to; the kind where the label says it."""
_TEMPLATE_HASH: Final = "pod-template-hash"


@dataclass(frozen=True)
class OwnerFacts:
    """An object that owns pods, or owners of pods."""

    uid: str
    kind: str
    name: str
    above: tuple[str, str, str] | None = None  # uid, kind and name of what owns it
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Ownership:
    """The topmost owner that is known, and what labels and annotations the owners bear: the nearest one's count."""

    kind: str
    name: str
    uids: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def read_owner(found: Object) -> OwnerFacts | None:
    """The facts of an object as an owner; None where it is none."""
    metadata = part(found, "metadata")
    uid, name = text(metadata, "uid"), text(metadata, "name")
    if not uid or not name:
        return None
    labels, annotations = (tuple(sorted(texts(metadata, name).items())) for name in ("labels", "annotations"))
    return OwnerFacts(uid, text(found, "kind"), name, find_controller(metadata), labels, annotations)


def find_controller(metadata: Object) -> tuple[str, str, str] | None:
    """Uid, kind and name of the owner that controls an object, or of its first one; None where nothing owns it."""
    owners = [o for o in parts(metadata, "ownerReferences") if text(o, "uid") and text(o, "name")]
    owner = next((o for o in owners if o.get("controller") is True), owners[0] if owners else None)
    return None if owner is None else (text(owner, "uid"), text(owner, "kind"), text(owner, "name"))


def follow_up(
    above: tuple[str, str, str] | None, labels: Mapping[str, str], known: Mapping[str, OwnerFacts]
) -> Ownership | None:
    """The chain of owners from a pod up, as far as it is known; None for a pod of its own.

    Where an owner cannot be asked, its pods' labels may say what is above it.
    """
    uids: list[str] = []
    borne: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    top = None
    while above is not None and above[0] not in uids and len(uids) < _LONGEST_CHAIN:
        top = above
        uids.append(above[0])
        facts = known.get(above[0])
        above = facts.above if facts else None
        if facts:
            borne["labels"] = {**dict(facts.labels), **borne["labels"]}
            borne["annotations"] = {**dict(facts.annotations), **borne["annotations"]}
    if top is None:
        return None
    kind, name = top[1:]
    if top[0] not in known:
        kind, name = _read_labels(kind, name, labels)
    return Ownership(kind, name, tuple(uids), *(tuple(sorted(of.items())) for of in borne.values()))


def _read_labels(kind: str, name: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """What labels of a pod say of the owner above one that is not known."""
    generated = labels.get(_TEMPLATE_HASH)
    if kind == "ReplicaSet" and generated and name.endswith(f"-{generated}"):
        return "Deployment", name.removesuffix(f"-{generated}")
    for label, of in _LABELS:
        if labels.get(label) and (kind not in PURPOSES or (kind, of) == ("Job", "JobSet")):
            return of or kind, labels[label]
    return kind, name
