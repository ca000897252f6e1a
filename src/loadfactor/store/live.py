"""Live batches, acknowledged durably in a SQLite database of the store's folder until they become files of the books.

One process at a time writes (`live.lock`). Its threads call `LiveLog.acknowledge`, which returns when the batches of the call are
on the disk; one thread commits what has gathered meanwhile, so that many requests share one sync. Batches are numbered in the
order of their commits, and no number is given twice. Readers leave the disk alone (`read_live`).
"""

import fcntl
import sqlite3
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from loadfactor.errors import DamageError, InputError, StoreError
from loadfactor.store import disk
from loadfactor.store.live_batch import INSERT_SQL, TABLE_SQL, EncodedBatch, LiveBatch, decode, encode
from loadfactor.store.live_copy import LOG_SUFFIX, NAME, open_copy
from loadfactor.units import BYTES_PER_MIB

__all__ = ["LiveBatch", "LiveLog", "read_live"]

LOCK = "live.lock"
FORMAT = 1
MOST_WAITING_BYTES = 64 * BYTES_PER_MIB
"""Encoded batches that wait for their commit; with more, `acknowledge` waits for room."""
LONGEST_WAIT_S = 30.0
"""So long it waits for room; then it refuses."""

_MADE = f"""
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA user_version = {FORMAT};
{TABLE_SQL};
CREATE TABLE span (discarded INTEGER NOT NULL, last INTEGER NOT NULL);
INSERT INTO span VALUES (0, 0);
"""
_OPENED = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = OFF;
PRAGMA wal_autocheckpoint = 1024;
"""
_OF_THE_MACHINE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_NOMEM")
"""Errors that say nothing of the database: no disk, no memory."""


@dataclass(frozen=True, eq=False)
class _Request:
    """What one thread waits for: batches to be stored, or those that became files to be discarded."""

    done: "Future[int]"
    batches: tuple[EncodedBatch, ...] = ()
    discard_through: int = 0

    @property
    def bytes(self) -> int:
        return sum(len(batch.rows) for batch in self.batches)


class LiveLog:
    """The live batches of one store, held open by the one process that writes them. Any thread may call its methods."""

    def __init__(self, folder: Path, lock: IO[str], connection: sqlite3.Connection, last: int) -> None:
        """Use `LiveLog.open`."""
        self._path = folder / NAME
        self._lock = lock
        self._connection = connection
        self._last = last
        self._requests: list[_Request] = []
        self._waiting_bytes = 0  # of these, and of the commit under way
        self._changed = threading.Condition()
        self._closed = False
        self._broken = ""
        self._writer = threading.Thread(target=self._write, name="live batches", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, folder: Path, after: int = 0) -> "LiveLog":
        """Open the live batches of a store for writing. Those through `after` are files of the books already: they are discarded.

        Raises StoreError when another process has them open or the folder cannot be written, DamageError when they are damaged.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK).open("w")
        except OSError as error:
            raise StoreError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            connection, last = _opened(folder, after)
        except BaseException as error:
            lock.close()
            if isinstance(error, BlockingIOError):
                raise StoreError(f"another process takes live batches into {folder}; stop it first") from error
            if isinstance(error, OSError | sqlite3.Error):
                raise StoreError(f"{folder / NAME} cannot be written ({_reason(error)})") from error
            raise
        return cls(folder, lock, connection, last)

    def acknowledge(self, batches: Iterable[LiveBatch]) -> int:
        """Store batches, all or none; when this returns they outlast a power loss. The number of the last: they are in a row.

        Raises InputError when one could not be imported, and StoreError when they cannot be stored: the disk is full, or so much
        waits that there was no room in `LONGEST_WAIT_S`.
        """
        return self._ask(_Request(Future(), tuple(encode(batch) for batch in batches)))

    def discard_through(self, number: int) -> None:
        """Remove the batches up to this number: they are in files of the books now."""
        self._ask(_Request(Future(), discard_through=number))

    def close(self) -> None:
        """Store what waits, and let another process write. A closed log stays closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._writer.join()
        self._connection.close()
        self._lock.close()

    def __enter__(self) -> "LiveLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: _Request) -> int:
        """Hand a request to the writing thread and wait for it; the number of the last batch then."""
        size, most = request.bytes, MOST_WAITING_BYTES
        if size > most:
            mib = f"{size / BYTES_PER_MIB:,.0f} MiB of live batches at once, at most {most / BYTES_PER_MIB:,.0f} are taken"
            raise InputError(f"{mib}; send fewer rows at a time")
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or self._broken or self._waiting_bytes + size <= most, LONGEST_WAIT_S
            )
            if self._closed:
                raise StoreError(f"{self._path} is closed; open it again")
            if self._broken:
                raise StoreError(f"{self._path} can no longer be written ({self._broken}); open it again")
            if not room:
                raise StoreError(f"live batches come faster than {self._path} takes them; send them again later")
            self._waiting_bytes += size
            self._requests.append(request)
            self._changed.notify_all()
        return request.done.result()

    def _write(self) -> None:
        """Commit what has gathered, again and again: what the writing thread does."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._requests) or self._closed)
                gathered, self._requests = self._requests, []
            if not gathered:
                return
            failure: StoreError | None = None
            numbers: list[int] = []
            try:
                numbers = self._commit(gathered)
            except Exception as error:  # whatever it is, nobody may wait for ever
                failure = StoreError(f"live batches cannot be stored in {self._path} ({_reason(error)})")
                if getattr(error, "sqlite_errorname", "") != "SQLITE_FULL":
                    self._broken = _reason(error)  # after a failed sync nobody knows what is on the disk
            with self._changed:
                self._waiting_bytes -= sum(request.bytes for request in gathered)
                self._changed.notify_all()
            for place, request in enumerate(gathered):
                if failure is None:
                    request.done.set_result(numbers[place])
                else:
                    request.done.set_exception(failure)

    def _commit(self, gathered: list[_Request]) -> list[int]:
        """Store and discard in one transaction; the number of the last batch after each request."""
        if self._broken:
            raise StoreError(self._broken)
        last, numbers = self._last, []
        run = self._connection.execute
        try:
            run("BEGIN IMMEDIATE")
            for request in gathered:
                for batch in request.batches:
                    last += 1
                    run(INSERT_SQL, batch.numbered(last))
                if request.discard_through:
                    last = max(last, request.discard_through)
                    _discard(self._connection, request.discard_through)
                numbers.append(last)
            run("UPDATE span SET last = ?", (last,))
            run("COMMIT")
        except Exception:
            with suppress(sqlite3.Error):
                run("ROLLBACK")
            raise
        self._last = last
        if any(request.discard_through for request in gathered):
            with suppress(sqlite3.Error):  # nothing depends on it
                _give_back(self._connection)
        return numbers


def has_live(folder: Path) -> bool:
    """True where live batches were ever acknowledged."""
    return (folder / NAME).exists()


def read_live(folder: Path, after: int) -> list[tuple[int, LiveBatch]]:
    """The live batches with numbers above `after`, in their order. Changes nothing on the disk, and needs no lock.

    Raises DamageError when they are not what was acknowledged.
    """
    if not has_live(folder):
        return []
    try:
        with open_copy(folder) as copy:
            discarded, last = _span(copy)
            rows = copy.execute("SELECT * FROM batches WHERE number > ? ORDER BY number", (max(after, discarded),))
            found = [decode(row) for row in rows]
            if [number for number, _ in found] != list(range(max(after, discarded) + 1, last + 1)):
                raise DamageError("acknowledged batches are missing")
            return found
    except FileNotFoundError:
        return []
    except (DamageError, sqlite3.Error, TypeError, ValueError) as error:
        raise DamageError(
            f"{folder / NAME} is damaged ({_reason(error)}); `loadfactor repair` moves it aside"
        ) from error


def _opened(folder: Path, after: int) -> tuple[sqlite3.Connection, int]:
    """The database open for writing, made where there is none, and the number of its last batch."""
    path = folder / NAME
    if not path.exists():
        _create(folder)
    read_live(folder, after)  # damage is said before SQLite cuts off the log of a killed process
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.executescript(_OPENED)
        _span(connection)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            _discard(connection, after)
        _give_back(connection)
        disk.sync_folder(folder)  # the transaction made the write-ahead log: its name lasts as well
        return connection, _span(connection)[1]
    except BaseException:
        connection.close()
        raise


def _create(folder: Path) -> None:
    """Make an empty database beside, and give it its name when it is whole."""
    new = folder / f"{NAME}.new"
    for left in (new, *(new.with_name(new.name + suffix) for suffix in (LOG_SUFFIX, "-shm", "-journal"))):
        disk.remove(left)  # of a process killed right here
    connection = sqlite3.connect(new, isolation_level=None)
    try:
        connection.executescript(_MADE)
    finally:
        connection.close()
    disk.sync_file(new)
    disk.rename(new, folder / NAME)
    disk.sync_folder(folder)


def _span(connection: sqlite3.Connection) -> tuple[int, int]:
    """The numbers of the last batch that was discarded and of the last that was acknowledged."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise StoreError(f"{NAME} has format {version}, this version reads {FORMAT}; install the newest version")
    discarded, last = connection.execute("SELECT discarded, last FROM span").fetchone()
    return discarded, last


def _discard(connection: sqlite3.Connection, through: int) -> None:
    """Remove batches, inside a transaction."""
    connection.execute("DELETE FROM batches WHERE number <= ?", (through,))
    connection.execute("UPDATE span SET discarded = max(discarded, ?1), last = max(last, ?1)", (through,))


def _give_back(connection: sqlite3.Connection) -> None:
    """Give the room of removed batches back to the disk."""
    connection.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after the first page


def _reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())
