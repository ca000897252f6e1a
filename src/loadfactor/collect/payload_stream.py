"""The payloads of one stream on their way to rows: kept before they are acknowledged, decoded in their order, ingested."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from loadfactor.base.defects import DEFECTS
from loadfactor.base.errors import SourceError, StoreError, say_why
from loadfactor.collect.skipped import Shortfall, SkippedCounts
from loadfactor.sources.base import Gap, Rows, Skip
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody
from loadfactor.store.live_database import quarantine_body
from loadfactor.store.row_checks import validate_rows

MOST_GAPS: Final = 1000

Numbered = tuple[int, ReceivedBody]


class Received(NamedTuple):
    """A payload that is being kept: its samples, how many of them no decoder knows, and its number to come."""

    samples: int
    not_understood: int
    number: "Future[int]"


class PayloadStream(ABC):
    """Payloads of one stream; its kinds decode them. Any thread may call its methods."""

    reached_ms: int = 0
    """Through when pulled answers were taken; 0 where none was."""

    def __init__(self, stream_id: str, log: LiveLog, payloads: Iterable[Numbered]) -> None:
        self.stream_id = stream_id
        self.cursor: dict[str, str] = {}
        """Where the collector goes on, by name: what is kept is behind it. Empty for streams of samples."""
        self.gaps: dict[tuple[str, str], int] = {}
        self.skipped = SkippedCounts(log.hides_names)
        self.quarantined: list[Path] = []
        """Payloads that could not be decoded, as files."""
        self._bad_numbers: set[int] = set()
        self._log = log
        self._lock = threading.Lock()  # of the decoder
        self._pending_rows: list[LiveBatch] = []
        now_s = time.monotonic()
        self._waiting = deque((number, now_s) for number, _ in payloads)
        """Payloads on the disk of which readers do not see all, and since when."""

    @abstractmethod
    def receive(self, payload: ReceivedBody, now_s: float) -> Received:
        """Take a payload. Its number is known when it outlasts a power loss: when the future is done.

        Raises SourceError for what is no such payload, InputError for what cannot be true, StoreError where it cannot be kept.
        """

    def receive_at_once(self, payload: ReceivedBody, now_s: float) -> Received | None:
        """The same; None where that would have to wait, or take long."""
        del payload, now_s
        return None

    @abstractmethod
    def _begin(self, state: OriginState | None, payloads: Sequence[Numbered]) -> None:
        """Go on from what was ingested last, with the payloads that were kept since; some may have arrived before."""

    @abstractmethod
    def _ingest_all(self, complete_s: float | None) -> int:
        """Ingest what arrived; how many rows. Raises whatever a decoder raises."""

    @abstractmethod
    def _try(self, content: bytes, payloads: Iterable[Numbered]) -> None:
        """Raises what decoding these payloads raises after this content of a state; nothing is kept."""

    def take_due(self, now_ms: int) -> int:
        """Take payloads that were held until now (ms UTC); how many. Raises StoreError where they cannot be moved."""
        del now_ms
        return 0

    def find_ahead(self) -> Shortfall | None:
        """Find how far samples came ahead of our clock lately; None if they did not."""
        return None

    @property
    def waiting(self) -> int:
        """Payloads on the disk of which readers of the books do not see everything yet."""
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
        """Counts of unknown metrics by name: samples that were sent, series that were requested."""
        return {}

    def ingest(self, complete_s: float | None = None) -> int:
        """Make rows of what began to arrive before `complete_s`, of all where it is None; how many rows.

        Raises StoreError where they cannot be stored: then they are kept for the next time.
        """
        with self._lock:
            try:
                return self._ingest_all(complete_s)
            except (StoreError, MemoryError):
                raise
            except Exception as error:  # a defect of ours: nothing of what came with it may be lost or stay behind
                self._quarantine(error)
                return self._ingest_all(complete_s)

    def _keep(self, payload: ReceivedBody, now_s: float, arrive: Callable[[int], None]) -> "Future[int]":
        """Keep a payload, under the lock, so that numbers are in the order of arrival; `arrive` gets its number when it is kept."""
        kept = self._log.keep([payload])

        def end(done: "Future[int]") -> None:
            if done.exception() is None:
                self._waiting.append((done.result(), now_s))
                arrive(done.result())

        kept.add_done_callback(end)
        return kept

    def _add_rows(self, item: Rows | Gap) -> int:
        """Collect the valid rows for the next commit, and count the others as gaps; how many rows."""
        if isinstance(item, Gap):
            self._count(item)
            return 0
        parts = list(pick_valid(item, self._count))
        self._pending_rows += [LiveBatch(part.where, part.table, part.data, part.where) for part in parts]
        return sum(part.data.num_rows for part in parts)

    def _commit(self, through: int, content: bytes, done: int) -> None:
        """Store the rows and the state in one transaction; payloads through `done` are needed no more. Raises StoreError."""
        self._log.book(OriginState(self.stream_id, through, content), done, self._pending_rows)
        self._pending_rows = []
        while self._waiting and self._waiting[0][0] <= done:
            self._waiting.popleft()

    def _list_waiting(self) -> list[Numbered]:
        return [(number, payload) for number, payload in self._log.received() if payload.origin == self.stream_id]

    def _quarantine(self, error: Exception) -> None:
        """Move the payloads aside that cannot be decoded, and begin again with what was ingested last. Raises StoreError."""
        why = DEFECTS.explain(self.stream_id, error)
        state, payloads = self._log.states().get(self.stream_id), self._list_waiting()
        decode = partial(self._try, state.content if state else b"")
        bad = find_bad_payloads([item for item in payloads if item[0] not in self._bad_numbers], decode)
        for number, payload in bad:
            try:
                self.quarantined.append(quarantine_body(self._log.folder, number, payload))
            except OSError as full:
                raise StoreError(f"a body that cannot be decoded cannot be set aside ({say_why(full)})") from full
            self._bad_numbers.add(number)
        self._pending_rows = []
        self._begin(state, payloads)
        if not bad:
            raise StoreError(
                f"what {self.stream_id} sent cannot be booked ({why}); it is kept and tried again"
            ) from error

    def _count(self, gap: Gap) -> None:
        if gap.reason:
            self.skipped.add(Skip(gap.reason, gap.example or gap.what, gap.count, is_read=True))
        key = (gap.where, gap.what)
        if key in self.gaps or len(self.gaps) < MOST_GAPS:
            self.gaps[key] = self.gaps.get(key, 0) + gap.count


def pick_valid(rows: Rows, count: Callable[[Gap], None]) -> Iterator[Rows]:
    """The rows that can be true; the others, and measurements that cannot be, are counted, and cost what is right nothing."""
    left_out: list[Gap] = []
    try:
        checked = validate_rows(rows, 0, left_out.append)
        for gap in left_out:
            count(gap)
        yield replace(rows, data=checked.select(rows.data.column_names)) if left_out else rows
    except SourceError as error:
        half = rows.data.num_rows // 2
        if not half:
            count(Gap(rows.where, str(error), reason="impossible"))
            return
        for part in (rows.data.slice(0, half), rows.data.slice(half)):
            yield from pick_valid(replace(rows, data=part), count)


def find_bad_payloads(payloads: Sequence[Numbered], decode: Callable[[Sequence[Numbered]], None]) -> list[Numbered]:
    """The payloads that `decode` raises with; all of them where they only do harm together."""
    try:
        decode(payloads)
    except MemoryError:
        raise
    except Exception:  # whatever it is
        half = len(payloads) // 2
        parts = (payloads[:half], payloads[half:]) if half else ()
        return [item for part in parts for item in find_bad_payloads(part, decode)] or list(payloads)
    return []
