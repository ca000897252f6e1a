"""A stream of samples: payloads are kept before they are acknowledged, decoded in their order, and ingested as rows."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.payload_stream import Numbered, PayloadStream, Received, pick_valid
from loadfactor.collect.payloads import (
    PAGE,
    QUERY,
    REMOTE_WRITE,
    read_span,
    unpack_answer,
    unpack_page,
)
from loadfactor.sources.base import Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.metrics_page import PageReader
from loadfactor.sources.prometheus.pending_points import pick_points
from loadfactor.sources.prometheus.query_answers import read_answer
from loadfactor.sources.prometheus.remote_write import Points, RemoteWriteScanner, WriteLimits
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.live_database import encode

FUTURE_MS: Final = int(1.1 * S_PER_HOUR * MS_PER_S)
"""A sample may be this far ahead of our clock: one that is an hour off, in summer or by mistake, loses nothing."""
PORTION_BYTES: Final = 64 * BYTES_PER_MIB
"""Of payloads, ingested in one transaction."""
KNOWN_MS: Final = 10 * S_PER_MIN * MS_PER_S
"""Points are known for so long: answers overlap by no more."""
SHORTEST_KNOWN_MS: Final = S_PER_MIN * MS_PER_S
"""For so long where they are very many; one that comes later than that then counts only where it is the newest of its series."""
MOST_KNOWN: Final = 1_000_000
NO_POINTS: Final = Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))
_REACHED_BYTES: Final = 8
_AT_BITS: Final = 42

Readers = dict[str, Callable[[bytes], Points]]
"""By format: what reads a payload as points of series of one decoder."""


class _Arrival(NamedTuple):
    """A payload that is on the disk and waits to be ingested. `series` are numbers of the decoder that `readers` know."""

    number: int
    payload: ReceivedBody
    points: Points
    readers: Readers
    at_s: float


class SampleStream(PayloadStream):
    """Payloads with samples. Any thread may call its methods."""

    def __init__(self, stream_id: str, log: LiveLog, state: OriginState | None, payloads: Sequence[Numbered]) -> None:
        super().__init__(stream_id, log, payloads)
        self._arrived: deque[_Arrival] = deque()
        self._begin(state, payloads)

    def _begin(self, state: OriginState | None, payloads: Sequence[Numbered]) -> None:
        content = state.content if state else bytes(_REACHED_BYTES)
        self._through = state.through if state else 0
        self._done = 0
        self.reached_ms = max(self.reached_ms, int.from_bytes(content[:_REACHED_BYTES], "little"))
        self._decode_from(content[_REACHED_BYTES:], payloads)

    def _decode_from(self, decoded: bytes, payloads: Sequence[Numbered]) -> None:
        """Decode with a new decoder of this state; payloads that wait in the log come again."""
        now_s = time.monotonic()  # as if they came just now: the rest of their scrapes may be still to come
        self._decoder = PrometheusDecoder(decoded)
        self._scanner, self._readers = make_readers(self._decoder)
        self._taken = TakenPoints()
        self._fed_through = 0  # payloads that this decoder was given
        self._arrived.extendleft(_Arrival(number, item, NO_POINTS, {}, now_s) for number, item in reversed(payloads))
        for payload in (item for _, item in payloads if item.format == QUERY):
            self.reached_ms = max(self.reached_ms, read_span(payload.content)[1])

    def _try(self, content: bytes, payloads: Iterable[Numbered]) -> None:
        decoder = PrometheusDecoder(content[_REACHED_BYTES:])
        _, readers = make_readers(decoder)
        for number, payload in payloads:
            decoder.feed(readers[payload.format](payload.content), number, 0.0)
        for item in chain(decoder.drain(None), decoder.drain_progress()):
            for part in pick_valid(item, lambda _gap: None) if isinstance(item, Rows) else ():
                encode(LiveBatch(part.where, part.table, part.data, part.where))
        decoder.state()

    def receive(self, payload: ReceivedBody, now_s: float) -> Received:
        """Take a payload. Raises InputError for samples of the future, and as every stream."""
        with self._lock:
            return self._receive(payload, now_s)

    def receive_at_once(self, payload: ReceivedBody, now_s: float) -> Received | None:
        """The same; None where that would have to wait, because rows are being made."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._receive(payload, now_s)
        finally:
            self._lock.release()

    def _receive(self, payload: ReceivedBody, now_s: float) -> Received:
        readers, before = self._readers, self._scanner.samples
        points = readers[payload.format](payload.content)
        if len(points.at_ms) and (ahead := int(points.at_ms.max()) - payload.received_ms) > FUTURE_MS:
            raise InputError(
                f"samples are {ahead / MS_PER_S / S_PER_HOUR:,.1f} hours in the future; check the clocks of both machines"
            )
        samples = self._scanner.samples - before if payload.format == REMOTE_WRITE else len(points.at_ms)
        kept = self._keep(
            payload, now_s, lambda number: self._arrived.append(_Arrival(number, payload, points, readers, now_s))
        )
        return Received(samples, samples - len(points.at_ms), kept)

    @property
    def last_sample_ms(self) -> dict[str, int]:
        """The newest sample of each source."""
        return self._decoder.last_sample_ms

    @property
    def not_understood(self) -> dict[str, int]:
        """Counts of unknown metrics by name: samples that were sent, series that were requested."""
        return self._scanner.not_understood or self._decoder.not_understood

    def _ingest_all(self, complete_s: float | None) -> int:
        """Ingest what arrived, a portion at a time, so that neither memory nor a transaction grows with what waits."""
        rows = self._ingest_portion(complete_s)
        while self._arrived:
            rows += self._ingest_portion(complete_s)
        return rows

    def _ingest_portion(self, complete_s: float | None) -> int:
        size = rows = 0
        while self._arrived and size < PORTION_BYTES:
            size += len(self._arrived[0].payload.content)
            self._feed(self._arrived.popleft())
        for item in chain(self._decoder.drain(complete_s), self._decoder.drain_progress()):
            rows += self._add_rows(item)
        done = self._decoder.done() or 0
        if not self._pending_rows and done == self._done:
            return 0
        decoded = self._decoder.state()
        content = self.reached_ms.to_bytes(_REACHED_BYTES, "little") + decoded
        self._commit(self._through, content, done)
        self._done = done
        if self._decoder.is_large:  # series come and go: what is not seen any more is forgotten
            self._decode_from(decoded, self._list_waiting())
        return rows

    def _feed(self, arrival: _Arrival) -> None:
        number, payload, points, readers, at_s = arrival
        if number <= self._fed_through:
            return
        self._fed_through = number
        if number in self._bad_numbers:
            points = NO_POINTS
        elif readers is not self._readers:  # numbers of a decoder that was left, or not read yet
            points = self._readers[payload.format](payload.content)
        if payload.format == QUERY:
            from_ms, to_ms = read_span(payload.content)
            points = self._taken.pick_new(points, from_ms)
            self.reached_ms = to_ms  # answers are in order; where our clock was ahead, pulling went back
        self._decoder.feed(points, number, at_s)
        self._through = max(self._through, number)


def make_readers(decoder: PrometheusDecoder) -> tuple[RemoteWriteScanner, Readers]:
    """The readers whose points are of this decoder's series, and the one of requests, which counts."""
    scanner = RemoteWriteScanner(decoder.identify_series, WriteLimits())
    pages = PageReader(decoder.identify, decoder.not_understood)

    def read_page(content: bytes) -> Points:
        at_ms, target, page = unpack_page(content)
        return pages.read(page, target, at_ms)

    return scanner, {
        REMOTE_WRITE: scanner.scan,
        QUERY: lambda content: read_answer(unpack_answer(content), decoder.identify),
        PAGE: read_page,
    }


class TakenPoints:
    """The points of the last answers of one server: answers overlap, and each point counts once, also one stored late."""

    def __init__(self) -> None:
        self._since_ms: int | None = None  # what lies before, an earlier process took
        self._known: NDArray[np.int64] = np.empty(0, np.int64)
        self._known_from_ms = 0

    def pick_new(self, points: Points, from_ms: int) -> Points:
        """The points of an answer that were in none before. `from_ms`: what is after that is new."""
        if self._since_ms is None:
            self._since_ms = self._known_from_ms = from_ms
        if not len(points.series):
            return points
        keys = (points.series.astype(np.int64) << _AT_BITS) | points.at_ms
        again = (points.at_ms > max(self._since_ms, self._known_from_ms)) & (points.at_ms <= from_ms)
        new = points.at_ms > from_ms
        new[again] = ~np.isin(keys[again], self._known)
        self._remember(keys[new], int(points.at_ms.max()))
        return pick_points(points, new)

    def _remember(self, keys: NDArray[np.int64], newest_ms: int) -> None:
        keys = np.concatenate([self._known, keys])
        at_ms = keys & ((1 << _AT_BITS) - 1)
        oldest_ms = max(self._known_from_ms, newest_ms - KNOWN_MS)
        if np.count_nonzero(at_ms > oldest_ms) > MOST_KNOWN:
            oldest_ms = max(oldest_ms, newest_ms - SHORTEST_KNOWN_MS)
        self._known, self._known_from_ms = keys[at_ms > oldest_ms], oldest_ms
