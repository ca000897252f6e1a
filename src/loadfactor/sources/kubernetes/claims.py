"""Claims of dynamic resource allocation (DRA): which devices a claim got, which GPU each is, and how much of it was given.

The API is resource.k8s.io: v1, v1beta2 and v1beta1 differ in where a slice has the attributes of a device and a claim its requests.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from loadfactor.base.limits import MOST_CLUSTER_GPUS
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.kubernetes.fields import Object, instant, part, parts, quantity, text, texts
from loadfactor.sources.kubernetes.nodes import (
    NVIDIA,
    Ask,
    NodeFacts,
    count_units,
    find_share,
    list_registered,
    share_of_profile,
    sounds_like_gpu,
)
from loadfactor.tables.schema import LIST

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
Row = dict[str, Any]
RETURNS_MS: Final = 15 * S_PER_MIN * MS_PER_S
"""A GPU that is listed again within this time was there all the while: drivers publish their slices anew when they restart."""
_ADDRESSES: Final = ("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddr", "pciAddress")
_MODELS: Final = ("productName", "model", "deviceName")
_PARTS: Final = ("mig", "amdgpu-partition")
"""Types of devices that are parts of a GPU."""


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
    """A claim: the devices it was given, and the pods it is reserved for. `requested`: GPUs it asks for."""

    name: str  # namespace/name
    grants: tuple[Grant, ...] = ()
    reserved_for: tuple[str, ...] = ()
    is_allocated: bool = False
    requested: float = 0.0
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
        sum(map(_count_requested, parts(part(claim, "spec", "devices"), "requests"))),
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
    attributes = part(device, "attributes")
    texts = {name: read_attribute(attributes, name, driver) for name in ("profile", "productName", "uuid")}
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
        attributes = part(device, "attributes")
        if read_attribute(attributes, "type", driver) == _AMD_PARTITION and not dict(_read_capacity(device)).get(
            _PARTITIONS
        ):
            address = read_attribute(attributes, "resource.kubernetes.io/pciBusID", driver) or read_attribute(
                attributes, "pciAddr", driver
            )
            found.setdefault(address, []).append(text(device, "name"))
    return {name: 1 / len(names) for address, names in found.items() if address for name in names}


def read_attribute(attributes: Object, name: str, driver: str) -> str:
    """The text of an attribute, whose name may begin with the driver's."""
    return text(attributes.get(name), "string") or text(attributes.get(f"{driver}/{name}"), "string")


def _read_amounts(amounts: Any) -> Amounts:
    named = part({"amounts": amounts}, "amounts")
    found = ((str(name).rpartition("/")[2], quantity(named, name)) for name in named)
    return tuple(sorted((name, amount) for name, amount in found if amount))


def _count_requested(request: Object) -> float:
    for one in (part(request, "exactly"), *_list_first(request), request):
        name = text(one, "deviceClassName")
        if name:
            is_counted = name in _CLASSES and text(one, "allocationMode") in ("", "ExactCount")
            if not is_counted or one.get("adminAccess") is True:
                return 0.0
            # The part of a GPU that a request selects by the profile of MIG; all of one where it names none.
            expressions = (text(part(selector, "cel"), "expression") for selector in parts(one, "selectors"))
            profiles = {found[0] for expression in expressions for found in _PROFILE.finditer(expression)}
            share = share_of_profile(profiles.pop(), "") if len(profiles) == 1 else None
            return (quantity(one, "count") or 1.0) * (1.0 if share is None else share)
    return 0.0


def _list_first(request: Object) -> Iterator[Object]:
    yield from list(parts(request, "firstAvailable"))[:1]


class Installed(NamedTuple):
    """A GPU on its node since `from_ms`; `to_ms`: until when it was listed, None while it is."""

    node: str
    accelerator: str
    from_ms: int
    to_ms: int | None = None


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


OF_NODE: Final = "node"
"""In place of a driver: what a node itself says of its capacity."""
_MOST_ON_NODE: Final = 1000  # more is damage
ROUNDING: Final = 1e-6
"""Remainders of a GPU up to this come from adding up parts like 1/7."""
_HOW_DIVIDED: Final = re.compile(r"-(SHARED|MIG-.*)$")


def read_capacity(found: Object, node: NodeFacts) -> SliceFacts:
    """The GPUs that a node says it has, as a slice: by its label, else what is registered, else its capacity in whole GPUs."""
    labels, status = texts(part(found, "metadata"), "labels"), part(found, "status")
    count = quantity(labels, f"{NVIDIA}.count") or float(len(list_registered(found))) or None
    if count is None:
        units = count_units(part(status, "capacity"))
        shares = {name: find_share(Ask(name, 1.0), node) for name in units}
        is_known = None not in shares.values()
        count = sum(units[name] * (share or 0.0) for name, share in shares.items()) if is_known else 0.0
    whole = math.ceil(count - ROUNDING)
    product = _HOW_DIVIDED.sub("", node.product)
    known = find_accelerator(product) if product else None
    model = known.id if known else product
    return SliceFacts(
        name_capacity(node.name),
        OF_NODE,
        node.name,
        0.0,
        1.0,
        instant(part(found, "metadata"), "creationTimestamp"),
        tuple(
            SliceGpu((f"{node.name} capacity {number}",), node.name, "", model, False)
            for number in range(whole if whole <= _MOST_ON_NODE else 0)
        ),
    )


def name_capacity(node: str) -> str:
    """The name of a node's capacity among slices, which no slice has."""
    return f"{OF_NODE} {node}"


class Inventory:
    """Slices as they are, the GPUs they list, and the rows of what came or went."""

    def __init__(self, backdates: bool) -> None:
        """`backdates`: GPUs that are there at first were so since their slices were created, else since they were seen."""
        self.slices: dict[str, SliceFacts] = {}
        self.installed: dict[str, Installed] = {}
        """By the name of the GPU, those that went a little while ago too."""
        self._changed: dict[str, int | None] = {}
        """Nodes of which slices changed, and when that was seen."""
        self._backdates = backdates
        self._counted = 0

    def has_gpus(self, node: str) -> bool:
        """Whether any slice lists a GPU of a node."""
        return any(gpu.node == node for facts in self.slices.values() for gpu in facts.gpus)

    def has_room(self, capacity: SliceFacts) -> bool:
        """Whether what nodes say they have stays below what a cluster has, with this one."""
        return self._counted + self._count_new(capacity) <= MOST_CLUSTER_GPUS

    def _count_new(self, facts: SliceFacts) -> int:
        before = self.slices.get(facts.name)
        return len(facts.gpus) - len(before.gpus if before else ()) if facts.driver == OF_NODE else 0

    def list_drivers(self) -> list[str]:
        """The names of the slices that drivers wrote."""
        return [name for name, facts in self.slices.items() if facts.driver != OF_NODE]

    def list_counted(self) -> set[str]:
        """The names of the GPUs of nodes that only say how many they have."""
        listed = {gpu.node for facts in self.slices.values() if facts.driver != OF_NODE for gpu in facts.gpus}
        return {name for name, gpu in self.installed.items() if gpu.node not in listed}

    def put(self, facts: SliceFacts, at_ms: int | None) -> bool:
        """A slice as it is now; whether that is new."""
        before = self.slices.get(facts.name)
        if before == facts or not (before or facts.gpus or facts.driver != OF_NODE):
            return False
        self._counted += self._count_new(facts)
        self.slices[facts.name] = facts
        for one in (facts, *([before] if before else [])):
            self._mark(one, at_ms)
        return True

    def remove(self, name: str, at_ms: int | None) -> None:
        """A slice is gone."""
        facts = self.slices.pop(name, None)
        if facts is not None:
            self._counted -= len(facts.gpus) if facts.driver == OF_NODE else 0
            self._mark(facts, at_ms)

    def take(self) -> Iterator[Row]:
        """The rows since they were taken last."""
        by_node: dict[str, list[SliceFacts]] = {node: [] for node in self._changed}
        for facts in self.slices.values() if self._changed else ():
            for node in {gpu.node for gpu in facts.gpus} & by_node.keys():
                by_node[node].append(facts)
        there: dict[str, list[str]] = {}
        for name, gpu in self.installed.items() if self._changed else ():
            there.setdefault(gpu.node, []).append(name)
        for node, slices in by_node.items():
            yield from self._compare(node, slices, there.get(node, []), self._changed[node])
        self._forget(max((at_ms for at_ms in self._changed.values() if at_ms is not None), default=0))
        self._changed = {}

    def _forget(self, now_ms: int) -> None:
        old = [
            name for name, gpu in self.installed.items() if gpu.to_ms is not None and now_ms - gpu.to_ms > RETURNS_MS
        ]
        for name in old:
            del self.installed[name]

    def _mark(self, facts: SliceFacts, at_ms: int | None) -> None:
        for node in {gpu.node for gpu in facts.gpus if gpu.node}:
            self._changed[node] = at_ms

    def _compare(self, node: str, slices: list[SliceFacts], before: list[str], at_ms: int | None) -> Iterator[Row]:
        listed = [facts for facts in slices if facts.driver != OF_NODE]
        current = _pick_current(listed or slices)  # what slices list counts before what the node says
        gpus = join_devices(g for facts in current for g in facts.gpus if g.node == node)
        named = {gpu.uuid: gpu.model for gpu in gpus if gpu.uuid and not gpu.is_divided}
        others = sorted(gpu for gpu in gpus if not gpu.uuid or gpu.is_divided)
        numbered = {f"{node}:gpu{number}": gpu.model for number, gpu in enumerate(others, len(named))}
        now = named | numbered
        since_ms = at_ms
        if at_ms is None or (self._backdates and not before):
            since_ms = min((facts.from_ms for facts in current if facts.from_ms is not None), default=at_ms)
        for name, model in now.items():
            known = self.installed.get(name)
            is_here = known is not None and known.node == node
            if known and is_here and (known.to_ms is None or at_ms is None or at_ms - known.to_ms <= RETURNS_MS):
                if known.to_ms is not None or known.accelerator != model:
                    yield self._emit(name, Installed(node, model, known.from_ms))
            elif since_ms is not None and (known is None or known.from_ms < since_ms):
                if known is not None and known.to_ms is None:  # it was moved here
                    yield self._emit(name, known._replace(to_ms=since_ms))
                yield self._emit(name, Installed(node, model, since_ms))
        for name in before:
            known = self.installed[name]
            if name not in now and known.node == node and known.to_ms is None and at_ms is not None:
                yield self._emit(name, known._replace(to_ms=max(at_ms, known.from_ms)))

    def _emit(self, name: str, gpu: Installed) -> Row:
        self.installed[name] = gpu
        ended = {} if gpu.to_ms is None else {"to_utc": gpu.to_ms, "known_from": LIST}
        return {
            "device_id": name,
            "node": gpu.node,
            "accelerator": gpu.accelerator or None,
            "from_utc": gpu.from_ms,
            **ended,
        }


def _pick_current(slices: list[SliceFacts]) -> list[SliceFacts]:
    """Of each pool the slices of its newest generation of which all are there, else of its newest one."""
    pools: dict[tuple[str, str], dict[float, list[SliceFacts]]] = {}
    for facts in slices:
        pools.setdefault((facts.driver, facts.pool), {}).setdefault(facts.generation, []).append(facts)
    found = []
    for generations in pools.values():
        whole = [number for number, of in generations.items() if len(of) >= of[0].slices]
        found += generations[max(whole or generations)]
    return found


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
    attributes = part(device, "attributes")

    def read(name: str) -> str:
        return read_attribute(attributes, name, driver)

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
