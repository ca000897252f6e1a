"""The books of a fleet as one object: opened, imported into, asked and checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from loadfactor.base.errors import DamageError, InputError, no_such
from loadfactor.books.entry_rules import EntryRules
from loadfactor.books.known_span import find_span
from loadfactor.books.rebuild import open_ledger
from loadfactor.books.snapshot import Snapshot
from loadfactor.metrics.names import Dimension, MetricName
from loadfactor.metrics.query.reading import Readings
from loadfactor.settings.config import settings
from loadfactor.store.manifest import Loss, has_books, needs_migration
from loadfactor.store.store import Store
from loadfactor.tables.schema import IDLE_BELOW, TABLES

if TYPE_CHECKING:  # what writes takes longer to import than most answers
    from loadfactor.books.bill_comparison import BillComparison
    from loadfactor.books.billed_costs import BilledCommitments
    from loadfactor.books.budgets import BudgetReview, ProjectReview
    from loadfactor.books.charging.closings import ChargebackChanges
    from loadfactor.books.charging.fleet_chargeback import ChargeQuestion, FleetChargeback
    from loadfactor.books.check import CheckResult
    from loadfactor.books.owned_prices import OwnedUse
    from loadfactor.books.retagging import Retagging
    from loadfactor.books.waits import WaitEstimate, Waits
    from loadfactor.books.watched import Watched
    from loadfactor.books.waterfall import FleetWaterfall
    from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
    from loadfactor.store.import_records import ImportRecord
    from loadfactor.store.importing import Progress, Receipt


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


class Books:
    """The books of one fleet, kept in one folder. Ask them from as many threads as you like, while others write."""

    def __init__(self, folder: str | Path, idle_below: float = IDLE_BELOW, currency: str | None = None) -> None:
        """Raises InputError when the books are kept in another currency than the one asked for, StoreError when they are newer."""
        self.store = Store(Path(folder), currency or settings().currency, settings().memory, EntryRules())
        self.idle_below = idle_below
        with suppress(DamageError):  # the first question says it, and `repair` is for that
            if needs_migration(self.store.folder):
                from loadfactor.books.writing import migrate_books

                migrate_books(self.store, idle_below)
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

    def repair(self, progress: "Progress" = _quiet) -> tuple[Loss, ...]:
        """Put what is damaged into quarantine and make good what can be; what is lost."""
        from loadfactor.books.writing import repair

        return repair(self.store, self.idle_below, progress)

    def close_month(
        self, month: str, by: str | Sequence[str] = ("team",), currency: str | None = None
    ) -> "FleetChargeback":
        """Keep the statements of a month. Closed again after late data, they name those they replace; unchanged, nothing is kept.

        Raises as `chargeback`, and where there is no statement to keep.
        """
        from loadfactor.books.charging.closings import close_month

        with self.snapshot() as snapshot:
            found, earlier = snapshot.charge(self._ask_charges(month, by, currency)), snapshot.list_closings(month)
        return close_month(found, earlier, self.add_rows)

    # -- reading -----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The books as they are now, for several questions that fit together: it sees nothing of what is written meanwhile.

        Ask one from one thread; every thread may have its own.
        """
        with self.store.read() as session:
            yield Snapshot(session, self.idle_below)

    @contextmanager
    def watch(self) -> "Iterator[Watched]":
        """The books as they are now, for alerts: the last minutes of the ledger, step by step."""
        from loadfactor.books.watched import Watched

        with self.store.read() as session:
            yield Watched(session, self.idle_below)

    @property
    def imports(self) -> "list[ImportRecord]":
        """What was imported, in order."""
        from loadfactor.store.import_records import list_imports

        with self.store.read() as session:
            return list_imports(session)

    @property
    def is_booked_otherwise(self) -> bool:
        """True where the ledger that is kept stands on other definitions: each question then books everything for itself."""
        from loadfactor.books.rebuild import ledger_key

        with self.store.read() as session:
            kept = session.manifest
            return bool(kept.of("ledger")) and kept.ledger_key != ledger_key(self.idle_below, session.currency)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant the books know of. Raises InputError when they know of none."""
        with self.store.read() as session:
            return find_span(session)

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
        with self.snapshot() as snapshot:
            return snapshot.show(metrics, by, start, end, timezone, basis, where, without_idle)

    def find_waits(
        self,
        by: Sequence[str] = ("size",),
        start: datetime | None = None,
        end: datetime | None = None,
        where: Mapping[str, str] | None = None,
    ) -> "Waits":
        """How long the jobs waited that were queued in [start, end), by size, queue, team, reason and others.

        Quantiles are Kaplan–Meier estimates with 95 % intervals, seconds: of what had not started, that is known. `where` keeps
        only one value of a dimension. Raises InputError for a dimension, window or filter that is none.
        """
        with self.snapshot() as snapshot:
            return snapshot.find_waits(by, start, end, where)

    def estimate_wait(self, job: str, start: datetime | None = None, end: datetime | None = None) -> "WaitEstimate":
        """How much longer a job that waits at `end` (now, as the books know it) will wait, told from jobs like it.

        Those are the jobs queued in [start, end) that had waited as long as it has. Raises InputError where it does not wait.
        """
        with self.snapshot() as snapshot:
            return snapshot.estimate_wait(job, start, end)

    def waterfall(
        self,
        by: Dimension | str | Sequence[Dimension | str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> "FleetWaterfall":
        """Where what was paid went, on the way to what was useful, in GPU-hours and money: what `loadfactor waterfall` prints.

        Losses, what is unknown and what was useful add up to what was paid. Raises as `show`, and for a dimension that work
        cannot be told by.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        with self.snapshot() as snapshot:
            return snapshot.waterfall(names, start, end, timezone, basis, where)

    def budgets(self, month: str | None = None, basis: str | None = None, today: date | None = None) -> "BudgetReview":
        """Where the budgets of loadfactor.toml stand in the period that a month, 2026-10, lies in: what `loadfactor budget` prints.

        Of charges where there is a bill, else of the ledger's cost in a `basis`. `today` (UTC) says which days of a bill are
        settled. Raises InputError where there is no budget.
        """
        with self.snapshot() as snapshot:
            return snapshot.budgets(month, basis, today)

    def commitments(self) -> "BilledCommitments":
        """What commitments, reservations and spot capacity came to by the bills. Raises InputError where there are none."""
        with self.snapshot() as snapshot:
            return snapshot.commitments()

    def compare_bills(self, month: str | None = None) -> "BillComparison":
        """What bills of GPUs and the books disagree about, in a month, 2026-10, or all of their time: what `bill compare` prints.

        Raises InputError where there is no bill of GPUs in time that the books know.
        """
        with self.snapshot() as snapshot:
            return snapshot.compare_bills(month)

    def owned(self) -> "tuple[OwnedUse, ...]":
        """The owned GPUs of loadfactor.toml: price by assumed and by measured load, and what their hours cost."""
        with self.snapshot() as snapshot:
            return snapshot.owned()

    def projects(self, basis: str | None = None) -> "ProjectReview":
        """The projects of loadfactor.toml: planned, so far, and at their end. Raises InputError where there is none."""
        with self.snapshot() as snapshot:
            return snapshot.projects(basis)

    def chargeback(
        self, month: str | None = None, by: str | Sequence[str] = ("team",), currency: str | None = None
    ) -> "FleetChargeback":
        """Who pays, under the policy of loadfactor.toml: statements that sum to the rounded bill of a month, 2026-10.

        Without a month: of everything in the books; where there is no bill, of price × installed time. `by` is made of team,
        project, experiment, user and purpose. `currency` charges only the lines of bills that are in it. Raises InputError where
        nothing is known of the month, or a rate of exchange is missing.
        """
        from loadfactor.books.charging.closings import mention_closing

        with self.snapshot() as snapshot:
            found = snapshot.charge(self._ask_charges(month, by, currency))
            return mention_closing(found, snapshot.list_closings(month)) if month else found

    def compare_closed(
        self, month: str, by: str | Sequence[str] | None = None, currency: str | None = None
    ) -> "ChargebackChanges":
        """What changed since a month was closed: its last closing beside the statements of now, by the same names.

        Raises InputError where it was not closed, or was closed by other names.
        """
        from loadfactor.books.charging.closings import compare_closed

        with self.snapshot() as snapshot:
            closings = snapshot.list_closings(month)
            if not closings:
                keep = f"`loadfactor chargeback --month {month} --close`"
                raise InputError(f"{month} is not closed; {keep} keeps its statements")
            names = closings[-1].by if by is None else by
            return compare_closed(closings[-1], snapshot.charge(self._ask_charges(month, names, currency)))

    @staticmethod
    def _ask_charges(month: str | None, by: str | Sequence[str], currency: str | None) -> "ChargeQuestion":
        from loadfactor.books.charging.fleet_chargeback import ChargeQuestion

        names = (by,) if isinstance(by, str) else tuple(by)
        return ChargeQuestion(names, month, currency, settings().chargeback)

    def check(self) -> "CheckResult":
        """Whether the books balance, and everything worth knowing of them, worst first: what `loadfactor doctor` prints."""
        with self.snapshot() as snapshot:
            return snapshot.check()

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
