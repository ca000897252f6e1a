"""The books of a fleet as one object: opened, imported into, asked and checked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import duckdb
import ibis

from loadfactor.books.check import CheckResult, check_books
from loadfactor.books.rebuild import book, default_basis, refresh
from loadfactor.config import settings
from loadfactor.errors import DamageError, InputError, no_such
from loadfactor.ledger.states import measures
from loadfactor.ledger.waits import list_waits
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.names import Dimension, MetricName
from loadfactor.metrics.query.answer import answer
from loadfactor.metrics.query.calendar import PERIODS, Window, instant, milliseconds
from loadfactor.metrics.query.question import OF_A_HOLDER, UNKNOWN_HOLDER, Question, check_dimensions
from loadfactor.metrics.query.reading import Readings
from loadfactor.sources import find_source
from loadfactor.sources.base import ReadOptions
from loadfactor.store.importing import Progress, Receipt, import_files
from loadfactor.store.manifest import has_books
from loadfactor.store.store import Store
from loadfactor.tables import BASES, DIMENSIONS, IDLE_BELOW, TABLES, columns_of
from loadfactor.units import MS_PER_HOUR

Answer = TypeVar("Answer")


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


class Books:
    """The books of one fleet, kept in one folder."""

    def __init__(self, folder: str | Path, idle_below: float = IDLE_BELOW, currency: str | None = None) -> None:
        self.store = Store(Path(folder), currency or settings().currency)
        self.idle_below = idle_below

    @classmethod
    def open(cls, folder: str | Path, create: bool = False, idle_below: float = IDLE_BELOW) -> "Books":
        """The books of a folder. Raises InputError where there are none, unless `create` is true: the first import makes them."""
        if not create and not has_books(Path(folder)):
            raise InputError(
                f"no books in {folder}; begin with `loadfactor import SOURCE PATH --store {quote(str(folder))}` or "
                "`loadfactor demo`, in Python with loadfactor.open(folder, create=True).add(…)"
            )
        return cls(folder, idle_below)

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

        def add() -> Receipt:
            with self.store.writing():  # rows and their ledger are published together
                receipt = import_files(self.store, kind, files, options or ReadOptions(), progress)
                refresh(self.store, progress, self.idle_below)
            return receipt

        return self._sound(add)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant the books know of. Raises InputError when they know of none."""
        start, end = self.store.span()
        if start == end:
            tables = ", ".join(dict.fromkeys(f.table.replace("_", " ") for f in self.store.manifest.files))
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

        def ask() -> Readings:
            first, last = self.span
            for at in (start, end):
                if at is not None and at.tzinfo is None:
                    raise InputError(
                        f"{at} has no time zone; give it one: datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))"
                    )
            window = Window(milliseconds(start or first), milliseconds(end or last), timezone)
            if start is not None and end is not None and window.start_ms >= window.end_ms:
                raise InputError(
                    f"the window ends at {_at(end)} and begins at {_at(start)}: nothing lies between; give an earlier --from"
                )
            if window.end_ms <= milliseconds(first) or window.start_ms >= milliseconds(last):
                raise InputError(
                    f"the books know nothing of that time: they cover {_at(first)} to {_at(last)}; change --from and --to"
                )
            if basis is not None and basis not in BASES:
                raise no_such("cost basis", basis, BASES)
            asked = tuple(metric(name) for name in _listed(metrics)) or METRICS
            question = Question(
                asked,
                check_dimensions(_listed(by)),
                window,
                basis or default_basis(self.store),
                self._filters(where),
                without_idle,
                self.store.currency,
            )
            return self._answer(question)

        self.store.reload()
        return self._sound(ask)

    def check(self) -> CheckResult:
        """Whether the books balance, and everything worth knowing of them, worst first: what `loadfactor doctor` prints."""
        return check_books(self.store, self.show)

    def table(self, name: str) -> Any:
        """An Ibis table of the books (devices, samples, …) for questions of your own; the ledger with all its measures."""

        def ask() -> Any:
            refresh(self.store, _quiet, self.idle_below)
            if name in (known := [t.name for t in TABLES]):
                return self.store.relation(name)
            if name != "ledger":
                raise no_such("table", name, ["ledger", *known])
            if self.store.manifest.of("ledger"):
                rows = self.store.relation("ledger")
            else:  # nothing installed: empty, with the right columns
                rows = book(self.store, ())
            return rows.mutate(**measures(rows))

        self.store.reload()
        return self._sound(ask)

    def _filters(self, where: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
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
                    rows = self.store.relation(table).select(column).distinct().to_pyarrow()
                    known |= {v for v in rows[column].to_pylist() if v is not None}
            if value not in known:
                there = quote(str(self.store.folder))
                raise no_such(
                    name, value, known, f"`loadfactor show paid_gpu_hours --by {name} --store {there}` lists them"
                )
        return tuple((where or {}).items())

    def _answer(self, question: Question) -> Readings:
        refresh(self.store, _quiet, self.idle_below)
        with self.store.in_order():
            waited = None
            if any(m.topic == "queue" for m in question.metrics):  # asked several times over: worked out once
                rows = list_waits(self.store.relation("allocations"), self.store.relation("queue_events"))
                waited = self.store.materialize("waits", rows)
            booked = self.booked(question.window, bool(question.periods))
            return answer(question, booked, self.store.relation("progress"), waited)

    def booked(self, window: Window, by_day: bool) -> Any:
        """The ledger of a window, exactly: stored hours, and those that a limit or a local midnight cuts booked afresh."""
        files = self.store.covering("ledger", (window.start_ms, window.end_ms))
        if not files:  # nothing installed in it: an empty book has the right columns
            return book(self.store, ())
        stored = self.store.relation("ledger", files)
        stored = stored.filter(stored.from_utc < window.end_ms, stored.to_utc > window.start_ms)
        start, end = self.store.span()
        # in the hour where the books begin or end, no row spans a cut outside them
        inside = {h: [p for p in points if start < p < end] for h, points in window.cut_hours(by_day).items()}
        cuts = {h: points for h, points in sorted(inside.items()) if points}
        if not cuts:
            return stored
        spans = tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in cuts)
        fresh = book(self.store, spans, chain.from_iterable(cuts.values()), self.idle_below)
        fresh = fresh.filter(fresh.from_utc >= window.start_ms, fresh.to_utc <= window.end_ms)
        whole = stored.filter(~stored.hour_utc.isin(list(cuts)))
        return ibis.union(whole.select(*fresh.columns), self.store.materialize("cut", fresh))

    def _sound(self, ask: Callable[[], Answer]) -> Answer:
        """Ask; where files have gone since an import replaced them, or are damaged and in quarantine, ask what is there now."""
        for _ in range(2):
            try:
                return ask()
            except (duckdb.Error, DamageError):
                if not self.store.reload() and not self.store.quarantine_damage():
                    raise
        return ask()


def _at(value: datetime) -> str:
    """A moment for messages."""
    return value.strftime("%Y-%m-%d %H:%M %Z")
