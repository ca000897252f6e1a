"""Payloads with samples ahead of this machine's clock: durable in the live log, and taken when the clock has come to them.

A clock that is behind (a boot before NTP) makes everything come from ahead, and nothing of it may be lost. So a payload with
samples further ahead than FUTURE_MS is kept as well under an origin of its own; what was ahead in it is decoded and booked later.
"""

import struct
import threading
from typing import Final, NamedTuple

import numpy as np

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_MIN, MS_PER_S, S_PER_HOUR
from loadfactor.sources.prometheus.pending_points import pick_points
from loadfactor.sources.prometheus.remote_write import Points
from loadfactor.store.live import ReceivedBody

FUTURE_MS: Final = int(1.1 * S_PER_HOUR * MS_PER_S)
"""Samples up to so far ahead of our clock are taken at once: one that is an hour off, in summer or by mistake, delays nothing."""
HELD_BYTES: Final = 256 * BYTES_PER_MIB
"""Of payloads that a stream holds, on the disk. With more, requests wholly from ahead have to come again; of others what is ahead
is skipped."""
MOST_AT_ONCE: Final = 500
"""So many that are due are taken before the rest of what came is ingested."""
HELD: Final = "held"
"""The format of what was held."""
_TOGETHER_MS: Final = 10 * MS_PER_MIN
_ORIGIN: Final = "held:"
_HEAD: Final = struct.Struct("<qqB")  # samples after this time are held, until when (ms); bytes of the format


class HeldContent(NamedTuple):
    """A payload of a format of which the samples after `after_ms` are still to be taken."""

    after_ms: int
    format: str
    content: bytes


class _Held(NamedTuple):
    number: int
    due_ms: int
    size: int


def is_ahead(points: Points, now_ms: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The points that are further ahead of this instant than is taken at once."""
    ahead: np.ndarray[tuple[int], np.dtype[np.bool_]] = points.at_ms > now_ms + FUTURE_MS
    return ahead


def hold(payload: ReceivedBody, ahead: Points) -> ReceivedBody:
    """What is kept of a payload until its points that are ahead can be taken: the first of them, and those soon after it."""
    first_ms = int(ahead.at_ms.min())
    due_ms = int(ahead.at_ms[ahead.at_ms <= first_ms + _TOGETHER_MS].max()) - FUTURE_MS
    kind, content = payload.format, payload.content
    if kind == HELD:
        _, kind, content = unhold(content)
    head = _HEAD.pack(payload.received_ms + FUTURE_MS, due_ms, len(kind))
    return ReceivedBody(_ORIGIN + payload.origin, HELD, payload.received_ms, head + kind.encode() + content)


def unhold(content: bytes) -> HeldContent:
    """What `hold` kept."""
    after_ms, _, size = _HEAD.unpack_from(content)
    end = _HEAD.size + size
    return HeldContent(after_ms, content[_HEAD.size : end].decode(), content[end:])


def pick_held(points: Points, after_ms: int) -> Points:
    """The points of a payload that was held: the others were taken when it came."""
    return pick_points(points, points.at_ms > after_ms)


def find_stream(origin: str) -> str | None:
    """The stream of which payloads of this origin are held; None for what is not held."""
    return origin.removeprefix(_ORIGIN) if origin.startswith(_ORIGIN) else None


class HeldPayloads:
    """The payloads of one stream that are held. Any thread may call its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[_Held] = []

    def add(self, number: int, payload: ReceivedBody) -> None:
        """A payload that `hold` made is on the disk."""
        with self._lock:
            self._all.append(_Held(number, _HEAD.unpack_from(payload.content)[1], len(payload.content)))

    def list_due(self, now_ms: int) -> list[int]:
        """The numbers of the first whose time has come, in order."""
        with self._lock:
            return sorted(held.number for held in self._all if held.due_ms <= now_ms)[:MOST_AT_ONCE]

    def remove(self, number: int) -> None:
        """It was taken."""
        with self._lock:
            self._all = [held for held in self._all if held.number != number]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all)

    @property
    def bytes(self) -> int:
        """How large they are together."""
        return sum(held.size for held in self._all)
