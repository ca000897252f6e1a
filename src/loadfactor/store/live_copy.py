"""Reading the database of live batches without touching it: SQLite opens a private copy, taken beside the process that writes.

SQLite would write beside a database that it only reads (the index of its write-ahead log), and a killed writer leaves a log that
only a writer may finish. A copy is whole when the log was only appended to meanwhile: a page that a checkpoint changed under the
copy is in the log, too. The header of the log changes when it is begun anew; then the copy is taken again.
"""

import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from loadfactor.base.errors import DamageError, StoreError, say_why
from loadfactor.base.units import MS_PER_S

NAME = "live.sqlite"
LOG_SUFFIX = "-wal"
COPY_TRIES = 200
COPY_PAUSE_S = 10 / MS_PER_S

# https://sqlite.org/fileformat2.html#walformat
_LOG_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint number, two salts, two checksums
_FRAME_HEADER = struct.Struct(">6I")  # page, pages after a commit (0: none here), two salts, two checksums
_MAGIC = (0x377F0682, 0x377F0683)
_SALTS: Final = slice(16, 24)
"""Of the header of a log; those of a frame are the same where the frame is of this log."""
_FRAME_SALTS: Final = slice(8, 16)
_COMMIT: Final = slice(4, 8)
"""Of a frame: pages after a commit, nothing but zeros where it is none."""


class LogMark(NamedTuple):
    """How far a database was read: the inode, the header of its write-ahead log, and where the next frame will lie."""

    inode: int
    header: bytes
    end: int


class _Frames(NamedTuple):
    """Frames of a log: the header, bytes of each, how many were synced for certain, and how many there are."""

    header: bytes = b""
    length: int = 0
    synced: int = 0
    number: int = 0


def has_live(folder: Path) -> bool:
    """True where live batches were ever acknowledged. Raises DamageError where only the write-ahead log is left."""
    if (folder / NAME).exists():
        return True
    if (folder / f"{NAME}{LOG_SUFFIX}").exists() and not (folder / NAME).exists():
        raise name_damage(
            folder, "it is gone, and its write-ahead log is there"
        )  # a new database would take it for its own
    return False


def name_damage(folder: Path, what: str) -> DamageError:
    """The error for a database that is not what was written."""
    return DamageError(f"{folder / NAME} is damaged ({what}); `loadfactor repair --store {folder}` moves it aside")


@contextmanager
def open_copy(folder: Path, name: str = NAME) -> Iterator[sqlite3.Connection]:
    """The live batches of a store as of now, or another of its databases, in a private copy that is gone afterwards.

    Raises DamageError when the write-ahead log lost acknowledged batches, StoreError when no whole copy can be had, and what
    SQLite raises.
    """
    with open_marked_copy(folder, name) as (connection, _mark):
        yield connection


@contextmanager
def open_marked_copy(folder: Path, name: str = NAME) -> Iterator[tuple[sqlite3.Connection, LogMark | None]]:
    """The same, with how far it was read; None where that cannot be seen again: nothing is in the log, or a commit is under way."""
    with TemporaryDirectory(prefix="loadfactor-live-") as private:
        copy, inode = _copied(folder / name, Path(private))
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            frames = _read_frames(copy.with_name(name + LOG_SUFFIX))
            _busy, read, _moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames.synced > max(read, 0):
                raise DamageError(f"{name + LOG_SUFFIX} breaks off before its end")
            is_whole = 0 < read == frames.number
            yield (
                connection,
                LogMark(inode, frames.header, _LOG_HEADER.size + read * frames.length) if is_whole else None,
            )


def is_as_read(folder: Path, mark: LogMark | None) -> bool:
    """True where nothing was written to the live batches of a store since they were read; False where that is not certain."""
    if mark is None:
        return False
    try:
        with (folder / f"{NAME}{LOG_SUFFIX}").open("rb") as log:
            header = log.read(_LOG_HEADER.size)
            log.seek(mark.end)
            frame = log.read(_FRAME_HEADER.size)
        inode = (folder / NAME).stat().st_ino
    except OSError:
        return False
    return (inode, header) == mark[:2] and frame[_FRAME_SALTS] != header[_SALTS]


def _copied(database: Path, private: Path) -> tuple[Path, int]:
    """A whole copy, and the inode of what it was taken of."""
    log = database.with_name(database.name + LOG_SUFFIX)
    try:
        for _ in range(COPY_TRIES):
            before = _state(database, log)
            shutil.copyfile(database, private / database.name)
            with suppress(FileNotFoundError):
                shutil.copyfile(log, private / log.name)
            if _state(database, log) == before:
                return private / database.name, before[0]
            (private / log.name).unlink(missing_ok=True)
            time.sleep(COPY_PAUSE_S)
    except OSError as error:
        raise StoreError(f"{database} cannot be read ({say_why(error)})") from error
    raise StoreError(f"{database} cannot be read: it is rewritten faster than it can be copied; ask again")


def _state(database: Path, log: Path) -> tuple[int, bytes | tuple[int, int]]:
    """Facts that stay while the log is only appended to. Without a log, facts that stay while nothing is written at all."""
    found = database.stat()
    header = b""
    with suppress(FileNotFoundError), log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
    return found.st_ino, header or (found.st_size, found.st_mtime_ns)


def _read_frames(log: Path) -> _Frames:
    """The frames of a log. Those were synced for certain that lie before the last commit after which the writer went on.

    SQLite takes a damaged frame for the end of the log. Frames beyond a commit show that it had been synced.
    """
    if not log.exists() or (size := log.stat().st_size) <= _LOG_HEADER.size:
        return _Frames()
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        magic, _version, page_size, _number, *_salts, first, second = _LOG_HEADER.unpack(header)
        if magic not in _MAGIC or (first, second) != _checksum(header[:-8], big=magic == _MAGIC[1]):
            raise DamageError(f"the header of {log.name} is damaged")
        synced = committed = number = 0
        length = _FRAME_HEADER.size + page_size
        for frame in range((size - _LOG_HEADER.size) // length):
            file.seek(_LOG_HEADER.size + frame * length)
            found = file.read(_FRAME_HEADER.size)
            if found[_FRAME_SALTS] == header[_SALTS]:  # others are of a log before, not overwritten yet
                synced, number = committed, frame + 1
                committed = frame + 1 if any(found[_COMMIT]) else committed
    return _Frames(header, length, synced, number)


def _checksum(content: bytes, big: bool) -> tuple[int, int]:
    """The checksum of a header, as SQLite forms it over pairs of 32-bit words."""
    first = second = 0
    for a, b in struct.iter_unpack(">2I" if big else "<2I", content):
        first = (first + a + second) & 0xFFFFFFFF
        second = (second + b + first) & 0xFFFFFFFF
    return first, second
