"""What exporters say of a scene: signals that agree with each other, NaN where a sample does not measure them."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.faults.scene import Array, Scene

IDLE_POWER_SHARE: Final = 0.14  # of the board's limit
POWER_CAP: Final = 0x4
CAPPED_ABOVE: Final = 0.86
"""SM activity above which a board may reach its limit of power."""
IDLE_BIT: Final = 0x1
LINKS: Final = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_bytes_per_s")
PROFILED: Final = frozenset({"sm_active_share", "tensor_active_share", "dram_active_share", *LINKS})
"""Columns that come from profiling counters, which not every GPU has."""


def measure(scene: Scene) -> Mapping[str, Array]:
    """The columns of samples, devices × minutes."""
    rng = np.random.default_rng((scene.seed, 12))
    sm = np.round(scene.sm, 4)
    busy = np.maximum(sm + (1 - sm) * 0.8 * np.minimum(1, 4 * sm), scene.spin)
    tensor, dram = sm * scene.tensor_ratio, 0.5 * sm
    load = 0.1 * busy + 0.55 * sm + 0.2 * dram + 0.3 * tensor
    of_limit = IDLE_POWER_SHARE + (1 - IDLE_POWER_SHARE) * np.minimum(load, 0.92)
    works_hard = sm > CAPPED_ABOVE
    is_capped = ((scene.throttle & POWER_CAP) > 0) & works_hard
    throttle = np.where(works_hard, scene.throttle, scene.throttle & ~POWER_CAP)
    of_limit = np.where(is_capped, 0.985, of_limit) + rng.normal(0, 0.004, sm.shape)
    boards = {gpu.accelerator: accelerator(gpu.accelerator) for gpu in scene.fleet}
    of = [boards[gpu.accelerator] for gpu in scene.fleet]
    limit_w = np.array([board.value("tdp_w") for board in of])[:, None]
    total = np.array([board.memory_bytes for board in of])[:, None]
    pcie = np.array([board.value("pcie_bytes_per_s") for board in of])[:, None]
    nvlink = np.array([board.nvlink_bytes_per_s or 0.0 for board in of])[:, None]
    in_use = np.round(np.clip(scene.memory, 0, 0.995) * total / BYTES_PER_MIB) * BYTES_PER_MIB
    return {
        "busy_share": np.round(np.clip(busy, 0, 1), 2),
        "sm_active_share": sm,
        "tensor_active_share": np.round(tensor, 4),
        "dram_active_share": np.round(dram, 4),
        "mem_used_bytes": in_use,
        "mem_total_bytes": np.broadcast_to(total, sm.shape).astype(np.float64),
        "power_w": np.round(limit_w * of_limit, 1),
        "pcie_rx_bytes_per_s": np.round(np.clip(scene.pcie, 0, 1) * pcie),
        "pcie_tx_bytes_per_s": np.round(0.3 * np.clip(scene.pcie, 0, 1) * pcie),
        "nvlink_bytes_per_s": np.round(np.clip(scene.nvlink, 0, 1) * nvlink),
        "temperature_c": np.floor(30 + 42 * of_limit + scene.heat_c),
        "throttle_mask": np.where(busy > 0, throttle, throttle | IDLE_BIT).astype(np.float64),
    }
