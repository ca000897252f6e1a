"""The smallest pieces of the oracle's books: a sample's part in an hour, and what one holder had between two instants."""

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Row = dict[str, Any]
HOUR, DAY = 3_600_000, 86_400_000
BASES = ("effective", "contracted", "owned", "list", "estimate")
WHO = ("user", "team", "project", "experiment_id", "purpose")
HOLDER = ("job_id", *WHO)
PLACE = ("node", "accelerator", "pool")
SIGNALS = (
    "busy_share", "engine_active_share", "sm_active_share", "tensor_active_share", "dram_active_share",
    "fp32_active_share", "sm_occupancy_share",
)  # fmt: skip
PEAKS = {"h100-pcie": (63.015e9, 600e9), "a10": (31.508e9, None)}
"""PCIe of one direction and NVLink of both, bytes/s, of accelerators of fleets; the catalog has no price of them."""
BEST = (("sm_active_share", "sm_active"), ("engine_active_share", "engine_active"), ("busy_share", "gpu_util"))
SLOWING = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
STATES = ("unallocated", "idle", "busy", "unobserved", "down")


@dataclass
class Sample:
    """A sample's interval, cut at hours: the part in one of them."""

    row: Row
    from_utc: int
    to_utc: int

    def rank(self) -> tuple[Any, ...]:
        """Which sample counts, of several: the smallest."""
        kinds = [self.row[c] is not None for c, _ in BEST]
        best = kinds.index(True) if True in kinds else len(kinds)
        return best, self.to_utc - self.from_utc, self.row["source"], -self.from_utc, self.row["to_utc"]


@dataclass
class Cell:
    """What one holder (or nobody) had of one place between two instants, in one state."""

    from_utc: int
    to_utc: int
    state: str
    keys: dict[str, str | None]
    gpus: float
    cost: dict[str, float | None]
    part: Sample | None
    spoken: bool
    demand: float = 0.0
    listed: bool = True
    by_list: bool = True

    @property
    def sample(self) -> Row | None:
        return self.part and self.part.row

    @property
    def activity(self) -> str:
        """What the sample says, whoever holds it."""
        seen = [self.part.row[c] for c, _ in BEST if self.part.row[c] is not None] if self.part else []
        return ("idle" if seen[0] < 0.05 else "busy") if seen else "unobserved"

    @property
    def hour(self) -> int:
        return self.from_utc // HOUR * HOUR

    @cached_property
    def sums(self) -> dict[str, float]:
        """Everything that can be added up, in GPU-seconds and the like."""
        s = self.gpus * (self.to_utc - self.from_utc) / 1000
        out: dict[str, float] = defaultdict(float)
        out["gpu_s"] = s
        out["has_source_s"], out["listed_s"] = s * self.spoken, s * self.listed
        for basis, cost in self.cost.items():
            if cost is not None:
                out[f"cost_{basis}"] = cost * s / 3600
                out[f"priced_{basis}"] = s
        if self.sample is None:
            return out
        row = self.sample
        held = self.state in ("idle", "busy")
        for column, basis in BEST:
            if held and row[column] is not None:
                out[f"effective_{basis}_s"] = row[column] * s
                out[f"observed_{basis}_s"] = s
                out[f"hist_{min(math.floor(row[column] * 20), 19):02d}_s"] = s
                break
        if any(row[column] is not None for column, _ in BEST):
            out["activity_measured_s"] = s
        for column in SIGNALS:
            if row[column] is not None:
                name = column.removesuffix("_share")
                out[f"{name}_s"], out[f"{name}_measured_s"] = row[column] * s, s
        if row["mem_used_bytes"] is not None and row["mem_total_bytes"] is not None:
            out["mem_used_byte_s"], out["mem_total_byte_s"] = row["mem_used_bytes"] * s, row["mem_total_bytes"] * s
            out["mem_measured_s"] = s
        if row["power_w"] is not None:
            out["energy_j"], out["energy_measured_s"] = row["power_w"] * s, s
        if row["temperature_c"] is not None:
            out["temperature_c_s"], out["temperature_c_measured_s"] = row["temperature_c"] * s, s
        both = [row[f"pcie_{way}_bytes_per_s"] for way in ("rx", "tx")]
        for name, rate in zip(("pcie_rx", "pcie_tx", "nvlink"), (*both, row["nvlink_bytes_per_s"]), strict=True):
            if rate is not None:
                out[f"{name}_bytes"], out[f"{name}_measured_s"] = rate * s, s
        busier = max((rate for rate in both if rate is not None), default=None)
        if busier is not None:
            out["pcie_bytes"] = busier * s
        peaks = PEAKS.get(str(self.keys["accelerator"]), (None, None))
        for name, rate, peak in zip(("pcie", "nvlink"), (busier, row["nvlink_bytes_per_s"]), peaks, strict=True):
            if rate is not None and peak is not None:
                out[f"{name}_of_peak_bytes"], out[f"{name}_peak_bytes"] = rate * s, peak * s
                out[f"{name}_peak_measured_s"] = s
        if row["throttle_mask"] is not None:
            out["throttled_s"], out["throttle_measured_s"] = s * bool(row["throttle_mask"] & SLOWING), s
            if row["throttle_mask"] & SLOWING and row["power_w"] is not None:
                out["throttled_energy_j"], out["throttled_energy_measured_s"] = row["power_w"] * s, s
        return out

    @property
    def peak(self) -> float | None:
        row = self.sample
        if (
            row is None
            or self.state in ("unallocated", "down")
            or None in (row["mem_used_bytes"], row["mem_total_bytes"])
        ):
            return None
        return float(row["mem_used_bytes"] / row["mem_total_bytes"])
