"""Books that cannot be written when a server starts, as on a full disk: they are read, and kept current as soon as they can be."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from loadfactor.base.clock import format_utc
from loadfactor.base.errors import StoreError, is_disk_fault
from loadfactor.base.health import HealthReason, Trouble, derive_status
from loadfactor.collect.live import ReceiverCounts, WriteAnswer
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.log import write_line

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Between attempts to open the books for writing: each pause is twice the one before."""

MEMORY: Final = "/dev/shm"
"""Where Linux keeps files in memory."""

OpenedT = TypeVar("OpenedT")


def find_scratch_folder() -> None:
    """Have temporary files lie in memory if no disk takes one: live rows are read from a copy."""
    if tempfile.tempdir == MEMORY:
        tempfile.tempdir = None  # has it looked for again
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        if os.access(MEMORY, os.W_OK):
            tempfile.tempdir = MEMORY


class SwitchedApp:
    """An ASGI app in whose place another one can be put while requests are under way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class UnopenedReceiver:
    """A receiver of books that cannot be written yet. The guard refuses what would write before it is asked."""

    def __init__(self, guard: Guard, why: str) -> None:
        """`why`: what hinders writing. The guard refuses to write with it until `open`."""
        self._guard, self._trouble = guard, Trouble()
        self._note(why)

    async def open(self, open_books: Callable[[], OpenedT]) -> OpenedT:
        """Open the books once they can be written. Raises StoreError if another thing than the disk hinders it."""
        pause_s = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                opened = await asyncio.to_thread(open_books)
            except StoreError as error:
                if not is_disk_fault(error):
                    raise
                self._note(str(error))
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            else:
                self._guard.unwritable = ""
                find_scratch_folder()
                write_line(event="the books can be written: collecting begins")
                return opened

    def _note(self, why: str) -> None:
        self._trouble.note(why)
        self._guard.unwritable = f"{why}; send it again later"

    async def write(self, body: bytes, origin: str) -> WriteAnswer:  # noqa: ARG002 (the protocol)
        """Raises StoreError."""
        raise StoreError(self._trouble.cause)

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:  # noqa: ARG002 (the protocol)
        """Raises StoreError."""
        raise StoreError(self._trouble.cause)

    def health(self) -> dict[str, Any]:
        """Failing, without sources."""
        return {"status": derive_status(self.reasons()), "sources": [], "lag_s": 0.0, "error": self._trouble.cause}

    def reasons(self) -> list[HealthReason]:
        """List why nothing is collected."""
        action = "give the disk of the books room, or make it writable; collecting begins by itself, without a restart"
        since_utc = format_utc(self._trouble.since_ms)
        return [HealthReason("store", None, "failing", self._trouble.cause, since_utc, action)]

    def counts(self) -> ReceiverCounts:
        """None of anything."""
        return ReceiverCounts()
