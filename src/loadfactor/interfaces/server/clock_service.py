"""The clock of a server beside the newest time that its store recorded: read each minute, for /health and for what expires."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import LoadfactorError
from loadfactor.base.health import HealthReason
from loadfactor.base.units import S_PER_MIN
from loadfactor.settings.config import settings
from loadfactor.store.place import Place
from loadfactor.store.trusted_time import ClockState, read_clock

LOOK_EVERY_S: Final = float(S_PER_MIN)


class ClockService:
    """Keeps the state of the clock as of the last minute. Any thread may ask it; an answer reads neither disk nor books."""

    def __init__(self, place: Place, read_witnessed_ms: Callable[[], int] = lambda: 0) -> None:
        """`read_witnessed_ms` gives the newest sample of senders that have a clock of their own; 0 if there is none."""
        self._place, self._read_witnessed_ms = place, read_witnessed_ms
        self._state = ClockState(now_ms(), None)
        self._deletes = False
        """Whether the settings have anything deleted for its age."""
        self.look()

    async def run(self) -> None:
        """Look each minute until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Read the newest recorded time; books that cannot be read leave it as it was."""
        given = settings()
        self._deletes = any(age.s != float("inf") for _, age in given.retention) or bool(given.backup.to)
        try:
            self._state = read_clock(self._place, witnessed_ms=self._read_witnessed_ms())
        except LoadfactorError:  # other parts of /health say why they cannot be read
            return

    @property
    def state(self) -> ClockState:
        """The clock as it is now, beside the newest time as of the last look."""
        return replace(self._state, now_ms=now_ms())

    def find_expiry_ms(self, at_ms: int) -> int:
        """The time by which things expire when the clock says `at_ms`."""
        return replace(self._state, now_ms=at_ms).expiry_ms

    def reasons(self) -> list[HealthReason]:
        """List why deletions are stopped; a note if the settings have nothing deleted. Empty if they are allowed."""
        reason = self.state.reason(self._deletes)
        return [] if reason is None else [reason]

    def health(self) -> dict[str, Any]:
        """The key `clock` of GET /health."""
        return self.state.as_json()
