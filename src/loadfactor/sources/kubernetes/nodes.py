"""Nodes: how their GPUs are divided, and since when they cannot be used."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from loadfactor.base.units import PERCENT
from loadfactor.sources.gpu_scrapes.known_devices import count_slices
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

NVIDIA: Final = "nvidia.com/gpu"
SHARED: Final = ".shared"
MIG: Final = "nvidia.com/mig-"
AWS_SHARES: Final = "k8s.amazonaws.com/vgpu"
_OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""A class of devices requested like a resource: the scheduler makes the claim."""
NEURON: Final = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore")
"""The same chips by three names, as AWS' plugin lists them all: by chip, by the older name of that, and by core."""
WHOLE: Final = (
    *("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "google.com/tpu", *NEURON[:2]),
    *(f"{_OF_CLASS}gpu.{maker}.com" for maker in ("nvidia", "amd", "intel")),
)
"""Resources of which a unit is always a whole accelerator."""
_ASCEND: Final = re.compile(r"huawei\.com/(Ascend\d+[A-Z]?\d*|ascend-\d+|npu)")
"""Processors of Huawei, whole, by their model; of its cloud by a number."""
_AMD_PARTS: Final = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
_AMD_PART: Final = re.compile(r"amd\.com/([sdtqc]px)_nps\d")
"""A partition of a GPU of AMD: how its dies are divided, and its memory."""
_BESIDE: Final = re.compile(r"gpu\.intel\.com/(\w+_monitoring|millicores|memory\.max|tiles)")
"""Resources requested beside a GPU, or to look at all of them: they hold none."""
MEMORY_MB, MEMORY_PERCENT, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
"""Resources of HAMi: a part of each GPU of a container."""
_ANY: Final = re.compile(r"gpu|/mig-|accelerator|cuda|/tpu|/neuron|ascend|/npu", re.IGNORECASE)
_PROFILE: Final = re.compile(r"(\d+)g\.\d+gb", re.IGNORECASE)
_FOUR_SLICES: Final = ("1g.6gb", "2g.12gb", "4g.24gb", "1g.24gb", "2g.48gb", "4g.96gb")
"""Profiles of GPUs that MIG cuts into four (A30, RTX PRO 6000), where nobody names the GPU."""
_AWS_UNITS: Final = 10
"""Parts into which AWS' plugin divides a GPU by default."""
PRODUCT_LABELS: Final = (
    *(
        f"{NVIDIA}.product",
        "cloud.google.com/gke-accelerator",
        "amd.com/gpu.product-name",
        "beta.amd.com/gpu.product-name",
    ),
    *("cloud.google.com/gke-tpu-accelerator", "gpu.intel.com/product", "node.kubernetes.io/npu.chip.name"),
)
"""Labels of nodes that name the model of their GPUs, best first."""
_GPU_LABEL: Final = re.compile(
    r"nvidia\.com/gpu\.present|feature\.node\.kubernetes\.io/(pci-(\w+_)?10de(_\w+)?\.present|amd-gpu)"
    r"|intel\.feature\.node\.kubernetes\.io/gpu"
)
"""Labels of nodes with GPUs, with or without a device plugin; drivers of claims are put where they are."""
_REGISTERED: Final = "hami.io/node-nvidia-register"
_REASON_CHARACTERS: Final = 200
Row = dict[str, Any]
NOT_READY: Final = "not ready"
CORDONED: Final = "cordoned"
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


class Ask(NamedTuple):
    """Units of one resource; of HAMi also the memory (MB or percent) and the cores (percent) of each."""

    resource: str
    units: float
    memory_mb: float | None = None
    memory_percent: float | None = None
    cores_percent: float | None = None


Asks = tuple[Ask, ...]


def is_gpu(resource: str) -> bool:
    """Whether a unit of this resource is an accelerator, or a part of one.

    >>> is_gpu("nvidia.com/mig-1g.10gb"), is_gpu("nvidia.com/gpu.shared"), is_gpu("nvidia.com/gpumem"), is_gpu("cpu")
    (True, True, False, False)
    """
    known = resource.removesuffix(SHARED) == NVIDIA or resource in (*WHOLE, *NEURON, AWS_SHARES)
    is_part = resource.startswith(MIG) or count_partitions(resource) is not None
    return known or is_part or bool(_ASCEND.fullmatch(resource))


def count_units(capacity: Object) -> dict[str, float]:
    """Units of each resource that a node says it has; of names for the same chips the first.

    >>> count_units({"cpu": "8", "aws.amazon.com/neuroncore": "32", "aws.amazon.com/neuron": "16"})
    {'aws.amazon.com/neuron': 16.0}
    """
    chips = next((name for name in NEURON if name in capacity), "")
    return {
        name: quantity(capacity, name) or 0.0
        for name in capacity
        if is_gpu(name) and (name == chips or name not in NEURON)
    }


def count_partitions(resource: str) -> int | None:
    """How many partitions of this resource a GPU of AMD has; None where it is none.

    >>> count_partitions("amd.com/cpx_nps4"), count_partitions("amd.com/gpu")
    (8, None)
    """
    found = _AMD_PART.fullmatch(resource)
    return _AMD_PARTS[found[1]] if found else None


def sounds_like_gpu(name: str) -> bool:
    """Whether the name of a resource or of a driver speaks of GPUs that may be held.

    >>> sounds_like_gpu("gpu.example.com"), sounds_like_gpu("dra.net")
    (True, False)
    """
    return bool(_ANY.search(name)) and not _BESIDE.fullmatch(name)


def list_unknown(pod: Object) -> Iterator[str]:
    """Resources of a pod whose names speak of GPUs and that nobody here knows."""
    for container in (*parts(pod, "containers"), *parts(pod, "initContainers")):
        for name in _limits(container):
            if sounds_like_gpu(name) and not is_gpu(name) and name not in (MEMORY_MB, MEMORY_PERCENT, CORES):
                yield name


def list_requested(pod: Object) -> tuple[Asks, ...]:
    """Requests of a pod's spec at each stage of its life, of which the largest counts: its containers, and each init container.

    Init containers run one after the other, before the others; those that restart always go on beside what follows them.
    """
    beside: Asks = ()
    stages = []
    for container in parts(pod, "initContainers"):
        requested = _read_container(container)
        if text(container, "restartPolicy") == "Always":
            beside += requested
        elif requested:
            stages.append(beside + requested)
    running = beside + tuple(ask for container in parts(pod, "containers") for ask in _read_container(container))
    return tuple(stage for stage in (running, *stages) if stage)


def _read_container(container: Object) -> Asks:
    limits = _limits(container)
    memory_mb, percent, cores = (quantity(limits, name) or None for name in (MEMORY_MB, MEMORY_PERCENT, CORES))
    found = []
    for name in limits:
        units = quantity(limits, name) if is_gpu(name) else None
        if units:
            divided = (memory_mb, percent, cores) if name == NVIDIA else (None, None, None)
            found.append(Ask(name, units, *divided))
    return tuple(found)


def _limits(container: Object) -> Mapping[str, object]:
    """Limits; requests of extended resources are the same, and where only they are there, they count."""
    resources = part(container, "resources")
    return {**part(resources, "requests"), **part(resources, "limits")}


@dataclass(frozen=True)
class NodeFacts:
    """A node by its labels, annotations and status. `replicas`: into how many units sharing divides what, by resource."""

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
        _read_replicas(node, labels, allocatable),
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
    if resource == NEURON[-1]:
        cores = _find_replicas(node, resource)
        return 1 / cores if cores > 1 else None
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


def _read_replicas(node: Object, labels: dict[str, str], has: Object) -> tuple[tuple[str, float], ...]:
    """By resource, into how many units a GPU or an instance is divided, where there are several."""
    units = quantity(has, NVIDIA)
    found = {
        name.removesuffix(".replicas"): count
        for name in labels
        if name.endswith(".replicas") and name.startswith("nvidia.com/") and (count := quantity(labels, name))
    }
    clients = quantity(labels, "cloud.google.com/gke-max-shared-clients-per-gpu")
    gpus = quantity(labels, f"{NVIDIA}.count")
    if clients:
        found[NVIDIA] = clients
    elif NVIDIA not in found and units and gpus and units > gpus and not list_registered(node):
        found[NVIDIA] = units / gpus
    chips = next((count for name in NEURON[:2] if (count := quantity(has, name))), None)
    if chips:
        found[NEURON[-1]] = (quantity(has, NEURON[-1]) or 0.0) / chips
    return tuple(sorted((name, count) for name, count in found.items() if count > 1))


def list_registered(node: Object) -> list[tuple[str, float]]:
    """The GPUs that HAMi registered on a node: id and memory in MB. It writes JSON, and wrote lists with commas and colons."""
    registered = texts(part(node, "metadata"), "annotations").get(_REGISTERED, "")
    found = []
    try:
        gpus = {"gpus": json.loads(registered)} if registered.startswith("[") else {}
    except (ValueError, RecursionError):
        gpus = {}
    for gpu in parts(gpus, "gpus"):
        found.append((text(gpu, "id"), quantity(gpu, "devmem") or 0.0))
    for written in registered.split(":") if not registered.startswith("[") else ():
        cells = written.split(",")
        if len(cells) > 2:
            found.append((cells[0], quantity({"mb": cells[2]}, "mb") or 0.0))
    return found


def _read_memory_mb(node: Object, labels: dict[str, str]) -> float | None:
    registered = {mb for _, mb in list_registered(node) if mb}
    if registered:
        return registered.pop() if len(registered) == 1 else None
    return quantity(labels, f"{NVIDIA}.memory") or None


def _read_not_ready(ready: Object) -> tuple[int | None, str] | None:
    if not ready or is_true(ready):
        return None
    why = ": ".join(t for t in (text(ready, "reason"), text(ready, "message")) if t)
    return since(ready), f"not ready ({why})"[:_REASON_CHARACTERS] if why else "not ready"


def _read_cordon(node: Object) -> tuple[int | None, str] | None:
    spec = part(node, "spec")
    if spec.get("unschedulable") is not True:
        return None
    taints = [t for t in parts(spec, "taints") if text(t, "effect") in ("NoSchedule", "NoExecute")]
    when = next((instant(t, "timeAdded") for t in taints if text(t, "key") == CORDON_TAINT), None)
    other = [
        "=".join(filter(None, (text(t, "key"), text(t, "value"))))
        for t in taints
        if not text(t, "key").startswith("node.kubernetes.io/") and not is_gpu(text(t, "key"))
    ]
    return when, f"cordoned ({', '.join(other)})"[:_REASON_CHARACTERS] if other else "cordoned"


class Held(NamedTuple):
    """How many units, and which part of a GPU each is; None: all of it, or parts that differ, added up in `gpus`.

    `is_sure`: the node reports how it divides its GPUs; else a unit was taken for a whole one.
    """

    gpus: float
    share: float | None
    is_sure: bool

    @property
    def total(self) -> float:
        """In whole GPUs."""
        return self.gpus * (1.0 if self.share is None else self.share)


NOTHING = Held(0.0, None, True)


def add_up(stages: tuple[Asks, ...], node: NodeFacts | None) -> Held:
    """GPUs of the stage that needs most."""
    return max((_add_stage(stage, node) for stage in stages), key=lambda held: held.total, default=NOTHING)


def _add_stage(stage: Asks, node: NodeFacts | None) -> Held:
    found = [(ask, find_share(ask, node)) for ask in stage]
    is_sure = all(
        share is not None and (node is not None or ask.resource.removesuffix(SHARED) != NVIDIA) for ask, share in found
    )
    units = [(ask.units, 1.0 if share is None else share) for ask, share in found]
    shares = {share for _, share in units}
    if len(shares) == 1:
        share = shares.pop()
        return Held(sum(n for n, _ in units), share if share < 1 else None, is_sure)
    return Held(sum(n * share for n, share in units), None, is_sure)


class NodeOutages:
    """Nodes out of use by now, and the rows of outages that began or ended."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, str]] = {}
        """Since when, and why, by the node's name and what is wrong with it."""
        self._rows: list[Row] = []

    def see(self, node: NodeFacts, at_ms: int | None) -> None:
        """A node as it is now."""
        if not node.has_gpus:
            return
        for what, found in ((NOT_READY, node.not_ready), (CORDONED, node.cordoned)):
            key = f"{node.name}\n{what}"
            if found is None:
                self._close(key, (node.ready_ms if what == NOT_READY else None) or at_ms)
            elif key not in self.open and (from_ms := found[0] or at_ms) is not None:
                self.open[key] = from_ms, found[1]
                self._emit(key, None)

    def end(self, name: str, at_ms: int | None) -> None:
        """A node is no longer there, and nothing of it is out of use."""
        for what in (NOT_READY, CORDONED):
            self._close(f"{name}\n{what}", at_ms)

    def take(self) -> Iterator[Row]:
        """The rows since they were taken last."""
        rows, self._rows = self._rows, []
        yield from rows

    def _close(self, key: str, at_ms: int | None) -> None:
        if key in self.open and at_ms is not None:
            self._emit(key, at_ms)
            del self.open[key]

    def _emit(self, key: str, to_ms: int | None) -> None:
        from_ms, reason = self.open[key]
        to_ms = None if to_ms is None else max(to_ms, from_ms)
        self._rows.append({"node": key.partition("\n")[0], "from_utc": from_ms, "to_utc": to_ms, "reason": reason})
