"""Pods that ask for GPUs: since when they hold them, until when, and how they ended.

A pod holds its GPUs from the moment it is bound to a node, because from then on nobody else gets them, until its last container has
finished, or until it is deleted. A pod that its node refuses never held any.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from loadfactor.sources.kubernetes.fields import (
    Object,
    choose_texts,
    condition,
    instant,
    is_true,
    part,
    parts,
    quantity,
    since,
    tag_environment,
    text,
    texts,
)
from loadfactor.sources.kubernetes.nodes import Asks, is_gpu, list_requested, list_unknown

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
"""The usual purpose of owners of a kind: a hint, which a rule may overrule."""
CONTROLLER_LABELS: Final = (
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
TEMPLATE_HASH: Final = "pod-template-hash"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
LOST: Final = "node_lost"
PREEMPTED: Final = "preempted"
EVICTED: Final = "evicted"
CANCELLED: Final = "cancelled"
REFUSED: Final = "refused"
"""How a pod ended that its node did not take: it held nothing."""
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": PREEMPTED,
    "PreemptionByKubeScheduler": PREEMPTED,
    "DeletionByTaintManager": LOST,
    "DeletionByPodGC": LOST,
    "EvictionByEvictionAPI": EVICTED,
    "TerminationByKubelet": EVICTED,
}
_REASONS: Final = {
    "Evicted": EVICTED,
    "Preempting": PREEMPTED,
    "Preempted": PREEMPTED,
    "DeadlineExceeded": "timeout",
    "NodeLost": LOST,
    "NodeShutdown": LOST,
    "Shutdown": LOST,
    "Terminated": LOST,
    "UnexpectedAdmissionError": REFUSED,
    "NodeAffinity": REFUSED,
    "TopologyAffinityError": REFUSED,
}
_OUT_OF: Final = "OutOf"  # nvidia.com/gpu, cpu, memory: the kubelet did not take it
_REASON_CHARACTERS: Final = 200


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

    Where an owner cannot be read, its pods' labels may say what is above it.
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
    """The owner above one that is not known, by the labels of a pod."""
    generated = labels.get(TEMPLATE_HASH)
    if kind == "ReplicaSet" and generated and name.endswith(f"-{generated}"):
        return "Deployment", name.removesuffix(f"-{generated}")
    for label, of in CONTROLLER_LABELS:
        if labels.get(label) and (kind not in PURPOSES or (kind, of) == ("Job", "JobSet")):
            return of or kind, labels[label]
    return kind, name


@dataclass(frozen=True)
class PodFacts:
    """A pod as it was seen last. `from_ms`: bound; `to_ms`: ended; `stages`: what it asks for (see `list_requested`)."""

    uid: str
    namespace: str
    name: str
    node: str
    created_ms: int | None
    from_ms: int | None
    to_ms: int | None
    end_state: str
    stages: tuple[Asks, ...]
    claims: tuple[str, ...]
    """Names of its DRA claims."""
    owner: tuple[str, str, str] | None
    queue: str
    workload: str
    waits_for: str
    """Why it is not bound."""
    is_gated: bool
    labels: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...] = ()
    """Resources it asks for that nobody here knows."""
    gone_ms: int | None = None
    """When it let its GPUs go, where it was deleted before it was over."""
    gone_as: str = ""
    """How it ended then; empty while it is there."""
    learnt_ms: int = 0
    """When we learnt that it is gone."""

    @property
    def ended(self) -> tuple[str, int | None]:
        """How it ended, and when; an empty text while it has not."""
        return (self.end_state, self.to_ms) if self.end_state else (self.gone_as, self.gone_ms)

    @property
    def job_id(self) -> str:
        """Its id in the books."""
        return f"{self.namespace}/{self.name}"


def read_pod(pod: Object) -> PodFacts | None:
    """The facts of a pod; None where it asks for no GPU, or says too little of itself."""
    metadata, spec = part(pod, "metadata"), part(pod, "spec")
    uid, name = text(metadata, "uid") or text(metadata, "name"), text(metadata, "name")
    stages, claims, unknown = list_requested(spec), _list_claims(pod), tuple(sorted({*list_unknown(spec)}))
    if not name or not (stages or claims or unknown):
        return None
    labels, annotations = texts(metadata, "labels"), texts(metadata, "annotations")
    node = text(spec, "nodeName")
    bound = condition(pod, "PodScheduled")
    created_ms = instant(metadata, "creationTimestamp")
    from_ms = None
    if node:
        from_ms = since(bound) if is_true(bound) else None
        from_ms = from_ms or instant(part(pod, "status"), "startTime") or created_ms  # bound by somebody else's hand
    end_state = _read_end_state(pod)
    return PodFacts(
        uid,
        text(metadata, "namespace") or "default",
        name,
        node,
        created_ms,
        from_ms,
        _read_end(pod, from_ms) if end_state else None,
        end_state,
        stages,
        claims,
        find_controller(metadata),
        labels.get(QUEUE_LABEL) or annotations.get(QUEUE_LABEL, ""),
        annotations.get(WORKLOAD_ANNOTATION, ""),
        "" if node else _explain(bound),
        text(bound, "reason") == "SchedulingGated" and not node,
        tuple(sorted(labels.items())),
        tuple((tag_environment(spec) | choose_texts(labels, annotations)).items()),
        unknown,
    )


def find_deletion(pod: Object, from_ms: int | None, seen_ms: int | None) -> int | None:
    """When a pod that is gone let its GPUs go, ms: its containers' end, else when it was to be gone or was seen to be.

    `seen_ms` is when we learnt of it; None in files.
    """
    finished = _read_finished(pod)
    if finished is not None and _has_finished(pod):
        return max(finished, from_ms or finished)
    ends = [at for at in (instant(part(pod, "metadata"), "deletionTimestamp"), seen_ms) if at is not None]
    return max(min(ends), from_ms or 0) if ends else None


def name_deletion(pod: Object) -> str:
    """How a pod ended that was deleted while it ran."""
    return _read_disruption(pod) or CANCELLED


def _read_end_state(pod: Object) -> str:
    status = part(pod, "status")
    phase, reason = text(status, "phase"), text(status, "reason")
    if phase == "Succeeded":
        return "completed"
    if phase != "Failed":
        return ""
    if reason.startswith(_OUT_OF):
        return REFUSED
    killed = [part(c, "state", "terminated") for c in parts(status, "containerStatuses")]
    if any(text(k, "reason") == "OOMKilled" for k in killed):
        return "out_of_memory"
    return _read_disruption(pod) or _REASONS.get(reason, "failed")


def _read_disruption(pod: Object) -> str:
    """How a pod was ended before its time; empty where it was not."""
    found = condition(pod, "DisruptionTarget")
    if is_true(found):
        return _DISRUPTIONS.get(text(found, "reason"), EVICTED)
    found = condition(pod, "TerminationTarget")  # of Kueue
    if is_true(found):
        return PREEMPTED if "Preempt" in text(found, "reason") else EVICTED
    return ""


def _read_end(pod: Object, from_ms: int | None) -> int | None:
    """When a pod ended whose phase says that it did; None where nothing says when."""
    ready = condition(pod, "ContainersReady") or condition(pod, "Ready")
    ends = (
        _read_finished(pod),
        since(condition(pod, "DisruptionTarget")),
        None if is_true(ready) else since(ready),
        instant(part(pod, "metadata"), "deletionTimestamp"),
    )
    found = next((at for at in ends if at is not None), None)
    return None if found is None else max(found, from_ms or found)


def _read_finished(pod: Object) -> int | None:
    ends = [
        instant(part(container, "state", "terminated"), "finishedAt")
        for name in ("containerStatuses", "initContainerStatuses")
        for container in parts(part(pod, "status"), name)
    ]
    return max((at for at in ends if at is not None), default=None)


def _has_finished(pod: Object) -> bool:
    states = [part(container, "state") for container in parts(part(pod, "status"), "containerStatuses")]
    return bool(states) and all("terminated" in state for state in states)


def _explain(condition: Object) -> str:
    why = ": ".join(t for t in (text(condition, "reason"), text(condition, "message")) if t)
    return " ".join(why.split())[:_REASON_CHARACTERS]


def _list_claims(pod: Object) -> tuple[str, ...]:
    """The names of the DRA claims of a pod: of those made for it from templates, as its status names them."""
    made = {text(s, "name"): text(s, "resourceClaimName") for s in parts(part(pod, "status"), "resourceClaimStatuses")}
    named = [
        (text(c, "resourceClaimName") or made.get(text(c, "name"), ""))
        for c in parts(part(pod, "spec"), "resourceClaims")
    ]
    return tuple(sorted({name for name in named if name}))


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
        """The id of its wait in the books: its owner's."""
        return f"{self.namespace}/{self.owner[2] if self.owner else self.name}"


def read_workload(workload: Object) -> WorkloadFacts | None:
    """The facts of a workload; None where none of its pods asks for a GPU, or it says too little of itself."""
    metadata, spec, status = (part(workload, name) for name in ("metadata", "spec", "status"))
    counts = {text(a, "name"): quantity(a, "count") for a in parts(part(status, "admission"), "podSetAssignments")}
    pod_sets = tuple(
        (count, stages)
        for pods in parts(spec, "podSets")
        if (stages := list_requested(part(pods, "template", "spec")))
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
    for assigned in parts(admission, "podSetAssignments"):
        flavors = texts(assigned, "flavors")
        found = next((flavors[resource] for resource in sorted(flavors) if is_gpu(resource)), "")
        if found:
            yield text(assigned, "name"), found
