"""The books at one moment: questions put to one session, whose answers fit together whatever is written meanwhile."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from datetime import UTC, date, datetime, tzinfo
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from loadfactor.base.errors import InputError, no_such
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.dropped_days import say_changed, say_dropped_rows, say_lacking
from loadfactor.books.kept_waits import view_waits
from loadfactor.books.known_span import find_bill_span, find_span, has_only_bills
from loadfactor.books.rebuild import default_basis, open_ledger
from loadfactor.books.served_use import (
    CHARGED_AS,
    ServedUse,
    divide_progress,
    divide_use,
    is_charged_to_users,
    list_tenants,
)
from loadfactor.books.window_ledger import WindowLedger
from loadfactor.metrics import METRICS, Metric, metric
from loadfactor.metrics.query.answer import Floats, answer, tabulate
from loadfactor.metrics.query.calendar import PERIODS, Window, instant, milliseconds
from loadfactor.metrics.query.question import (
    OF_A_HOLDER,
    TENANT,
    TOLD_BY,
    UNKNOWN_HOLDER,
    Fetch,
    Question,
    check_dimensions,
    list_inputs,
)
from loadfactor.metrics.query.reading import Readings
from loadfactor.settings.config import settings
from loadfactor.store.session import Session
from loadfactor.tables.schema import BASES, DIMENSIONS, columns_of

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.books.bill_comparison import BillComparison
    from loadfactor.books.billed_costs import BilledCommitments
    from loadfactor.books.budgets import BudgetReview, ProjectReview
    from loadfactor.books.charging.bridge import Bridge, Chain
    from loadfactor.books.charging.closings import ChargebackChanges, Closing, StoodOn
    from loadfactor.books.charging.fleet_chargeback import FleetChargeback
    from loadfactor.books.charging.statements import OwnerStatement
    from loadfactor.books.check import CheckResult
    from loadfactor.books.job_account import AlikeJobs
    from loadfactor.books.job_flops import JobActivity
    from loadfactor.books.job_summary import HeldPart, JobSummary, ReportedUse
    from loadfactor.books.owned_prices import OwnedUse
    from loadfactor.books.targets import TargetStatus
    from loadfactor.books.unheld_work import UnheldWork
    from loadfactor.books.untagged import Untagged
    from loadfactor.books.waits import WaitEstimate, Waits
    from loadfactor.books.waterfall import FleetWaterfall
    from loadfactor.planner.economics.commitment_choice import CommitmentChoice
    from loadfactor.settings.money import ChargebackPolicy


def check_filters(session: Session, where: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Filters that name something the books know; InputError naming what is near when they do not."""
    for name, value in where.items():
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
        if name in ("hour", *PERIODS, "state"):
            raise InputError(
                f"nothing can be chosen by {name!r}; use --from and --to for time, or one of job, team, device …"
            )
        known = session.find_once(("values of", name), partial(_list_values, session, name))
        if value not in known:
            raise no_such(
                name,
                value,
                known,
                f"`loadfactor show paid_gpu_hours --by {name} --store {quote(session.name)}` lists them",
            )
    return tuple(where.items())


def _list_values(session: Session, dimension: str) -> frozenset[str]:
    column, known = DIMENSIONS[dimension], {UNKNOWN_HOLDER} if dimension in OF_A_HOLDER else set()
    for table in ("allocations", "devices", "queue_events"):
        if column in columns_of(table):
            session.view_table(table, table)
            sql = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"
            known |= {found for (found,) in session.raw.execute(sql).fetchall()}
    if dimension == TENANT or (dimension in CHARGED_AS and is_charged_to_users(session)):
        known |= list_tenants(session, dimension)
    return frozenset(known)


Expr = Any
KeptT = TypeVar("KeptT")


class Snapshot:
    """The books as they were when it was taken. What several of its questions need is worked out once. For one thread."""

    def __init__(self, session: Session, idle_below: float) -> None:
        self._session = session
        self._idle_below = idle_below
        self._checked: Callable[[], CheckResult] | None = None
        self._is_kept = open_ledger(session, idle_below)
        self._ledger = WindowLedger(session, idle_below)

    @property
    def name(self) -> str:
        """Where the books are kept, as it is written behind --store."""
        return self._session.name

    @property
    def folder(self) -> Path:
        """The folder of what lies beside the books."""
        return self._session.folder

    @property
    def has_bill(self) -> bool:
        """True where charges of a bill were imported."""
        return bool(self._session.manifest.of("charges"))

    @cached_property
    def has_only_bills(self) -> bool:
        """True where charges are known and no GPUs."""
        return has_only_bills(self._session)

    @cached_property
    def bill_span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant that bills charge for."""
        return find_bill_span(self._session)

    @cached_property
    def span(self) -> tuple[datetime, datetime]:
        """From the first to the last instant the books know of. Raises InputError when they know of none."""
        return find_span(self._session)

    def show(
        self,
        metrics: str | Sequence[str | Metric] = (),
        by: str | Sequence[str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
        without_idle: bool = False,
        most: int | None = None,
    ) -> Readings:
        """Readings of metrics (all of them when none is named), split by dimensions, over [start, end), the whole span by default.

        One metric or dimension may be given as it is: `books.show("utilization", by="team")`.

        `timezone` says where days begin; `basis` is the kind of money, by default the best the books have; `where`
        keeps only one value of a dimension; `without_idle` leaves the cost of idle and unobserved time out of unit costs; `most`
        asks of many groups for so many alone, those with most of the first metric, a sum of the ledger, in that order. Raises
        InputError for a metric, dimension, window, basis or filter that is none.
        """
        question = self._pose(metrics, by, start, end, timezone, basis, where, without_idle, most)
        if most is None:
            return self._answer(question)
        name = question.metrics[0].name
        found = self._answer(question).arrange(name, True, most)
        if all(found.column(name)):
            return found
        return self._answer(replace(question, most=None)).arrange(name, True, most)  # of none, some are not known

    def _answer(self, question: Question) -> Readings:
        """The readings of a question, out of the answers that are kept where it is among them."""
        key = question.shape, question.window, question.where, self._settings
        return self._session.keep(key, lambda: answer(question, self._prepare(question)), len)

    def keep(self, key: Hashable, find: Callable[[], KeptT], measure: Callable[[KeptT], int]) -> KeptT:
        """What follows from answers, of so many values as `measure` says; kept beside them as long as there is room."""
        return self._session.keep((key, self._settings), find, measure)

    def tabulate(
        self,
        metrics: Sequence[str],
        by: Sequence[str],
        start: datetime | None = None,
        end: datetime | None = None,
        where: Mapping[str, str] | None = None,
    ) -> tuple[list[Any], dict[str, Floats]]:
        """The same as columns, for very many groups: one a dimension, an hour in ms, and values, NaN where unknown."""
        question = self._pose(metrics, by, start, end, UTC, None, where)
        return tabulate(question, self._prepare(question))

    def _pose(
        self,
        metrics: str | Sequence[str | Metric],
        by: str | Sequence[str],
        start: datetime | None,
        end: datetime | None,
        timezone: tzinfo,
        basis: str | None,
        where: Mapping[str, str] | None,
        without_idle: bool = False,
        most: int | None = None,
    ) -> Question:
        for at in (start, end):
            if at is not None and at.tzinfo is None:
                raise InputError(f"{at} has no time zone; give it one: datetime(…, tzinfo=ZoneInfo('Europe/Berlin'))")
        where = where or {}
        return Question(
            tuple(of if isinstance(of, Metric) else metric(of) for of in _listed(metrics)) or METRICS,
            check_dimensions(_listed(by)),
            self._window(start, end, timezone),
            self._check_basis(basis),
            check_filters(self._session, where),
            without_idle,
            self._session.currency,
            settings().energy.is_given,
            most,
            self._choose_division({*_listed(by), *where}),
        )

    def _choose_division(self, dimensions: Set[str]) -> Literal["", "shown", "charged"]:
        """Whether a question that splits or chooses by these reads what jobs served divided by who used it."""
        if is_charged_to_users(self._session) and not dimensions.isdisjoint((TENANT, *CHARGED_AS)):
            return "charged"
        return "shown" if TENANT in dimensions else ""

    def _prepare(self, question: Question) -> Fetch:
        """Have everything that the queries of a question read in the session; what works them out."""
        queries = recall(question.shape, lambda: expressions().write_queries(question))
        self._ledger.view_for(question, queries[TOLD_BY].split())
        if question.units:
            from loadfactor.books.job_flops import view_progress  # slow to import

            view_progress(self._session, question.units, settings().network)
            if question.divides:
                divide_progress(self._session)
        if question.waits:
            view_waits(self._session)
        if question.reads_grid:
            from loadfactor.books.energy_inputs import put_energy

            put_energy(self._session, settings().energy, question.window)
        for name, columns in list_inputs(question).items():
            self._session.put(name, columns)
        return lambda name: self._session.fetch_columns(queries[name])

    def waterfall(
        self,
        by: str | Sequence[str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> "FleetWaterfall":
        """Where what was paid went, on the way to what was useful, in GPU-hours and money: what `loadfactor waterfall` prints.

        Losses, what is unknown and what was useful add up to what was paid. Raises as `show`, and for a dimension that work
        cannot be stated by.
        """
        from loadfactor.books.waterfall import find_waterfall

        ask = partial(self.show, start=start, end=end, timezone=timezone, basis=basis, where=where)
        return find_waterfall(self._session, ask, check_dimensions(_listed(by)), self._check_basis(basis))

    def read_waterfall(self, found: Readings, basis: str | None = None, by: Sequence[str] = ()) -> "FleetWaterfall":
        """The waterfall of readings, by job and perhaps more, that `books.waterfall.ASKED` are among; by some of that."""
        from loadfactor.books.waterfall import read_waterfall

        return read_waterfall(self._session, found, by, self._check_basis(basis))

    def prepare(self, windows: Iterable[tuple[datetime, datetime]]) -> None:
        """Book at once all hours that these windows cut: `show` of each of them then needs no booking of its own."""
        self._ledger.book_cuts(Window(milliseconds(start), milliseconds(end)) for start, end in windows)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Inside, the books are checked in a thread of its own, and `check` waits for that; unless something had to be booked."""
        if not self._is_kept:
            yield
            return
        with closing(self._session.beside()) as session, ThreadPoolExecutor(1, "check") as pool:
            self._checked = pool.submit(lambda: Snapshot(session, self._idle_below).check()).result
            try:
                yield
            finally:
                self._checked = None

    def check(self) -> "CheckResult":
        """Whether the books balance, and everything worth knowing of them, worst first: what `loadfactor doctor` prints."""
        from loadfactor.books.check import check_books

        return self._checked() if self._checked else check_books(self._session, self.show)

    def find_untagged(
        self,
        by: Sequence[str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
        basis: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> "Untagged":
        """Held time without experiment, by user and team where nothing else is requested. Raises as `show`."""
        from loadfactor.books.untagged import find_untagged

        ask = partial(self.show, start=start, end=end, timezone=timezone, basis=basis, where=where)
        return find_untagged(self._session, ask, by)

    def chargeback(
        self,
        month: str | None = None,
        by: str | Sequence[str] = ("team",),
        currency: str | None = None,
        timezone: tzinfo = UTC,
    ) -> "FleetChargeback":
        """Charge the fleet under the policy of loadfactor.toml: statements that sum to the rounded bill of a month, 2026-10.

        Without a month: of everything in the books; where there is no bill, of price × installed time. `by` is made of team,
        project, experiment, user and purpose. `currency` charges only the lines of bills that are in it, `timezone` says where
        months begin. Raises InputError where nothing is known of the month, or a rate of exchange is missing.
        """
        from loadfactor.books.charging.closings import mention_closing

        found = self.charge(month, by, currency, timezone)
        found = replace(found, remarks=(*found.remarks, *self.list_remarks(found.start, found.end)))
        return mention_closing(found, self.list_closings(month)) if month else found

    def compare_closed(
        self,
        month: str,
        by: str | Sequence[str] | None = None,
        currency: str | None = None,
        timezone: tzinfo = UTC,
        version: int | None = None,
        later: int | None = None,
    ) -> "ChargebackChanges":
        """Compare a closed month, by default its last `version`, with now: by the same names, and why they differ.

        With the version `later` in place of now where that is given. Raises InputError where it was not closed, or was closed by
        other names.
        """
        from loadfactor.books.charging.closings import compare_closed, list_imports_since, pick_closing, show_closed

        closings = self.list_closings(month)
        before = pick_closing(closings, month, version)
        imports = list_imports_since(self._session, before)
        if later is not None:
            after = pick_closing(closings, month, later)
            until = after.stood_on.last_import or 0
            known = [record for record in imports if record.number <= until]
            return compare_closed(before, show_closed(after), after.stood_on, known)
        found = self.charge(month, before.by if by is None else by, currency, timezone)
        return compare_closed(before, found, self.describe_closing(found, timezone), imports)

    def describe_closing(self, found: "FleetChargeback", timezone: tzinfo = UTC, remark: str = "") -> "StoodOn":
        """What the statements of a month stand on: imports, prices, days; with a remark on what is missing."""
        from loadfactor.books.charging.closings import describe_inputs
        from loadfactor.books.charging.fleet_chargeback import ChargedDays, ChargeQuestion, charge_days
        from loadfactor.money.lines import choose_column

        question = ChargeQuestion(found.by, found.month, None, settings().chargeback, timezone)
        column = choose_column(found.totals)
        charged = charge_days(self._session, question, self._basis, self._ledger.view_span, column)
        has_ledger = self._ledger.view_span(question.window)
        return describe_inputs(self._session, charged or ChargedDays(found, (), {}), str(timezone), remark, has_ledger)

    def find_missing(self, found: "FleetChargeback") -> str:
        """What the books lack of a month, and about what it would have cost; empty where they know it whole."""
        from loadfactor.books.charging.closings import find_missing

        return find_missing(self._session, found)

    def show_closed(self, month: str, version: int | None = None) -> "FleetChargeback":
        """The statements of a month as they were when it was closed, last or as this version. InputError where it was not."""
        from loadfactor.books.charging.closings import pick_closing, show_closed

        return show_closed(pick_closing(self.list_closings(month), month, version))

    def read_statements(
        self, month: str, currency: str | None = None, timezone: tzinfo = UTC, version: int | None = None
    ) -> "tuple[OwnerStatement, ...]":
        """The statement of every team and pool for a month, or as a `version` of its closings had them: they sum to the bill.

        Each with what changed of earlier months that were closed. Raises InputError as `chargeback` and `show_closed`.
        """
        from loadfactor.books.charging.statements import OwnerEnergy, add_energy, read_statements

        is_closed = version is not None
        found = self.show_closed(month, version) if is_closed else self.chargeback(month, "team", currency, timezone)
        statements = read_statements(self._session, found, is_closed, self.charge)
        if is_closed or not settings().energy.statements or self.has_only_bills:
            return statements
        names = [field.name for field in fields(OwnerEnergy)][:-1]
        try:
            drawn = self.show(names, "team", found.start, found.end, timezone)
        except InputError:  # a bill speaks of a month of which nothing else is known
            return statements
        return add_energy(statements, drawn)

    def charge(
        self,
        month: str | None = None,
        by: str | Sequence[str] = ("team",),
        currency: str | None = None,
        timezone: tzinfo = UTC,
        policy: "ChargebackPolicy | None" = None,
    ) -> "FleetChargeback":
        """The same as `chargeback`, without a word of closings; under another policy, where one is given."""
        from loadfactor.books.charging.fleet_chargeback import ChargeQuestion, charge_fleet

        question = ChargeQuestion(tuple(_listed(by)), month, currency, policy or settings().chargeback, timezone)
        return charge_fleet(self._session, question, self._basis, self._ledger.view_span)

    def bridge(self, team: str | None = None, month: str | None = None, timezone: tzinfo = UTC) -> "Bridge":
        """Walk from the bill of a team (by default, of the fleet) to what its budget has spent: what `bill bridge` prints.

        Of a month, else of the period of its budget, else of all the books know. Raises InputError where the books know no cost.
        """
        from loadfactor.books.charging.bridge import find_budget, list_months

        budget = find_budget(settings().budget, team)
        status = None
        if budget is not None:
            from loadfactor.books.budgets import review_budgets

            view = self._ledger.view_span
            (status,) = review_budgets(self._session, (budget,), self._basis, view, month, zone=timezone).statuses
        months = (month,) if month else list_months(status) if status else ()
        chain = self.read_chain(months, timezone, budget.column if budget else None)
        return chain.bridge(team, status.spent if status else None)

    def read_chain(self, months: Sequence[str] = (), timezone: tzinfo = UTC, column: str | None = None) -> "Chain":
        """The amounts from bill to statement of every team and of the fleet, in some months or in all the books know."""
        from loadfactor.books.charging.bridge import read_chain

        return read_chain(self._session, self.show, self._basis, self._ledger.view_span, months, timezone, column)

    def list_closings(self, month: str) -> "list[Closing]":
        """The statements that the books keep of a month, a closing after another."""
        from loadfactor.books.charging.closings import read_closings

        return read_closings(self._session, month)

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
        from loadfactor.books.waits import find_waits

        view_waits(self._session)
        return find_waits(self._session, self._window_of_waits(start, end), by, where or {})

    def estimate_wait(self, job: str, start: datetime | None = None, end: datetime | None = None) -> "WaitEstimate":
        """How much longer a job that waits at `end` (now, as the books know it) will wait, stated from jobs like it.

        Those are the jobs queued in [start, end) that had waited as long as it has. Raises InputError where it does not wait.
        """
        from loadfactor.books.waits import estimate_wait

        view_waits(self._session)
        return estimate_wait(self._session, self._window_of_waits(start, end), job)

    def job_activity(self, job: str, start: datetime, end: datetime) -> "JobActivity | None":
        """Activity of a job's GPUs within [start, end), sample by sample; None where none is known or none was sampled."""
        from loadfactor.books.job_flops import MOST_STEPS, find_job_activity

        given = job, milliseconds(start), milliseconds(end)
        return self.keep(
            (find_job_activity, *given), lambda: find_job_activity(self._session, *given), lambda _: 3 * MOST_STEPS
        )

    @property
    def samples_begin(self) -> datetime | None:
        """Until when samples were dropped; None where none were."""
        ends = [end for _, end in self._session.manifest.dropped.frozen]
        return instant(max(ends)) if ends else None

    def list_remarks(self, start: datetime | None, end: datetime | None, what: str = "") -> tuple[str, ...]:
        """What is to be known of [start, end), the whole span by default, where samples were dropped: a sentence each.

        Of `what` (diagnoses, activity over time), which needs samples: that it has nothing of such days.
        """
        given = self._session.span()
        window = (given[0] if start is None else milliseconds(start), given[1] if end is None else milliseconds(end))
        lacking = say_lacking(self._session, window, what) if what else ""
        found = (lacking, say_changed(self._session, window), *say_dropped_rows(self._session, window))
        return tuple(filter(None, found))

    def knows(self, dimension: str, name: str) -> bool:
        """Whether the books know a job, a team or another value of a dimension."""
        try:
            check_filters(self._session, {dimension: name})
        except InputError:
            return False
        return True

    def list_unheld_work(self) -> "tuple[UnheldWork, ...]":
        """The jobs that made progress while they held no GPU that the books know."""
        from loadfactor.books.unheld_work import list_unheld_work

        return list_unheld_work(self._session)

    def summarize_jobs(self, job: str) -> "tuple[JobSummary, ...]":
        """A job as `loadfactor seff` prints it, by its id or number; of an array or a het job each part.

        Raises InputError for one that the books do not know, or that has not held a GPU yet.
        """
        from loadfactor.books.job_summary import find_jobs, summarize_job

        jobs = find_jobs(self._session, job)
        return tuple(summarize_job(self._session, of, self.show, self.read_waterfall, self.span) for of in jobs)

    def sum_reported(
        self, by: str, start: datetime | None, end: datetime | None, where: Mapping[str, str] | None = None
    ) -> "dict[str, ReportedUse]":
        """What summaries of whole runs (jobstats) say of what each job, or user, held in [start, end), by default ever."""
        from loadfactor.books.job_summary import sum_reported

        first, last = self.span
        span = milliseconds(start or first), milliseconds(end or last)
        return sum_reported(self._session, {"job": "job_id"}.get(by, by), span, where or {})

    def list_parts(
        self, start: datetime | None, end: datetime | None, where: Mapping[str, str] | None = None
    ) -> "dict[str, HeldPart]":
        """The jobs that held parts of GPUs in [start, end), by default ever, with the parts and their basis."""
        from loadfactor.books.job_summary import list_parts

        first, last = self.span
        return list_parts(self._session, (milliseconds(start or first), milliseconds(end or last)), where or {})

    def find_alike(self, job: str, start: datetime, end: datetime) -> "AlikeJobs":
        """Jobs like one, by team or experiment, purpose and GPUs, of those that held GPUs within [start, end)."""
        from loadfactor.books.job_account import find_alike

        return find_alike(self._session, job, milliseconds(start), milliseconds(end))

    def divide_use(
        self,
        job: str,
        start: datetime,
        end: datetime,
        costs: tuple[float | None, float | None],
        basis: str | None = None,
    ) -> ServedUse | None:
        """Divide what a job cost, and its idle time, by who used what it serves in [start, end); None where nobody logged it."""
        if not self._session.has_rows("served_requests"):
            return None
        window = Window(milliseconds(start), milliseconds(end))
        self._ledger.view(window, False, (("job", job),))
        return divide_use(self._session, job, (window.start_ms, window.end_ms), self._check_basis(basis), costs)

    def budgets(
        self, month: str | None = None, basis: str | None = None, today: date | None = None, timezone: tzinfo = UTC
    ) -> "BudgetReview":
        """Where the budgets of loadfactor.toml stand in the period that a month, 2026-10, lies in: what `loadfactor budget` prints.

        What the statements of its months charge: of a bill, else of the ledger's cost in a `basis`. `today` (UTC) says which days
        of a bill are settled, `timezone` where days and months begin. Raises InputError where there is no budget.
        """
        from loadfactor.books.budgets import review_budgets
        from loadfactor.books.charging.bridge import list_months

        basis, view = self._check_basis(basis), self._ledger.view_span
        review = review_budgets(self._session, settings().budget, basis, view, month, today, zone=timezone)
        closed = tuple(
            remark for name in list_months(review.statuses[0]) for remark in self._mention_closed(name, timezone)
        )
        return replace(review, remarks=(*review.remarks, *closed))

    def _mention_closed(self, month: str, timezone: tzinfo) -> tuple[str, ...]:
        """That a month is closed, and that what is charged now differs from it where it does; nothing of an open one."""
        from loadfactor.books.charging.closings import mention_closing

        closings = self.list_closings(month)
        if not closings:
            return ()
        last = closings[-1]
        return mention_closing(self.charge(month, last.by, None, timezone), closings).remarks[-1:]

    def commitments(self) -> "BilledCommitments":
        """Cost of commitments, reservations and spot capacity by the bills. Raises InputError where there are none."""
        from loadfactor.books.billed_costs import find_commitments

        return find_commitments(self._session)

    def choose_commitment(
        self,
        commit_price: float,
        rent_price: float | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        timezone: tzinfo = UTC,
    ) -> "CommitmentChoice":
        """How many of the GPUs that were held to commit to at a price of a GPU-hour, and the regret of other choices.

        `rent_price` of the rest is by default what a held GPU-hour costs in the books. Raises InputError where nothing was held.
        """
        from loadfactor.books.commitment_demand import choose_for_demand

        ask = partial(self.show, start=start, end=end, timezone=timezone)
        return choose_for_demand(ask, commit_price, rent_price, self._session.currency, timezone)

    def targets(self, timezone: tzinfo = UTC) -> "tuple[TargetStatus, ...]":
        """Where the targets of loadfactor.toml stand at the end of the books. Raises InputError for a metric that is none."""
        from loadfactor.books.targets import review_targets

        return review_targets(self.show, settings().target, self.span, timezone)

    def compare_bills(self, month: str | None = None, timezone: tzinfo = UTC) -> "BillComparison":
        """Compare bills of GPUs with the books, in a month, 2026-10, or all of their time: what `bill compare` prints.

        Raises InputError where there is no bill of GPUs in time that the books know.
        """
        from loadfactor.books.bill_comparison import compare_bills

        return compare_bills(self._session, month, timezone)

    def owned(self) -> "tuple[OwnedUse, ...]":
        """The owned GPUs of loadfactor.toml: price by assumed and by measured load, and what their hours cost."""
        from loadfactor.books.owned_prices import list_owned

        return list_owned(self._session, settings().owned)

    def projects(self, basis: str | None = None) -> "ProjectReview":
        """The projects of loadfactor.toml: planned, so far, and at their end. Raises InputError where there is none."""
        from loadfactor.books.budgets import review_projects

        found = settings()
        return review_projects(self._session, found.project, found.owned, self._check_basis(basis))

    def view(self, name: str) -> Expr:
        """A table of the store under its own name, as an Ibis expression to `fetch`."""
        from loadfactor.books.expressions import input_table

        self._session.view_table(name, name)
        return input_table(name)

    def fetch(self, rows: Expr) -> "pa.Table":
        """The rows of an Ibis expression over tables that were viewed."""
        from loadfactor.books.expressions import write_sql

        return self._session.fetch(write_sql(rows))

    @cached_property
    def _settings(self) -> str:
        """The settings, which answers depend on."""
        return repr(settings())

    @cached_property
    def _basis(self) -> str:
        return self._session.find_once((default_basis, self._settings), lambda: default_basis(self._session))

    def _check_basis(self, basis: str | None) -> str:
        """The kind of money requested, by default the best there is. Raises InputError for one that is none."""
        if basis is not None and basis not in BASES:
            raise no_such("cost basis", basis, BASES)
        return basis or self._basis

    def _window(self, start: datetime | None, end: datetime | None, timezone: tzinfo) -> Window:
        first, last = self.span
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

    def _window_of_waits(self, start: datetime | None, end: datetime | None) -> Window:
        """The window requested; if no start is, from the first wait on: jobs are queued before the books have any GPU held."""
        window = self._window(start, end, UTC)
        (first,) = self._session.fetch_one("SELECT min(queued_utc) FROM waits")
        return window if start or first is None else replace(window, start_ms=min(first, window.start_ms))


def _listed(names: str | Sequence[Any]) -> Sequence[Any]:
    return [names] if isinstance(names, str) else names


def _at(value: datetime) -> str:
    return value.strftime("%Y-%m-%d %H:%M %Z")
