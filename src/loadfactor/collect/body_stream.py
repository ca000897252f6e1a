"""One origin's bodies on their way to rows: kept before they are acknowledged, decoded in their order, booked."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from loadfactor.base.errors import StoreError
from loadfactor.collect.decoding import Numbered, find_poison, pick_valid
from loadfactor.sources.base import Gap, Rows
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.live_database import set_body_aside

MOST_GAPS: Final = 1000


class Received(NamedTuple):
    """What was in a body that is being kept: its samples, how many of them nobody understands, and its number to come."""

    samples: int
    not_understood: int
    number: "Future[int]"


class BodyStream(ABC):
    """Bodies of one origin. How they are decoded is for its kinds to say. Any thread may call its methods."""

    reached_ms: int = 0
    """Through when pulled answers were taken; 0 where none was."""

    def __init__(self, origin: str, log: LiveLog, bodies: Iterable[Numbered]) -> None:
        """`bodies` are what an earlier process left of this origin."""
        self.origin = origin
        self.gaps: dict[tuple[str, str], int] = {}
        self.set_aside: list[Path] = []
        """Bodies that could not be decoded, as files."""
        self._aside: set[int] = set()
        self._log = log
        self._lock = threading.Lock()  # of the decoder
        self._unbooked: list[LiveBatch] = []
        now_s = time.monotonic()
        self._waiting = deque((number, now_s) for number, _ in bodies)
        """Bodies on the disk of which readers do not see all, and since when."""

    @abstractmethod
    def receive(self, body: ReceivedBody, now_s: float) -> Received:
        """Take a body. Its number is known when it outlasts a power loss: when the future is done.

        Raises SourceError for what is no such body, InputError for what cannot be true, StoreError where it cannot be kept.
        """

    @abstractmethod
    def receive_at_once(self, body: ReceivedBody, now_s: float) -> Received | None:
        """The same; None where that would have to wait, or take long."""

    @abstractmethod
    def _begin(self, state: OriginState | None, bodies: Sequence[Numbered]) -> None:
        """Go on from what was booked last, with the bodies that were kept since; some may have arrived before."""

    @abstractmethod
    def _book_all(self, ripe_s: float | None) -> int:
        """Book what arrived; how many rows. Raises whatever a decoder raises."""

    @abstractmethod
    def _try(self, content: bytes, bodies: Iterable[Numbered]) -> None:
        """Raises what decoding these bodies raises after this content of a state; nothing is kept."""

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
    def last_sample_ms(self) -> Mapping[str, int]:
        """The newest sample of each source."""
        return {}

    @property
    def not_understood(self) -> Mapping[str, int]:
        """What nobody understands, by metric name: samples that were sent, series that were asked for."""
        return {}

    def book(self, ripe_s: float | None = None) -> int:
        """Make rows of what began to arrive before `ripe_s`, of all where it is None; how many rows.

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

    def _keep(self, body: ReceivedBody, now_s: float, arrive: Callable[[int], None]) -> "Future[int]":
        """Keep a body, under the lock, so that numbers are in the order of arrival; `arrive` gets its number when it is kept."""
        kept = self._log.keep([body])

        def end(done: "Future[int]") -> None:
            if done.exception() is None:
                self._waiting.append((done.result(), now_s))
                arrive(done.result())

        kept.add_done_callback(end)
        return kept

    def _add_rows(self, item: Rows | Gap) -> int:
        """Have the valid rows booked, and count what is none; how many rows."""
        if isinstance(item, Gap):
            self._count(item)
            return 0
        parts = list(pick_valid(item, self._count))
        self._unbooked += [LiveBatch(part.where, part.table, part.data, part.where) for part in parts]
        return sum(part.data.num_rows for part in parts)

    def _commit(self, through: int, content: bytes, done: int) -> None:
        """Store the rows and the state in one transaction; bodies through `done` are needed no more. Raises StoreError."""
        self._log.book(OriginState(self.origin, through, content), done, self._unbooked)
        self._unbooked = []
        while self._waiting and self._waiting[0][0] <= done:
            self._waiting.popleft()

    def _list_waiting(self) -> list[Numbered]:
        return [(number, body) for number, body in self._log.received() if body.origin == self.origin]

    def _leave_out_poison(self, error: Exception) -> None:
        """Set the bodies aside that cannot be decoded, and begin with what was booked last again. Raises StoreError."""
        state, bodies = self._log.states().get(self.origin), self._list_waiting()
        decode = partial(self._try, state.content if state else b"")
        poison = find_poison([one for one in bodies if one[0] not in self._aside], decode)
        for number, body in poison:
            try:
                self.set_aside.append(set_body_aside(self._log.folder, number, body))
            except OSError as full:
                raise StoreError(f"a body that cannot be decoded cannot be set aside ({full.strerror})") from full
            self._aside.add(number)
        self._unbooked = []
        self._begin(state, bodies)
        if not poison:
            why = f"{type(error).__name__}: {error}"
            raise StoreError(f"what {self.origin} sent cannot be booked ({why}); it is kept and tried again") from error

    def _count(self, gap: Gap) -> None:
        key = (gap.where, gap.what)
        if key in self.gaps or len(self.gaps) < MOST_GAPS:
            self.gaps[key] = self.gaps.get(key, 0) + gap.count
