"""One origin of samples: bodies are kept before they are acknowledged, decoded in their order, and booked as rows."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.collect.pulled_body import read_end_ms, unpack_answer
from loadfactor.errors import InputError, SourceError
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.query_answers import read_answer
from loadfactor.sources.prometheus.remote_write import Points, RemoteWriteScanner
from loadfactor.sources.prometheus.remote_write_limits import WriteLimits
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.row_checks import validate_rows
from loadfactor.units import MS_PER_S, S_PER_HOUR

REMOTE_WRITE: Final = "remote_write"
QUERY: Final = "query"
"""Formats of bodies: a snappy remote_write request, a packed answer of a query. `REMOTE_WRITE` is an origin as well."""
FUTURE_MS: Final = int(1.1 * S_PER_HOUR * MS_PER_S)
"""A sample may be this far ahead of our clock: one that is an hour off, in summer or by mistake, loses nothing."""

MOST_GAPS: Final = 1000
_REACHED_BYTES: Final = 8

Read = Callable[[bytes], Points]


class Received(NamedTuple):
    """What was in a body that is being kept: its samples, how many of them nobody understands, and its number to come."""

    samples: int
    not_understood: int
    number: "Future[int]"


class _Arrival(NamedTuple):
    """A body that is on the disk and waits for its booking. `series` are numbers of the decoder that `reader` knows."""

    number: int
    content: bytes
    format: str
    points: Points
    readers: dict[str, Read]
    at_s: float


class Stream:
    """Bodies of one origin on their way to rows. Any thread may call its methods."""

    def __init__(
        self, origin: str, log: LiveLog, state: OriginState | None, bodies: Iterable[tuple[int, ReceivedBody]]
    ) -> None:
        """`state` and `bodies` are what an earlier process left of this origin."""
        self.origin = origin
        self.gaps: dict[tuple[str, str], int] = {}
        self._log = log
        self._lock = threading.Lock()  # of the decoder and its readers
        self._arrived: deque[_Arrival] = deque()
        self._unbooked: list[LiveBatch] = []
        self._waiting: deque[tuple[int, float]] = (
            deque()
        )  # bodies on the disk of which readers do not see all, and since when
        self._through = state.through if state else 0
        self._done = 0
        self.reached_ms = 0
        """Through when pulled answers were taken; 0 where none was."""
        if state:
            self.reached_ms = int.from_bytes(state.content[:_REACHED_BYTES], "little")
        self._start(state.content[_REACHED_BYTES:] if state else b"", bodies)

    def _start(self, state: bytes, bodies: Iterable[tuple[int, ReceivedBody]]) -> None:
        self._decoder = PrometheusDecoder(state)
        identify = self._decoder.identify
        scanner = self._scanner = RemoteWriteScanner(self._decoder.identify_series, WriteLimits())
        self._readers: dict[str, Read] = {
            REMOTE_WRITE: scanner.scan,
            QUERY: lambda content: read_answer(unpack_answer(content), identify),
        }
        self._last_ms = np.empty(0, np.int64)  # by series
        now_s = time.monotonic()  # as if they came just now: the rest of their scrapes is still to come
        for number, body in bodies:
            if body.origin == self.origin:
                points = self._readers[body.format](body.content)
                self._put(_Arrival(number, body.content, body.format, points, self._readers, now_s))

    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body. Its number is known when it outlasts a power loss: when the future is done.

        Raises SourceError for what is no such body, InputError for samples of the future, StoreError where it cannot be kept.
        """
        with self._lock:
            readers, before = self._readers, self._scanner.samples
            points = readers[body.format](body.content)
            if len(points.at_ms) and (ahead := int(points.at_ms.max()) - body.received_ms) > FUTURE_MS:
                raise InputError(
                    f"samples are {ahead / MS_PER_S / S_PER_HOUR:,.1f} hours in the future; check the clocks of both machines"
                )
            kept = self._log.keep([body])  # in here, so that numbers are in the order in which bodies were read

        def arrive(done: "Future[int]") -> None:
            if done.exception() is None:
                self._waiting.append((done.result(), now_s))
                self._arrived.append(_Arrival(done.result(), body.content, body.format, points, readers, now_s))

        kept.add_done_callback(arrive)
        samples = self._scanner.samples - before if body.format == REMOTE_WRITE else len(points.at_ms)
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
            while self._arrived:
                self._put(self._arrived.popleft())
            rows = 0
            for item in self._decoder.take(ripe_s):
                if isinstance(item, Gap):
                    self._count(item)
                    continue
                for part in self._pick_valid(item):
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
                self._start(decoded, self._log.received())
        return rows

    def _pick_valid(self, rows: Rows) -> Iterator[Rows]:
        """The rows without those that say what cannot be: one broken exporter must not stop the others."""
        try:
            validate_rows(rows, 0)
            yield rows
        except SourceError as error:
            half = rows.data.num_rows // 2
            if not half:
                self._count(Gap(rows.where, str(error)))
                return
            for part in (rows.data.slice(0, half), rows.data.slice(half)):
                yield from self._pick_valid(replace(rows, data=part))

    def _count(self, gap: Gap) -> None:
        key = (gap.where, gap.what)
        if key in self.gaps or len(self.gaps) < MOST_GAPS:
            self.gaps[key] = self.gaps.get(key, 0) + gap.count

    def _put(self, arrival: _Arrival) -> None:
        read_anew = arrival.readers is not self._readers  # its numbers are of a decoder that was left
        points = self._readers[arrival.format](arrival.content) if read_anew else arrival.points
        if arrival.format == QUERY:
            points = self._drop_known(points)
            self.reached_ms = max(self.reached_ms, read_end_ms(arrival.content))
        self._decoder.put(points, arrival.number, arrival.at_s)
        self._through = max(self._through, arrival.number)

    def _drop_known(self, points: Points) -> Points:
        """Answers overlap, so that no sample is missed that a server stored late; of each series only what is new counts."""
        if not len(points.series):
            return points
        missing = int(points.series.max()) + 1 - len(self._last_ms)
        self._last_ms = np.append(self._last_ms, np.full(max(missing, 0), -1))
        new: NDArray[np.bool_] = points.at_ms > self._last_ms[points.series]
        np.maximum.at(self._last_ms, points.series, points.at_ms)
        return Points(points.series[new], points.at_ms[new], points.value[new])
