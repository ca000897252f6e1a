"""One origin of what a scheduler or a cloud lists: bodies are kept before they count, decoded in their order, booked as rows.

Where `Stream` is for samples, this is for rows that somebody lists and corrects: of rows with one key the later one counts whole.
What was decoded, what of it was told, and the marks where the collector goes on are one state, replaced with the rows it made.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from loadfactor.collect.body_stream import BodyStream, Received
from loadfactor.collect.decoding import Numbered
from loadfactor.collect.listed_body import unpack_listed
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.clouds.cloudwatch import METRIC_STREAM, LiveMetricStreamDecoder
from loadfactor.sources.clouds.ec2 import LiveEc2Decoder
from loadfactor.sources.clouds.gce import LiveGceDecoder
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder
from loadfactor.sources.progress_records.live_decoder import PROGRESS_ORIGIN, LiveProgressDecoder
from loadfactor.sources.serving_engines.live_decoder import SERVING, LiveServingDecoder
from loadfactor.sources.slurm.live_decoder import LiveSlurmDecoder
from loadfactor.store.live import LiveLog, OriginState, ReceivedBody

_LENGTH_BYTES: Final = 4


class ListedDecoder(Protocol):
    """What makes rows of events. Made of a name and a state, `b""` for a new one."""

    def put(self, events: Sequence[Any]) -> None:
        """Events in the order in which they came."""

    def take(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last; `where` is their source."""

    def state(self) -> bytes:
        """All that is needed to go on in another process."""


DECODERS: Final[Mapping[str, Callable[[str, bytes], ListedDecoder]]] = {
    "ec2": LiveEc2Decoder,
    "gce": LiveGceDecoder,
    "kubernetes": LiveKubernetesDecoder,
    METRIC_STREAM: LiveMetricStreamDecoder,
    PROGRESS_ORIGIN: LiveProgressDecoder,
    SERVING: LiveServingDecoder,
    "slurm": LiveSlurmDecoder,
}
"""By the first word of an origin; what follows is the name that the configuration gives it."""


def is_listed(origin: str) -> bool:
    """Whether an origin lists rows.

    >>> is_listed("kubernetes prod"), is_listed("prometheus prod")
    (True, False)
    """
    return origin.partition(" ")[0] in DECODERS


class ListedStream(BodyStream):
    """Bodies with events. Any thread may call its methods."""

    def __init__(self, origin: str, log: LiveLog, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        """`state` and `bodies` are what an earlier process left of this origin."""
        super().__init__(origin, log, bodies)
        self.marks: dict[str, str] = {}
        """Where the collector goes on: what is kept is behind them."""
        self._arrived: deque[Numbered] = deque()
        self._begin(state, bodies)
        for _, body in bodies:
            self._mark(body.content)

    def _begin(self, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        marks, decoded = _split(state.content) if state else ({}, b"")
        self._booked_marks = marks
        for name, mark in marks.items():
            self.marks.setdefault(name, mark)
        self._decoder = self._make_decoder(decoded)
        self._through = state.through if state else 0
        self._arrived.extendleft(reversed(bodies))

    def _make_decoder(self, decoded: bytes) -> ListedDecoder:
        family, _, name = self.origin.partition(" ")
        return DECODERS[family](name, decoded)

    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body. Raises as every stream."""
        unpack_listed(body.content)

        def arrive(number: int) -> None:
            self._arrived.append((number, body))
            self._mark(body.content)

        with self._lock:
            kept = self._keep(body, now_s, arrive)
        return Received(0, 0, kept)  # events are no samples

    def receive_at_once(self, body: ReceivedBody, now_s: float) -> Received | None:
        """None: reading a list takes long enough for a thread of its own."""

    def _book_all(self, _ripe_s: float | None) -> int:
        if not self._waiting:
            return 0
        while self._arrived:
            number, body = self._arrived.popleft()
            if number > self._through and number not in self._aside:
                self._booked_marks |= self._put(self._decoder, body)
            self._through = max(self._through, number)
        rows = sum(self._add_rows(item) for item in self._decoder.take())
        self._commit(self._through, _join(self._booked_marks, self._decoder.state()), self._through)
        return rows

    @staticmethod
    def _put(decoder: ListedDecoder, body: ReceivedBody) -> dict[str, str]:
        events, marks = unpack_listed(body.content)
        decoder.put(events)
        return marks

    def _try(self, content: bytes, bodies: Iterable[Numbered]) -> None:
        decoder = self._make_decoder(_split(content)[1] if content else b"")
        for _, body in bodies:
            self._put(decoder, body)
        list(decoder.take())
        decoder.state()

    def _mark(self, content: bytes) -> None:
        self.marks |= unpack_listed(content).marks


def _join(marks: Mapping[str, str], decoded: bytes) -> bytes:
    said = json.dumps(marks).encode()
    return len(said).to_bytes(_LENGTH_BYTES, "little") + said + decoded


def _split(content: bytes) -> tuple[dict[str, str], bytes]:
    size = int.from_bytes(content[:_LENGTH_BYTES], "little")
    return json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + size]), content[_LENGTH_BYTES + size :]
