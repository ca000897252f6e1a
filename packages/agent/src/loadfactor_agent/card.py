"""Readings of one card from NVML: questions, fields read together, counters and XID errors. What a card lacks is noted once."""

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import pynvml

from .notices import Notices
from .units import BYTES_PER_KIB

METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
_MOST_EVENTS: Final = 100


class Faults:
    """Listens for the XID errors of GPUs. Cards whose driver reports none have none here."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            self._events = None

    def watch(self, handle: Any, uuid: str) -> None:
        """Listen for those of this GPU, from now on."""
        if self._events is None or uuid in self._last:
            return
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            return
        self._last[uuid] = 0

    def read(self) -> dict[str, int]:
        """The code of the last error since the agent began, 0 where there was none, by UUID."""
        if self._events is None:
            return {}
        for _ in range(_MOST_EVENTS):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = str(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError:  # a timeout: nothing happened
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError and uuid in self._last:
                self._last[uuid] = event.eventData
        return dict(self._last)


_LACKING: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
_LOST: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
}


class CardLostError(Exception):
    """The card does not answer any more, until it or its driver is set back."""


class Card:
    """One card. `model` is its name in notices; each is written once for all cards of a model."""

    def __init__(self, model: str, notices: Notices) -> None:
        self.model = model
        self._notices = notices
        self._lacks: set[str] = set()

    def ask(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Answer of the function; None where it has no answer now or ever. Raises CardLostError."""
        if what in self._lacks:
            return None
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            self.refuse(what, error.value)
            return None

    def refuse(self, what: str, code: int) -> None:
        """Notes that a question was answered with this error. Raises CardLostError where that says that the card is lost."""
        if code in _LOST:
            raise CardLostError(_name_error(code))
        if code in _LACKING:
            self._lacks.add(what)
            self._notices.say(f"{self.model} {what}", f"{self.model} gives no {what} ({_name_error(code)}); left out")

    def lacks(self, what: str) -> bool:
        """Whether it was found not to have this."""
        return what in self._lacks


def _name_error(code: int) -> str:
    try:
        return str(pynvml.nvmlErrorString(code))
    except (pynvml.NVMLError, AttributeError):
        return f"error {code}"


NARROW_BITS: Final = 32
_WRAP: Final = 1 << NARROW_BITS
_HIGH, _LOW = 3 * _WRAP // 4, _WRAP // 4


class NarrowTotals:
    """Totals of 32 bits by name."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._passed: dict[Hashable, int] = {}

    def extend(self, name: Hashable, total: int) -> int:
        """The total with what was lost when it began again; one that falls otherwise was set back, and begins anew.

        >>> totals = NarrowTotals()
        >>> [totals.extend("a", n) for n in (4294967290, 4, 10, 3)]
        [4294967290, 4294967300, 4294967306, 3]
        """
        last = self._last.get(name, 0)
        if total < last:
            wrapped = last >= _HIGH and total < _LOW
            self._passed[name] = self._passed.get(name, 0) + _WRAP if wrapped else 0
        self._last[name] = total
        return total + self._passed.get(name, 0)


_ALL_LINKS: Final = 0xFFFFFFFF
_TYPES: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_UNSIGNED_INT: Final = 1


class CardField(NamedTuple):
    """One field: its number, the part of the card it is read of, its name, and what makes it DCGM's unit."""

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
        request = [(field.number, field.scope) for field in self._fields]
        answers = self._card.ask("field values", pynvml.nvmlDeviceGetFieldValues, self._handle, request)
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
