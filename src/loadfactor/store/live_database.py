"""The database of live batches: how it is made, opened for writing, and read without touching it."""

import sqlite3
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from loadfactor.base.errors import DamageError, InputError, no_such, say_why
from loadfactor.base.paths import DIGEST_DIGITS
from loadfactor.sources.base import Rows
from loadfactor.store import disk
from loadfactor.store.live_copy import LOG_SUFFIX, NAME, LogMark, has_live, name_damage, open_marked_copy
from loadfactor.store.manifest import refuse_format
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import TABLES

BATCHES_SQL = """
CREATE TABLE batches (
  number INTEGER PRIMARY KEY, source TEXT NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL,
  crc32 INTEGER NOT NULL, rows BLOB NOT NULL
)"""
INSERT_BATCH = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)"

Stored = tuple[Any, ...]
"""A row of the database: its fields, a checksum of them and of the content, and the content."""


def _write_row(content: bytes, *fields: object) -> Stored:
    return *fields, _checksum(content, *fields), content


def _read_row(row: Stored, what: str) -> tuple[Any, ...]:
    """The fields and the content of a row. Raises DamageError when it is not what was written; `{}` is its first field."""
    *fields, crc, content = row
    if _checksum(content, *fields) != crc:
        raise DamageError(what.format(fields[0]))
    return *fields, content


def _checksum(content: bytes, *fields: object) -> int:
    return zlib.crc32(content, zlib.crc32("\0".join(map(str, fields)).encode(errors="replace")))


@dataclass(frozen=True)
class LiveBatch:
    """Rows of one table as a source delivered them: any columns of the table. `where` is their label in messages."""

    source: str
    table: str
    rows: pa.Table
    where: str


Numbered = tuple[int, LiveBatch]


@dataclass(frozen=True)
class EncodedBatch:
    """A checked batch as bytes; its number comes with its commit."""

    source: str
    table: str
    where: str
    rows: bytes

    def numbered(self, number: int) -> Stored:
        """The row of the database."""
        return _write_row(self.rows, number, self.source, self.table, self.where)


def encode(batch: LiveBatch) -> EncodedBatch:
    """Check a batch and encode it. Raises InputError (SourceError with the row) for rows that no import would take."""
    if batch.table not in (known := [t.name for t in TABLES if t != CHARGES]):
        raise no_such("table", batch.table, known)
    if len(set(batch.rows.column_names)) < batch.rows.num_columns:
        raise InputError(f"{batch.where or batch.table}: a column of {batch.table} is there twice")
    validate_rows(Rows(batch.table, batch.rows, batch.where), 0)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(batch.rows)
    source, where = (text.encode(errors="replace").decode() for text in (batch.source, batch.where))
    return EncodedBatch(source, batch.table, where, out.getvalue().to_pybytes())


def decode(row: Stored) -> tuple[int, LiveBatch]:
    """The number and the batch of a row. Raises DamageError when it is not what was stored."""
    number, source, table, where, rows = _read_row(row, "live batch {} is not what was acknowledged")
    return number, LiveBatch(source, table, pa.ipc.open_stream(rows).read_all(), where)


RECEIVED_SQL = """
CREATE TABLE received (
  number INTEGER PRIMARY KEY, origin TEXT NOT NULL, format TEXT NOT NULL, received_ms INTEGER NOT NULL,
  crc32 INTEGER NOT NULL, content BLOB NOT NULL
)"""
STATES_SQL = """
CREATE TABLE states (
  origin TEXT PRIMARY KEY, through INTEGER NOT NULL, crc32 INTEGER NOT NULL, content BLOB NOT NULL
) WITHOUT ROWID"""
BODY_BYTES = "coalesce(sum(length(content)), 0)"
INSERT_BODY_SQL = "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?)"
REPLACE_STATE_SQL = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)"


@dataclass(frozen=True)
class ReceivedBody:
    """Bytes as they came at `received_ms` (UTC). `origin` names an independent stream of bodies, `format` what they are."""

    origin: str
    format: str
    received_ms: int
    content: bytes

    def numbered(self, number: int) -> Stored:
        """The row of the database."""
        return _write_row(self.content, number, self.origin, self.format, self.received_ms)


@dataclass(frozen=True)
class OriginState:
    """State of the decoder of an origin after all bodies with numbers up to `through`."""

    origin: str
    through: int
    content: bytes

    def stored(self) -> Stored:
        """The row of the database."""
        return _write_row(self.content, self.origin, self.through)


FORMAT: Final = 2
_SPAN_SQL = """
CREATE TABLE span (
  discarded INTEGER NOT NULL, last INTEGER NOT NULL, last_body INTEGER NOT NULL, bodies INTEGER NOT NULL,
  states INTEGER NOT NULL, crc32 INTEGER NOT NULL
)"""
_MADE = """
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
"""
_OPENED = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = OFF;
PRAGMA wal_autocheckpoint = 1024;
"""


class LogSpan(NamedTuple):
    """The last batch discarded, the last acknowledged, the last body kept; how many bodies and states there are."""

    discarded: int = 0
    last: int = 0
    last_body: int = 0
    bodies: int = 0
    states: int = 0

    def checksum(self) -> int:
        """Stored with it: a damaged number would be given twice."""
        return zlib.crc32(repr(tuple(self)).encode())


def read_live(folder: Path, after: int) -> list[Numbered]:
    """The live batches with numbers above `after`, in their order. Changes nothing on the disk, and needs no lock.

    Raises DamageError when they are not what was acknowledged.
    """
    batches, _mark = read_live_beside(folder, after, None)
    return batches or []


def read_live_beside(folder: Path, after: int, known: int | None) -> tuple[list[Numbered] | None, LogMark | None]:
    """The same, None where the last one is `known`; and how far the database was read, None where nobody can see that again."""
    return _read(folder, after, known=known)


def check_live(folder: Path, after: int) -> None:
    """Raises DamageError when anything in the database is not what was written; the batches through `after` may be gone."""
    _read(folder, after, reads_all=True)


def open_database(folder: Path, after: int) -> sqlite3.Connection:
    """The database open for writing, made where there is none; batches through `after` are discarded.

    Raises DamageError, with the database as it was, when anything in it is not what was written.
    """
    path = folder / NAME
    if not has_live(folder):
        _create(folder)
    check_live(folder, after)  # damage is reported before SQLite cuts off the log of a killed process
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.executescript(_OPENED)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            span = read_span(connection)
            write_span(connection, discard(connection, span, after))
        give_back(connection)
        disk.sync_folder(folder)  # the transaction made the write-ahead log: its name lasts as well
        return connection
    except BaseException:
        connection.close()
        raise


def read_span(connection: sqlite3.Connection) -> LogSpan:
    """Range of numbers in the database. Raises StoreError for another format, DamageError for what nobody wrote."""
    *numbers, crc = connection.execute("SELECT * FROM span").fetchone()  # an empty file, which has none, is damage
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise refuse_format(NAME, version, FORMAT)
    span = LogSpan(*numbers)
    if span.checksum() != crc:
        raise DamageError("its numbers are not what was written")
    return span


def write_span(connection: sqlite3.Connection, span: LogSpan) -> None:
    """Replace what the database says of its numbers, inside a transaction."""
    connection.execute("DELETE FROM span")
    connection.execute("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?)", (*span, span.checksum()))


def discard(connection: sqlite3.Connection, span: LogSpan, through: int) -> LogSpan:
    """Remove batches, inside a transaction; the numbers afterwards."""
    connection.execute("DELETE FROM batches WHERE number <= ?", (through,))
    return span._replace(discarded=max(span.discarded, through), last=max(span.last, through))


def give_back(connection: sqlite3.Connection) -> None:
    """Give the room of what was removed back to the disk."""
    connection.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after the first page


def read_bodies(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[tuple[int, ReceivedBody]]:
    """The bodies of these numbers, as far as they are there. Raises DamageError when one is not what was kept."""
    found = (connection.execute("SELECT * FROM received WHERE number = ?", (n,)).fetchone() for n in numbers)
    rows = [_read_row(row, "received body {} is not what was kept") for row in found if row is not None]
    return [(number, ReceivedBody(*fields)) for number, *fields in rows]


def list_bodies(connection: sqlite3.Connection) -> list[int]:
    """The numbers of the bodies, in order."""
    return [number for (number,) in connection.execute("SELECT number FROM received ORDER BY number")]


def read_states(connection: sqlite3.Connection) -> dict[str, OriginState]:
    """The state of each origin. Raises DamageError when one is not what was stored."""
    rows = connection.execute("SELECT * FROM states").fetchall()
    states = [OriginState(*_read_row(row, "the state of {} is not what was stored")) for row in rows]
    return {state.origin: state for state in states}


def say_damage(folder: Path, error: BaseException) -> DamageError:
    """The error for a database that is not what was written."""
    return name_damage(folder, say_why(error))


def _read(
    folder: Path, after: int, reads_all: bool = False, known: int | None = None
) -> tuple[list[Numbered] | None, LogMark | None]:
    """As `read_live_beside`; `reads_all`: bodies and states as well, to see that they are whole."""
    if not has_live(folder):
        return [], None
    try:
        with open_marked_copy(folder) as (copy, mark):
            span = read_span(copy)
            if known is not None and span.last == known:
                return None, mark
            first = max(after, span.discarded)
            found = [
                decode(row) for row in copy.execute("SELECT * FROM batches WHERE number > ? ORDER BY number", (first,))
            ]
            if [number for number, _ in found] != list(range(first + 1, span.last + 1)):
                raise DamageError("acknowledged batches are missing")
            if reads_all:
                _check_received(copy, span)
            return found, mark
    except FileNotFoundError:
        return [], None
    except (DamageError, sqlite3.Error, TypeError, ValueError) as error:
        raise say_damage(folder, error) from error


def _check_received(connection: sqlite3.Connection, span: LogSpan) -> None:
    """Raises DamageError unless all bodies and states are there and what they were."""
    numbers = list_bodies(connection)
    for number in numbers:  # one at a time: together they may be more than fits into memory
        read_bodies(connection, [number])
    if len(numbers) != span.bodies or max(numbers, default=0) > span.last_body:
        raise DamageError("received bodies are missing")
    if len(read_states(connection)) != span.states:
        raise DamageError("states of decoders are missing")


def _create(folder: Path) -> None:
    """Make an empty database beside, and give it its name when it is whole."""
    new = folder / f"{NAME}.new"
    for left in (new, *(new.with_name(new.name + suffix) for suffix in (LOG_SUFFIX, "-shm", "-journal"))):
        disk.remove(left)  # of a process killed right here
    connection = sqlite3.connect(new, isolation_level=None)
    try:
        connection.executescript(_MADE)
        for statement in (BATCHES_SQL, RECEIVED_SQL, STATES_SQL, _SPAN_SQL, f"PRAGMA user_version = {FORMAT}"):
            connection.execute(statement)
        write_span(connection, LogSpan())
    finally:
        connection.close()
    disk.sync_file(new)
    disk.rename(new, folder / NAME)
    disk.sync_folder(folder)


QUARANTINE = "quarantine"


def quarantine_body(folder: Path, number: int, body: ReceivedBody) -> Path:
    """Keep a body as it came; where it lies. Once is as good as twice. Raises OSError where the disk does not take it."""
    # Numbers begin again in a log that takes the place of a damaged one.
    digest = sha256(body.content).hexdigest()[:DIGEST_DIGITS]
    path = folder / QUARANTINE / f"body-{number}-{digest}.{body.format}"
    disk.make_folder(path.parent)
    new = path.with_suffix(".new")
    disk.write_file(new, body.content)
    disk.rename(new, path)
    disk.sync_folder(path.parent)
    return path


def list_quarantined(folder: Path) -> list[Path]:
    """Where they lie."""
    return [path for path in (folder / QUARANTINE).glob("body-*") if path.suffix != ".new"]


def count_quarantined(folder: Path) -> int:
    """How many lie there."""
    return len(list_quarantined(folder))
