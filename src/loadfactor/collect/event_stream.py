"""A stream of what a scheduler, a cloud or a tracked run lists: events, kept before they count, decoded in order, ingested as rows.

Where `SampleStream` is for samples, this is for rows that a source lists and corrects: of rows with one key the later one counts
whole. The decoder's state and the cursor where the collector goes on are stored in one transaction with the rows they made.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from loadfactor.collect.payload_stream import Numbered, PayloadStream, Received
from loadfactor.collect.payloads import unpack_events
from loadfactor.sources.live import LiveDecoder, find_live_source
from loadfactor.store.live import LiveLog, OriginState, ReceivedBody

_LENGTH_BYTES: Final = 4


class EventStream(PayloadStream):
    """Payloads with events. Any thread may call its methods."""

    def __init__(self, stream_id: str, log: LiveLog, state: OriginState | None, payloads: Sequence[Numbered]) -> None:
        super().__init__(stream_id, log, payloads)
        self._arrived: deque[Numbered] = deque()
        self._begin(state, payloads)
        for _, payload in payloads:
            self.cursor |= unpack_events(payload.content).cursor

    def _begin(self, state: OriginState | None, payloads: Sequence[Numbered]) -> None:
        self._ingested_cursor, decoded = _split(state.content) if state else ({}, b"")
        for name, mark in self._ingested_cursor.items():
            self.cursor.setdefault(name, mark)
        self._decoder = self._open_decoder(decoded)
        self._through = state.through if state else 0
        self._arrived.extendleft(reversed(payloads))

    def _open_decoder(self, decoded: bytes) -> LiveDecoder:
        source = find_live_source(self.stream_id)
        if source is None:
            raise AssertionError(f"no decoder for {self.stream_id}")
        return source.open(self.stream_id.partition(" ")[2], decoded)

    def receive(self, payload: ReceivedBody, now_s: float) -> Received:
        """Take a payload. Raises as every stream."""
        unpack_events(payload.content)

        def arrive(number: int) -> None:
            self._arrived.append((number, payload))
            self.cursor |= unpack_events(payload.content).cursor

        with self._lock:
            kept = self._keep(payload, now_s, arrive)
        return Received(0, 0, kept)  # events are no samples

    def _ingest_all(self, complete_s: float | None) -> int:
        del complete_s
        if not self._waiting:
            return 0
        while self._arrived:
            number, payload = self._arrived.popleft()
            if number > self._through and number not in self._bad_numbers:
                events, cursor = unpack_events(payload.content)
                self._decoder.feed(events)
                self._ingested_cursor |= cursor
            self._through = max(self._through, number)
        rows = sum(self._add_rows(item) for item in self._decoder.drain())
        self._commit(self._through, _join(self._ingested_cursor, self._decoder.state()), self._through)
        return rows

    def _try(self, content: bytes, payloads: Iterable[Numbered]) -> None:
        decoder = self._open_decoder(_split(content)[1] if content else b"")
        for _, payload in payloads:
            decoder.feed(unpack_events(payload.content).events)
        list(decoder.drain())
        decoder.state()


def _join(cursor: Mapping[str, str], decoded: bytes) -> bytes:
    head = json.dumps(cursor).encode()
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + decoded


def _split(content: bytes) -> tuple[dict[str, str], bytes]:
    size = int.from_bytes(content[:_LENGTH_BYTES], "little")
    return json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + size]), content[_LENGTH_BYTES + size :]
