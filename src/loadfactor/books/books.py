"""The books of a fleet as one object: opened, imported into, asked and checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import ibis

from loadfactor.books.check import CheckResult, check_books
from loadfactor.books.expressions import compile_expression, fetch
from loadfactor.books.rebuild import book, default_basis, open_ledger, refresh
from loadfactor.config import settings
from loadfactor.errors import DamageError, InputError, no_such
from loadfactor.ledger.states import measures
from loadfactor.ledger.steps import ledger_columns
from loadfactor.ledger.waits import list_waits
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.names import Dimension, MetricName
from loadfactor.metrics.query.answer import answer
from loadfactor.metrics.query.calendar import PERIODS, Window, instant, milliseconds
from loadfactor.metrics.query.question import OF_A_HOLDER, UNKNOWN_HOLDER, Question, check_dimensions
from loadfactor.metrics.query.reading import Readings
from loadfactor.sources import find_source
from loadfactor.sources.base import ReadOptions
from loadfactor.store.compaction import compact_store, forget_import
from loadfactor.store.import_records import ImportRecord, list_imports
from loadfactor.store.importing import Progress, Receipt, import_files
from loadfactor.store.manifest import Loss, has_books
from loadfactor.store.migration import migrate, needs_migration, start_migration
from loadfactor.store.repair import repair_store, start_repair
from loadfactor.store.session import Session
from loadfactor.store.store import Store
from loadfactor.store.writer import Writer
from loadfactor.tables import BASES, DIMENSIONS, IDLE_BELOW, TABLES, columns_of
from loadfactor.units import MS_PER_HOUR

Expr = Any


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


class Books:
    """The books of one fleet, kept in one folder. Ask them from as many threads as you like, while others write."""

    def __init__(self, folder: str | Path, idle_below: float = IDLE_BELOW, currency: str | None = None) -> None:
        """Raises InputError when the books are kept in another currency than the one asked for, StoreError when they are newer."""
        self.store = Store(Path(folder), currency or settings().currency, settings().memory)
        self.idle_below = idle_below
        with suppress(DamageError):  # the first question says it, and `repair` is for that
            if needs_migration(self.store.folder):
                with self.store.write(start_migration) as writer:
                    migrate(writer)
                    refresh(writer, _quiet, idle_below)
            self.store.currency_of(self.store.manifest)

    @classmethod
    def open(cls, folder: str | Path, create: bool = False, idle_below: float = IDLE_BELOW) -> "Books":
        """The books of a folder. Raises InputError where there are none, unless `create` is true: the first import makes them."""
        if not create and not has_books(Path(folder)):
            raise InputError(
                f"no books in {folder}; begin with `loadfactor import SOURCE PATH --store {quote(str(folder))}` or "
                "`loadfactor demo`, in Python with loadfactor.open(folder, create=True).add(…)"
            )
        return cls(folder, idle_below)

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        source: str,
        paths: Iterable[str | Path],
        options: ReadOptions | None = None,
        progress: Progress = _quiet,
    ) -> Receipt:
        """Import files and book the hours they touch. Raises InputError, with the books as before, when they cannot be read."""
        kind = find_source(source)
        files = tuple(Path(p) for p in paths)
        with self.store.write() as writer:  # rows and their ledger are published together
            receipt = import_files(writer, kind, files, options or ReadOptions(), progress)
            self._settle(writer, progress)
        return receipt

    def forget(self, number: int, progress: Progress = _quiet) -> ImportRecord:
        """Take an import out again, whole. Raises InputError where there is none of this number; its record."""
        with self.store.write() as writer:
            found = list_imports(writer, "import_no = ?", [number])
            if not found:
                raise InputError(f"no import {number} in {self.store.folder}; `loadfactor imports` lists them")
            if found[0].at_ms is None:
                raise InputError(
                    f"import {number} was read by an earlier version, which did not keep its rows apart; import what is to"
                    " stay into a new store"
                )
            progress("forgetting", 0.0)
            forget_import(writer, number)
            self._settle(writer, progress)
        return found[0]

    def compact(self, progress: Progress = _quiet) -> None:
        """Merge files that belong together, and bring the ledger up to date. No answer changes."""
        with self.store.write() as writer:
            compact_store(writer, everything=True)
            refresh(writer, progress, self.idle_below)

    def repair(self, progress: Progress = _quiet) -> tuple[Loss, ...]:
        """Put what is damaged into quarantine and make good what can be; what is lost."""
        with self.store.write(start_repair) as writer:
            repair_store(writer)
            refresh(writer, progress, self.idle_below)
        return writer.manifest.losses

    def _settle(self, writer: Writer, progress: Progress) -> None:
        """After a change: merge what would slow readers down, and book the hours it touched."""
        compact_store(writer, everything=False)
        refresh(writer, progress, self.idle_below)

    # -- reading -----------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session on the books as they are now, with their `ledger`: it sees nothing of what is written meanwhile."""
        with self.store.read() as session:
            open_ledger(session, self.idle_below)
            yield session

    @property
    def imports(self) -> list[ImportRecord]:
        """What was imported, in order."""
        with self.store.read() as session:
            return list_imports(session)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant the books know of. Raises InputError when they know of none."""
        with self.store.read() as session:
            return self._span(session)

    def _span(self, session: Session) -> tuple[datetime, datetime]:
        start, end = session.span()
        if start == end:
            tables = ", ".join(
                dict.fromkeys(f.table.replace("_", " ") for t in TABLES for f in session.manifest.of(t.name))
            )
            known = f"hold {tables} and no GPUs yet" if tables else "are empty"
            raise InputError(
                f"the books in {self.store.folder} {known}; begin with `loadfactor import` or `loadfactor demo`"
            )
        return instant(start), instant(end)

    def show(
        self,
        metrics: MetricName | str | Sequence[MetricName | str] = (),
        by: Dimension | str | Sequence[Dimension | str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
        without_idle: bool = False,
    ) -> Readings:
        """Readings of metrics (all of them when none is named), split by dimensions, over [start, end), the whole span by default.

        One metric or dimension may be given as it is: `books.show("utilization", by="team")`.

        `timezone` says where days begin; `basis` is the kind of money, by default the best the books have; `where`
        keeps only one value of a dimension; `without_idle` leaves the cost of idle and unobserved time out of unit costs. Raises
        InputError for a metric, dimension, window, basis or filter that is none.
        """

        with self.session() as session:
            return self._ask(session, metrics, by, start, end, timezone, basis, where, without_idle)

    def _ask(
        self,
        session: Session,
        metrics: str | Sequence[str] = (),
        by: str | Sequence[str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
        without_idle: bool = False,
    ) -> Readings:
        for at in (start, end):
            if at is not None and at.tzinfo is None:
                raise InputError(f"{at} has no time zone; give it one: datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))")
        if basis is not None and basis not in BASES:
            raise no_such("cost basis", basis, BASES)
        question = Question(
            tuple(metric(name) for name in _listed(metrics)) or METRICS,
            check_dimensions(_listed(by)),
            self._window(session, start, end, timezone),
            basis or default_basis(session),
            _check_filters(session, where),
            without_idle,
            session.currency,
        )
        return self._answer(session, question)

    def _window(self, session: Session, start: datetime | None, end: datetime | None, timezone: tzinfo) -> Window:
        """The window asked for, inside what the books know."""
        first, last = self._span(session)
        window = Window(milliseconds(start or first), milliseconds(end or last), timezone)
        if start is not None and end is not None and window.start_ms >= window.end_ms:
            raise InputError(
                f"the window ends at {_at(end)} and begins at {_at(start)}: nothing lies between; give an earlier --from"
            )
        if window.end_ms <= milliseconds(first) or window.start_ms >= milliseconds(last):
            raise InputError(
                f"the books know nothing of that time: they cover {_at(first)} to {_at(last)}; change --from and --to"
            )
        return window

    def check(self) -> CheckResult:
        """Whether the books balance, and everything worth knowing of them, worst first: what `loadfactor doctor` prints."""
        with self.session() as session:
            return check_books(session, lambda metrics: self._ask(session, metrics))

    def table(self, name: str) -> Any:
        """An Ibis table of the books (devices, samples, …) for questions of your own; the ledger with all its measures.

        It stays as the books are now, for as long as it is kept.
        """
        known = [t.name for t in TABLES]
        if name not in ("ledger", *known):
            raise no_such("table", name, ["ledger", *known])
        opened = self.session()
        session = opened.__enter__()
        connection = ibis.duckdb.from_connection(session.raw)
        connection.loadfactor_session = opened  # ends with the connection
        if name == "ledger":
            rows = connection.table("ledger")
            return rows.mutate(**measures(rows))
        session.view_table(name, name)
        return connection.table(name)

    def _answer(self, session: Session, question: Question) -> Readings:
        for name in ("allocations", "queue_events", "progress"):
            session.view_table(name, name)
        waited = None
        if any(m.topic == "queue" for m in question.metrics):  # asked several times over: worked out once
            rows = list_waits(_table("allocations"), _table("queue_events"))
            session.materialize("waits", compile_expression(session, rows))
            waited = ibis.table(rows.schema(), name="waits")
        booked = self._booked(session, question.window, bool(question.periods))
        return answer(question, booked, _table("progress"), waited, lambda rows: fetch(session, rows))

    def _booked(self, session: Session, window: Window, by_day: bool) -> Expr:
        """The ledger of a window, exactly: booked hours, and those that a limit or a local midnight cuts booked afresh."""
        stored = ibis.table(ledger_columns(), name="ledger")
        stored = stored.filter(stored.from_utc < window.end_ms, stored.to_utc > window.start_ms)
        start, end = session.span()
        # in the hour where the books begin or end, no row spans a cut outside them
        inside = {h: [p for p in points if start < p < end] for h, points in window.cut_hours(by_day).items()}
        cuts = {h: points for h, points in sorted(inside.items()) if points}
        if not cuts:
            return stored
        spans = tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in cuts)
        book(session, spans, chain.from_iterable(cuts.values()), self.idle_below)
        session.materialize(
            "cut", f"SELECT * FROM book WHERE from_utc >= {window.start_ms} AND to_utc <= {window.end_ms}"
        )
        fresh = ibis.table(ledger_columns(), name="cut")
        whole = stored.filter(~stored.hour_utc.isin(list(cuts)))
        return ibis.union(whole.select(*fresh.columns), fresh)


def _check_filters(session: Session, where: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Filters that name something the books know; InputError naming what is near when they do not."""
    for name, value in (where or {}).items():
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
        if name in ("hour", *PERIODS, "state"):
            raise InputError(
                f"nothing can be chosen by {name!r}; use --from and --to for time, or one of job, team, device …"
            )
        column, known = DIMENSIONS[name], {UNKNOWN_HOLDER} if name in OF_A_HOLDER else set()
        for table in ("allocations", "devices", "queue_events"):
            if column in columns_of(table):
                session.view_table(table, table)
                rows = session.fetch(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")
                known |= set(rows[column].to_pylist())
        if value not in known:
            raise no_such(
                name,
                value,
                known,
                f"`loadfactor show paid_gpu_hours --by {name} --store {quote(str(session.folder))}` lists them",
            )
    return tuple((where or {}).items())


def _table(name: str) -> Expr:
    """A table of the store under its own name."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _at(value: datetime) -> str:
    """A moment for messages."""
    return value.strftime("%Y-%m-%d %H:%M %Z")
