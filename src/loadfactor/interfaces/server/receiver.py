"""What the server needs of whoever takes samples in: a collector, as a protocol."""

from collections.abc import Sequence
from typing import Any, Protocol

from loadfactor.collect.live import ReceiverCounts, WriteAnswer


class Receiver(Protocol):
    """Whoever takes samples in. Its methods are called on the event loop and answer at once, but for `write`."""

    async def write(self, body: bytes, origin: str) -> WriteAnswer:
        """Take a remote_write request as it came; returns when it is durable.

        Raises InputError for what cannot be taken, BusyError where too much waits, StoreError where it cannot be kept.
        """
        ...

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:
        """Take the records of a tracked run; returns when they are durable. Raises as `write`."""
        ...

    def health(self) -> dict[str, Any]:
        """`{"status", "sources": [{"name", "status", "last_sample", "error"}], "lag_s"}`; never waits for a lock."""
        ...

    def counts(self) -> ReceiverCounts:
        """What was received so far."""
        ...
