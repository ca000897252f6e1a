"""The live log: what was received and the rows made of it, durable in a SQLite database of the store's folder until it is files.

One process at a time writes (`live.lock`). Its threads call `LiveLog.acknowledge`, `keep` and `book`; one thread commits what has
gathered meanwhile, so that many requests share one sync. Batches are numbered in the order of their commits, and so are bodies; no
number is given twice. Readers leave the disk alone (`read_live`).

Where a commit fails, nothing more is taken until the database was opened anew and holds what was acknowledged: after a failed sync
nobody knows what is on the disk. What waits to be kept is refused; a booking whose commit may be there or not waits until that is
known. A full disk needs no more than room: SQLite then knows that nothing of the commit is there.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from loadfactor.base.errors import BusyError, DamageError, InputError, StoreError, say_why
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.store import disk
from loadfactor.store.disk import Lock, take_lock
from loadfactor.store.folder import Folder
from loadfactor.store.live_copy import LOG_SUFFIX, NAME, has_live
from loadfactor.store.live_database import (
    BODY_BYTES,
    INSERT_BATCH,
    INSERT_BODY_SQL,
    REPLACE_STATE_SQL,
    EncodedBatch,
    LiveBatch,
    LogSpan,
    OriginState,
    ReceivedBody,
    check_live,
    discard,
    encode,
    give_back,
    list_bodies,
    open_database,
    read_bodies,
    read_live,
    read_span,
    read_states,
    say_damage,
    write_span,
)
from loadfactor.store.session import Entry

__all__ = ["LiveBatch", "LiveLog", "OriginState", "ReceivedBody", "has_live", "read_live"]

Kept = TypeVar("Kept", ReceivedBody, OriginState)
PLAIN: Final = Entry()
LOCK = "live.lock"
MOST_WAITING_BYTES = 64 * BYTES_PER_MIB
"""Batches and bodies that wait for their commit; with more, `acknowledge` and `book` wait for room, and `keep` refuses."""
MOST_RECEIVED_BYTES = 512 * BYTES_PER_MIB
"""Bodies that are kept and not booked yet; with more, `keep` refuses."""
LONGEST_WAIT_S = 30.0
"""So long it waits for room; then it refuses."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between attempts to write after one that failed: each pause is twice the one before."""
QUIET_S = 60.0
"""An attempt of the log's own ends a fault where nothing that was handed in has failed for so long."""
LOOK_EVERY_S = 1.0
"""So often it looks whether its lock was deleted."""
FULL = "SQLITE_FULL"
NOT_THERE = (FULL, "SQLITE_IOERR_WRITE")
"""After these errors nothing of the commit is on the disk: what makes it one is written last."""


@dataclass(frozen=True, eq=False)
class _Request:
    """A call that waits: for bodies to be kept, or batches to be stored, a state with them, what is done to be removed."""

    done: "Future[int]"
    bodies: Sequence[ReceivedBody] | None = None
    batches: Sequence[EncodedBatch] = ()
    state: OriginState | None = None
    booked_through: int = 0  # bodies of the origin of `state`
    instead_of: Sequence[int] = ()  # numbers of bodies that `bodies` take the place of
    discard_through: int = 0  # batches

    @property
    def kept_bytes(self) -> int:
        return sum(len(body.content) for body in self.bodies or ())

    @property
    def bytes(self) -> int:
        state = 0 if self.state is None else len(self.state.content)
        return state + self.kept_bytes + sum(len(batch.rows) for batch in self.batches)


class _Attempt(NamedTuple):
    """A commit that may be on the disk or not: the numbers afterwards, and the requests that wait to hear which, with theirs."""

    span: LogSpan
    waiting: Sequence[tuple[_Request, int]]


@dataclass(frozen=True)
class _Fault:
    """Writing fails, in monotonic seconds: since when, when something that was handed in failed last, when it is tried next."""

    why: str
    since_s: float
    refused_s: float
    next_s: float
    pause_s: float


class LiveLog:
    """The live log of one store, held open by the one process that writes it. Any thread may call its methods."""

    def __init__(self, folder: Path, lock: Lock, connection: sqlite3.Connection, entry: Entry) -> None:
        """Use `LiveLog.open`."""
        self.heard: Callable[[Sequence[LiveBatch]], object] = len  # called with what was booked
        self._entry = entry
        self._path = folder / NAME
        self._lock = lock
        self._connection = connection
        self._using = threading.Lock()  # the connection
        self._span = read_span(connection)
        self._received_bytes: int = connection.execute(f"SELECT {BODY_BYTES} FROM received").fetchone()[0]
        self._requests: list[_Request] = []
        self._waiting_bytes = 0  # of these, and of the commit under way
        self._changed = threading.Condition()
        self._closed = False
        self._fault: _Fault | None = None
        self._is_lost = False  # the connection, until the database is opened anew
        self._attempt: _Attempt | None = None
        self._writer = threading.Thread(target=self._write, name="live batches", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, folder: Path, after: int = 0, entry: Entry = PLAIN) -> "LiveLog":
        """Open the live log of a store for writing. Batches that its manifest, or `after`, says are in files are discarded.

        `entry` masks names in batches, and seals bodies and states, which hold names as they came.
        Raises StoreError when another process has it open or the folder cannot be written, DamageError when it is damaged.
        """
        lock = _locked(folder)
        try:
            after = max(after, Folder(folder).read_newest().live_through)
            connection = open_database(folder, after)
        except BaseException as error:
            lock.close()
            if isinstance(error, OSError | sqlite3.Error):
                raise StoreError(f"{folder / NAME} cannot be written ({say_why(error)})") from error
            raise
        return cls(folder, lock, connection, entry)

    def keep(self, bodies: Sequence[ReceivedBody], instead_of: Sequence[int] = ()) -> "Future[int]":
        """Keep bodies as they came, all or none. The future is done when they outlast a power loss: the number of the last.

        The bodies with the numbers `instead_of` are removed with it.

        Returns at once. Raises BusyError when so much waits to be stored or booked that no more is taken, StoreError while the log
        cannot be written; the future raises StoreError when that turns out.
        """
        sealed = tuple(self._seal(body) for body in bodies)
        return self._put(_Request(_promise(), sealed, instead_of=tuple(instead_of)), longest_s=0)

    def received(self, numbers: Sequence[int] | None = None) -> Iterator[tuple[int, ReceivedBody]]:
        """The bodies that are kept and not booked, all or those of these numbers, in their order. Raises DamageError."""
        if numbers is None:
            with self._reading():
                numbers = list_bodies(self._connection)
        for number in numbers:  # one at a time: together they may be more than fits into memory
            with self._reading():
                found = read_bodies(self._connection, [number])
            yield from ((number, self._unseal(body)) for number, body in found)

    def states(self) -> dict[str, OriginState]:
        """The state of each origin, as it was last booked. Raises DamageError."""
        with self._reading():
            found = read_states(self._connection)
        return {origin: self._unseal(state) for origin, state in found.items()}

    def book(self, state: OriginState, done: int, batches: Iterable[LiveBatch]) -> int:
        """Store batches, replace the state of an origin, and remove its bodies with numbers up to `done`: all of it or nothing.

        When this returns it outlasts a power loss. The number of the last batch. Raises as `acknowledge` does.
        """
        masked = tuple(map(self._change, batches))
        request = _Request(_promise(), None, tuple(map(encode, masked)), self._seal(state), done)
        number = self._put(request).result()
        self.heard(masked)
        return number

    def acknowledge(self, batches: Iterable[LiveBatch]) -> int:
        """Store batches, all or none; when this returns they outlast a power loss. The number of the last: they are in a row.

        Raises InputError when one could not be imported, and StoreError when they cannot be stored: the disk is full, or so much
        waits that there was no room in `LONGEST_WAIT_S`.
        """
        return self._put(_Request(_promise(), batches=tuple(encode(self._change(batch)) for batch in batches))).result()

    def discard_through(self, number: int) -> None:
        """Remove the batches up to this number: they are in files of the books now."""
        self._put(_Request(_promise(), discard_through=number)).result()

    @property
    def folder(self) -> Path:
        """The store's."""
        return self._path.parent

    @property
    def hides_names(self) -> bool:
        """True where bodies are sealed, because the books know names by pseudonyms only."""
        return self._entry.seal is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were handed in and are not durable yet."""
        return self._waiting_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes of bodies that are kept and not booked yet."""
        return self._received_bytes

    @property
    def fault(self) -> str:
        """Why it cannot be written now, in one line; empty where it can."""
        fault = self._fault
        return "" if fault is None else f"{self._path} cannot be written ({fault.why}); it is tried again"

    @property
    def fault_s(self) -> float:
        """For how long it cannot be written; 0 where it can."""
        fault = self._fault
        return 0.0 if fault is None else time.monotonic() - fault.since_s

    def check_writable(self) -> None:
        """Raises StoreError while nothing is taken, at once."""
        if self._is_lost:
            raise StoreError(f"{self.fault}; send it again later")

    def close(self) -> None:
        """Store what waits, and let another process write. A closed log stays closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._writer.join()
        with suppress(sqlite3.Error):
            self._connection.close()
        self._lock.close()

    def __enter__(self) -> "LiveLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change(self, batch: LiveBatch) -> LiveBatch:
        return replace(batch, rows=self._entry.change(batch.table, batch.rows))

    def _seal(self, kept: Kept) -> Kept:
        seal = self._entry.seal
        return kept if seal is None else replace(kept, content=seal(kept.content))

    def _unseal(self, kept: Kept) -> Kept:
        unseal = self._entry.open
        return kept if unseal is None else replace(kept, content=unseal(kept.content))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._using:
            if self._closed:
                raise StoreError(f"{self._path} is closed; open it again")
            self.check_writable()
            try:
                yield
            except (DamageError, sqlite3.Error) as error:
                raise say_damage(self._path.parent, error) from error

    def _put(self, request: _Request, longest_s: float | None = None) -> "Future[int]":
        """Hand a request to the writing thread when there is room for it."""
        size, most = request.bytes, MOST_WAITING_BYTES
        if size > most and request.state is None:
            mib = f"{size / BYTES_PER_MIB:,.0f} MiB for the live log at once, at most {most / BYTES_PER_MIB:,.0f} are taken"
            raise InputError(f"{mib}; send less at a time")

        def has_room() -> bool:
            fits = self._waiting_bytes + size <= most or not self._waiting_bytes  # a large booking alone
            return fits and self._received_bytes + request.kept_bytes <= MOST_RECEIVED_BYTES

        with self._changed:
            wait_s = LONGEST_WAIT_S if longest_s is None else longest_s
            room = self._changed.wait_for(lambda: self._closed or self._is_lost or has_room(), wait_s)
            if self._closed:
                raise StoreError(f"{self._path} is closed; open it again")
            self.check_writable()
            if not room:
                raise BusyError(f"live rows come faster than {self._path} takes them; send them again later")
            self._waiting_bytes += size
            self._received_bytes += request.kept_bytes
            self._requests.append(request)
            self._changed.notify_all()
        return request.done

    def _write(self) -> None:
        """Commit what has gathered, again and again, and after a failure try to write again: what the writing thread does."""
        while (gathered := self._gather()) is not None:
            if self._is_lost:
                self._open_anew()
            elif gathered or self._is_due():
                self._try(gathered)
            else:
                with suppress(OSError, StoreError):  # the next commit says it
                    self._lock.renew()
        self._end_attempt(None)

    def _gather(self) -> list[_Request] | None:
        """What was handed in, as soon as there is something, or after a while nothing. None at the end."""
        fault = self._fault
        wait_s = LOOK_EVERY_S if fault is None else min(LOOK_EVERY_S, max(0.0, fault.next_s - time.monotonic()))
        with self._changed:
            self._changed.wait_for(lambda: bool(self._requests) or self._closed, wait_s)
            gathered, self._requests = self._requests, []
            return None if self._closed and not gathered else gathered

    def _is_due(self) -> bool:
        return self._fault is not None and time.monotonic() >= self._fault.next_s

    def _try(self, gathered: list[_Request]) -> None:
        """Commit what was handed in, and tell who waits. Without any it is an attempt, which ends a fault after a quiet time."""
        fault = self._fault
        try:
            numbers = self._commit(gathered)
        except Exception as error:  # whatever it is, nobody may wait for ever
            self._fail(gathered, error)
            return
        if fault is not None and not gathered and time.monotonic() - fault.refused_s < QUIET_S:
            self._fault = replace(fault, next_s=time.monotonic() + fault.pause_s)
        else:
            self._fault = None
        self._settle(gathered)
        for request, number in zip(gathered, numbers, strict=True):
            request.done.set_result(number)

    def _settle(self, requests: Sequence[_Request], are_kept: bool = True) -> None:
        """Give the room of requests back: they are on the disk, or (not `are_kept`) refused."""
        with self._changed:
            self._waiting_bytes -= sum(request.bytes for request in requests)
            if not are_kept:
                self._received_bytes -= sum(request.kept_bytes for request in requests)
            self._changed.notify_all()

    def _fail(self, gathered: list[_Request], error: Exception) -> None:
        """Refuse what could not be committed, and find out what is on the disk, where that is not known."""
        is_first = self._fault is None
        self._note_fault(say_why(error), bool(gathered))
        name = getattr(error, "sqlite_errorname", "")
        if name in NOT_THERE:
            self._attempt = None
        if name != FULL:
            with self._changed:
                self._is_lost = True
                gathered, self._requests = [*gathered, *self._requests], []
        waiting = {request for request, _ in self._attempt.waiting} if self._attempt is not None else set()
        refused = [request for request in gathered if request not in waiting]
        self._settle(refused, are_kept=False)
        for request in refused:
            request.done.set_exception(StoreError(f"live rows cannot be stored in {self._path} ({say_why(error)})"))
        if self._is_lost and is_first:  # else after a pause
            self._open_anew()

    def _note_fault(self, why: str, is_refused: bool) -> None:
        now_s, before = time.monotonic(), self._fault
        pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.pause_s)
        since_s = now_s if before is None else before.since_s
        refused_s = now_s if is_refused or before is None else before.refused_s
        self._fault = _Fault(why, since_s, refused_s, now_s + pause_s, pause_s)

    def _open_anew(self) -> None:
        """Open the database anew where it is time to: then it is known what is on the disk, and all of it is synced."""
        if self._fault is not None and self._fault.pause_s > FIRST_PAUSE_S and not self._is_due():
            return
        try:
            self._renew_lock()
            with self._using:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = open_database(self._path.parent, 0)
                # Writes again what a failed sync may have lost.
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                found = read_span(self._connection)
                kept = [self._span, *([] if self._attempt is None else [self._attempt.span])]
                if found not in kept:
                    raise StoreError("what was acknowledged is not there; stop it, and start it again")
                self._received_bytes = self._connection.execute(f"SELECT {BODY_BYTES} FROM received").fetchone()[0]
        except Exception as error:
            self._note_fault(say_why(error), is_refused=False)
            return
        was_there, self._span = found != self._span, found
        self._is_lost = False
        self._end_attempt(found if was_there else None)

    def _end_attempt(self, found: LogSpan | None) -> None:
        """Tell who waits to hear of a commit that was in doubt: it is there, or (None) not."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        self._settle([request for request, _ in attempt.waiting])
        for request, number in attempt.waiting:
            if found is not None:
                request.done.set_result(number)
            else:
                request.done.set_exception(StoreError(self.fault or f"{self._path} is closed; open it again"))

    def _renew_lock(self) -> None:
        """Hold the lock again where its file was deleted. Raises StoreError where another process was quicker."""
        try:
            self._lock.renew()
        except BlockingIOError as error:
            raise StoreError(f"{LOCK} was deleted and another process holds a new one; stop one of them") from error

    def _commit(self, gathered: list[_Request]) -> list[int]:
        """Do what was requested in one transaction; the number of the last body or batch after each request."""
        self._attempt = None
        self._renew_lock()
        numbers: list[int] = []
        with self._using:
            run, span, booked = self._connection.execute, self._span, 0
            try:
                run("BEGIN IMMEDIATE")
                for request in gathered:
                    for number in request.instead_of:
                        span, size = self._remove(span, "number = ?", number)
                        booked += size
                    span = self._store(request, span)
                    if request.state is not None:
                        span, size = self._book(request.state, request.booked_through, span)
                        booked += size
                    numbers.append(span.last if request.bodies is None else span.last_body)
                write_span(self._connection, span)
                moves = [
                    item for item in zip(gathered, numbers, strict=True) if item[0].bodies is None or item[0].instead_of
                ]
                self._attempt = _Attempt(
                    span, moves
                )  # senders send again, and each sample counts once; what is moved is not
                run("COMMIT")
            except Exception:
                with suppress(sqlite3.Error):
                    run("ROLLBACK")
                raise
            self._span, self._attempt = span, None
            if any(request.discard_through for request in gathered):
                with suppress(sqlite3.Error):  # nothing depends on it
                    give_back(self._connection)
        with self._changed:
            self._received_bytes -= booked
        return numbers

    def _store(self, request: _Request, span: LogSpan) -> LogSpan:
        """Store the bodies and batches of a request and discard what it says, inside a transaction; the numbers afterwards."""
        bodies = [body.numbered(span.last_body + 1 + place) for place, body in enumerate(request.bodies or ())]
        self._connection.executemany(INSERT_BODY_SQL, bodies)
        batches = [batch.numbered(span.last + 1 + place) for place, batch in enumerate(request.batches)]
        self._connection.executemany(INSERT_BATCH, batches)
        span = span._replace(
            last=span.last + len(batches), last_body=span.last_body + len(bodies), bodies=span.bodies + len(bodies)
        )
        return discard(self._connection, span, request.discard_through) if request.discard_through else span

    def _book(self, state: OriginState, done: int, span: LogSpan) -> tuple[LogSpan, int]:
        """Replace a state and remove the bodies behind it, inside a transaction; the numbers afterwards, and the bytes removed."""
        span, size = self._remove(span, "number <= ? AND origin = ?", done, state.origin)
        self._connection.execute(REPLACE_STATE_SQL, state.stored())
        (states,) = self._connection.execute("SELECT count(*) FROM states").fetchone()
        return span._replace(states=states), size

    def _remove(self, span: LogSpan, which: str, *of: int | str) -> tuple[LogSpan, int]:
        """Remove bodies, inside a transaction; the numbers afterwards, and the bytes removed."""
        run, these = self._connection.execute, f"FROM received WHERE {which}"
        count, size = run(f"SELECT count(*), {BODY_BYTES} {these}", of).fetchone()
        run(f"DELETE {these}", of)
        return span._replace(bodies=span.bodies - count), size


def _promise() -> "Future[int]":
    """A future that nobody can cancel: what was handed in is stored whether or not somebody still waits for it."""
    done: Future[int] = Future()
    done.set_running_or_notify_cancel()
    return done


def set_damaged_aside(folder: Path, to: Path, after: int) -> bool:
    """Move a live log that is not what was written into another folder; True where it was.

    Raises StoreError when a process has it open.
    """
    try:
        check_live(folder, after)
        return False
    except DamageError:
        pass
    with _locked(folder):
        to.mkdir(exist_ok=True)
        for suffix in ("", LOG_SUFFIX, "-shm"):  # the write-ahead log later: without its database it is damage still
            with suppress(FileNotFoundError):
                disk.move_aside(folder / f"{NAME}{suffix}", to)
        disk.sync_folder(folder)
    return True


def _locked(folder: Path) -> Lock:
    held = f"another process takes live batches into {folder} ({{holder}}); stop it first"
    return take_lock(folder / LOCK, held)
