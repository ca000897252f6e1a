"""What exporters measure of the jobs of a clinic: the columns of samples, as far as each accelerator's exporter has them."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.faults.clinic import Array, Patient
from loadfactor.tables.schema import IDLE_BELOW

PROFILED: Final = frozenset({
    "engine_active_share", "sm_active_share", "tensor_active_share", "dram_active_share", "fp32_active_share",
    "sm_occupancy_share", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_bytes_per_s", "throttle_mask",
})  # fmt: skip
"""Columns that no exporter has of AMD's boards: their gfx_activity is busy time, like GPU_UTIL."""


def measure(p: Patient) -> Mapping[str, Array]:
    """The columns of its samples."""
    t, rng, shape = p.traits, p.rng, p.shape
    compute, comm, copy = np.clip(p.compute, 0, 1), np.clip(p.comm, 0, 1), np.clip(p.copy, 0, 1)
    waits = comm + np.clip(p.wait, 0, 1)
    is_on = compute + waits + copy > IDLE_BELOW / 2
    engine = np.maximum(np.where(is_on, np.clip(compute + waits, 0, 1), 0.0), p.spin)

    def vary(values: Array) -> Array:
        return np.clip(values * rng.normal(1, 0.04, values.shape), 0, 1)

    sm = vary(compute * t["sm"] + waits * 0.12 + p.spin * 0.05)
    tensor = vary(compute * t["sm"] * t["tensor"])
    dram = vary(compute * t["dram"] + comm * 0.1 + p.spin * 0.01)
    # what crosses nodes, and all between boards without NVLink, goes through PCIe
    between = comm * t["over_pcie"] if shape.gpus > 1 and (shape.nodes > 1 or not shape.has_nvlink) else 0.0 * comm
    pcie = vary(np.where(is_on, t["pcie"], 0.0) + copy * 0.92 + between)
    nvlink = vary((compute * t["nvlink"] + comm * t.get("nvlink_comm", 0.4)) * (shape.gpus > 1))
    cool = np.where(p.throttled > 0, 0.75, 1.0)
    power = 0.13 + 0.1 * engine + t["power"] * cool * (0.4 * sm + 0.15 * dram + 0.35 * tensor)
    board = accelerator(shape.board)
    total = np.full(sm.shape, float(board.memory_bytes))
    columns = {
        "busy_share": np.round(np.clip(np.minimum(1.25 * engine + 0.3 * copy, 1.0), 0, 1), 2),
        "engine_active_share": vary(engine), "sm_active_share": sm, "tensor_active_share": tensor,
        "dram_active_share": dram, "fp32_active_share": vary(compute * t["fp32"]),
        "sm_occupancy_share": vary(compute * t["occupancy"] + waits * 0.08),
        "mem_used_bytes": np.clip(t["memory"], 0, 0.99) * total * np.where(is_on.any(1, keepdims=True), 1.0, 0.006),
        "mem_total_bytes": total, "power_w": board.value("tdp_w") * vary(np.minimum(power, 1.0)),
        "pcie_rx_bytes_per_s": pcie * board.value("pcie_bytes_per_s"),
        "pcie_tx_bytes_per_s": 0.1 * pcie * board.value("pcie_bytes_per_s"),
        "throttle_mask": p.throttled * 0x40,
    }  # fmt: skip
    if shape.has_nvlink:
        columns["nvlink_bytes_per_s"] = nvlink * (board.nvlink_bytes_per_s or 0.0)
    return {name: values for name, values in columns.items() if shape.has_profiling or name not in PROFILED}
