"""Activity signals, best first. Each signal is its own meaning of active; no formula mixes them.

SM_ACTIVE counts cycles in which a warp was on an SM. GR_ENGINE_ACTIVE and GPU_UTIL only say that something was resident: both
read 100 % on a nearly empty chip, GPU_UTIL even by definition, so it is flagged optimistic. Effective GPU-hours use the best
signal a sample has, and every reading says which (its basis).
"""

from dataclasses import dataclass

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
