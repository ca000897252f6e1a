"""The overlay: what all sessions of a process share over one generation and last batch of live rows.

These rows as tables, and what follows from them and the files, as hours that they have booked anew, for sessions that come later.
"""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb

from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.store.manifest import StepVote
    from loadfactor.store.sample_files import SamplePart

Found = TypeVar("Found")
Extent = tuple[int | None, int | None]
"""The first start and the last instant that rows name; None where they name none."""

MOST_KEPT: Final = 1_000_000
"""Values of answers that are kept: some 100 MB. An answer of more than half of that is not."""

_numbers = count(1)


class Overlay:
    """What is in no file yet, and what was found out, in a schema of the engine that goes with the last session that uses it."""

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
        self._kept: OrderedDict[object, tuple[Any, int]] = OrderedDict()  # answers with how many values each has
        self._keeping = Lock()
        raw.execute(f"CREATE SCHEMA {self.schema}")
        weakref.finalize(self, _drop, raw, self.schema, os.getpid()).atexit = False

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

    def keep(self, key: object, find: Callable[[], Found], measure: Callable[[Found], int]) -> Found:
        """An answer, kept with so many values as `measure` says; of too many, those go that nobody asked for longest."""
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: Found = self._kept[key][0]
                return found
        found = find()  # others go on meanwhile
        size = measure(found)
        if size <= MOST_KEPT // 2:
            with self._keeping:
                self._kept[key] = found, size
                while sum(of for _, of in self._kept.values()) > MOST_KEPT:
                    self._kept.popitem(last=False)
        return found


def _drop(raw: duckdb.DuckDBPyConnection, schema: str, process: int) -> None:
    if os.getpid() == process:  # the engine of a process that this one was forked from is not ours
        raw.execute(f"DROP SCHEMA {schema} CASCADE")
        raw.close()
