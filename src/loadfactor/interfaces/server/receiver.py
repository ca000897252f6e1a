"""What the server needs of whoever takes samples in: a collector, as a protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class WriteAnswer(NamedTuple):
    """What was in a request that is durable now: how many samples, and how many of them of series nobody understands."""

    samples: int
    not_understood: int = 0


@dataclass(frozen=True)
class ReceiverCounts:
    """What was received since the process began. `refused` by reason, `errors` by source."""

    received: int = 0  # samples
    acknowledged: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    not_understood: int = 0
    queue_bytes: int = 0
    lag_s: float = 0.0
    errors: Mapping[str, int] = field(default_factory=dict)


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
