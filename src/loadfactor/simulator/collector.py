"""The samples that a collector would have taken: signals that agree with the activity, printed as real ones are.

SM ≤ engine ≤ GPU_UTIL and tensor ≤ SM always; power, clocks and temperature follow. Shares have four decimals (GPU_UTIL whole
percents), power moves in the steps of a board's sensor, memory in MiB, rates in three digits.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadfactor.base.units import BYTES_PER_MIB, HZ_PER_MHZ, PERCENT
from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.activity import ACTIVITY_PER_ONE, SERVING, ActivityBlock
from loadfactor.simulator.behaviour import Behaviour, Singles
from loadfactor.simulator.fleet import Floats
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.workloads import WORKLOADS

POWER_STEP_W = 0.762  # of the board's sensor
IDLE_POWER_SHARE = 0.14  # of the board's limit
CLOCK_STEP_MHZ = 15
IDLE_CLOCK_MHZ, TOP_CLOCK_MHZ = 345, 1980
DRIVER_MIB = 4  # held by the driver when nobody computes
RATE_STEP_BYTES_PER_S = 20e6
THROTTLED_IDLE, THROTTLED_POWER, THROTTLED_THERMAL = 0x1, 0x4, 0x20  # NVML clock event reasons


class Collector:
    """Makes the rows of a block. Holds what does not change: boards, and what each run takes of them."""

    def __init__(self, sim: Simulation, how: Behaviour) -> None:
        self.sim, self.how = sim, how
        boards = [accelerator(n.group.accelerator) for n in sim.fleet.nodes]
        node = sim.fleet.node
        self.limit_w = np.array([b.value("tdp_w") for b in boards], dtype=np.float32)[node]
        self.total_mib = np.array([b.memory_bytes // BYTES_PER_MIB for b in boards])[node] * sim.fleet.share // 1
        work = np.array([r.job.workload for r in sim.runs], dtype=np.int64)[sim.holdings.run]
        gang = np.array([len(r.devices) for r in sim.runs])[sim.holdings.run]
        rng = np.random.default_rng((sim.scenario.seed, 8))
        wobble = rng.uniform(0.9, 1.08, len(work))
        self.tensor = (np.array([w.tensor_ratio for w in WORKLOADS])[work] * wobble).astype(np.float32)
        self.dram = (np.array([w.dram_ratio for w in WORKLOADS])[work] * wobble).astype(np.float32)
        mem = np.minimum(np.array([w.mem_share for w in WORKLOADS])[work] * wobble, 0.97)
        self.mem_mib = np.floor(mem * self.total_mib[sim.holdings.device])
        self.linked = gang > 1
        self.warm_node = (np.arange(len(sim.fleet.nodes)) % 11 == 3)[node]  # one rack in the sun

    def sample(self, block: ActivityBlock) -> pa.Table:
        """The samples of a block that arrived, sorted by device and time."""
        how, sim = self.how, self.sim
        at = np.flatnonzero(block.valid)
        row, slot = np.divmod(at, block.valid.shape[1])
        device = row + block.first
        owner = block.owner.ravel()[at]
        held = owner >= 0
        rng = np.random.Generator(
            np.random.SFC64(np.random.SeedSequence((sim.scenario.seed, 9, block.day, block.first)))
        )
        sm_q, busy_q = block.sm.ravel()[at], block.busy.ravel()[at]
        sm = sm_q.astype(np.float32) / ACTIVITY_PER_ONE
        jitter = rng.integers(-8, 9, len(row), dtype=np.int8).astype(np.float32)
        tensor_q = np.minimum(sm_q, np.rint(sm_q * self.tensor[owner] * (1 + jitter * np.float32(0.004))))
        dram_q = np.rint(np.minimum(sm_q * self.dram[owner] * (1 - jitter * np.float32(0.003)), 9700))
        serving = held & (how.shape[owner] == SERVING)
        load = 0.25 * (busy_q / np.float32(PERCENT)) + (0.5 * sm_q + 0.25 * dram_q + 0.2 * tensor_q) / ACTIVITY_PER_ONE
        limit_w = self.limit_w[device]
        power_w = limit_w * np.minimum(IDLE_POWER_SHARE + (1 - IDLE_POWER_SHARE) * load, 0.995)
        power_w = power_w + np.where(sm_q > 0, jitter * 0.4, jitter * 0.05)
        power_w = np.minimum(power_w, limit_w)
        temperature = np.floor(27 + 44 * power_w / limit_w + 9 * self.warm_node[device])
        capped = power_w > 0.95 * limit_w
        hot = temperature >= 76
        awake = (busy_q > 0) | serving
        clock_mhz = np.where(awake, TOP_CLOCK_MHZ - CLOCK_STEP_MHZ * np.where(capped, 8 + jitter, 0), IDLE_CLOCK_MHZ)
        throttle = np.where(awake, capped * THROTTLED_POWER + hot * THROTTLED_THERMAL, THROTTLED_IDLE).astype(np.int64)
        loading = held & (block.lo_ms[row] + slot * sim.scenario.step_ms < how.work_from_ms[owner])
        mem_mib = np.where(held, np.where(loading, self.mem_mib[owner] // 4, self.mem_mib[owner]), DRIVER_MIB)
        link = np.where(held & self.linked[owner], sm * np.float32(4.5e10), 0)
        to_ms = block.lo_ms[row] + (slot + 1) * sim.scenario.step_ms
        blind = ~sim.fleet.profiled[device]
        unseen = blind if blind.any() else None
        pipes = {}
        if sim.scenario.profiles_pipes:
            shares = {"fp32_active_share": 0.35 * (sm_q - tensor_q), "sm_occupancy_share": 0.55 * sm_q}
            pipes = {name: _encode_share(np.rint(share), unseen) for name, share in shares.items()}
        return pa.table(
            {
                "device_id": self._name_devices(block, row),
                "from_utc": to_ms - sim.scenario.step_ms,
                "to_utc": to_ms,
                "busy_share": busy_q / PERCENT,
                "engine_active_share": _encode_share(block.engine.ravel()[at], unseen),
                "sm_active_share": _encode_share(sm_q, unseen),
                "tensor_active_share": _encode_share(tensor_q, unseen),
                "dram_active_share": _encode_share(dram_q, unseen),
                "mem_used_bytes": mem_mib * float(BYTES_PER_MIB),
                "mem_total_bytes": self.total_mib[device] * float(BYTES_PER_MIB),
                "power_w": np.round(np.rint(power_w.astype(np.float64) / POWER_STEP_W) * POWER_STEP_W, 3),
                "pcie_rx_bytes_per_s": _encode_rate(sm * np.float32(9e8), unseen),
                "pcie_tx_bytes_per_s": _encode_rate(sm * np.float32(3e8), unseen),
                "nvlink_bytes_per_s": _encode_rate(link, unseen),
                "sm_clock_hz": clock_mhz.astype(np.float64) * HZ_PER_MHZ,
                "temperature_c": temperature.astype(np.float64),
                "throttle_mask": throttle,
                **pipes,
                "source": pa.DictionaryArray.from_arrays(
                    pa.array(blind.astype(np.int8)), pa.array(["dcgm", "nvidia-smi"])
                ),
            }
        )

    def _name_devices(self, block: ActivityBlock, row: npt.NDArray[np.intp]) -> pa.DictionaryArray:
        names = pa.array(self.sim.fleet.device_id[block.first : block.first + len(block.valid)])
        return pa.DictionaryArray.from_arrays(pa.array(row.astype(np.int32)), names)


def _encode_share(ten_thousandths: npt.NDArray[np.generic], unseen: npt.NDArray[np.bool_] | None) -> pa.Array:
    # Dividing two whole numbers last gives the double that "0.8731" means.
    return pa.array(ten_thousandths.astype(np.float64) / ACTIVITY_PER_ONE, mask=unseen)


def _encode_rate(bytes_per_s: Singles | Floats, unseen: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(
        np.rint(bytes_per_s.astype(np.float64) / RATE_STEP_BYTES_PER_S) * RATE_STEP_BYTES_PER_S, mask=unseen
    )
