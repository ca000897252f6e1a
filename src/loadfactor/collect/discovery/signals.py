"""What answers rest on: each signal, the fields that give it, and the metrics that are unknown without it."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from loadfactor.metrics import METRICS
from loadfactor.metrics.metric import Metric, Quantile
from loadfactor.sources.dcgm.fields import BY_KEY, PREFIX


@dataclass(frozen=True)
class Signal:
    """One signal. Any of `keys` (fields of GPU exporters) gives it; metrics that add up any of `columns` of the ledger need it."""

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    also: str = ""  # what else is lost without it

    @property
    def fields(self) -> str:
        """What dcgm-exporter calls the field that gives it best."""
        return PREFIX + BY_KEY[self.keys[0]].names[0]


MEMORY: Final = ("mem_used_bytes", "mem_used_share", "mem_used_of_total_share")
SM_ACTIVE: Final = Signal("SM active", ("sm_active_share",), ("sm_active_s",))
ENGINE_ACTIVE: Final = Signal("engine active", ("engine_active_share",), ("engine_active_s",))
GPU_UTIL: Final = Signal("GPU_UTIL", ("busy_share",), ("busy_s",))
ENERGY: Final = Signal(
    "energy counter", ("energy_j",), (), "energy_kwh and power_w are taken from samples of the power, less exactly"
)
POWER: Final = Signal("energy and power", ("energy_j", "power_w", "power_now_w"), ("energy_j",))
SIGNALS: Final = (
    SM_ACTIVE,
    ENGINE_ACTIVE,
    GPU_UTIL,
    Signal("tensor active", ("tensor_active_share",), ("tensor_active_s",)),
    Signal("DRAM active", ("dram_active_share",), ("dram_active_s",)),
    Signal("FP32 active", ("fp32_active_share",), ("fp32_active_s",)),
    Signal("SM occupancy", ("sm_occupancy_share",), ("sm_occupancy_s",)),
    Signal("memory in use", MEMORY, ("mem_used_byte_s", "mem_peak_share")),
    POWER,
    Signal("temperature", ("temperature_c",), ("temperature_c_s", "temperature_peak_c")),
    Signal("throttle reasons", ("throttle_mask",), ("throttled_s",)),
    Signal("PCIe traffic", ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), ("pcie_of_peak_bytes",)),
    Signal("NVLink traffic", ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"), ("nvlink_of_peak_bytes",)),
)
"""In the order in which their loss matters."""
ACTIVITY: Final = (SM_ACTIVE, ENGINE_ACTIVE, GPU_UTIL)
"""Best first: utilization rests on the first of them that is measured."""


@cache
def list_metrics(signal: Signal) -> tuple[str, ...]:
    """The metrics that are unknown without a signal.

    >>> list_metrics(SM_ACTIVE)
    ('sm_activity',)
    """
    return tuple(m.name for m in METRICS if set(signal.columns) & _list_columns(m))


def _list_columns(metric: Metric) -> set[str]:
    if isinstance(metric.kind, Quantile):
        return {metric.kind.of}
    return {column for part in metric.parts for column in part.columns}
