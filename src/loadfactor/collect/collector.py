"""The collector: all streams, what came in on them, and what of it readers do not see yet."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.errors import BusyError, InputError, LoadfactorError, StoreError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.collect.event_stream import EventStream
from loadfactor.collect.held_payloads import HeldPayloads, find_stream
from loadfactor.collect.payload_stream import Numbered, PayloadStream, Received
from loadfactor.collect.payloads import PAGE, REMOTE_WRITE
from loadfactor.collect.sample_stream import SampleStream
from loadfactor.collect.skipped import MISSED_S, Shortfall
from loadfactor.sources.live import find_live_source
from loadfactor.sources.prometheus.remote_write import compile_scanner
from loadfactor.store.live import LiveLog, OriginState, ReceivedBody

HOLD_S = 11.0
"""A scrape is complete so long after its first sample came: Prometheus sends the rest of it within five seconds, and within five
more where it was refused and backs off."""
MOST_WAITING_PAYLOADS = 20_000
"""With more that is not ingested, senders have to come back; the log itself bounds their bytes."""
RETRY_AFTER_S = 5
READY_WAIT_S = 5.0
"""So long a sender waits while the process begins; its own patience is some 30 seconds."""
AT_ONCE_BYTES = 128 * BYTES_PER_KIB
"""Payloads up to this size are read where they are taken; for longer ones nobody else could be answered meanwhile."""


@dataclass
class Counts:
    """Counts of one stream, since this process began."""

    received_samples: int = 0
    acknowledged_samples: int = 0
    ingested_rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last_refusal: Shortfall | None = None
    """Why a payload that will not come again was refused last, and since when such ones are."""
    last_refusal_s: float = 0.0  # monotonic


class LiveCollector:
    """Takes payloads in, answers when they are durable, and ingests them. One for each store and process."""

    def __init__(self, log: LiveLog, clock_ms: Callable[[], int] = now_ms) -> None:
        self._log = log
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._scanning = ThreadPoolExecutor(1, "scan")
        self._reading = ThreadPoolExecutor(1, "read answers")  # one large answer at a time, and no sender behind it
        self._ready = self._scanning.submit(compile_scanner)
        states = log.states()
        payloads: defaultdict[str, list[Numbered]] = defaultdict(list)
        held: defaultdict[str, HeldPayloads] = defaultdict(HeldPayloads)
        for number, payload in log.received():
            stream_id = find_stream(payload.origin)
            if stream_id is None:
                payloads[payload.origin].append((number, payload))
            else:
                held[stream_id].add(number, payload)
        ids = sorted({*payloads, *held, *states, REMOTE_WRITE})
        self._streams = {id_: _open_stream(id_, log, states.get(id_), payloads[id_], held[id_]) for id_ in ids}
        self.counts: dict[str, Counts] = {id_: Counts() for id_ in ids}
        self._began_s = time.monotonic()
        self._seen_s: dict[str, float] = {}

    @property
    def sent(self) -> SampleStream:
        """The stream of remote_write."""
        stream = self._streams[REMOTE_WRITE]
        assert isinstance(stream, SampleStream)
        return stream

    def stream(self, stream_id: str) -> PayloadStream:
        """The stream with this id, a new one where it is new."""
        with self._lock:
            if stream_id not in self._streams:
                self._streams[stream_id] = _open_stream(stream_id, self._log, None, (), HeldPayloads())
                self.counts[stream_id] = Counts()
            return self._streams[stream_id]

    async def write(self, content: bytes, stream_id: str = REMOTE_WRITE, kind: str = REMOTE_WRITE) -> Received:
        """Take a payload; when this returns it outlasts a power loss.

        Raises InputError for what cannot be taken, BusyError where too much waits, StoreError where it cannot be kept.
        """
        stream = self.stream(stream_id)
        counts = self.counts[stream_id]
        try:
            self._log.check_writable()
            if stream.waiting > MOST_WAITING_PAYLOADS:
                raise BusyError(f"too much waits to be stored; send it again in {RETRY_AFTER_S} seconds", RETRY_AFTER_S)
            payload = ReceivedBody(stream_id, kind, self._clock_ms(), content)
            if kind == REMOTE_WRITE:
                await self._wait_until_ready()
            now_s, received = time.monotonic(), None
            if kind in (REMOTE_WRITE, PAGE) and len(content) <= AT_ONCE_BYTES:
                received = stream.receive_at_once(payload, now_s)
            if received is None:
                threads = self._scanning if kind == REMOTE_WRITE else self._reading
                received = await asyncio.get_running_loop().run_in_executor(threads, stream.receive, payload, now_s)
            counts.received_samples += received.samples
            await asyncio.wrap_future(received.number)
        except LoadfactorError as error:
            reason = _reason(error)
            counts.refused[reason] += 1
            if reason not in ("busy", "disk"):  # those come again
                before = self.find_refusal(stream_id)
                since_ms = self._clock_ms() if before is None else before.since_ms
                counts.last_refusal = Shortfall(f"a request was refused: {error}", since_ms)
                counts.last_refusal_s = time.monotonic()
            raise
        counts.acknowledged_samples += received.samples
        return received

    async def _wait_until_ready(self) -> None:
        """Returns when payloads can be read. Raises StoreError where that takes long: on a new machine code is compiled first."""
        if not self._ready.done():
            done, _ = await asyncio.wait([asyncio.wrap_future(self._ready)], timeout=READY_WAIT_S)
            if not done:
                raise StoreError(f"still getting ready; send it again in {RETRY_AFTER_S} seconds")
        self._ready.result()

    def ingest(self, everything: bool = False) -> int:
        """Make rows of what came; how many. Raises StoreError where they cannot be stored: they are kept for the next time.

        A stream that cannot be ingested keeps none of the others from it.
        """
        began = time.monotonic()
        rows, before = 0, self.last_sample_ms
        failed: Exception | None = None
        for stream_id, stream in list(self._streams.items()):
            try:
                stream.take_due(self._clock_ms())
                ingested = stream.ingest(None if everything or stream_id != REMOTE_WRITE else began - HOLD_S)
            except Exception as error:
                DEFECTS.explain(stream_id, error)
                failed = failed or error
                continue
            self.counts[stream_id].ingested_rows += ingested
            rows += ingested
        self._seen_s |= {s: began for s, at_ms in self.last_sample_ms.items() if at_ms != before.get(s)}
        if failed is not None:
            raise failed
        return rows

    @property
    def lag_s(self) -> float:
        """For how long the oldest acknowledged samples that readers cannot see yet have waited."""
        since = [at for stream in list(self._streams.values()) if (at := stream.waits_since()) is not None]
        return time.monotonic() - min(since) if since else 0.0

    @property
    def last_sample_ms(self) -> dict[str, int]:
        """The newest sample of each source."""
        found: dict[str, int] = {}
        for stream in list(self._streams.values()):
            for source, at_ms in stream.last_sample_ms.items():
                found[source] = max(at_ms, found.get(source, at_ms))
        return found

    def seen_s_ago(self, source: str) -> float:
        """Seconds since a sample of this source came last: by our clock, whatever the sample's own says."""
        return time.monotonic() - self._seen_s.get(source, self._began_s)

    @property
    def skipped(self) -> Counter[str]:
        """Samples that came and are not kept, by reason."""
        found: Counter[str] = Counter()
        for stream in list(self._streams.values()):
            found.update({skipped.reason: skipped.count for skipped in stream.skipped.list()})
        return found

    def find_refusal(self, stream_id: str) -> Shortfall | None:
        """Find the last request of a stream that was refused lately and will not come again."""
        counts = self.counts[stream_id]
        return counts.last_refusal if time.monotonic() - counts.last_refusal_s < MISSED_S else None

    @property
    def stream_ids(self) -> list[str]:
        """The ids of all streams."""
        return list(self._streams)

    @property
    def not_understood(self) -> Counter[str]:
        """Samples of series that no decoder knows, by metric name."""
        found: Counter[str] = Counter()
        for stream in list(self._streams.values()):
            found.update(stream.not_understood)
        return found

    @property
    def quarantined(self) -> list[Path]:
        """Payloads that this process could not decode, as files."""
        return [path for stream in list(self._streams.values()) for path in stream.quarantined]

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for their commit."""
        return self._log.waiting_bytes

    def close(self) -> None:
        """Scan no more."""
        self._scanning.shutdown()
        self._reading.shutdown()


def _open_stream(
    stream_id: str, log: LiveLog, state: OriginState | None, payloads: Sequence[Numbered], held: HeldPayloads
) -> PayloadStream:
    if find_live_source(stream_id):
        return EventStream(stream_id, log, state, payloads)
    return SampleStream(stream_id, log, state, payloads, held)


def _reason(error: LoadfactorError) -> str:
    if isinstance(error, BusyError):
        return "busy"
    if isinstance(error, StoreError):
        return "disk"
    return "malformed" if isinstance(error, InputError) else "other"
