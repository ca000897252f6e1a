"""The fields of DCGM: old and new names, units, and what each becomes. Facts, no code."""

from dataclasses import dataclass
from typing import Final

from loadfactor.units import BYTES_PER_MIB, HZ_PER_MHZ, J_PER_MJ, PERCENT


@dataclass(frozen=True)
class Field:
    """One field. `key` is the column of `samples` it becomes, or what that is made of."""

    key: str
    names: tuple[str, ...]  # behind DCGM_FI_; DCGM 4 renamed many, everybody writes the old ones
    multiply: float = 1
    divide: float = 1
    whole: bool = False  # of the whole GPU, also on the row of one of its MIG instances
    process: bool = False  # of one process, not of the device, where the exporter shares a GPU among virtual ones
    counts: bool = False  # a total that only grows
    mask: bool = False  # a number whose bits speak
    either: bool = False  # a rate or a total under the same name; its # TYPE says which


FIELDS: Final = (
    Field(
        "busy_share", ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO"), divide=PERCENT, process=True
    ),  # 0…100 under either name
    Field("engine_active_share", ("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")),
    Field("sm_active_share", ("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO")),
    Field("tensor_active_share", ("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_UTIL_RATIO")),
    Field("dram_active_share", ("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO")),
    Field("fp32_active_share", ("PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO", "PROF_PIPE_FP32_UTIL_RATIO")),
    Field("sm_occupancy_share", ("PROF_SM_OCCUPANCY", "PROF_OCCUPANCY_RATIO", "PROF_SM_OCCUPANCY_RATIO")),
    Field("mem_used_bytes", ("DEV_FB_USED",), multiply=BYTES_PER_MIB, process=True),
    Field("mem_free_bytes", ("DEV_FB_FREE",), multiply=BYTES_PER_MIB),
    Field("mem_reserved_bytes", ("DEV_FB_RESERVED",), multiply=BYTES_PER_MIB),
    Field("mem_total_bytes", ("DEV_FB_TOTAL",), multiply=BYTES_PER_MIB),
    Field("mem_used_share", ("DEV_FB_USED_PERCENT", "DEV_FB_USED_RATIO")),  # 0…1 under either name
    Field("power_w", ("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS"), whole=True),
    Field("power_now_w", ("DEV_POWER_USAGE_INSTANT", "DEV_BOARD_POWER_RAW_WATTS"), whole=True),
    Field("energy_j", ("DEV_TOTAL_ENERGY_CONSUMPTION",), multiply=J_PER_MJ, whole=True, counts=True),
    Field("sm_clock_hz", ("DEV_SM_CLOCK",), multiply=HZ_PER_MHZ, whole=True),
    Field("temperature_c", ("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS"), whole=True),
    Field("throttle_mask", ("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"), whole=True, mask=True),
    Field("pcie_tx_bytes_per_s", ("PROF_PCIE_TX_BYTES",), either=True),
    Field("pcie_rx_bytes_per_s", ("PROF_PCIE_RX_BYTES",), either=True),
    Field("nvlink_tx_bytes_per_s", ("PROF_NVLINK_TX_BYTES",), either=True),
    Field("nvlink_rx_bytes_per_s", ("PROF_NVLINK_RX_BYTES",), either=True),
    Field("pcie_tx_bytes_per_s", ("PROF_PCIE_TX_BYTES_TOTAL",), counts=True),
    Field("pcie_rx_bytes_per_s", ("PROF_PCIE_RX_BYTES_TOTAL",), counts=True),
    Field("nvlink_tx_bytes_per_s", ("PROF_NVLINK_TX_BYTES_TOTAL",), counts=True),
    Field("nvlink_rx_bytes_per_s", ("PROF_NVLINK_RX_BYTES_TOTAL",), counts=True),
)

PREFIX: Final = "DCGM_FI_"
BY_NAME: Final = {PREFIX + name: field for field in FIELDS for name in field.names}

BY_KEY: Final = {field.key: field for field in reversed(FIELDS)}
"""One field of each key; fields of one key differ only in being a total."""
KEYS: Final = tuple(dict.fromkeys(field.key for field in FIELDS))
KEY_NUMBER: Final = {key: number for number, key in enumerate(KEYS)}

LABELS: Final = {
    "uuid": ("uuid", "gpu_uuid"),
    "index": ("gpu",),
    "model": ("modelname", "model_name"),
    "node": ("hostname", "node", "kubernetes_node"),
    "instance": ("gpu_i_id",),
    "profile": ("gpu_i_profile", "dra_mig_profile"),
    "job": ("hpc_job", "exported_hpc_job"),
    "pod": ("exported_pod", "pod", "pod_name"),
    "namespace": ("exported_namespace", "namespace", "pod_namespace"),
}
"""Labels in lower case, best first. Prometheus calls a pod's labels exported_… where it keeps `pod` for the exporter's own."""

SLICES: Final = {"A30": 4, "RTX PRO 6000": 4, "RTX PRO 5000": 4}
SLICES_ELSE: Final = 7
"""Compute slices that MIG cuts a GPU into, by model."""

BLANKS: Final = {0: "blank", 1: "not found", 2: "not supported", 3: "not permitted"}
"""What the last digit of a blank says."""

BLANK_INT32: Final = 0x7FFFFFF0
BLANK_INT64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_FP64: Final = 2**47
"""Values from which on DCGM means that it has none (dcgm_structs.h)."""
