"""XID errors as the driver tells of them: the code of the last one of each GPU."""

from typing import Any, Final

import pynvml

METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
_MOST_EVENTS: Final = 100


class Faults:
    """Listens for the XID errors of GPUs. Cards whose driver tells of none have none here."""

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
