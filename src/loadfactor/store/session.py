"""A session: one generation of the books as tables to ask, in a connection of its own with its own temporary names.

Sessions of questions share one engine in the process and work in the thread that asks, in order, so that the same question gives
the same digits. A writer has an engine of its own, with all cores. What does not fit into memory is spilled outside the store.

What becomes of rows as they enter the books: names are masked, and rules say of what experiment and team they are.

The store knows neither keys nor rules: it is given functions.
"""

import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb

from loadfactor.store.manifest import Manifest, StepVote, StoredFile
from loadfactor.store.overlay import Extent, Overlay
from loadfactor.store.place import Place
from loadfactor.store.sample_files import SamplePart, quote, read, samples
from loadfactor.store.step_votes import learn_steps
from loadfactor.tables.schema import ALWAYS, DIAGNOSTIC, OUTAGES, TABLES, Span, columns_of

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.sources.base import Gap, Rows


Found = TypeVar("Found")
ChangeBytes = Callable[[bytes], bytes]
ChangeRows = Callable[[str, "pa.Table"], "pa.Table"]
"""Rows of a table, by its name, made otherwise: as many, in their order, with their columns."""
TAGGED: Final = ("allocations", "queue_events", "charges")
"""Tables whose rows have a holder."""


@dataclass(frozen=True)
class Entry:
    """Changes to rows that enter, and to bytes that wait to become rows; None: nothing."""

    mask: ChangeRows | None = None
    tag: ChangeRows | None = None
    seal: ChangeBytes | None = None
    open: ChangeBytes | None = None
    """Undoes `seal`; what was never sealed comes back as it is."""
    rename: ChangeRows | None = None
    """Gives accelerators the names that they have here, before all else."""

    def change(self, table: str, rows: "pa.Table") -> "pa.Table":
        """Rows of a source as they enter: accelerators renamed, names masked."""
        for change in (self.rename, self.mask):
            rows = change(table, rows) if change is not None else rows
        return rows

    def change_item(self, item: "Rows | Gap") -> "Rows | Gap":
        """The same of rows; gaps pass unchanged."""
        from loadfactor.sources.base import Gap

        return item if isinstance(item, Gap) else replace(item, data=self.change(item.table, item.data))


_SQL_TYPES: Final = {"string": "VARCHAR", "int64": "BIGINT", "float64": "DOUBLE", "boolean": "BOOLEAN"}
_TABLES: Final = {t.name for t in TABLES}


def empty(table: str) -> str:
    """SQL: a table without rows."""
    return empty_of(columns_of(table))


def empty_of(columns: Mapping[str, str]) -> str:
    """SQL: no rows of columns, by their types as Ibis names them."""
    return f"SELECT {', '.join(f'NULL::{_SQL_TYPES.get(t, t)} AS {c}' for c, t in columns.items())} WHERE false"


def read_rows(table: str, paths: Sequence[Path]) -> str:
    """SQL: the rows of files of a small table, its columns first, then those that only a log has.

    The store's own list of imports is read as it lies.
    """
    if table not in _TABLES:
        return read(paths)
    files = ", ".join(quote(str(path)) for path in paths)
    return f"({empty(table)} UNION ALL BY NAME SELECT * FROM read_parquet([{files}], union_by_name = true))"


MEMORY = "1000MB"
NotEnoughMemory = duckdb.OutOfMemoryException
"""Raised where a query takes more than its session has: less at once may do."""
NOT_OF_TIME = ("prices", "exchange_rates", "charges", "statements", "imports", *(t.name for t in DIAGNOSTIC))
"""Tables that say nothing of when the fleet was there, besides the ledger and its sums."""
LEDGER = "ledger"
"""How the names of these begin."""

_engines: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}
_starting = Lock()


class Session:
    """The tables of one manifest in one connection (`raw`)."""

    def __init__(
        self,
        place: Place,
        manifest: Manifest,
        raw: duckdb.DuckDBPyConnection,
        currency: str,
    ) -> None:
        self.place = place
        self.name, self.folder = place.name, place.folder
        self.manifest = manifest
        self.raw = raw
        self.currency = currency
        self.entry = Entry()
        self.derived: dict[Hashable, Any] = {}  # what was found out of these tables, to be found out once
        self._standing: dict[str, object] = {}  # views by their SQL and registered tables by their key, as they stand
        # what is in no file yet, as the overlay has it
        self.overlay: Overlay | None = None
        self.live: Mapping[str, str] = {}
        self.live_samples: tuple[SamplePart, ...] = ()
        self.live_votes: Mapping[int, tuple[StepVote, ...]] = {}
        self.live_spans: tuple[Span, ...] = ()
        self.live_extents: Mapping[str, Extent] = {}

    def beside(self) -> "Session":
        """The files of the same generation in another connection, for another thread, to close before this one; no live rows."""
        return Session(self.place, self.manifest, self.raw.cursor(), self.currency)

    def close(self) -> None:
        """End it, with everything temporary in it."""
        self.raw.close()
        self.overlay = None

    # -- live rows ---------------------------------------------------------------------------------------------------

    def show(self, overlay: Overlay) -> None:
        """Let live rows of this generation be seen; the connection is one of the overlay's engine."""
        self.overlay = overlay
        self.live, self.live_samples, self.live_votes = overlay.tables, overlay.samples, overlay.votes
        self.live_spans, self.live_extents = overlay.spans, overlay.extents

    def find_once(self, key: object, find: "Callable[[], Found]") -> "Found":
        """What `find` gives of these rows, found once for all sessions of the process that see the same, by this key."""
        return find() if self.overlay is None else self.overlay.find_once(key, find)

    def keep(self, key: object, find: "Callable[[], Found]", measure: "Callable[[Found], int]") -> "Found":
        """An answer of so many values as `measure` says, kept for all sessions that see the same, as long as there is room."""
        return find() if self.overlay is None else self.overlay.keep(key, find, measure)

    def materialize_shared(self, name: str, sql: str) -> str:
        """Work a query out into a table of all sessions that see the same, or of this one beside another; its name in SQL."""
        if self.overlay is not None:
            return self.overlay.materialize(self.raw, name, sql)
        self.materialize(name, sql)
        return name

    # -- tables ------------------------------------------------------------------------------------------------------

    def view_table(
        self, name: str, table: str, files: tuple[StoredFile, ...] | None = None, within: tuple[Span, ...] = ()
    ) -> None:
        """Give the files of a table (all of them, or those given) a name that SQL of this session can use.

        `within`: of samples, only those in hours that these spans touch.
        """
        files = self.manifest.of(table) if files is None else files
        if table == "samples":
            parts = [*self.parts(files), *self.live_samples]
            sql = f"SELECT * FROM {samples(parts, self.steps(), within)}" if parts else empty(table)
        elif table in self.live:
            sql = f"SELECT * FROM {self.live[table]}"
        else:
            sql = (
                f"SELECT {', '.join(columns_of(table))} FROM {read_rows(table, self.paths(files))}"
                if files
                else empty(table)
            )
        if self._standing.get(name) != sql:  # to name files again, the engine would read them again
            self.create_view(name, sql)

    def has_rows(self, table: str) -> bool:
        """False where a table has no file and nothing live."""
        return bool(self.manifest.of(table)) or table in self.live

    def parts(self, files: Iterable[StoredFile]) -> list[SamplePart]:
        """Files of samples as what SQL is made of."""
        files = tuple(files)
        return [
            SamplePart(read([path]), f.from_ms or 0, f.to_ms or 0, f.samples)
            for f, path in zip(files, self.paths(files), strict=True)
            if f.samples is not None
        ]

    def steps(self) -> dict[str, int]:
        """The step learnt for each source from everything these books hold."""
        return learnt_steps(self.manifest, self.live_samples, self.live_votes)

    def covering(self, name: str, *spans: Span) -> tuple[StoredFile, ...]:
        """The files of a table whose rows may speak of any of these spans."""
        return tuple(
            f
            for f in self.manifest.of(name)
            if any((f.from_ms or 0) < end and (f.to_ms or ALWAYS[1]) > start for start, end in spans)
        )

    def span(self) -> Span:
        """From the first to the last instant the books know of; (0, 0) when they are empty."""
        return find_span(self.manifest, self.steps(), self.live_samples, self.live_extents)

    def paths(self, files: Iterable[StoredFile]) -> list[Path]:
        """Where files of the books lie. DamageError when one is not what was written; each is checked once a process."""
        return self.place.locate(files)

    # -- the connection ----------------------------------------------------------------------------------------------

    def create_view(self, name: str, sql: str) -> None:
        """Give a query a name, to be worked out whenever it is read."""
        self.raw.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {sql}')
        self._standing[name] = sql

    def read_view(self, name: str) -> str:
        """The query that a view names."""
        return str(self._standing[name])

    def materialize(self, name: str, sql: str) -> int:
        """Work a query out once, into a temporary table; how many rows it has."""
        self._standing.pop(name, None)
        (rows,) = self.fetch_one(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {sql}')
        return int(rows)

    def rename(self, name: str, to: str) -> None:
        """Give a temporary table another name, in place of the one that has it."""
        self.raw.execute(f'DROP TABLE IF EXISTS temp."{to}"; ALTER TABLE temp."{name}" RENAME TO "{to}"')

    def put(self, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Put a few texts or whole numbers into a temporary table; columns without values are of whole numbers."""
        lists = []
        for column, values in columns.items():
            kind = "VARCHAR" if values and isinstance(values[0], str) else "BIGINT"
            cells = ", ".join(quote(value) if isinstance(value, str) else str(value) for value in values)
            lists.append(f"unnest([{cells}]::{kind}[]) AS {column}")
        self.materialize(name, f"SELECT {', '.join(lists)}")

    def register(self, name: str, rows: "pa.Table") -> None:
        """Put a small Arrow table into a temporary table."""
        self.raw.register("registered", rows)
        self.materialize(name, "SELECT * FROM registered")
        self.raw.unregister("registered")

    def put_rows(self, name: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> None:
        """Put a few rows into a temporary table: `columns` are names and types, as of `columns_of`. Arrow would import pandas."""

        def write(value: object) -> str:
            return "NULL" if value is None else quote(str(value))

        kinds = ", ".join(f"{column}::{_SQL_TYPES.get(kind, kind)} AS {column}" for column, kind in columns.items())
        cells = [f"({', '.join(write(row[column]) for column in columns)})" for row in rows]
        nothing = f"({', '.join('NULL' for _ in columns)})"
        values = f"VALUES {', '.join(cells or [nothing])}"
        self.materialize(name, f"SELECT {kinds} FROM ({values}) AS t({', '.join(columns)}) WHERE {bool(cells)}")

    def put_once(
        self, name: str, columns: Mapping[str, str], list_rows: "Callable[[], list[Any]]", key: object = None
    ) -> None:
        """Put rows into a temporary table, unless it stands there already, made with the same `key`."""
        if self._standing.get(name) != (key,):
            self.put_rows(name, columns, list_rows())
            self._standing[name] = (key,)

    def fetch(self, sql: str) -> "pa.Table":
        """The rows of a query."""
        return self.raw.sql(sql).to_arrow_table()  # after execute DuckDB 2 would copy them, and warn

    def fetch_columns(self, sql: str) -> dict[str, Any]:
        """The columns of a query as NumPy arrays, masked where null. Unlike Arrow's values they need no pandas."""
        columns: dict[str, Any] = self.raw.execute(sql).fetchnumpy()
        return columns

    def fetch_one(self, sql: str) -> tuple[Any, ...]:
        """Fetch the first row of a query; an empty tuple if it has none.

        Values stand in its text (`quote`): for parameters DuckDB imports pandas.
        """
        # fetchone leaves the result open, and DuckDB 2 refuses the next statement of a connection while one is
        rows = self.raw.execute(sql).fetchall()
        return rows[0] if rows else ()


def connect_reader(memory: str = MEMORY) -> duckdb.DuckDBPyConnection:
    """A connection for questions: of an engine that all of this process share, each worked out in the thread that asks."""
    key = (os.getpid(), memory)
    with _starting:
        if key not in _engines:
            for other in [other for other in _engines if other[0] == os.getpid()]:
                del _engines[other]
            # Those of the process that this one was forked from stay: their threads are gone, and DuckDB 2 crashes closing them.
            _engines[key] = _start(memory, threads=1)
        return _engines[key].cursor()


def connect_writer(memory: str = MEMORY) -> duckdb.DuckDBPyConnection:
    """A connection of its own engine, which works on all cores."""
    return _start(memory, threads=None)


def find_span(
    manifest: Manifest,
    steps: Mapping[str, int],
    live: tuple[SamplePart, ...] = (),
    extents: Mapping[str, Extent] = MappingProxyType({}),
) -> Span:
    """From the first to the last instant that a manifest (and what is in no file yet) knows of; (0, 0) when there is none.

    `extents`: of tables with live rows folded in; their files do not count. Outages begin the books only where nothing else does:
    a node that has been out of use for months says nothing of who held the others since.
    """
    left_out = (*NOT_OF_TIME, *extents)
    known = [f for f in manifest.files if not (f.is_log or f.table in left_out or f.table.startswith(LEDGER))]
    begun = [(f.table, f.from_ms) for f in known if f.samples is None]
    begun += [(name, start) for name, (start, _) in extents.items()]
    starts = [start for name, start in begun if start is not None and name != OUTAGES.name]
    ends = [f.to_ms for f in known if f.to_ms is not None]
    for facts in (*(f.samples for f in known if f.samples is not None), *(part.facts for part in live)):
        for start in facts.starts:
            step = start.step_ms or steps.get(start.source) or start.lone_step_ms or 0
            starts += [at for at in (start.given_ms, start.taken_ms and start.taken_ms - step) if at is not None]
    ends += [*(part.to_ms for part in live), *(end for _, end in extents.values() if end is not None)]
    starts = starts or [start for _, start in begun if start is not None]
    dropped = manifest.dropped
    starts += [start for start, _ in dropped.frozen]
    ends += [end for _, end in dropped.frozen]
    span = (max(min(starts), dropped.begins_ms or 0), max(ends)) if starts and ends else (0, 0)
    return span if span[0] <= span[1] else (0, 0)


def _start(memory: str, threads: int | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int] = {
        "memory_limit": memory,
        "preserve_insertion_order": False,
        "temp_directory": os.path.join(tempfile.gettempdir(), f"loadfactor-spill-{os.getpid()}"),
    }
    if threads is not None:
        config["threads"] = threads
    raw = duckdb.connect(config=config)
    raw.execute("SET enable_progress_bar = false")  # interfaces show progress, and only where it is needed
    return raw


def learnt_steps(
    manifest: Manifest,
    live: tuple[SamplePart, ...] = (),
    counted: Mapping[int, tuple[StepVote, ...]] = MappingProxyType({}),
) -> dict[str, int]:
    """The step learnt for each source from everything there is of it. `counted`: votes of days that were counted anew."""
    votes = [vote for f in manifest.of("samples") if f.samples and f.day not in counted for vote in f.samples.votes]
    votes += [*manifest.dropped.votes, *(vote for part in live for vote in part.facts.votes)]
    return learn_steps([*votes, *(vote for of in counted.values() for vote in of)])
