"""Nodes: how their GPUs are divided, and since when they cannot be used."""

import json
import re
from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.sources.gpu_scrapes.known_devices import count_slices
from loadfactor.sources.kubernetes.asked import AWS_SHARES, MIG, NVIDIA, SHARED, Ask, count_partitions, is_gpu
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

_PROFILE: Final = re.compile(r"(\d+)g\.\d+gb", re.IGNORECASE)
_FOUR_SLICES: Final = ("1g.6gb", "2g.12gb", "4g.24gb", "1g.24gb", "2g.48gb", "4g.96gb")
"""Profiles of GPUs that MIG cuts into four (A30, RTX PRO 6000), where nobody names the GPU."""
_AWS_UNITS: Final = 10
"""Parts into which AWS' plugin divides a GPU unless it is told otherwise."""
PRODUCT_LABELS: Final = (f"{NVIDIA}.product", "cloud.google.com/gke-accelerator")
"""Labels of nodes that name the model of their GPUs, best first."""
_GPU_LABEL: Final = re.compile(
    r"nvidia\.com/gpu\.present|feature\.node\.kubernetes\.io/(pci-(\w+_)?10de(_\w+)?\.present|amd-gpu)"
    r"|intel\.feature\.node\.kubernetes\.io/gpu"
)
"""Labels of nodes with GPUs, with or without a device plugin; drivers of claims are put where they are."""
_REGISTERED: Final = "hami.io/node-nvidia-register"
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True)
class NodeFacts:
    """What a node's labels, annotations and status say. `replicas`: into how many units sharing divides what, by resource."""

    name: str
    has_gpus: bool = False
    product: str = ""
    profile: str = ""  # of MIG, where every GPU of the node is cut alike (strategy single)
    replicas: tuple[tuple[str, float], ...] = ()
    memory_mb: float | None = None  # of one GPU
    ready_ms: int | None = None  # since when it is
    not_ready: tuple[int | None, str] | None = None  # since when, and why
    cordoned: tuple[int | None, str] | None = None


def read_node(node: Object) -> NodeFacts | None:
    """The facts of a node; None where it has no name."""
    name, labels = text(part(node, "metadata"), "name"), texts(part(node, "metadata"), "labels")
    if not name:
        return None
    allocatable = {**part(node, "status", "capacity"), **part(node, "status", "allocatable")}
    product = next((labels[label] for label in PRODUCT_LABELS if labels.get(label)), "")
    cut = _PROFILE.search(labels.get("cloud.google.com/gke-gpu-partition-size", "")) or (
        _PROFILE.search(product) if "-MIG-" in product else None
    )
    ready = condition(node, "Ready")
    has_gpus = any(is_gpu(resource) for resource in allocatable) or f"{NVIDIA}.count" in labels
    has_gpus = has_gpus or any(_GPU_LABEL.fullmatch(name) and value == "true" for name, value in labels.items())
    return NodeFacts(
        name,
        has_gpus or "cloud.google.com/gke-accelerator" in labels,
        product,
        cut[0] if cut else "",
        _read_replicas(node, labels, quantity(allocatable, NVIDIA)),
        _read_memory_mb(node, labels),
        since(ready) if is_true(ready) else None,
        _read_not_ready(ready),
        _read_cordon(node),
    )


def find_share(ask: Ask, node: NodeFacts | None) -> float | None:
    """The part of a whole GPU that a unit is; None where only its node could say, and does not."""
    resource = ask.resource.removesuffix(SHARED)
    if resource.startswith(MIG):
        share = share_of_profile(resource.removeprefix(MIG), node.product if node else "")
        return share if share is None else share / _find_replicas(node, resource)
    partitions = count_partitions(resource)
    if partitions is not None:
        return 1 / partitions
    if resource == AWS_SHARES:
        return 1 / _AWS_UNITS
    if resource != NVIDIA:
        return 1.0
    if ask.memory_percent is not None:
        return min(1.0, ask.memory_percent / PERCENT)
    if ask.memory_mb is not None:
        return min(1.0, ask.memory_mb / node.memory_mb) if node and node.memory_mb else None
    if ask.cores_percent is not None:
        return min(1.0, ask.cores_percent / PERCENT)
    replicas = _find_replicas(node, resource)
    if replicas == 1 and ask.resource.endswith(SHARED):
        return None  # divided, and nobody says into how many
    whole = share_of_profile(node.profile, node.product) if node and node.profile else 1.0
    return None if whole is None else whole / replicas


def share_of_profile(profile: str, product: str) -> float | None:
    """The part of a GPU that a MIG instance is, by its compute slices; None where the profile names none.

    >>> share_of_profile("3g.20gb", "NVIDIA-A100-SXM4-40GB"), share_of_profile("1g.6gb", ""), share_of_profile("large", "")
    (0.42857142857142855, 0.25, None)
    """
    found = _PROFILE.match(profile)
    if found is None:
        return None
    model = product or ("A30" if found[0].lower() in _FOUR_SLICES else None)
    return min(1.0, int(found[1]) / count_slices(model))


def _find_replicas(node: NodeFacts | None, resource: str) -> float:
    return dict(node.replicas).get(resource, 1.0) if node else 1.0


def _read_replicas(node: Object, labels: dict[str, str], units: float | None) -> tuple[tuple[str, float], ...]:
    """By resource, into how many units a GPU or an instance is divided, where there are several."""
    found = {
        name.removesuffix(".replicas"): count
        for name in labels
        if name.endswith(".replicas") and name.startswith("nvidia.com/") and (count := quantity(labels, name))
    }
    clients = quantity(labels, "cloud.google.com/gke-max-shared-clients-per-gpu")
    gpus = quantity(labels, f"{NVIDIA}.count")
    if clients:
        found[NVIDIA] = clients
    elif NVIDIA not in found and units and gpus and units > gpus and not _list_registered(node):
        found[NVIDIA] = units / gpus
    return tuple(sorted((name, count) for name, count in found.items() if count > 1))


def _list_registered(node: Object) -> list[tuple[str, float]]:
    """The GPUs that HAMi registered on a node: id and memory in MB. It writes JSON, and wrote lists with commas and colons."""
    said = texts(part(node, "metadata"), "annotations").get(_REGISTERED, "")
    found = []
    try:
        gpus = {"gpus": json.loads(said)} if said.startswith("[") else {}
    except (ValueError, RecursionError):
        gpus = {}
    for gpu in parts(gpus, "gpus"):
        found.append((text(gpu, "id"), quantity(gpu, "devmem") or 0.0))
    for written in said.split(":") if not said.startswith("[") else ():
        cells = written.split(",")
        if len(cells) > 2:
            found.append((cells[0], quantity({"mb": cells[2]}, "mb") or 0.0))
    return found


def _read_memory_mb(node: Object, labels: dict[str, str]) -> float | None:
    """Memory of one GPU, where all of the node have the same."""
    registered = {mb for _, mb in _list_registered(node) if mb}
    if registered:
        return registered.pop() if len(registered) == 1 else None
    return quantity(labels, f"{NVIDIA}.memory") or None


def _read_not_ready(ready: Object) -> tuple[int | None, str] | None:
    if not ready or is_true(ready):
        return None
    why = ": ".join(t for t in (text(ready, "reason"), text(ready, "message")) if t)
    return since(ready), f"not ready ({why})"[:_REASON_CHARACTERS] if why else "not ready"


def _read_cordon(node: Object) -> tuple[int | None, str] | None:
    """Since when nothing more is put on a node, and why, where its taints say it."""
    spec = part(node, "spec")
    if spec.get("unschedulable") is not True:
        return None
    taints = [t for t in parts(spec, "taints") if text(t, "effect") in ("NoSchedule", "NoExecute")]
    when = next((instant(t, "timeAdded") for t in taints if text(t, "key") == "node.kubernetes.io/unschedulable"), None)
    other = [
        "=".join(filter(None, (text(t, "key"), text(t, "value"))))
        for t in taints
        if not text(t, "key").startswith("node.kubernetes.io/") and not is_gpu(text(t, "key"))
    ]
    return when, f"cordoned ({', '.join(other)})"[:_REASON_CHARACTERS] if other else "cordoned"
