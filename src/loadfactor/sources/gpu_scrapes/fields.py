"""Fields of GPU exporters, their names, units and keys, and values of them in columns."""

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
"""Keys that a scrape of a GPU can hold: columns of `samples`, and what others of them are made of."""
EVENT_KEYS: Final = (XID, *ECC_DETAILS)
"""Keys that show events and are no part of a sample: the key is the detail of the event."""
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
"""Keys that may be read as a total that only grows."""
WHOLE: Final = frozenset({"power_w", "power_now_w", "energy_j", "sm_clock_hz", "temperature_c", "throttle_mask"})
"""Keys of the whole GPU, also on the row of one of its MIG instances."""
BY_PROCESS: Final = frozenset({"busy_share", "mem_used_bytes"})
"""Keys of one process, not of the device, where the exporter shares a GPU among virtual ones."""
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
