"""The fields of DCGM: old and new names, units, and what each becomes. Facts, no code."""

import math
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import BYTES_PER_MIB, HZ_PER_MHZ, J_PER_MJ, PERCENT
from loadfactor.sources.gpu_scrapes.fields import ECC_DETAILS, XID, Field

PREFIX: Final = "DCGM_FI_"
"""The beginning of all names; DCGM 4 renamed many, everybody writes the old ones."""
FIELDS: Final = (
    Field("busy_share", ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO"), divide=PERCENT),  # 0…100 under either name
    Field("engine_active_share", ("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")),
    Field("sm_active_share", ("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO")),
    Field("tensor_active_share", ("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_UTIL_RATIO")),
    Field("dram_active_share", ("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO")),
    Field("fp32_active_share", ("PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO", "PROF_PIPE_FP32_UTIL_RATIO")),
    Field("sm_occupancy_share", ("PROF_SM_OCCUPANCY", "PROF_OCCUPANCY_RATIO", "PROF_SM_OCCUPANCY_RATIO")),
    Field("mem_used_bytes", ("DEV_FB_USED",), multiply=BYTES_PER_MIB),
    Field("mem_free_bytes", ("DEV_FB_FREE",), multiply=BYTES_PER_MIB),
    Field("mem_reserved_bytes", ("DEV_FB_RESERVED",), multiply=BYTES_PER_MIB),
    Field("mem_total_bytes", ("DEV_FB_TOTAL",), multiply=BYTES_PER_MIB),
    Field("mem_used_share", ("DEV_FB_USED_PERCENT", "DEV_FB_USED_RATIO")),  # 0…1 under either name
    Field("power_w", ("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS")),
    Field("power_now_w", ("DEV_POWER_USAGE_INSTANT", "DEV_BOARD_POWER_RAW_WATTS")),
    Field("energy_j", ("DEV_TOTAL_ENERGY_CONSUMPTION",), multiply=J_PER_MJ, counts=True),
    Field("sm_clock_hz", ("DEV_SM_CLOCK",), multiply=HZ_PER_MHZ),
    Field("temperature_c", ("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS")),
    Field("throttle_mask", ("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"), mask=True),
    Field("pcie_tx_bytes_per_s", ("PROF_PCIE_TX_BYTES",), either=True),
    Field("pcie_rx_bytes_per_s", ("PROF_PCIE_RX_BYTES",), either=True),
    Field("nvlink_tx_bytes_per_s", ("PROF_NVLINK_TX_BYTES",), either=True),
    Field("nvlink_rx_bytes_per_s", ("PROF_NVLINK_RX_BYTES",), either=True),
    Field("pcie_tx_bytes_per_s", ("PROF_PCIE_TX_BYTES_TOTAL",), counts=True),
    Field("pcie_rx_bytes_per_s", ("PROF_PCIE_RX_BYTES_TOTAL",), counts=True),
    Field("nvlink_tx_bytes_per_s", ("PROF_NVLINK_TX_BYTES_TOTAL",), counts=True),
    Field("nvlink_rx_bytes_per_s", ("PROF_NVLINK_RX_BYTES_TOTAL",), counts=True),
    Field(XID, ("DEV_XID_ERRORS", "DEV_XID_ERROR"), mask=True),  # the code of the last one, no count
    *(
        Field(detail, (f"DEV_ECC_{bits}_{since}_TOTAL",), counts=True)
        for detail, (since, bits) in zip(ECC_DETAILS, product(("VOL", "AGG"), ("SBE", "DBE")), strict=True)
    ),
)
BY_NAME: Final = {PREFIX + name: field for field in FIELDS for name in field.names}
BY_KEY: Final = {field.key: field for field in reversed(FIELDS)}
"""One field of each key; fields of one key differ only in being a total."""
NAN, INFINITE = "NaN", "infinite"
"""Why a value is none that no arithmetic can use."""
BLANKS: Final = {0: "blank", 1: "not found", 2: "not supported", 3: "not permitted"}
"""The meaning of the last digit of a blank."""
BLANK_INT32: Final = 0x7FFFFFF0
BLANK_INT64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_FP64: Final = 2**47
"""Values from which on DCGM means that it has none (dcgm_structs.h)."""


def parse_value(text: str, field: Field) -> float | str:
    """The value in our unit, or the reason that it is none.

    >>> from loadfactor.sources.dcgm.fields import BY_NAME
    >>> util = BY_NAME["DCGM_FI_DEV_GPU_UTIL"]
    >>> parse_value("97", util), parse_value("9223372036854775794", util), parse_value("NaN", util)
    (0.97, 'not supported', 'NaN')
    """
    try:
        number = float(text)
    except ValueError:
        return "an unreadable value"
    if "_" in text or not text.isascii():
        return "an unreadable value"
    if not math.isfinite(number):
        return NAN if math.isnan(number) else INFINITE
    if field.mask and (number < 0 or number != int(number)):
        return "an unreadable value"
    return explain_blank(text, number, field) or convert(number, field.multiply, field.divide)


def convert(number: Any, multiply: Any, divide: Any) -> Any:
    """A number, or an array of them, in our units."""
    return number * multiply / divide


def is_large(field: Field) -> bool:
    """True where a value may honestly pass the smaller blanks."""
    return field.counts or field.either


def explain_blank(text: str, number: float, field: Field) -> str | None:
    """Why DCGM has no value, when this is one of its blanks; None for a value.

    Totals and rates of bytes may honestly pass the smaller blanks, so there only the four blanks themselves are none.
    """
    if number >= BLANK_INT64:
        exact = int(text) - BLANK_INT64 if text.isdigit() else 0  # a float of this size has lost its last digit
        return BLANKS.get(exact, "blank")
    large = is_large(field)
    for base in (BLANK_FP64, BLANK_INT32):
        if base <= number < base + len(BLANKS) and number == int(number):
            return BLANKS[int(number) - base]
        if number >= base and not large:
            return "blank"
    return None


def may_be_blank(values: NDArray[np.float64], large: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True where `explain_blank` may find a blank; `large` as `is_large`."""
    found = (values >= BLANK_INT32) & ~large | (values >= BLANK_INT64)
    for base in (BLANK_INT32, BLANK_FP64):
        found |= (values >= base) & (values < base + len(BLANKS))
    return found
