"""The overlay: live rows as tables that all sessions of a process see, made once a generation and last batch.

What follows from them, as the hours that they have booked anew, is kept beside them for the sessions that come later.
"""

import os
import weakref
from collections.abc import Callable
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.store.manifest import StepVote
    from loadfactor.store.sample_files import SamplePart

Found = TypeVar("Found")
Extent = tuple[int | None, int | None]
"""The first start and the last instant that rows name; None where they name none."""

_numbers = count(1)


class Overlay:
    """What is in no file yet, in a schema of the engine that goes with the last session that uses it."""

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        """`raw`: a connection of its own."""
        self.schema = f"overlay_{next(_numbers)}"
        self.tables: dict[str, str] = {}  # relations of this schema by table
        self.samples: tuple[SamplePart, ...] = ()
        self.votes: dict[int, tuple[StepVote, ...]] = {}  # of the days in which live samples lie among others
        self.spans: tuple[Span, ...] = ()  # of the ledger, to be booked again
        self.extents: dict[str, Extent] = {}  # of the tables with live rows folded in
        self._raw = raw
        self._found: dict[object, Any] = {}
        self._finding = RLock()
        raw.execute(f"CREATE SCHEMA {self.schema}")
        weakref.finalize(self, _drop, raw, self.schema, os.getpid()).atexit = False

    @property
    def is_empty(self) -> bool:
        """True where nothing is live."""
        return not self.tables and not self.samples

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Another connection of its engine."""
        return self._raw.cursor()

    def materialize(self, raw: duckdb.DuckDBPyConnection, name: str, sql: str) -> str:
        """Put what a session finds into a new table of all; its name in SQL."""
        relation = f"{self.schema}.{name}_{next(_numbers)}"
        raw.execute(f"CREATE TABLE {relation} AS {sql}")
        return relation

    def find_once(self, key: object, find: Callable[[], Found]) -> Found:
        """What `find` gives, for all sessions the same; others wait for the one that finds it out."""
        with self._finding:
            if key not in self._found:
                self._found[key] = find()
            found: Found = self._found[key]
            return found


def _drop(raw: duckdb.DuckDBPyConnection, schema: str, process: int) -> None:
    if os.getpid() == process:  # the engine of a process that this one was forked from is not ours
        raw.execute(f"DROP SCHEMA {schema} CASCADE")
        raw.close()
