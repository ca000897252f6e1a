"""One origin of what a scheduler or a cloud lists: bodies are kept before they count, decoded in their order, booked as rows.

Where `Stream` is for samples, this is for rows that somebody lists and corrects: of rows with one key the later one counts whole.
What was decoded, what of it was told, and the marks where the collector goes on are one state, replaced with the rows it made.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

from loadfactor.collect.decoding import Numbered, find_poison, pick_valid
from loadfactor.collect.listed_body import unpack_listed
from loadfactor.collect.stream import MOST_GAPS, Received
from loadfactor.errors import StoreError
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder
from loadfactor.sources.slurm.live_decoder import LiveSlurmDecoder
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.set_aside import set_body_aside

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
    "kubernetes": LiveKubernetesDecoder,
    "slurm": LiveSlurmDecoder,
}
"""By the first word of an origin; what follows is the name that the configuration gives it."""


def is_listed(origin: str) -> bool:
    """Whether an origin lists rows.

    >>> is_listed("kubernetes prod"), is_listed("prometheus prod")
    (True, False)
    """
    return origin.partition(" ")[0] in DECODERS


class ListedStream:
    """Bodies of one origin on their way to rows. Any thread may call its methods."""

    last_sample_ms: Final[dict[str, int]] = {}
    not_understood: Final[dict[str, int]] = {}
    reached_ms: Final = 0

    def __init__(self, origin: str, log: LiveLog, state: OriginState | None, bodies: Iterable[Numbered]) -> None:
        """`state` and `bodies` are what an earlier process left of this origin."""
        self.origin = origin
        self.gaps: dict[tuple[str, str], int] = {}
        self.set_aside: list[Path] = []
        self._aside: set[int] = set()
        self._log = log
        self._lock = threading.Lock()
        self.marks: dict[str, str] = {}
        """Where the collector goes on: what is kept is behind them."""
        mine = [(number, body) for number, body in bodies if body.origin == origin]
        self._begin(state, mine)
        for _, body in mine:
            self._mark(body.content)

    def _begin(self, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        """Go on from what was booked last, with what arrived since."""
        marks, decoded = _split(state.content) if state else ({}, b"")
        self._booked_marks = marks
        for name, mark in marks.items():
            self.marks.setdefault(name, mark)
        self._decoder = self._make_decoder(decoded)
        self._through = state.through if state else 0
        now_s = time.monotonic()
        self._arrived: deque[tuple[int, ReceivedBody, float]] = deque((n, b, now_s) for n, b in bodies)
        self._unbooked: list[LiveBatch] = []

    def _make_decoder(self, decoded: bytes) -> ListedDecoder:
        family, _, name = self.origin.partition(" ")
        return DECODERS[family](name, decoded)

    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body; its number is known when it outlasts a power loss. Raises SourceError for what is none, StoreError."""
        unpack_listed(body.content)
        with self._lock:
            kept = self._log.keep([body])  # under the lock: numbers are in the order of arrival

            def arrive(done: "Future[int]") -> None:
                if done.exception() is None:
                    self._arrived.append((done.result(), body, now_s))
                    self._mark(body.content)

            kept.add_done_callback(arrive)
        return Received(0, 0, kept)  # events are no samples

    def receive_at_once(self, body: ReceivedBody, now_s: float) -> Received | None:
        """None: reading a list takes long enough for a thread of its own."""

    @property
    def waiting(self) -> int:
        """Bodies on the disk of which readers of the books do not see everything yet."""
        return len(self._arrived)

    def waits_since(self) -> float | None:
        """When the oldest of them came."""
        try:
            return self._arrived[0][2]
        except IndexError:
            return None

    def book(self, _ripe_s: float | None = None) -> int:
        """Make rows of what arrived; how many. Raises StoreError where they cannot be stored: they are kept for the next time."""
        with self._lock:
            if not self._arrived and not self._unbooked:
                return 0
            try:
                return self._book(list(self._arrived))
            except (StoreError, MemoryError):
                raise
            except Exception as error:  # a defect of ours: nothing of what came with it may be lost or stay behind
                self._leave_out_poison(error)
                return self._book(list(self._arrived))

    def _book(self, arrived: list[tuple[int, ReceivedBody, float]]) -> int:
        new = [(number, body) for number, body, _ in arrived if number > self._through]
        for number, body in new:
            if number not in self._aside:
                self._booked_marks |= self._put(self._decoder, body)
            self._through = number
        rows = 0
        for item in self._decoder.take():
            for part in pick_valid(item, self._count) if isinstance(item, Rows) else ():
                rows += part.data.num_rows
                self._unbooked.append(LiveBatch(part.where, part.table, part.data, part.where))
            if isinstance(item, Gap):
                self._count(item)
        content = _join(self._booked_marks, self._decoder.state())
        self._log.book(OriginState(self.origin, self._through, content), self._through, self._unbooked)
        self._unbooked = []
        while self._arrived and self._arrived[0][0] <= self._through:
            self._arrived.popleft()
        return rows

    @staticmethod
    def _put(decoder: ListedDecoder, body: ReceivedBody) -> dict[str, str]:
        events, marks = unpack_listed(body.content)
        decoder.put(events)
        return marks

    def _leave_out_poison(self, error: Exception) -> None:
        """Set the bodies aside that cannot be decoded, and begin with what was booked last again. Raises StoreError."""
        state = self._log.states().get(self.origin)
        bodies = [(number, body) for number, body in self._log.received() if body.origin == self.origin]
        decoded = _split(state.content)[1] if state else b""

        def try_bodies(some: Iterable[Numbered]) -> None:
            decoder = self._make_decoder(decoded)
            for _, body in some:
                self._put(decoder, body)
            list(decoder.take())
            decoder.state()

        poison = find_poison([one for one in bodies if one[0] not in self._aside], try_bodies)
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

    def _mark(self, content: bytes) -> None:
        self.marks |= unpack_listed(content).marks

    def _count(self, gap: Gap) -> None:
        key = (gap.where, gap.what)
        if key in self.gaps or len(self.gaps) < MOST_GAPS:
            self.gaps[key] = self.gaps.get(key, 0) + gap.count


def _join(marks: Mapping[str, str], decoded: bytes) -> bytes:
    said = json.dumps(marks).encode()
    return len(said).to_bytes(_LENGTH_BYTES, "little") + said + decoded


def _split(content: bytes) -> tuple[dict[str, str], bytes]:
    size = int.from_bytes(content[:_LENGTH_BYTES], "little")
    return json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + size]), content[_LENGTH_BYTES + size :]
