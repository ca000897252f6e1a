"""What a field of a GPU exporter is: its names, its unit, and what it becomes."""

from dataclasses import dataclass
from typing import Final

from loadfactor.sources.parsing.event_readings import ECC_DETAILS, XID


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
