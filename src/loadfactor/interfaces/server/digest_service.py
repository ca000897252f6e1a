"""Digests of a running server: what is due is made and sent, in a thread of its own."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from loadfactor.base.clock import format_utc
from loadfactor.base.defects import DEFECTS
from loadfactor.base.health import HealthReason, Trouble
from loadfactor.books.books import Books
from loadfactor.interfaces.digests.post import Post, list_sent
from loadfactor.interfaces.server.log import write_line
from loadfactor.settings.config import Settings

LOOK_EVERY_S: Final = 20.0
"""So often it looks whether a digest is due, or a letter is to be tried again."""


class DigestService:
    """Sends the digests of the settings, on the server's event loop; nothing where there are none."""

    def __init__(self, books: Books, settings: Settings, address: str) -> None:
        """`address`: where links lead unless settings say it. Raises InputError where mail has no server."""
        self._stopping = threading.Event()
        self._books, self._folder, self._address = books, books.store.folder, address
        self.take(settings)
        self._thread = ThreadPoolExecutor(1, "digests")
        self._states: Counter[str] = Counter()
        self._trouble = Trouble()
        """Why nothing is sent now."""

    def take(self, settings: Settings) -> None:
        """Send what these settings say from the next look on. Raises InputError where mail has no server."""
        self._post = Post(self._books, settings, address=self._address, is_stopped=self._stopping.is_set)
        self._is_wanted = bool(settings.digest)

    async def run(self) -> None:
        """Send what is due until cancelled; nothing that goes wrong ends it."""
        while True:
            if not self._is_wanted:
                await asyncio.sleep(LOOK_EVERY_S)
                continue
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
                error = self._post.error
            except Exception as failure:  # books that cannot be read now, or a defect of ours, must not stop the server
                error = DEFECTS.explain("digests", failure)
            if error and error != self._trouble.cause:
                write_line(level="error", event="digests are not sent", error=error)
            self._trouble.note(error)
            await asyncio.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        """Wait for the letter that is being sent; what is left is for the next start."""
        self._stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def health(self) -> dict[str, Any]:
        """Letters in GET /health, by what became of them; it reads neither the disk nor the books."""
        kept = {state: self._states[state] for state in ("pending", "sent", "refused", "given up")}
        return {"letters": kept, "error": self._trouble.cause or None}

    def reasons(self) -> list[HealthReason]:
        """List why digests are not sent."""
        if not self._trouble.cause:
            return []
        action = "see what the cause names; what is due is sent at the next look"
        since_utc = format_utc(self._trouble.since_ms)
        return [HealthReason("digests", None, "degraded", self._trouble.cause, since_utc, action)]

    def _look(self) -> None:
        for sent in self._post.look():
            if sent.state != "sent":
                names = {"digest": sent.digest, "period": sent.period, "of": sent.of, "to": sent.target}
                write_line(level="warning", event=f"a digest is {sent.state}", **names, error=sent.why)
        self._states = Counter(sent.state for sent in list_sent(self._folder))
