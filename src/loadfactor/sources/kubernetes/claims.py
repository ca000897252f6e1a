"""Claims of dynamic resource allocation (DRA): which devices a claim got, which GPU each is, and how much of it was given.

The API is resource.k8s.io: v1, v1beta2 and v1beta1 differ in where a slice has the attributes of a device and a claim its requests.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from loadfactor.sources.kubernetes.asked import sounds_like_gpu
from loadfactor.sources.kubernetes.fields import Object, part, parts, quantity, text
from loadfactor.sources.kubernetes.nodes import share_of_profile

DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com")
"""Drivers whose devices are accelerators; their classes of devices are called like them."""
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MEMORY: Final = "memory"

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
    return {
        (driver, pool, text(device, "name")): _read_device(device, driver)
        for device in parts(spec, "devices")
        if text(device, "name")
    }


def find_part(grant: Grant, known: DeviceFacts | None) -> float | None:
    """The part of its device that a grant takes by its capacity; None where nobody says: all of it, or equal parts.

    >>> find_part(Grant("d", "p", "g", "s", (("memory", 20.0),)), DeviceFacts(capacity=(("memory", 80.0),)))
    0.25
    """
    consumed, capacity = dict(grant.consumed), dict(known.capacity if known else ())
    for name in (_MEMORY, *sorted(consumed)):  # memory is what nobody can have twice
        if consumed.get(name) and capacity.get(name):
            return min(1.0, consumed[name] / capacity[name])
    return None


def _read_grant(result: Object, claim: str) -> Grant:
    consumed = _read_amounts(part(result, "consumedCapacity"))
    share = text(result, "shareID") or (claim if consumed else "")
    return Grant(text(result, "driver"), text(result, "pool"), text(result, "device"), share, consumed)


def _read_device(device: Object, driver: str) -> DeviceFacts:
    basic = part(device, "basic")  # v1beta1 puts everything one lower
    said = part(device, "attributes") or part(basic, "attributes")
    texts = {name: _read_attribute(said, name, driver) for name in ("profile", "productName", "uuid")}
    share = share_of_profile(texts["profile"], texts["productName"]) if texts["profile"] else None
    is_whole = share is None and _UUID.fullmatch(texts["uuid"])  # exporters name instances of MIG otherwise
    capacity = part(device, "capacity") or part(basic, "capacity")
    amounts = {
        name: amount if isinstance(amount, str) else part(amount).get("value") for name, amount in capacity.items()
    }
    return DeviceFacts(1.0 if share is None else share, texts["uuid"] if is_whole else "", _read_amounts(amounts))


def _read_attribute(attributes: Object, name: str, driver: str) -> str:
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
        if text(one, "deviceClassName"):
            is_counted = text(one, "deviceClassName") in DRIVERS and text(one, "allocationMode") in ("", "ExactCount")
            return (quantity(one, "count") or 1.0) if is_counted and one.get("adminAccess") is not True else 0.0
    return 0.0


def _list_first(request: Object) -> Iterator[Object]:
    yield from list(parts(request, "firstAvailable"))[:1]
