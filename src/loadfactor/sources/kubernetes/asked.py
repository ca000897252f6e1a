"""What a pod asks for: units of GPUs by container, of the resources that device plugins name."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from loadfactor.sources.kubernetes.fields import Object, part, parts, quantity, text

NVIDIA: Final = "nvidia.com/gpu"
SHARED: Final = ".shared"
MIG: Final = "nvidia.com/mig-"
AWS_SHARES: Final = "k8s.amazonaws.com/vgpu"
_OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""A class of devices asked for like a resource: the scheduler makes the claim."""
WHOLE: Final = (
    *("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
    *(f"{_OF_CLASS}gpu.{maker}.com" for maker in ("nvidia", "amd", "intel")),
)
"""Resources of which a unit is always a whole GPU; a TPU is none."""
_AMD_PARTS: Final = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
_AMD_PART: Final = re.compile(r"amd\.com/([sdtqc]px)_nps\d")
"""A partition of a GPU of AMD: how its dies are divided, and its memory."""
_BESIDE: Final = re.compile(r"gpu\.intel\.com/(\w+_monitoring|millicores|memory\.max|tiles)")
"""What is asked for beside a GPU, or to look at all of them: holds none."""
MEMORY_MB, MEMORY_PERCENT, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
"""What HAMi lets a container ask for of each of its GPUs."""
_ANY: Final = re.compile(r"gpu|/mig-|accelerator|cuda", re.IGNORECASE)


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
    known = resource.removesuffix(SHARED) == NVIDIA or resource in (*WHOLE, AWS_SHARES)
    return known or resource.startswith(MIG) or count_partitions(resource) is not None


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


def list_asked(pod: Object) -> tuple[Asks, ...]:
    """What a pod's spec asks for at each stage of its life, of which the largest counts: its containers, and each init container.

    Init containers run one after the other, before the others; those that restart always go on beside what follows them.
    """
    beside: Asks = ()
    stages = []
    for container in parts(pod, "initContainers"):
        asked = _read_container(container)
        if text(container, "restartPolicy") == "Always":
            beside += asked
        elif asked:
            stages.append(beside + asked)
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
