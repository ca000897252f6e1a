"""The pods that held each device: steps in a row with the same pods are one allocation each."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldSpan:
    """One row of the table `allocations`."""

    job_id: str
    device_id: str
    share: float | None  # None: all of it
    from_ms: int
    to_ms: int


@dataclass
class _OpenSpan:
    holders: tuple[str, ...]
    from_ms: int
    to_ms: int


class Holders:
    """The open allocations of all devices."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenSpan] = {}

    def see(self, device_id: str, holders: set[str], from_ms: int, to_ms: int) -> Iterator[HeldSpan]:
        """In this interval these held the device; what that ends is handed over. n that share it hold 1/n each."""
        now, span = tuple(sorted(holders)), self._open.get(device_id)
        if span is not None and span.holders == now and span.to_ms >= from_ms:
            span.to_ms = to_ms
            return
        if span is not None:
            yield from _close(device_id, self._open.pop(device_id))
        if now:
            self._open[device_id] = _OpenSpan(now, from_ms, to_ms)

    def end(self) -> Iterator[HeldSpan]:
        """What is still held when the data ends, up to there."""
        for device_id, span in self._open.items():
            yield from _close(device_id, span)
        self._open.clear()


def _close(device_id: str, span: _OpenSpan) -> Iterator[HeldSpan]:
    share = 1 / len(span.holders) if len(span.holders) > 1 else None
    for holder in span.holders:
        yield HeldSpan(holder, device_id, share, span.from_ms, span.to_ms)
