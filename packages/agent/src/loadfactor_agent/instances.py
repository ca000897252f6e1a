"""The MIG instances into which a GPU is divided."""

from typing import Any, Final, NamedTuple

import pynvml

from .card import Card

_MIB_PER_GIB: Final = 1024


class GpuInstance(NamedTuple):
    """One GPU instance: its id, a handle of a device in it, its profile, 1g.10gb, and the UUIDs of the devices in it."""

    number: int
    handle: Any
    profile: str
    uuids: list[str]


def list_instances(card: Card, handle: Any) -> list[GpuInstance]:
    """The instances by number; none where the GPU is whole. Compute instances of one GPU instance are one. Raises CardLostError."""
    mode = card.ask("MIG", pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    found: dict[int, GpuInstance] = {}
    for place in range(card.ask("number of MIG devices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except pynvml.NVMLError:  # free places answer so
            continue
        number = card.ask("MIG instance id", pynvml.nvmlDeviceGetGpuInstanceId, device)
        if number is None:
            continue
        if number not in found:
            found[number] = GpuInstance(number, device, _name_profile(card, device), [])
        if uuid := card.ask("MIG UUID", pynvml.nvmlDeviceGetUUID, device):
            found[number].uuids.append(str(uuid))
    return [found[number] for number in sorted(found)]


def _name_profile(card: Card, device: Any) -> str:
    attributes = card.ask("MIG attributes", pynvml.nvmlDeviceGetAttributes, device)
    if attributes is None:
        return ""
    gigabytes = -(-attributes.memorySizeMB // _MIB_PER_GIB)  # 9.75 GiB are sold as 10gb
    return f"{attributes.gpuInstanceSliceCount}g.{gigabytes}gb"
