"""The columns of `samples` that scrapes make: from their values and the rates of their totals, and what was no measurement."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.gpu_scrapes.fields import KEY_NUMBER, KEYS, TOTALS
from loadfactor.sources.gpu_scrapes.scrape_table import IS_TOTAL, IS_VALUE, ScrapeColumns
from loadfactor.sources.parsing.steps import grow, is_within_reach
from loadfactor.tables.schema import IDLE_BELOW, MOST_W

COLUMNS: Final = (
    "busy_share",
    "engine_active_share",
    "sm_active_share",
    "tensor_active_share",
    "fp32_active_share",
    "sm_occupancy_share",
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
ENERGY: Final = "energy_j"


class Measured(NamedTuple):
    """Numbers, and which of them are known."""

    values: NDArray[np.float64]
    known: NDArray[np.bool_]

    def get(self, otherwise: float) -> NDArray[np.float64]:
        """The numbers, another where they are not known."""
        return np.where(self.known, self.values, otherwise)

    def without(self, which: NDArray[np.bool_]) -> "Measured":
        """The same, some not known."""
        return Measured(self.values, self.known & ~which)

    def over(self, other: "Measured", also: NDArray[np.bool_] | bool = True) -> "Measured":
        """These numbers, and the other ones where they are not known; of the other ones those that `also` says."""
        return Measured(np.where(self.known, self.values, other.values), self.known | (other.known & also))


class CounterRates:
    """The totals of all devices, remembered until their next scrape."""

    def __init__(self) -> None:
        self.at_ms = np.empty((0, len(TOTALS)), np.int64)  # by place; -1 where none was read
        self.total = np.empty((0, len(TOTALS)))

    def grow(self, places: int) -> None:
        """Room for so many devices."""
        self.at_ms, self.total = grow(self.at_ms, places, -1), grow(self.total, places, 0)

    def has_total(self, key: str, places: int) -> NDArray[np.bool_]:
        """Of so many devices, those of which a total was read."""
        self.grow(places)
        return self.at_ms[:places, TOTALS.index(key)] >= 0

    def compute(self, scrapes: ScrapeColumns, step_ms: NDArray[np.int64]) -> tuple[dict[str, Measured], dict[str, int]]:
        """Rates per second since the last scrape of the device, and how often a total had been set back to 0 since.

        The scrapes are sorted by place, then time. No rate over a gap: the mean of hours is no measurement of the last step.
        """
        self.grow(int(scrapes.place.max(initial=-1)) + 1)
        rates, resets = {}, {}
        for column, key in enumerate(TOTALS):
            at = np.flatnonzero(scrapes.state[:, KEY_NUMBER[key]] == IS_TOTAL)
            place, at_ms, total = scrapes.place[at], scrapes.at_ms[at], scrapes.values[at, KEY_NUMBER[key]]
            first = np.append(True, place[1:] != place[:-1])[: len(at)]
            before_ms = np.where(first, self.at_ms[place, column], np.roll(at_ms, 1))
            before = np.where(first, self.total[place, column], np.roll(total, 1))
            last = np.append(first[1:], True)[: len(at)]
            self.at_ms[place[last], column], self.total[place[last], column] = at_ms[last], total[last]
            reset = (before_ms >= 0) & (total < before)
            close = (at_ms > before_ms) & is_within_reach(at_ms, before_ms, step_ms[at])  # type: ignore[arg-type]
            known = np.zeros(len(scrapes), bool)
            known[at] = (before_ms >= 0) & ~reset & close
            rate = np.zeros(len(scrapes))
            rate[at] = (total - before) * MS_PER_S / np.maximum(at_ms - before_ms, 1)
            rates[key], resets[key] = Measured(rate, known), int(reset.sum())
        return rates, resets


def read_values(scrapes: ScrapeColumns) -> dict[str, Measured]:
    """Values that were read, by key."""
    return {
        key: Measured(scrapes.values[:, number], scrapes.state[:, number] == IS_VALUE)
        for number, key in enumerate(KEYS)
    }


def make_samples(values: dict[str, Measured], rates: dict[str, Measured]) -> tuple[dict[str, Measured], dict[str, int]]:
    """The measured columns of scrapes, and how often what was no measurement. `rates` are per second, by key."""
    read = {key: rates[key].over(value) if key in rates else value for key, value in values.items()}
    wrong = {}
    at_work = (read["engine_active_share"].get(0) >= IDLE_BELOW) | (read["tensor_active_share"].get(0) > 0)
    failed = at_work & (read["sm_active_share"].get(1) == 0)
    read["sm_active_share"] = read["sm_active_share"].without(failed)
    wrong["PROF_SM_ACTIVE 0 while the GPU was at work"] = int(failed.sum())

    used, total, free = read["mem_used_bytes"], read["mem_total_bytes"], read["mem_free_bytes"]
    negative = free.known & (free.values < 0)
    free = free.without(negative)
    wrong["a negative amount of free memory"] = int(negative.sum())
    reserved, share = read["mem_reserved_bytes"], read["mem_used_share"]
    # old drivers count the reserved part as used
    parts = Measured(used.values + free.values + reserved.get(0), used.known & free.known)
    total = read["mem_total_bytes"] = total.over(parts)
    rest = Measured(share.values * (total.values - reserved.values), share.known & total.known & reserved.known)
    of_total = read["mem_used_of_total_share"]
    used = used.over(rest, also=reserved.values < total.values)
    read["mem_used_bytes"] = used.over(Measured(of_total.values * total.values, of_total.known & total.known))

    # the mean over the interval; power readings are short glimpses of it
    read["power_w"] = rates[ENERGY].over(read["power_w"]).over(read["power_now_w"])
    sent, received = read["nvlink_tx_bytes_per_s"], read["nvlink_rx_bytes_per_s"]
    read["nvlink_bytes_per_s"] = Measured(sent.values + received.values, sent.known & received.known)
    wrong["NVLink in one direction only"] = int((sent.known ^ received.known).sum())
    return {column: read[column] for column in COLUMNS}, wrong


def find_hot(values: dict[str, Measured], rates: dict[str, Measured], tdp_w: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True when the board drew more than half of its limit (W, NaN where the catalog has none): it was at work."""
    drawn = rates[ENERGY].over(values["power_w"]).get(0)
    return (drawn > tdp_w / 2) & (drawn <= MOST_W)
