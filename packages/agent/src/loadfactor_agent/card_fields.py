"""Fields of NVML that are read together in one call, under the names DCGM gives them."""

from typing import Any, Final, NamedTuple

import pynvml

from .card import Card
from .counters import NarrowTotals
from .units import BYTES_PER_KIB

_ALL_LINKS: Final = 0xFFFFFFFF
_TYPES: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_UNSIGNED_INT: Final = 1


class CardField(NamedTuple):
    """One field: its number, the part of the card it is asked of, what it is called, and what makes it DCGM's unit."""

    number: int
    scope: int
    metric: str
    what: str
    multiply: int = 1


FIELDS: Final = (
    CardField(pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy counter"),
    CardField(pynvml.NVML_FI_DEV_MEMORY_TEMP, 0, "DCGM_FI_DEV_MEMORY_TEMP", "memory temperature"),
    CardField(pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, 0, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ECC counters"),
    CardField(pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, 0, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ECC counters"),
    CardField(pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL, 0, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "ECC counters"),
    CardField(pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, 0, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "ECC counters"),
    CardField(pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, 0, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe replays"),
)
NVLINK_FIELDS: Final = (
    CardField(
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        _ALL_LINKS,
        "DCGM_FI_PROF_NVLINK_TX_BYTES_TOTAL",
        "NVLink traffic",
        BYTES_PER_KIB,
    ),
    CardField(
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        _ALL_LINKS,
        "DCGM_FI_PROF_NVLINK_RX_BYTES_TOTAL",
        "NVLink traffic",
        BYTES_PER_KIB,
    ),
)
"""Where the traffic of links is no rate of GPM."""


class CardFields:
    """The fields that a card has."""

    def __init__(self, card: Card, handle: Any, fields: tuple[CardField, ...]) -> None:
        self._card, self._handle, self._fields = card, handle, fields
        self._totals = NarrowTotals()

    def read(self) -> dict[str, float]:
        """The values by metric. Raises CardLostError."""
        if not self._fields:
            return {}
        asked = [(field.number, field.scope) for field in self._fields]
        answers = self._card.ask("field values", pynvml.nvmlDeviceGetFieldValues, self._handle, asked)
        if answers is None:
            return {}
        found = {}
        for field, answer in zip(self._fields, answers, strict=True):
            if answer.nvmlReturn != pynvml.NVML_SUCCESS:
                self._card.refuse(field.what, answer.nvmlReturn)
                if self._card.lacks(field.what):
                    self._fields = tuple(f for f in self._fields if f is not field)
                continue
            value = getattr(answer.value, _TYPES[answer.valueType])
            if answer.valueType == _UNSIGNED_INT:
                value = self._totals.extend(field.number, value) if _only_grows(field) else value
            found[field.metric] = float(value * field.multiply)
        return found


def _only_grows(field: CardField) -> bool:
    return bool(field.number != pynvml.NVML_FI_DEV_MEMORY_TEMP)
