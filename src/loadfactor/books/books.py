"""The books of a fleet as one object: opened, imported into, requested and checked."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from loadfactor.base.errors import DamageError, InputError, no_such
from loadfactor.books.entry_rules import EntryRules
from loadfactor.books.known_span import find_span
from loadfactor.books.rebuild import open_ledger
from loadfactor.books.snapshot import Snapshot
from loadfactor.settings.config import settings
from loadfactor.store.manifest import Loss
from loadfactor.store.store import Store
from loadfactor.tables.schema import IDLE_BELOW, TABLES

if TYPE_CHECKING:  # what writes takes longer to import than most answers
    from loadfactor.books.charging.fleet_chargeback import FleetChargeback
    from loadfactor.books.retagging import Retagging
    from loadfactor.books.retention import Retained
    from loadfactor.books.watched import Watched
    from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
    from loadfactor.store.import_records import ImportRecord
    from loadfactor.store.importing import Progress, Receipt

P = ParamSpec("P")
R = TypeVar("R")


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


def _ask(question: Callable[Concatenate[Snapshot, P], R]) -> "Callable[Concatenate[Books, P], R]":
    """A question of a snapshot as one of the books, put to the snapshot of that moment."""

    @wraps(question)
    def ask(books: "Books", /, *args: P.args, **options: P.kwargs) -> R:
        with books.snapshot() as snapshot:
            return question(snapshot, *args, **options)

    return ask


class Books:
    """The books of one fleet, kept in a folder or a bucket. Ask them from as many threads as you like, while others write."""

    def __init__(self, folder: str | Path, idle_below: float = IDLE_BELOW, currency: str | None = None) -> None:
        """Raises InputError when the books are kept in another currency than the one requested, StoreError when they are newer."""
        found = settings()
        self.store = Store(
            Path(folder), currency or found.currency, found.memory, EntryRules(), found.local_folder, found.cache_gb
        )
        self.idle_below = idle_below
        with suppress(DamageError):  # the first question says it, and `repair` is for that
            if self.store.place.needs_migration():
                from loadfactor.books.writing import migrate_books

                migrate_books(self.store, idle_below)
            self.store.currency_of(self.store.manifest)

    @classmethod
    def open(cls, folder: str | Path, create: bool = False, idle_below: float = IDLE_BELOW) -> "Books":
        """The books of a folder. Raises InputError where there are none, unless `create` is true: the first import makes them."""
        books = cls(folder, idle_below)
        if not create and not books.store.place.has_books():
            name = books.store.name
            raise InputError(
                f"no books in {name}; begin with `loadfactor import SOURCE PATH --store {quote(name)}` or "
                "`loadfactor demo`, in Python with loadfactor.open(folder, create=True).add(…)"
            )
        return books

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        source: str,
        paths: Iterable[str | Path],
        options: "ReadOptions | None" = None,
        progress: "Progress" = _quiet,
    ) -> "Receipt":
        """Import files and book the hours they touch. Raises InputError, with the books as before, when they cannot be read."""
        from loadfactor.books.writing import add_files

        return add_files(self.store, self.idle_below, source, paths, options, progress)

    def add_rows(
        self, source: "Source", items: "Iterable[Rows | Gap]", name: str, progress: "Progress" = _quiet
    ) -> "Receipt":
        """Import rows that come from elsewhere than files. What is called `name` is imported once: then nothing is added.

        Raises as `add`.
        """
        from loadfactor.books.writing import add_rows

        return add_rows(self.store, self.idle_below, source, items, name, progress)

    def merge(self, other: "Books", progress: "Progress" = _quiet) -> "list[Receipt]":
        """Add what other books hold and these do not; a receipt of each import that brought rows. Again, it adds nothing.

        Raises InputError where they are kept in another currency, or what they say contradicts these.
        """
        from loadfactor.books.writing import merge

        return merge(self.store, self.idle_below, other.store, progress)

    def forget(self, number: int, progress: "Progress" = _quiet) -> "ImportRecord":
        """Take an import out again, whole. Raises InputError where there is none of this number; its record."""
        from loadfactor.books.writing import forget

        return forget(self.store, self.idle_below, number, progress)

    def retag(
        self, mapping: Path | None = None, is_dry_run: bool = False, progress: "Progress" = _quiet
    ) -> "Retagging":
        """Apply the rules of today, with `mapping` in place of theirs, to everything imported before; what that changes.

        Raises InputError where rules or mapping are wrong. Doing it again changes nothing.
        """
        from loadfactor.books.retagging import retag

        return retag(self.store, self.idle_below, mapping, is_dry_run, progress)

    def flush(self) -> int:
        """Make files of the live batches that are not files yet. The number of the last: through it they may be discarded."""
        from loadfactor.books.writing import flush

        return flush(self.store, self.idle_below)

    def compact(self, progress: "Progress" = _quiet) -> None:
        """Merge files that belong together, and bring the ledger up to date. No answer changes."""
        from loadfactor.books.writing import compact

        compact(self.store, self.idle_below, progress)

    def retain(self, progress: "Progress" = _quiet, now_ms: int | None = None, is_dry_run: bool = False) -> "Retained":
        """Drop what is older than [retention] says that it is kept, at an instant (by default now); what that was."""
        from loadfactor.books.retention import retain

        return retain(self.store, self.idle_below, settings().retention, progress, now_ms, is_dry_run)

    def repair(self, progress: "Progress" = _quiet) -> tuple[Loss, ...]:
        """Put what is damaged into quarantine and make good what can be; what is lost."""
        from loadfactor.books.writing import repair

        return repair(self.store, self.idle_below, progress)

    def close_month(
        self,
        month: str,
        by: str | Sequence[str] = ("team",),
        currency: str | None = None,
        timezone: tzinfo = UTC,
        is_known_to_lack: bool = False,
        remark: str = "",
    ) -> "FleetChargeback":
        """Keep the statements of a month. Closed again after late data, they name those they replace; unchanged, nothing is kept.

        A month that the books do not cover whole is kept only where `is_known_to_lack` says so; what is missing and what it would
        have cost is kept with it, and a `remark`. Raises as `chargeback`, and where there is no statement to keep.
        """
        from loadfactor.books.charging.closings import close_month

        with self.snapshot() as snapshot:
            found, earlier = snapshot.charge(month, by, currency, timezone), snapshot.list_closings(month)
            missing = snapshot.find_missing(found)
            if missing and found.statements and not is_known_to_lack:
                raise InputError(
                    f"{month} is not whole: {missing}; import the rest, or close it as it is with --yes, which keeps this remark"
                )
            words = "; ".join(part for part in (missing, remark) if part)
            stood_on = snapshot.describe_closing(found, timezone, words)
        return close_month(found, earlier, self.add_rows, stood_on)

    # -- reading -----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The books as they are now, for several questions that fit together: it sees nothing of what is written meanwhile.

        Ask one from one thread; every thread may have its own.
        """
        with self.store.read() as session:
            yield Snapshot(session, self.idle_below)

    # each of a snapshot of its own
    show = _ask(Snapshot.show)
    find_waits = _ask(Snapshot.find_waits)
    estimate_wait = _ask(Snapshot.estimate_wait)
    waterfall = _ask(Snapshot.waterfall)
    budgets = _ask(Snapshot.budgets)
    commitments = _ask(Snapshot.commitments)
    compare_bills = _ask(Snapshot.compare_bills)
    owned = _ask(Snapshot.owned)
    projects = _ask(Snapshot.projects)
    chargeback = _ask(Snapshot.chargeback)
    bridge = _ask(Snapshot.bridge)
    compare_closed = _ask(Snapshot.compare_closed)
    show_closed = _ask(Snapshot.show_closed)
    read_statements = _ask(Snapshot.read_statements)
    summarize_jobs = _ask(Snapshot.summarize_jobs)
    check = _ask(Snapshot.check)

    @contextmanager
    def watch(self) -> "Iterator[Watched]":
        """The books as they are now, for alerts: the last minutes of the ledger, step by step."""
        from loadfactor.books.watched import Watched

        with self.store.read() as session:
            yield Watched(session, self.idle_below)

    @property
    def imports(self) -> "list[ImportRecord]":
        """Records of all imports, in order."""
        from loadfactor.store.import_records import list_imports

        with self.store.read() as session:
            return list_imports(session)

    @property
    def is_booked_otherwise(self) -> bool:
        """True if the kept ledger stands on other definitions: each question then books everything for itself."""
        from loadfactor.books.rebuild import ledger_key

        with self.store.read() as session:
            key = ledger_key(self.idle_below, session.currency)
            return bool(session.manifest.of("ledger")) and session.manifest.ledger_key != key

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant the books know of. Raises InputError when they know of none."""
        with self.store.read() as session:
            return find_span(session)

    def table(self, name: str) -> Any:
        """An Ibis table of the books (devices, samples, …) for questions of your own; the ledger with all its measures.

        It stays as the books are now, for as long as it is kept.
        """
        import ibis

        from loadfactor.ledger.states import measures

        known = [t.name for t in TABLES]
        if name not in ("ledger", *known):
            raise no_such("table", name, ["ledger", *known])
        opened = self.store.read()
        session = opened.__enter__()
        connection = ibis.duckdb.from_connection(session.raw)
        connection.loadfactor_session = opened  # ends with the connection
        if name == "ledger":
            open_ledger(session, self.idle_below)
            rows = connection.table("ledger")
            return rows.mutate(**measures(rows))
        session.view_table(name, name)
        return connection.table(name)
