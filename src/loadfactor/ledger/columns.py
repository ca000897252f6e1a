"""Values of the ledger's columns: states, kinds of holders, bins of activity, sizes of jobs.

Activity signals, best first. Each signal is its own meaning of active; no formula mixes them.

SM_ACTIVE counts cycles in which a warp was on an SM. GR_ENGINE_ACTIVE and GPU_UTIL only say that something was resident: both
read 100 % on a nearly empty chip, GPU_UTIL even by definition, so it is flagged optimistic. Effective GPU-hours use the best
signal a sample has, and every reading says which (its basis).
"""

from dataclasses import dataclass

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.tables.schema import measured_bit


@dataclass(frozen=True)
class Activity:
    """One meaning of active: `column` of the samples, `basis` as readings name it."""

    column: str
    basis: str
    optimistic: bool

    @property
    def bit(self) -> int:
        """Its bit in `measured_mask`."""
        return measured_bit(self.column)


ACTIVITIES = (
    Activity("sm_active_share", "sm_active", optimistic=False),
    Activity("engine_active_share", "engine_active", optimistic=True),
    Activity("busy_share", "gpu_util", optimistic=True),
)
"""Best first."""

SIGNALS = (
    "busy_share", "engine_active_share", "sm_active_share", "tensor_active_share", "dram_active_share",
    "fp32_active_share", "sm_occupancy_share",
)  # fmt: skip
"""Shares whose time-weighted sums the ledger keeps, each over the seconds in which it was measured."""

THROTTLED = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
"""Clock event reasons that slow a GPU down; 1 (idle), 2 (application clocks) and 0x100 (display) do not."""


OBSERVED = ("idle", "busy")
"""States of held time in which activity was measured."""
HELD = (*OBSERVED, "unobserved")
STATES = ("unallocated", *HELD, "down")
"""Values of the column `state`."""

HOLDER = ("job_id", "attempt", "user", "team", "project", "experiment_id", "purpose")
"""Columns that say who holds a GPU: null where nobody does or where the holder is unknown."""
LOCATION = ("node", "accelerator", "pool")
"""Columns that say where a GPU is, and what it is."""
ROUNDING_GPUS = 1e-9
"""Remainders of a GPU up to this come from adding up shares like 1/7."""
KNOWN, NOBODY, UNKNOWN = "known", "nobody", "unknown"
"""Values of the column `holder`."""

BINS = 20
"""Bins of the utilization histogram, each 1/20 wide; the last includes 1."""
HISTOGRAM = tuple(f"hist_{k:02d}_s" for k in range(BINS))
"""GPU-seconds by bin of activity."""

SIZES = {
    "under 1": None, "1": 1, "2-3": 3, "4-7": 7, "8": 8, "9-16": 16, "17-32": 32, "33-64": 64, "65-128": 128,
    "129-256": 256, "257-512": 512, "513-1024": 1024, "over 1024": None,
}  # fmt: skip
"""Classes of jobs by the GPUs they ask for, smallest first, and the most GPUs of each."""

WITHOUT = " without "
"""Between the name of a step and what is empty, in the name of a shorter form of it (`ledger.steps`)."""

KEPT_SUMS = {
    "ledger_by_team": MS_PER_HOUR, "ledger_by_device": MS_PER_HOUR, "ledger_by_job": MS_PER_DAY, "ledger_by_device_day": MS_PER_DAY,
}  # fmt: skip
"""The tables of the sums that are kept beside the ledger (`ledger.sums`), and the period of each, ms."""
KEPT_WAITS = {"waits": "ledger_waits", "wait_reasons": "ledger_wait_reasons"}
"""The tables of waits that are kept beside the ledger (`ledger.waits`), by their names in a session; the second reads the first."""
