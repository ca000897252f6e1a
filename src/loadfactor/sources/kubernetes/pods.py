"""Pods that ask for GPUs: since when they hold them, until when, and how they ended.

A pod holds its GPUs from the moment it is bound to a node, because from then on nobody else gets them, until its last container has
finished, or until it is deleted. A pod that its node refuses never held any.
"""

from dataclasses import dataclass
from typing import Final

from loadfactor.sources.kubernetes.asked import Asks, list_asked, list_unknown
from loadfactor.sources.kubernetes.fields import Object, condition, instant, is_true, part, parts, since, text, texts
from loadfactor.sources.kubernetes.owners import find_controller
from loadfactor.sources.kubernetes.tags import choose_texts, tag_environment

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
class PodFacts:
    """A pod as it was seen last. `from_ms`: bound; `to_ms`: ended; `stages`: what it asks for (see `list_asked`)."""

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
        """What the books call it."""
        return f"{self.namespace}/{self.name}"


def read_pod(pod: Object) -> PodFacts | None:
    """The facts of a pod; None where it asks for no GPU, or says too little of itself."""
    metadata, spec = part(pod, "metadata"), part(pod, "spec")
    uid, name = text(metadata, "uid") or text(metadata, "name"), text(metadata, "name")
    stages, claims, unknown = list_asked(spec), _list_claims(pod), tuple(sorted({*list_unknown(spec)}))
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
    told = [at for at in (instant(part(pod, "metadata"), "deletionTimestamp"), seen_ms) if at is not None]
    return max(min(told), from_ms or 0) if told else None


def name_deletion(pod: Object) -> str:
    """How a pod ended that was deleted while it ran."""
    return _read_disruption(pod) or CANCELLED


def _read_end_state(pod: Object) -> str:
    """How a pod ended; empty while it has not."""
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
    """Who ended a pod before its time; empty where nobody says."""
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
    told = (
        _read_finished(pod),
        since(condition(pod, "DisruptionTarget")),
        None if is_true(ready) else since(ready),
        instant(part(pod, "metadata"), "deletionTimestamp"),
    )
    found = next((at for at in told if at is not None), None)
    return None if found is None else max(found, from_ms or found)


def _read_finished(pod: Object) -> int | None:
    """When the last container ended that did."""
    ends = [
        instant(part(container, "state", "terminated"), "finishedAt")
        for name in ("containerStatuses", "initContainerStatuses")
        for container in parts(part(pod, "status"), name)
    ]
    return max((at for at in ends if at is not None), default=None)


def _has_finished(pod: Object) -> bool:
    """Whether all containers of a pod have ended."""
    states = [part(container, "state") for container in parts(part(pod, "status"), "containerStatuses")]
    return bool(states) and all("terminated" in state for state in states)


def _explain(bound: Object) -> str:
    """Why a pod is not bound, in one line."""
    told = ": ".join(t for t in (text(bound, "reason"), text(bound, "message")) if t)
    return " ".join(told.split())[:_REASON_CHARACTERS]


def _list_claims(pod: Object) -> tuple[str, ...]:
    """The names of the DRA claims of a pod: of those made for it from templates, as its status names them."""
    made = {text(s, "name"): text(s, "resourceClaimName") for s in parts(part(pod, "status"), "resourceClaimStatuses")}
    named = [
        (text(c, "resourceClaimName") or made.get(text(c, "name"), ""))
        for c in parts(part(pod, "spec"), "resourceClaims")
    ]
    return tuple(sorted({name for name in named if name}))
