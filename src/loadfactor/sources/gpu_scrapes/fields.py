"""What a field of a GPU exporter is: its names, its unit, and what it becomes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.base import DeviceEvent

XID: Final = "xid"
ECC_DETAILS: Final = ("sbe_volatile", "dbe_volatile", "sbe_aggregate", "dbe_aggregate")
"""Single-bit (corrected) and double-bit errors, since the driver was loaded and over the GPU's life: an error counts in both."""
SLOWING_BITS: Final = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
"""NVML's clock event reasons that slow a GPU down; being idle and clocks that somebody set do not."""


def find_xid(device_id: str, at_ms: int, code: int, last: int) -> Iterator[DeviceEvent]:
    """The event of a gauge that holds the code of the last XID, 0 when there was none since the driver was loaded.

    `last` is the reading before. The same code again does not show.

    >>> [(e.kind, e.detail) for e in (*find_xid("g", 0, 79, 0), *find_xid("g", 1, 79, 79), *find_xid("g", 2, 0, 79))]
    [('xid', '79'), ('reset', 'xid')]
    """
    if code != last:
        yield DeviceEvent(at_ms, device_id, *((XID, str(code)) if code else ("reset", XID)))


def find_counted(device_id: str, detail: str, at_ms: int, total: int, last: int) -> Iterator[DeviceEvent]:
    """The events of a counter of ECC errors, with how many were new; `last` is the reading before. One that is less was set back.

    >>> [(e.kind, e.count) for e in find_counted("g", "dbe_volatile", 0, 2, 5)]
    [('reset', None), ('ecc', 2)]
    """
    if total < last:
        yield DeviceEvent(at_ms, device_id, "reset", detail)
        last = 0
    if total > last:
        yield DeviceEvent(at_ms, device_id, "ecc", detail, total - last)


def find_last(events: Sequence[DeviceEvent], detail: str) -> int:
    """What a gauge (`detail` XID) or a counter read after these events of one GPU, in the order of time; 0 without any."""
    last = 0
    for event in events:
        if event.kind == "reset" and event.detail == detail:
            last = 0
        elif detail == XID and event.kind == XID:
            last = int(event.detail) if event.detail.isdecimal() else 0
        elif event.kind == "ecc" and event.detail == detail:
            last += event.count or 1
    return last


@dataclass(frozen=True)
class Field:
    """One field. `key` is the column of `samples` it becomes, or what that is made of."""

    key: str
    names: tuple[str, ...]  # without the prefix of their exporter
    multiply: float = 1
    divide: float = 1
    counts: bool = False  # a total that only grows
    mask: bool = False  # a number whose bits speak
    either: bool = False  # a rate or a total under the same name; its # TYPE says which


KEYS: Final = (
    "busy_share",
    "engine_active_share",
    "sm_active_share",
    "tensor_active_share",
    "dram_active_share",
    "fp32_active_share",
    "sm_occupancy_share",
    "mem_used_bytes",
    "mem_free_bytes",
    "mem_reserved_bytes",
    "mem_total_bytes",
    "mem_used_share",
    "mem_used_of_total_share",
    "power_w",
    "power_now_w",
    "energy_j",
    "sm_clock_hz",
    "temperature_c",
    "throttle_mask",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
)
"""What a scrape of a GPU can hold: columns of `samples`, and what others of them are made of."""
EVENT_KEYS: Final = (XID, *ECC_DETAILS)
"""What tells of events and is no part of a sample: the key is the detail of the event."""
THROTTLE: Final = "throttle_mask"
"""The key of samples that tells of events as well."""
READ_KEYS: Final = (*KEYS, *EVENT_KEYS)
KEY_NUMBER: Final = {key: number for number, key in enumerate(READ_KEYS)}
TOTALS: Final = (
    "energy_j",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
)
"""What may be read as a total that only grows."""
WHOLE: Final = frozenset({"power_w", "power_now_w", "energy_j", "sm_clock_hz", "temperature_c", "throttle_mask"})
"""What is of the whole GPU, also on the row of one of its MIG instances."""
BY_PROCESS: Final = frozenset({"busy_share", "mem_used_bytes"})
"""What is of one process, not of the device, where the exporter shares a GPU among virtual ones."""
UNTIMED: Final = -1


@dataclass(frozen=True)
class FieldValues:
    """Values of kept fields. Places, keys, labels, holders and names are numbers of KnownDevices, texts those of their labels.

    `before` is the number of scrapes of the GPU before this one where the line has no time, else -1.
    """

    place: NDArray[np.int32]
    gpu: NDArray[np.int32]
    key: NDArray[np.int32]
    labels: NDArray[np.int32]
    holders: NDArray[np.int32]
    name: NDArray[np.int32]
    is_total: NDArray[np.bool_]
    value: NDArray[np.float64]
    at_ms: NDArray[np.int64]
    before: NDArray[np.int64]
    line: NDArray[np.int64]
    text: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.place)

    def pick(self, which: Any) -> "FieldValues":
        """Some of them, by a slice, a mask or numbers."""
        return FieldValues(*(getattr(self, f.name)[which] for f in fields(self)))


def join_values(parts: list[FieldValues]) -> FieldValues:
    """All of these, one after the other."""
    return FieldValues(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(FieldValues)))
