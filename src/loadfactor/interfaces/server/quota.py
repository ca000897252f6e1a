"""What somebody may send: rows a second, series, and how large the books may become; what passes it is refused and counted."""

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

from loadfactor.base.errors import LimitError
from loadfactor.base.units import BYTES_PER_GB
from loadfactor.settings.tenants import TenantSettings

BURST_S: Final = 60.0
"""Rows of so long may come at once, as after an outage, and so long a sender waits at most who sent too many."""
FULL_RETRY_S: Final = 60.0


class Quota:
    """The limits of one tenant; without settings there are none. For one event loop; `clock_s` is monotonic."""

    def __init__(self, settings: TenantSettings | None = None, clock_s: Callable[[], float] = monotonic) -> None:
        self.settings, self._clock_s = settings, clock_s
        self.store_bytes = 0
        """What the books take, as they were looked at last."""
        self._left_s, self._at_s = BURST_S, clock_s()

    def check(self) -> None:
        """Raises LimitError where nothing may be sent now."""
        if self.settings is None:
            return
        most_gb, per_s = self.settings.store_gb, self.settings.rows_per_s
        if most_gb is not None and self.store_bytes > most_gb * BYTES_PER_GB:
            held = f"these books take {self.store_bytes / BYTES_PER_GB:,.3g} GB of the {most_gb:g} GB that they may (store_gb)"
            raise LimitError("store_gb", f"{held}; ask who runs this server for more", FULL_RETRY_S)
        if per_s is not None and self._refill() < 0:
            line = f"more than {per_s:g} rows a second were sent (rows_per_s); send it again later"
            raise LimitError("rows_per_s", line, ceil(-self._left_s))

    def take(self, rows: int) -> None:
        """Count rows that were taken; however many they were, nobody waits for longer than `BURST_S`."""
        if self.settings is not None and self.settings.rows_per_s is not None:
            self._left_s = max(-BURST_S, self._refill() - rows / self.settings.rows_per_s)

    def _refill(self) -> float:
        """Seconds' worth of rows that may still come."""
        now_s = self._clock_s()
        self._left_s, self._at_s = min(BURST_S, self._left_s + now_s - self._at_s), now_s
        return self._left_s
