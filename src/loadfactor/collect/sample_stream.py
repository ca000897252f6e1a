"""A stream of samples: payloads are kept before they are acknowledged, decoded in their order, and ingested as rows."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import BusyError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_MIN, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.held_payloads import HELD, HELD_BYTES, HeldPayloads, hold, is_ahead, pick_held, unhold
from loadfactor.collect.payload_stream import Numbered, PayloadStream, Received, pick_valid
from loadfactor.collect.payloads import (
    PAGE,
    QUERY,
    REMOTE_WRITE,
    read_span,
    unpack_answer,
    unpack_page,
)
from loadfactor.collect.skipped import MISSED_S, Shortfall
from loadfactor.sources.base import Rows, Skip
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.metrics_page import PageReader
from loadfactor.sources.prometheus.pending_points import pick_points
from loadfactor.sources.prometheus.query_answers import read_answer
from loadfactor.sources.prometheus.remote_write import Points, RemoteWriteScanner, WriteLimits
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.live_database import encode

SKEW_MS: Final = 2 * MS_PER_MIN
"""Samples that are further ahead of our clock are reported."""
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


class Skew(NamedTuple):
    """Samples that come so far ahead of our clock (s): when the last ones came, monotonic (s), and since when (ms UTC)."""

    ahead_s: float
    at_s: float
    since_ms: int

    def __str__(self) -> str:
        hours, minutes = self.ahead_s / S_PER_HOUR, self.ahead_s / S_PER_MIN
        far = f"{hours:,.1f} hours" if hours >= 1 else f"{minutes:,.0f} minutes"
        return f"samples come from {far} ahead of this machine's clock"


class SampleStream(PayloadStream):
    """Payloads with samples. Any thread may call its methods."""

    def __init__(
        self,
        stream_id: str,
        log: LiveLog,
        state: OriginState | None,
        payloads: Sequence[Numbered],
        held: HeldPayloads | None = None,
    ) -> None:
        super().__init__(stream_id, log, payloads)
        self.held = held or HeldPayloads()
        self.skew: Skew | None = None
        """Samples that came from ahead of our clock last."""
        self._opened_ms = now_ms()
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
            decoder.feed(_read(readers, payload)[0], number, 0.0)
        for item in chain(decoder.drain(None), decoder.drain_progress()):
            for part in pick_valid(item, lambda _gap: None) if isinstance(item, Rows) else ():
                encode(LiveBatch(part.where, part.table, part.data, part.where))
        decoder.state()

    def receive(self, payload: ReceivedBody, now_s: float) -> Received:
        """Take a payload; samples too far ahead are held. Raises BusyError where no more can be, and as every stream."""
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

    def take_due(self, now_ms: int) -> int:
        """Take payloads that were held until now; how many. Raises StoreError where they cannot be moved: they are held on."""
        numbers = self.held.list_due(now_ms)
        with self._lock:
            moved = [
                (
                    number,
                    self._receive(
                        ReceivedBody(self.stream_id, HELD, now_ms, payload.content), time.monotonic(), number
                    ),
                )
                for number, payload in self._log.received(numbers)
            ]
        for number, received in moved:
            received.number.result()
            self.held.remove(number)
        return len(moved)

    def _receive(self, payload: ReceivedBody, now_s: float, held_as: int | None = None) -> Received:
        """`held_as`: the number of a payload that was held, in whose place this one is kept."""
        readers, before = self._readers, self._scanner.samples
        points, ahead = _read(readers, payload)
        samples = self._scanner.samples - before if payload.format == REMOTE_WRITE else len(points.at_ms)
        skips = self._scanner.take_skipped()
        if held_as is not None:
            skips = []  # they were counted when it came
        else:
            self._see_skew(points, ahead, payload.received_ms)
        bodies = [payload] if len(points.at_ms) or not len(ahead.at_ms) or payload.format == QUERY else []
        if len(ahead.at_ms):
            held = hold(payload, ahead)
            if held_as is not None or self.held.bytes + len(held.content) <= HELD_BYTES:
                bodies.insert(0, held)
            elif bodies:
                skips.append(Skip("ahead", "", len(ahead.at_ms), is_read=True))
            else:
                raise BusyError(
                    f"{self.skew} and no more of them can be held; set the clocks of both machines by NTP", 60
                )
        kept = self._log.keep(bodies, () if held_as is None else (held_as,))
        for skip in skips:
            self.skipped.add(skip)

        def end(done: "Future[int]") -> None:
            if done.exception() is not None:
                return
            numbered = [(done.result() - len(bodies) + place, body) for place, body in enumerate(bodies, 1)]
            for number, body in numbered:
                if body is payload:
                    self._waiting.append((number, now_s))
                    self._arrived.append(_Arrival(number, payload, points, readers, now_s))
                else:
                    self.held.add(number, body)

        kept.add_done_callback(end)
        return Received(samples, samples - len(points.at_ms) - len(ahead.at_ms), kept)

    def _see_skew(self, points: Points, ahead: Points, now_ms: int) -> None:
        newest_ms = max((int(some.at_ms.max()) for some in (points, ahead) if len(some.at_ms)), default=0)
        if newest_ms - now_ms > SKEW_MS:
            now_s, before = time.monotonic(), self.skew
            since_ms = before.since_ms if before is not None and now_s - before.at_s < MISSED_S else now_ms
            self.skew = Skew((newest_ms - now_ms) / MS_PER_S, now_s, since_ms)

    def find_ahead(self) -> Shortfall | None:
        """Find how far samples came ahead of our clock lately, and how many payloads wait for it."""
        waiting, skew = self.held.count, self.skew
        since_ms = skew.since_ms if skew is not None else self._opened_ms
        if skew is None or (not waiting and time.monotonic() - skew.at_s > MISSED_S):
            cause = f"{waiting:,} requests wait for this machine's clock to come to their samples" if waiting else ""
        else:
            cause = f"{skew}" + (f", {waiting:,} requests wait until it is there" if waiting else "")
        return Shortfall(cause, since_ms) if cause else None

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
            points, _ = _read(self._readers, payload)
            self._scanner.take_skipped()  # they were counted when it came
        if payload.format == QUERY:
            from_ms, to_ms = read_span(payload.content)
            points = self._taken.pick_new(points, from_ms)
            self.reached_ms = to_ms  # answers are in order; where our clock was ahead, pulling went back
        self._decoder.feed(points, number, at_s)
        self._through = max(self._through, number)


def make_readers(decoder: PrometheusDecoder) -> tuple[RemoteWriteScanner, Readers]:
    """The readers whose points are of this decoder's series, and the one of requests, which counts."""
    scanner = RemoteWriteScanner(decoder.identify_series, WriteLimits())

    def skip(skipped: Skip) -> None:
        scanner.skipped.append(skipped)

    pages = PageReader(decoder.identify, skip)

    def read_page(content: bytes) -> Points:
        at_ms, target, page = unpack_page(content)
        return pages.read(page, target, at_ms)

    def read_held(content: bytes) -> Points:
        after_ms, kind, held = unhold(content)
        counted, scanner.not_understood = scanner.not_understood, {}  # when it came
        try:
            return pick_held(readers[kind](held), after_ms)
        finally:
            scanner.not_understood = counted

    readers: Readers = {
        REMOTE_WRITE: scanner.scan,
        QUERY: lambda content: read_answer(unpack_answer(content), decoder.identify, skip),
        PAGE: read_page,
        HELD: read_held,
    }
    return scanner, readers


def _read(readers: Readers, payload: ReceivedBody) -> tuple[Points, Points]:
    """The points of a payload: those that were taken when it came, and those that were too far ahead of our clock then."""
    points = readers[payload.format](payload.content)
    ahead = is_ahead(points, payload.received_ms)
    return (pick_points(points, ~ahead), pick_points(points, ahead)) if ahead.any() else (points, NO_POINTS)


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
