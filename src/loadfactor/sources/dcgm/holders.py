"""Who held a device, from when until when? Steps with the same pods in a row are one allocation each."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """One row of the table `allocations`."""

    job_id: str
    device_id: str
    share: float | None  # None: all of it
    from_ms: int
    to_ms: int


@dataclass
class _Run:
    holders: tuple[str, ...]
    from_ms: int
    to_ms: int


class Holders:
    """The open allocations of all devices."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def see(self, device_id: str, holders: set[str], from_ms: int, to_ms: int) -> Iterator[Held]:
        """In this interval these held the device; what that ends is handed over. n that share it hold 1/n each."""
        now, run = tuple(sorted(holders)), self._runs.get(device_id)
        if run is not None and run.holders == now and run.to_ms >= from_ms:
            run.to_ms = to_ms
            return
        if run is not None:
            yield from _rows(device_id, self._runs.pop(device_id))
        if now:
            self._runs[device_id] = _Run(now, from_ms, to_ms)

    def end(self) -> Iterator[Held]:
        """What is still held when the data ends, up to there."""
        for device_id, run in self._runs.items():
            yield from _rows(device_id, run)
        self._runs.clear()


def _rows(device_id: str, run: _Run) -> Iterator[Held]:
    share = 1 / len(run.holders) if len(run.holders) > 1 else None
    for holder in run.holders:
        yield Held(holder, device_id, share, run.from_ms, run.to_ms)
