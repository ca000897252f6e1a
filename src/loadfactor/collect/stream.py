"""One origin of samples: bodies are kept before they are acknowledged, decoded in their order, and booked as rows."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.collect.decoding import (
    NO_POINTS,
    QUERY,
    REMOTE_WRITE,
    Readers,
    find_poison,
    make_readers,
    pick_valid,
    try_bodies,
)
from loadfactor.collect.pulled_body import read_end_ms
from loadfactor.errors import InputError, StoreError
from loadfactor.sources.base import Gap
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import Points
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.set_aside import set_body_aside
from loadfactor.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR

FUTURE_MS: Final = int(1.1 * S_PER_HOUR * MS_PER_S)
"""A sample may be this far ahead of our clock: one that is an hour off, in summer or by mistake, loses nothing."""

MOST_GAPS: Final = 1000
_REACHED_BYTES: Final = 8

PORTION_BYTES: Final = 64 * BYTES_PER_MIB
"""Of bodies, booked in one transaction."""


class Received(NamedTuple):
    """What was in a body that is being kept: its samples, how many of them nobody understands, and its number to come."""

    samples: int
    not_understood: int
    number: "Future[int]"


class _Arrival(NamedTuple):
    """A body that is on the disk and waits for its booking. `series` are numbers of the decoder that `readers` know."""

    number: int
    body: ReceivedBody
    points: Points
    readers: Readers
    at_s: float


class Stream:
    """Bodies of one origin on their way to rows. Any thread may call its methods."""

    def __init__(
        self, origin: str, log: LiveLog, state: OriginState | None, bodies: Iterable[tuple[int, ReceivedBody]]
    ) -> None:
        """`state` and `bodies` are what an earlier process left of this origin."""
        self.origin = origin
        self.gaps: dict[tuple[str, str], int] = {}
        self.set_aside: list[Path] = []
        """Bodies that could not be decoded, as files."""
        self._aside: set[int] = set()
        self._log = log
        self._lock = threading.Lock()  # of the decoder and its readers
        self._arrived: deque[_Arrival] = deque()
        mine = [(number, body) for number, body in bodies if body.origin == origin]
        now_s = time.monotonic()
        self._waiting = deque((number, now_s) for number, _ in mine)
        """Bodies on the disk of which readers do not see all, and since when."""
        self.reached_ms = 0
        """Through when pulled answers were taken; 0 where none was."""
        self._begin(state, mine)

    def _begin(self, state: OriginState | None, bodies: Sequence[tuple[int, ReceivedBody]]) -> None:
        """Go on from what was booked last."""
        content = state.content if state else bytes(_REACHED_BYTES)
        self._unbooked: list[LiveBatch] = []
        self._through = state.through if state else 0
        self._done = 0
        self.reached_ms = max(self.reached_ms, int.from_bytes(content[:_REACHED_BYTES], "little"))
        self._decode_from(content[_REACHED_BYTES:], bodies)

    def _decode_from(self, decoded: bytes, bodies: Sequence[tuple[int, ReceivedBody]]) -> None:
        """Decode with a new decoder of this state; bodies that wait in the log come again."""
        now_s = time.monotonic()  # as if they came just now: the rest of their scrapes may be still to come
        self._decoder = PrometheusDecoder(decoded)
        self._scanner, self._readers = make_readers(self._decoder)
        self._last_ms = np.empty(0, np.int64)  # by series
        self._put_through = 0  # bodies that this decoder was given
        self._arrived.extendleft(_Arrival(number, body, NO_POINTS, {}, now_s) for number, body in reversed(bodies))
        for body in (body for number, body in bodies if body.format == QUERY):
            self.reached_ms = max(self.reached_ms, read_end_ms(body.content))

    def _list_waiting(self) -> list[tuple[int, ReceivedBody]]:
        return [(number, body) for number, body in self._log.received() if body.origin == self.origin]

    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body. Its number is known when it outlasts a power loss: when the future is done.

        Raises SourceError for what is no such body, InputError for samples of the future, StoreError where it cannot be kept.
        """
        with self._lock:
            return self._receive(body, now_s)

    def receive_at_once(self, body: ReceivedBody, now_s: float) -> Received | None:
        """The same; None where that would have to wait, because rows are being made."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._receive(body, now_s)
        finally:
            self._lock.release()

    def _receive(self, body: ReceivedBody, now_s: float) -> Received:
        readers, before = self._readers, self._scanner.samples
        points = readers[body.format](body.content)
        if len(points.at_ms) and (ahead := int(points.at_ms.max()) - body.received_ms) > FUTURE_MS:
            raise InputError(
                f"samples are {ahead / MS_PER_S / S_PER_HOUR:,.1f} hours in the future; check the clocks of both machines"
            )
        kept = self._log.keep([body])  # under the lock, so that numbers are in the order in which bodies were read
        samples = self._scanner.samples - before if body.format == REMOTE_WRITE else len(points.at_ms)

        def arrive(done: "Future[int]") -> None:
            if done.exception() is None:
                self._waiting.append((done.result(), now_s))
                self._arrived.append(_Arrival(done.result(), body, points, readers, now_s))

        kept.add_done_callback(arrive)
        return Received(samples, samples - len(points.at_ms), kept)

    @property
    def waiting(self) -> int:
        """Bodies on the disk of which readers of the books do not see everything yet."""
        return len(self._waiting)

    def waits_since(self) -> float | None:
        """When the oldest of them came."""
        try:
            return self._waiting[0][1]
        except IndexError:
            return None

    @property
    def last_sample_ms(self) -> dict[str, int]:
        """The newest sample of each source."""
        return self._decoder.last_sample_ms

    @property
    def not_understood(self) -> dict[str, int]:
        """What nobody understands, by metric name: samples that were sent, series that were asked for."""
        return self._scanner.not_understood or self._decoder.not_understood

    def book(self, ripe_s: float | None) -> int:
        """Make rows of the scrapes that began to arrive before `ripe_s`, of all where it is None; how many rows.

        Raises StoreError where they cannot be stored: then they are kept for the next time.
        """
        with self._lock:
            try:
                return self._book_all(ripe_s)
            except (StoreError, MemoryError):
                raise
            except Exception as error:  # a defect of ours: nothing of what came with it may be lost or stay behind
                self._leave_out_poison(error)
                return self._book_all(ripe_s)

    def _book_all(self, ripe_s: float | None) -> int:
        """Book what arrived, a portion at a time, so that neither memory nor a transaction grows with what waits."""
        rows = self._book_portion(ripe_s)
        while self._arrived:
            rows += self._book_portion(ripe_s)
        return rows

    def _book_portion(self, ripe_s: float | None) -> int:
        size = rows = 0
        while self._arrived and size < PORTION_BYTES:
            size += len(self._arrived[0].body.content)
            self._put(self._arrived.popleft())
        for item in self._decoder.take(ripe_s):
            if isinstance(item, Gap):
                self._count(item)
                continue
            for part in pick_valid(item, self._count):
                rows += part.data.num_rows
                self._unbooked.append(LiveBatch(part.where, part.table, part.data, part.where))
        done = self._decoder.done() or 0
        if not self._unbooked and done == self._done:
            return 0
        decoded = self._decoder.state()
        content = self.reached_ms.to_bytes(_REACHED_BYTES, "little") + decoded
        self._log.book(OriginState(self.origin, self._through, content), done, self._unbooked)
        self._unbooked, self._done = [], done
        while self._waiting and self._waiting[0][0] <= done:
            self._waiting.popleft()
        if self._decoder.is_large:  # series come and go: what is not seen any more is forgotten
            self._decode_from(decoded, self._list_waiting())
        return rows

    def _leave_out_poison(self, error: Exception) -> None:
        """Set the bodies aside that cannot be decoded, and begin with what was booked last again. Raises StoreError."""
        state, bodies = self._log.states().get(self.origin), self._list_waiting()
        decoded = state.content[_REACHED_BYTES:] if state else b""
        poison = find_poison([one for one in bodies if one[0] not in self._aside], partial(try_bodies, decoded))
        for number, body in poison:
            try:
                self.set_aside.append(set_body_aside(self._log.folder, number, body))
            except OSError as full:
                raise StoreError(f"a body that cannot be decoded cannot be set aside ({full.strerror})") from full
            self._aside.add(number)
        self._begin(state, bodies)
        if not poison:
            why = f"{type(error).__name__}: {error}"
            raise StoreError(f"what {self.origin} sent cannot be booked ({why}); it is kept and tried again") from error

    def _count(self, gap: Gap) -> None:
        key = (gap.where, gap.what)
        if key in self.gaps or len(self.gaps) < MOST_GAPS:
            self.gaps[key] = self.gaps.get(key, 0) + gap.count

    def _put(self, arrival: _Arrival) -> None:
        number, body, points, readers, at_s = arrival
        if number <= self._put_through:
            return
        self._put_through = number
        if number in self._aside:
            points = NO_POINTS
        elif readers is not self._readers:  # numbers of a decoder that was left, or not read yet
            points = self._readers[body.format](body.content)
        if body.format == QUERY:
            points = self._drop_known(points)
            self.reached_ms = max(self.reached_ms, read_end_ms(body.content))
        self._decoder.put(points, number, at_s)
        self._through = max(self._through, number)

    def _drop_known(self, points: Points) -> Points:
        """Answers overlap, so that no sample is missed that a server stored late; of each series only what is new counts."""
        if not len(points.series):
            return points
        missing = int(points.series.max()) + 1 - len(self._last_ms)
        self._last_ms = np.append(self._last_ms, np.full(max(missing, 0), -1))
        new: NDArray[np.bool_] = points.at_ms > self._last_ms[points.series]
        np.maximum.at(self._last_ms, points.series, points.at_ms)
        return Points(points.series[new], points.at_ms[new], points.value[new])
