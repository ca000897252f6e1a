"""The database of alerts, `alerts.sqlite` beside the books: its tables, opening it to write, and reading it without touching it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from loadfactor.base.errors import DamageError, StoreError

NAME: Final = "alerts.sqlite"
FORMAT: Final = 1
BUSY_S: Final = 20.0
"""So long one process waits for another that writes."""
_TABLES: Final = """
CREATE TABLE judge (one INTEGER PRIMARY KEY CHECK (one = 1), judged_ms INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE late (one INTEGER PRIMARY KEY CHECK (one = 1), changed_ms INTEGER NOT NULL);
CREATE TABLE alerts (
  fingerprint TEXT PRIMARY KEY, state TEXT NOT NULL, end_ms INTEGER, body TEXT NOT NULL
);
CREATE INDEX alerts_by_state ON alerts (state, end_ms);
CREATE TABLE transitions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL, state TEXT NOT NULL,
  at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX transitions_of_alert ON transitions (fingerprint);
CREATE TABLE deliveries (
  receiver TEXT NOT NULL, transition INTEGER NOT NULL, batch TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
  since_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL, done_ms INTEGER, why TEXT NOT NULL,
  PRIMARY KEY (receiver, transition)
);
CREATE INDEX deliveries_open ON deliveries (receiver, state, next_ms);
CREATE TABLE silences (
  id TEXT PRIMARY KEY, rule TEXT NOT NULL, by TEXT NOT NULL, created_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, who TEXT NOT NULL, ended_ms INTEGER
);
"""


def open_outbox(folder: Path) -> sqlite3.Connection:
    """The database open for writing, made where there is none; what is committed outlasts a power loss.

    Raises StoreError where it cannot be written or is newer, DamageError where it is no such database.
    """
    path = folder / NAME
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened ({error}); check its permissions") from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if _read_format(connection, path) == 0:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise explain(path, error) from error
        raise
    return connection


@contextmanager
def read_outbox(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """The database as it is now, for reading alone; None where there is none. Raises as `open_outbox`."""
    path = folder / NAME
    if not path.exists():
        yield None
        return
    has_log = path.with_name(f"{NAME}-wal").exists()  # else nobody writes, and nothing is to be made beside it
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}", BUSY_S, uri=True)
        ) as connection:
            _read_format(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise explain(path, error) from error


def explain(path: Path, error: sqlite3.Error) -> StoreError | DamageError:
    """What is wrong with the database, and what to do."""
    if isinstance(error, sqlite3.OperationalError):
        return StoreError(f"{path} cannot be read or written ({error}); check the disk and its permissions")
    return DamageError(
        f"{path} is damaged ({error}); move it aside, and alerts and silences begin anew: mv {path} {path}.damaged"
    )


def _read_format(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise StoreError(f"{path} has format {version}, this version reads {FORMAT}; install the newest version")
    return int(version)
