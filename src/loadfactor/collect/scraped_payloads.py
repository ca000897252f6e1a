"""Fetched payloads that the disk does not take for now: held in bounded memory, in their order, and handed over when it does."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from loadfactor.base.errors import LoadfactorError, StoreError
from loadfactor.base.units import BYTES_PER_MIB

MOST_HELD_BYTES: Final = 64 * BYTES_PER_MIB
"""With more, the oldest are dropped."""


class _Payload(NamedTuple):
    content: bytes
    stream_id: str
    kind: str


class ScrapedPayloads:
    """What cannot be fetched a second time: pages of exporters, samples of this machine. For one event loop."""

    def __init__(self, write: Callable[[bytes, str, str], Awaitable[object]]) -> None:
        """`write` raises StoreError where a payload cannot be kept for now, and InputError for one that never can."""
        self.dropped = 0
        """Payloads, since the process began."""
        self.bytes = 0
        self._write = write
        self._waiting: deque[_Payload] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def keep(self, content: bytes, stream_id: str, kind: str) -> None:
        """Hand a payload over, or hold it behind those that wait. Raises InputError for one that cannot be taken."""
        if not self._waiting:
            try:
                await self._write(content, stream_id, kind)
                return
            except StoreError:
                pass
        self._waiting.append(_Payload(content, stream_id, kind))
        self.bytes += len(content)
        while self.bytes > MOST_HELD_BYTES:
            self.bytes -= len(self._waiting.popleft().content)
            self.dropped += 1

    async def deliver(self) -> None:
        """Hand over what waits, as far as it is taken."""
        while self._waiting:
            payload = self._waiting[0]
            try:
                await self._write(*payload)
            except StoreError:
                return
            except LoadfactorError:  # a page that is none: nobody waits for that answer any more
                self.dropped += 1
            if self._waiting and self._waiting[0] is payload:  # else it was dropped meanwhile for want of room
                self.bytes -= len(self._waiting.popleft().content)
