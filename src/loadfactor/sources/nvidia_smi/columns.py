"""The names and units of nvidia-smi, and the columns of `samples` they become. Facts, no code."""

from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import (
    BYTES_PER_GIB,
    BYTES_PER_KB,
    BYTES_PER_KIB,
    BYTES_PER_MB,
    BYTES_PER_MIB,
    HZ_PER_MHZ,
    PERCENT,
)

Unit = tuple[float, float]  # multiply by the first, divide by the second

SHARE: Final[dict[str, Unit]] = {"%": (1, PERCENT)}
MEMORY: Final[dict[str, Unit]] = {
    "MiB": (BYTES_PER_MIB, 1),
    "MB": (BYTES_PER_MIB, 1),  # dmon and old drivers write MB and divide by 2**20
    "GiB": (BYTES_PER_GIB, 1),
    "KiB": (BYTES_PER_KIB, 1),
    "B": (1, 1),  # tools of other vendors
}
POWER: Final[dict[str, Unit]] = {"W": (1, 1)}
CLOCK: Final[dict[str, Unit]] = {"MHz": (HZ_PER_MHZ, 1)}
TEMPERATURE: Final[dict[str, Unit]] = {"C": (1, 1)}
RATE: Final[dict[str, Unit]] = {"MB/s": (BYTES_PER_MB, 1), "KB/s": (BYTES_PER_KB, 1), "B/s": (1, 1)}


@dataclass(frozen=True)
class Measure:
    """One measured column. The first unit is meant where none is written; of several names the first with a value counts."""

    column: str  # of the table `samples`
    units: dict[str, Unit]
    query: tuple[str, ...] = ()  # names in `--query-gpu`
    dmon: tuple[str, ...] = ()  # names in the heading of `dmon`
    xml: tuple[str, ...] = ()  # paths below <gpu>


MEASURES: Final = (
    Measure(
        "busy_share", SHARE, ("utilization.gpu",), ("sm",), ("utilization/gpu_util", "utilization/utilization.gpu")
    ),
    Measure("mem_used_bytes", MEMORY, ("memory.used",), ("fb",), ("fb_memory_usage/used",)),
    Measure("mem_total_bytes", MEMORY, ("memory.total",), (), ("fb_memory_usage/total",)),
    Measure(
        "power_w",
        POWER,
        ("power.draw", "power.draw.average", "power.draw.instant"),
        ("pwr",),
        tuple(
            f"{group}/{name}"
            for group in ("gpu_power_readings", "power_readings")
            for name in ("power_draw", "average_power_draw", "instant_power_draw")
        ),
    ),
    Measure("sm_clock_hz", CLOCK, ("clocks.sm", "clocks.current.sm"), ("pclk",), ("clocks/sm_clock",)),
    Measure("temperature_c", TEMPERATURE, ("temperature.gpu",), ("gtemp", "temp"), ("temperature/gpu_temp",)),
    Measure("pcie_rx_bytes_per_s", RATE, (), ("rxpci",), ("pci/rx_util",)),
    Measure("pcie_tx_bytes_per_s", RATE, (), ("txpci",), ("pci/tx_util",)),
    Measure("nvlink_bytes_per_s", RATE),  # of dcgmi
    *(
        Measure(f"{part}_share", SHARE)  # of dcgmi and of tools of other vendors
        for part in ("sm_active", "dram_active", "engine_active", "sm_occupancy", "tensor_active", "fp32_active")
    ),
)


REASONS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "display_clocks_setting": 0x100,
}
"""Bits of NVML's mask of clock event reasons (called throttle reasons before driver 535)."""

SLOWING: Final = ("sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown")
"""Without these columns a mask of zeros would not mean that nothing slowed the GPU. hw_slowdown covers the two hw_… below it."""

QUERY_NAMES: Final = {
    "timestamp": "timestamp",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "index": "index",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "name": "name",
    "gpu_name": "name",
    "hostname": "hostname",
    "mig.mode.current": "mig",
    "clocks_event_reasons.active": "reasons",
    "clocks_throttle_reasons.active": "reasons",
    **{f"clocks_{era}_reasons.{name}": f"reason:{name}" for era in ("event", "throttle") for name in REASONS},
    **{name: name for measure in MEASURES for name in measure.query},
}
"""Our names of columns of `--query-gpu`; the rest is not kept."""

OTHER_QUERIES: Final = {
    "pid": "processes",
    "process_name": "processes",
    "used_gpu_memory": "processes",
    "used_memory": "processes",
    "retired_pages.address": "retired pages",
    "retired_pages.cause": "retired pages",
    "remapped_rows.gpu_name": "remapped rows",
}
"""Columns that only the other --query-… commands have, and what those list."""

DMON_NAMES: Final = {
    "date": "date",
    "time": "time",
    "gpu": "index",
    **{name: measure.column for measure in MEASURES for name in measure.dmon},
}
"""Our names of columns of `dmon`."""

DMON_HEADINGS: Final = DMON_NAMES.keys() - {"date", "time", "gpu"} | {
    "mtemp",
    "mem",
    "enc",
    "mclk",
    "pviol",
    "bar1",
    "sbecc",
}
"""Columns by which a heading of dmon is known."""

UNMEASURED: Final = frozenset(
    (
        "",
        "-",
        "n/a",
        "[n/a]",
        "[not supported]",
        "not supported",
        "error",
        "[error]",
        "err!",
        "[unknown error]",
        "unknown error",
        "[gpu is lost]",
        "[insufficient permissions]",
        "[gpu requires reset]",
        "[requested functionality has been deprecated]",
        "nan",
        "none",
    )
)
"""Texts of cells that were not measured, in lower case."""
