"""One origin of samples: bodies are kept before they are acknowledged, decoded in their order, and booked as rows."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR
from loadfactor.collect.body_stream import BodyStream, Received
from loadfactor.collect.decoding import NO_POINTS, QUERY, REMOTE_WRITE, Numbered, Readers, make_readers, try_bodies
from loadfactor.collect.pulled_body import read_begin_ms, read_end_ms
from loadfactor.collect.taken_points import TakenPoints
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import Points
from loadfactor.store.live import LiveLog, OriginState, ReceivedBody

FUTURE_MS: Final = int(1.1 * S_PER_HOUR * MS_PER_S)
"""A sample may be this far ahead of our clock: one that is an hour off, in summer or by mistake, loses nothing."""

_REACHED_BYTES: Final = 8

PORTION_BYTES: Final = 64 * BYTES_PER_MIB
"""Of bodies, booked in one transaction."""


class _Arrival(NamedTuple):
    """A body that is on the disk and waits for its booking. `series` are numbers of the decoder that `readers` know."""

    number: int
    body: ReceivedBody
    points: Points
    readers: Readers
    at_s: float


class Stream(BodyStream):
    """Bodies with samples. Any thread may call its methods."""

    def __init__(self, origin: str, log: LiveLog, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        """`state` and `bodies` are what an earlier process left of this origin."""
        super().__init__(origin, log, bodies)
        self._arrived: deque[_Arrival] = deque()
        self._begin(state, bodies)

    def _begin(self, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        content = state.content if state else bytes(_REACHED_BYTES)
        self._through = state.through if state else 0
        self._done = 0
        self.reached_ms = max(self.reached_ms, int.from_bytes(content[:_REACHED_BYTES], "little"))
        self._decode_from(content[_REACHED_BYTES:], bodies)

    def _decode_from(self, decoded: bytes, bodies: Sequence[Numbered]) -> None:
        """Decode with a new decoder of this state; bodies that wait in the log come again."""
        now_s = time.monotonic()  # as if they came just now: the rest of their scrapes may be still to come
        self._decoder = PrometheusDecoder(decoded)
        self._scanner, self._readers = make_readers(self._decoder)
        self._taken = TakenPoints()
        self._put_through = 0  # bodies that this decoder was given
        self._arrived.extendleft(_Arrival(number, body, NO_POINTS, {}, now_s) for number, body in reversed(bodies))
        for body in (body for number, body in bodies if body.format == QUERY):
            self.reached_ms = max(self.reached_ms, read_end_ms(body.content))

    def _try(self, content: bytes, bodies: Iterable[Numbered]) -> None:
        try_bodies(content[_REACHED_BYTES:], bodies)

    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body. Raises InputError for samples of the future, and as every stream."""
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
        samples = self._scanner.samples - before if body.format == REMOTE_WRITE else len(points.at_ms)
        kept = self._keep(
            body, now_s, lambda number: self._arrived.append(_Arrival(number, body, points, readers, now_s))
        )
        return Received(samples, samples - len(points.at_ms), kept)

    @property
    def last_sample_ms(self) -> dict[str, int]:
        """The newest sample of each source."""
        return self._decoder.last_sample_ms

    @property
    def not_understood(self) -> dict[str, int]:
        """What nobody understands, by metric name: samples that were sent, series that were asked for."""
        return self._scanner.not_understood or self._decoder.not_understood

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
        for item in chain(self._decoder.take(ripe_s), self._decoder.take_progress()):
            rows += self._add_rows(item)
        done = self._decoder.done() or 0
        if not self._unbooked and done == self._done:
            return 0
        decoded = self._decoder.state()
        content = self.reached_ms.to_bytes(_REACHED_BYTES, "little") + decoded
        self._commit(self._through, content, done)
        self._done = done
        if self._decoder.is_large:  # series come and go: what is not seen any more is forgotten
            self._decode_from(decoded, self._list_waiting())
        return rows

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
            points = self._taken.pick_new(points, read_begin_ms(body.content))
            self.reached_ms = max(self.reached_ms, read_end_ms(body.content))
        self._decoder.put(points, number, at_s)
        self._through = max(self._through, number)
