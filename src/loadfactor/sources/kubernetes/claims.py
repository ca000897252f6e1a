"""Claims of dynamic resource allocation (DRA): which devices a claim got, which GPU each is, and how much of it was given.

The API is resource.k8s.io: v1, v1beta2 and v1beta1 differ in where a slice has the attributes of a device and a claim its requests.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from loadfactor.sources.kubernetes.asked import sounds_like_gpu
from loadfactor.sources.kubernetes.fields import Object, part, parts, quantity, text
from loadfactor.sources.kubernetes.nodes import share_of_profile

HAMI: Final = "hami-core-gpu.project-hami.io"
DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", HAMI)
"""Drivers whose devices are GPUs; their classes of devices are called like them."""
_CLASSES: Final = (*DRIVERS, "mig.nvidia.com", "vfio.gpu.nvidia.com")
UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PROFILE: Final = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_PARTITIONS, _MEMORY = "partitions", "memory"
_AMD_PARTITION: Final = "amdgpu-partition"

Device = tuple[str, str, str]
"""Driver, pool (most call it as the node) and name of a device."""
Amounts = tuple[tuple[str, float], ...]
"""Capacities by name."""


class Grant(NamedTuple):
    """A device that a claim was given. `consumed`: so much of its capacity, where several claims may have a part of it each;
    `share`: tells these parts of one device apart."""

    driver: str
    pool: str
    name: str
    share: str = ""
    consumed: Amounts = ()

    @property
    def device(self) -> Device:
        """Which device it is."""
        return self.driver, self.pool, self.name


class DeviceFacts(NamedTuple):
    """A device of a slice: which part of a GPU it is, the GPU's UUID where it is a whole one, and its capacity."""

    share: float = 1.0
    device_id: str = ""
    capacity: Amounts = ()


@dataclass(frozen=True)
class ClaimFacts:
    """A claim: the devices it was given, and the pods it is reserved for. `asked`: GPUs it asks for."""

    name: str  # namespace/name
    grants: tuple[Grant, ...] = ()
    reserved_for: tuple[str, ...] = ()
    is_allocated: bool = False
    asked: float = 0.0
    unknown: tuple[str, ...] = ()
    """Drivers of devices that sound like GPUs and that nobody here knows."""


def read_claim(claim: Object) -> ClaimFacts | None:
    """The facts of a ResourceClaim; None where it has no name. Devices that administrators look at are not held."""
    metadata, status = part(claim, "metadata"), part(claim, "status")
    name = f"{text(metadata, 'namespace') or 'default'}/{text(metadata, 'name')}"
    if not text(metadata, "name"):
        return None
    given = [
        result
        for result in parts(part(status, "allocation", "devices"), "results")
        if result.get("adminAccess") is not True
    ]
    drivers = {text(result, "driver") for result in given}
    pods = {
        text(of, "uid") or text(of, "name") for of in parts(status, "reservedFor") if text(of, "resource") == "pods"
    }
    return ClaimFacts(
        name,
        tuple(_read_grant(result, name) for result in given if text(result, "driver") in DRIVERS),
        tuple(sorted(pods - {""})),
        bool(part(status, "allocation")),
        sum(map(_count_asked, parts(part(claim, "spec", "devices"), "requests"))),
        tuple(sorted(d for d in drivers if d not in DRIVERS and sounds_like_gpu(d))),
    )


def read_slice(found: Object) -> dict[Device, DeviceFacts]:
    """The devices of a ResourceSlice of GPUs."""
    spec = part(found, "spec")
    driver, pool = text(spec, "driver"), text(part(spec, "pool"), "name")
    if driver not in DRIVERS:
        return {}
    devices = list(list_devices(spec))
    shares = _share_partitions(devices, driver)
    return {
        (driver, pool, name): _read_device(one, driver, shares.get(name))
        for one in devices
        if (name := text(one, "name"))
    }


def list_devices(spec: Object) -> Iterator[Object]:
    """The devices of a slice's spec, of v1beta1 too, which puts everything but the name one lower."""
    for device in parts(spec, "devices"):
        yield {**part(device, "basic"), **device}


def find_part(grant: Grant, known: DeviceFacts | None) -> float | None:
    """The part of its device that a grant takes by its capacity; None where nobody says: all of it, or equal parts.

    >>> find_part(Grant("d", "p", "g", "s", (("memory", 20.0),)), DeviceFacts(capacity=(("memory", 80.0),)))
    0.25
    """
    consumed, capacity = dict(grant.consumed), dict(known.capacity if known else ())
    for name in (
        _PARTITIONS,
        _MEMORY,
        *sorted(consumed),
    ):  # memory is what nobody can have twice; a partition has its own
        if consumed.get(name) and capacity.get(name):
            return min(1.0, consumed[name] / capacity[name])
    return None


def _read_grant(result: Object, claim: str) -> Grant:
    consumed = _read_amounts(part(result, "consumedCapacity"))
    share = text(result, "shareID") or (claim if consumed else "")
    return Grant(text(result, "driver"), text(result, "pool"), text(result, "device"), share, consumed)


def _read_device(device: Object, driver: str, share: float | None) -> DeviceFacts:
    """`share`: the part of a GPU that it is, where that follows from the devices beside it."""
    said = part(device, "attributes")
    texts = {name: read_attribute(said, name, driver) for name in ("profile", "productName", "uuid")}
    if texts["profile"]:
        share = share_of_profile(texts["profile"], texts["productName"])
    is_whole = share is None and UUID.fullmatch(texts["uuid"])  # exporters name instances of MIG otherwise
    amounts = _read_capacity(device)
    return DeviceFacts(1.0 if share is None else share, texts["uuid"] if is_whole else "", amounts)


def _read_capacity(device: Object) -> Amounts:
    capacity = part(device, "capacity")
    return _read_amounts({n: one if isinstance(one, str) else part(one).get("value") for n, one in capacity.items()})


def _share_partitions(devices: Iterable[Object], driver: str) -> dict[str, float]:
    """By name of a partition of AMD its part of the GPU: those at one address are equal. Modes that a GPU could be in are none."""
    found: dict[str, list[str]] = {}
    for device in devices:
        said = part(device, "attributes")
        if read_attribute(said, "type", driver) == _AMD_PARTITION and not dict(_read_capacity(device)).get(_PARTITIONS):
            address = read_attribute(said, "resource.kubernetes.io/pciBusID", driver) or read_attribute(
                said, "pciAddr", driver
            )
            found.setdefault(address, []).append(text(device, "name"))
    return {name: 1 / len(names) for address, names in found.items() if address for name in names}


def read_attribute(attributes: Object, name: str, driver: str) -> str:
    """The text of an attribute, whose name may begin with the driver's."""
    return text(attributes.get(name), "string") or text(attributes.get(f"{driver}/{name}"), "string")


def _read_amounts(amounts: Any) -> Amounts:
    """Quantities by the last part of their names."""
    named = part({"amounts": amounts}, "amounts")
    found = ((str(name).rpartition("/")[2], quantity(named, name)) for name in named)
    return tuple(sorted((name, amount) for name, amount in found if amount))


def _count_asked(request: Object) -> float:
    """GPUs that a request asks for; of alternatives the first one counts."""
    for one in (part(request, "exactly"), *_list_first(request), request):
        name = text(one, "deviceClassName")
        if name:
            is_counted = name in _CLASSES and text(one, "allocationMode") in ("", "ExactCount")
            if not is_counted or one.get("adminAccess") is True:
                return 0.0
            return (quantity(one, "count") or 1.0) * _find_asked_share(one)
    return 0.0


def _find_asked_share(request: Object) -> float:
    """The part of a GPU that a request selects by the profile of MIG; all of one where it names none."""
    said = (text(part(selector, "cel"), "expression") for selector in parts(request, "selectors"))
    profiles = {found[0] for expression in said for found in _PROFILE.finditer(expression)}
    share = share_of_profile(profiles.pop(), "") if len(profiles) == 1 else None
    return 1.0 if share is None else share


def _list_first(request: Object) -> Iterator[Object]:
    yield from list(parts(request, "firstAvailable"))[:1]
