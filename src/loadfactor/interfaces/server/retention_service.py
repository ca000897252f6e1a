"""Dropping what is older than [retention] keeps it, while a server runs: at its start, and after each midnight UTC."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from loadfactor.base.clock import format_utc, now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.health import HealthReason, Severity, Trouble
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.books.books import Books

LOOK_EVERY_S: Final = float(S_PER_MIN)
AGAIN_S: Final = 15.0 * S_PER_MIN
"""After a failure: an import may be writing, or the disk is full."""
BUSY_MS: Final = S_PER_HOUR * MS_PER_S
"""A failure that lasts no longer is a note: another command may be writing."""


class RetentionService:
    """Has the books drop what is too old, once a UTC day; says in the log what that was."""

    def __init__(self, books: Books, log: Callable[..., None]) -> None:
        self._books, self._log = books, log
        self._day = -1
        self._trouble = Trouble()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S if await asyncio.to_thread(self.drop) else AGAIN_S)

    def drop(self) -> bool:
        """Drop what is too old, unless that was done today; False where it could not be done."""
        today = int(time.time()) // S_PER_DAY
        if today == self._day:
            return True
        try:
            done = self._books.retain()
        except Exception as error:  # books that cannot be written now, or a defect of ours, must not stop the server
            why = DEFECTS.explain("retention", error)
            self._log(level="warning", event="what is older than [retention] stays for now", error=why)
            self._trouble.note(why)
            return False
        self._trouble.note("")
        self._day = today
        for of in done.dropped:
            facts = {"table": of.table, "rows": of.rows, "bytes": of.bytes, "days": of.days}
            self._log(level="info", event="rows older than [retention] were dropped", **facts)
        return True

    def reasons(self) -> list[HealthReason]:
        """List why what is too old was not dropped."""
        since_ms = self._trouble.since_ms
        if since_ms is None:
            return []
        severity: Severity = "degraded" if now_ms() - since_ms > BUSY_MS else "note"
        action = "see what the cause names; it is tried again every quarter of an hour"
        return [HealthReason("retention", None, severity, self._trouble.cause, format_utc(since_ms), action)]
