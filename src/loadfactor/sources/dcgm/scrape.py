"""One scrape of one GPU or MIG instance: its values, rates from its totals, and the columns of `samples` they make."""

from dataclasses import dataclass, field
from typing import Final

from loadfactor.sources.dcgm.fields import Field
from loadfactor.sources.dcgm.series_identity import SeriesIdentity
from loadfactor.sources.parsing.steps import is_within_reach
from loadfactor.tables import IDLE_BELOW
from loadfactor.units import MS_PER_S

COLUMNS: Final = (
    "busy_share",
    "engine_active_share",
    "sm_active_share",
    "tensor_active_share",
    "dram_active_share",
    "mem_used_bytes",
    "mem_total_bytes",
    "power_w",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "nvlink_bytes_per_s",
    "sm_clock_hz",
    "temperature_c",
    "throttle_mask",
)


@dataclass
class Scrape:
    """What one scrape said of one GPU or MIG instance."""

    of: SeriesIdentity  # one of those read
    holders: set[str] = field(default_factory=set)
    values: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    _of: dict[str, str | None] = field(default_factory=dict)

    def put(self, kind: Field, counts: bool, value: float, holder: str | None) -> str | None:
        """Adds a value; says what is wrong where the same field was read otherwise before.

        One series a pod repeats what the device did, so equal values are one. Where they differ, those of fields that
        virtual GPUs report by process are of nobody but that process.
        """
        place = self.totals if counts else self.values
        if kind.key not in self._of:
            self._of[kind.key] = holder
            place[kind.key] = value
            return None
        before = place.get(kind.key)
        if before == value:
            return None
        if kind.process and holder != self._of[kind.key]:
            if holder is None or self._of[kind.key] is None:  # the row of the device itself
                if holder is None:
                    place[kind.key], self._of[kind.key] = value, None
                return None
            place.pop(kind.key, None)
            return "read by process (virtual GPUs), not of the device"
        return "read twice with different values"


class CounterRates:
    """The totals of one device, remembered until the next scrape."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def compute(self, at_ms: int, totals: dict[str, float], step_ms: int) -> tuple[dict[str, float], list[str]]:
        """Rates per second since the last scrape, and which totals had been set back to 0 since.

        No rate over a gap: the mean of hours is no measurement of the last step.

        >>> rates = CounterRates()
        >>> rates.compute(0, {"energy_j": 5.0}, 1000)
        ({}, [])
        >>> rates.compute(1000, {"energy_j": 305.0}, 1000), rates.compute(2000, {"energy_j": 1.0}, 1000)
        (({'energy_j': 300.0}, []), ({}, ['energy_j']))
        """
        found, reset = {}, []
        for key, total in totals.items():
            if key in self._last:
                before_ms, before = self._last[key]
                if total < before:
                    reset.append(key)
                elif at_ms > before_ms and is_within_reach(at_ms, before_ms, step_ms):
                    found[key] = (total - before) * MS_PER_S / (at_ms - before_ms)
            self._last[key] = (at_ms, total)
        return found, reset


def make_sample(scrape: Scrape, rates: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """The measured columns of one scrape, and what in it was no measurement. `rates` are per second, by column."""
    read = scrape.values | {k: v for k, v in rates.items() if k != "energy_j"}
    wrong = []
    at_work = read.get("engine_active_share", 0) >= IDLE_BELOW or read.get("tensor_active_share", 0) > 0
    if read.get("sm_active_share") == 0 and at_work:
        del read["sm_active_share"]
        wrong.append("PROF_SM_ACTIVE 0 while the GPU was at work")
    used, total = read.get("mem_used_bytes"), read.get("mem_total_bytes")
    free, reserved, share = read.get("mem_free_bytes"), read.get("mem_reserved_bytes"), read.get("mem_used_share")
    if total is None and used is not None and free is not None:
        total = read["mem_total_bytes"] = used + free + (reserved or 0)  # old drivers count the reserved part as used
    if used is None and share is not None and total is not None and reserved is not None and reserved < total:
        read["mem_used_bytes"] = share * (total - reserved)
    if "energy_j" in rates:
        read["power_w"] = rates["energy_j"]  # the mean over the interval; power readings are short glimpses of it
    elif "power_w" not in read and "power_now_w" in read:
        read["power_w"] = read["power_now_w"]
    if "nvlink_tx_bytes_per_s" in read and "nvlink_rx_bytes_per_s" in read:
        read["nvlink_bytes_per_s"] = read["nvlink_tx_bytes_per_s"] + read["nvlink_rx_bytes_per_s"]
    elif "nvlink_tx_bytes_per_s" in read or "nvlink_rx_bytes_per_s" in read:
        wrong.append("NVLink in one direction only")
    return {column: read[column] for column in COLUMNS if column in read}, wrong


def is_hot(scrape: Scrape, rates: dict[str, float], tdp_w: float | None) -> bool:
    """True when the board drew more than half of its limit (W, where the catalog knows it): it was at work."""
    power_w = rates.get("energy_j", scrape.values.get("power_w", 0))
    return tdp_w is not None and power_w > tdp_w / 2
