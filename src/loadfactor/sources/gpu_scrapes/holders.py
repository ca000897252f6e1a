"""The pods that held each device: steps in a row with the same pods are one allocation each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldSpan:
    """One row of the table `allocations`. `place` is the device, a number of KnownDevices."""

    job_id: str
    place: int
    share: float | None  # None: all of it
    from_ms: int
    to_ms: int


@dataclass
class OpenSpan:
    """The same holders so far, sorted."""

    holders: tuple[str, ...]
    from_ms: int
    to_ms: int


class Holders:
    """The open allocations of all devices."""

    def __init__(self) -> None:
        self.open: dict[int, OpenSpan] = {}  # by place
        self.changed: set[int] = set()  # places with other holders, until somebody takes them

    def see(self, place: int, holders: tuple[str, ...], from_ms: int, to_ms: int) -> Iterable[HeldSpan]:
        """In this interval these, sorted, held the device; what that ends is handed over. n that share it hold 1/n each."""
        span = self.open.get(place)
        if span is not None and span.holders == holders and span.to_ms >= from_ms:
            span.to_ms = to_ms
            return ()
        if span is None and not holders:
            return ()
        self.changed.add(place)
        if span is not None:
            del self.open[place]
        if holders:
            self.open[place] = OpenSpan(holders, from_ms, to_ms)
        return _list_spans(place, span) if span is not None else ()

    def list_open(self, places: Iterable[int]) -> Iterator[HeldSpan]:
        """What is held of these devices by now, up to where it was last seen."""
        for place in places:
            if (span := self.open.get(place)) is not None:
                yield from _list_spans(place, span)


def _list_spans(place: int, span: OpenSpan) -> Iterator[HeldSpan]:
    share = 1 / len(span.holders) if len(span.holders) > 1 else None
    for holder in span.holders:
        yield HeldSpan(holder, place, share, span.from_ms, span.to_ms)
