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


@dataclass
class _Epoch:
    parts: Parts
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class InstalledSpan:
    """One row of the table `devices`."""

    device_id: str
    share: float | None
    from_ms: int
    to_ms: int


class MigHistory:
    """The parts of one GPU over time; as long as the number of times it was cut anew."""

    def __init__(self) -> None:
        self._epochs: list[_Epoch] = []

    def see(self, now: Parts, from_ms: int, to_ms: int) -> None:
        """From `from_ms` to `to_ms` the GPU was these parts."""
        last = self._epochs[-1] if self._epochs else None
        if last is not None and last.parts == now:
            last.to_ms = to_ms
        else:
            self._epochs.append(_Epoch(now, last.to_ms if last is not None else from_ms, to_ms))

    def list_spans(self) -> Iterator[InstalledSpan]:
        """Every device from when until when; one that stays while others change is one row."""
        open_: dict[str, InstalledSpan] = {}
        for epoch in self._epochs:
            now = dict(epoch.parts)
            for device_id, row in list(open_.items()):
                if device_id not in now or now[device_id] != row.share:
                    yield open_.pop(device_id)
            for device_id, share in epoch.parts:
                begun = open_[device_id].from_ms if device_id in open_ else epoch.from_ms
                open_[device_id] = InstalledSpan(device_id, share, begun, epoch.to_ms)
        yield from open_.values()
