"""The devices that a GPU was over time: itself, or the instances that MIG cut it into and the rest."""

from collections.abc import Iterator
from dataclasses import dataclass

Parts = tuple[tuple[str, float | None], ...]  # device and its share of the GPU; None is the whole


def divide(gpu: str, instances: dict[str, int], slices: int) -> Parts:
    """The devices of a GPU: their shares sum to one, so that its hours do.

    >>> divide("G", {}, 7)
    (('G', None),)
    >>> divide("G", {"1": 3, "2": 2}, 7)
    (('G/gi-1', 0.42857142857142855), ('G/gi-2', 0.2857142857142857), ('G/rest', 0.2857142857142857))
    """
    if not instances:
        return ((gpu, None),)
    rest = slices - sum(instances.values())
    found: list[tuple[str, float | None]] = [(f"{gpu}/gi-{i}", n / slices) for i, n in sorted(instances.items())]
    return (*found, (f"{gpu}/rest", rest / slices)) if rest > 0 else tuple(found)


@dataclass(frozen=True)
class InstalledSpan:
    """One row of the table `devices`."""

    device_id: str
    share: float | None
    from_ms: int
    to_ms: int


class MigHistory:
    """The parts of one GPU over time: those that are, and those that were until somebody takes them."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[float | None, int]] = {}  # share and since when, by device
        self.to_ms = 0  # when the open ones were last seen
        self._parts: Parts | None = None
        self._closed: list[InstalledSpan] = []

    def see(self, now: Parts, from_ms: int, to_ms: int) -> None:
        """From `from_ms` to `to_ms` the GPU was these parts. One that stays while others change is one row."""
        if now != self._parts:
            since, parts = self.to_ms if self.open else from_ms, dict(now)
            for device_id, (share, begun_ms) in list(self.open.items()):
                if device_id not in parts or parts[device_id] != share:
                    self._closed.append(InstalledSpan(device_id, share, begun_ms, self.to_ms))
                    del self.open[device_id]
            for device_id, share in now:
                self.open.setdefault(device_id, (share, since))
            self._parts = now
        self.to_ms = to_ms

    def take_spans(self) -> Iterator[InstalledSpan]:
        """Every device that ended since the last time, and those that are, up to where they were last seen."""
        closed, self._closed = self._closed, []
        yield from closed
        for device_id, (share, from_ms) in self.open.items():
            yield InstalledSpan(device_id, share, from_ms, self.to_ms)
