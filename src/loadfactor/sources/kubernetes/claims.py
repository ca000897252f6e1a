"""Claims of dynamic resource allocation (DRA): which devices a claim got, and which part of a GPU each is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.sources.kubernetes.fields import Object, part, parts, text
from loadfactor.sources.kubernetes.nodes import share_of_profile

_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com")
"""Drivers whose devices are accelerators."""

Device = tuple[str, str, str]
"""Driver, pool (most call it as the node) and name of a device."""


@dataclass(frozen=True)
class ClaimFacts:
    """A claim: the devices it was given, and how many pods it is reserved for."""

    name: str  # namespace/name
    devices: tuple[Device, ...] = ()
    pods: int = 1


def read_claim(claim: Object) -> ClaimFacts | None:
    """The facts of a ResourceClaim; None where it has no name. Devices that administrators look at are not held."""
    metadata, status = part(claim, "metadata"), part(claim, "status")
    if not text(metadata, "name"):
        return None
    devices = tuple(
        (text(given, "driver"), text(given, "pool"), text(given, "device"))
        for given in parts(part(status, "allocation", "devices"), "results")
        if text(given, "driver") in _DRIVERS and given.get("adminAccess") is not True
    )
    pods = sum(text(of, "resource") == "pods" for of in parts(status, "reservedFor"))
    name = f"{text(metadata, 'namespace') or 'default'}/{text(metadata, 'name')}"
    return ClaimFacts(name, devices, max(1, pods))


def read_slice(found: Object) -> dict[Device, float]:
    """The devices of a ResourceSlice that are parts of a GPU, and which part."""
    spec = part(found, "spec")
    shares = {}
    for device in parts(spec, "devices"):
        attributes = part(device, "attributes") or part(device, "basic", "attributes")  # v1beta1 puts them one lower
        profile, product = (_read_text(attributes.get(name)) for name in ("profile", "productName"))
        share = share_of_profile(profile, product) if profile else None
        if share is not None:
            shares[text(spec, "driver"), text(part(spec, "pool"), "name"), text(device, "name")] = share
    return shares


def add_shares(claims: tuple[ClaimFacts, ...], shares: Mapping[Device, float]) -> float:
    """How many GPUs a pod holds by its claims; pods that share a claim hold equal parts of it."""
    return sum(shares.get(device, 1.0) / claim.pods for claim in claims for device in claim.devices)


def _read_text(value: Any) -> str:
    return text(value, "string")
