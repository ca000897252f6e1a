"""GPUs that ResourceSlices list (resource.k8s.io): one slice's devices as GPUs, each of them once.

A driver may publish a GPU as several devices: whole, as each instance of MIG that it is or can be cut into, for a virtual machine.
Devices with one PCI address or one UUID, else one set of shared counters, are one GPU.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.kubernetes.claims import DRIVERS, UUID, list_devices, read_attribute
from loadfactor.sources.kubernetes.fields import Object, instant, part, parts, quantity, text

_ADDRESSES: Final = ("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddr", "pciAddress")
_MODELS: Final = ("productName", "model", "deviceName")
_PARTS: Final = ("mig", "amdgpu-partition")
"""Types of devices that are parts of a GPU."""


class SliceGpu(NamedTuple):
    """A GPU of a slice. `keys`: what tells it from others of its pool; `is_divided`: it is cut into parts, or can be."""

    keys: tuple[str, ...]
    node: str
    uuid: str
    model: str
    is_divided: bool


class SliceFacts(NamedTuple):
    """A slice: its name, its pool with the generation and the number of slices of it, and its GPUs."""

    name: str
    driver: str
    pool: str
    generation: float
    slices: float
    from_ms: int | None
    gpus: tuple[SliceGpu, ...]


def read_listed(found: Object) -> SliceFacts | None:
    """The GPUs of a ResourceSlice; None where it is of no driver of GPUs, or has no name."""
    metadata, spec = part(found, "metadata"), part(found, "spec")
    name, driver, pool = text(metadata, "name"), text(spec, "driver"), part(spec, "pool")
    if not name or driver not in DRIVERS:
        return None
    gpus = (_read_gpu(one, text(spec, "nodeName"), driver) for one in list_devices(spec))
    return SliceFacts(
        name,
        driver,
        text(pool, "name"),
        quantity(pool, "generation") or 0.0,
        quantity(pool, "resourceSliceCount") or 1.0,
        instant(metadata, "creationTimestamp"),
        tuple(join_devices(gpu for gpu in gpus if gpu is not None)),
    )


def join_devices(devices: Iterable[SliceGpu]) -> list[SliceGpu]:
    """The GPUs that devices stand for: those that share a key are one.

    >>> whole, part = SliceGpu(("pci 1", "GPU-1"), "n1", "GPU-1", "h100", False), SliceGpu(("GPU-1",), "n1", "", "h100", True)
    >>> join_devices([part, whole])
    [SliceGpu(keys=('GPU-1', 'pci 1'), node='n1', uuid='GPU-1', model='h100', is_divided=True)]
    """
    by_key: dict[str, int] = {}
    found: dict[int, SliceGpu] = {}
    for number, device in enumerate(devices):
        same = sorted({by_key[key] for key in device.keys if key in by_key})
        together = [*(found.pop(other) for other in same), device]
        found[number] = SliceGpu(
            tuple(sorted({key for one in together for key in one.keys})),
            device.node,
            next((one.uuid for one in together if one.uuid), ""),
            next((one.model for one in together if one.model), ""),
            any(one.is_divided for one in together),
        )
        by_key |= dict.fromkeys(found[number].keys, number)
    return list(found.values())


def _read_gpu(device: Object, node: str, driver: str) -> SliceGpu | None:
    """The GPU that a device is, or is a part of; None where it is made of several."""
    said = part(device, "attributes")

    def read(name: str) -> str:
        return read_attribute(said, name, driver)

    node = text(device, "nodeName") or node
    uuids = [uuid for name in ("uuid", "parentUUID") if UUID.fullmatch(uuid := read(name))]
    keys = [f"{node} pci {address.lower()}" for name in _ADDRESSES if (address := read(name))] + uuids
    counters = [text(one, "counterSet") for one in parts(device, "consumesCounters")]
    if not keys and len(counters) > 1:
        return None
    keys = keys or [f"{node} counters {name}" for name in counters if name] or [f"{node} {text(device, 'name')}"]
    model = next((model for name in _MODELS if (model := read(name))), "")
    known = find_accelerator(model) if model else None
    is_part = bool(read("profile")) or read("type") in _PARTS
    return SliceGpu(tuple(keys), node, uuids[0] if uuids else "", known.id if known else model, is_part)
