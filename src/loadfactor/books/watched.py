"""The books as alerts read them: the ledger of some minutes, step by step, and what happened, waits and costs at that time.

Only what is requested is booked: hours that are stale stay so, so that the minutes that just came in cost what these minutes cost.
A run of a job is an interval of steps in each of which it holds something. After a whole step without anything, as between being
requeued and starting again, another run begins.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.booking import book, book_held, list_facts
from loadfactor.books.budgets import review_budgets
from loadfactor.books.charging.billed_prices import has_bills
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.kept_holdings import KeptHoldings, is_by_gpu
from loadfactor.books.rebuild import default_basis, open_ledger
from loadfactor.books.step_totals import CutRows, Rates, estimate_rates, read_cut_rows, read_rates
from loadfactor.books.watched_waits import QueuedJobs, UsualWait, WatchedWaits
from loadfactor.books.window_ledger import WindowLedger
from loadfactor.metrics import Metric
from loadfactor.metrics.query.answer import Totals, add_up
from loadfactor.metrics.query.calendar import Window
from loadfactor.metrics.query.question import Question
from loadfactor.settings.config import settings, zone
from loadfactor.store.import_records import list_imports
from loadfactor.store.manifest import StoredFile, merge
from loadfactor.store.sample_files import quote, read
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, BASES, Span

if TYPE_CHECKING:
    from loadfactor.books.budgets import BudgetReview


EVENTS_BEFORE_MS = MS_PER_DAY
"""Events are still read of so long before the time requested, as one that was stated stays true for a while."""


STEPS_AT_ONCE = 2_000_000
"""Steps of single GPUs."""
LONGEST_CHUNK_DAYS = 31
SAMPLES_AT_ONCE = 400_000
"""Rates that are held in memory: of samples, one each."""


@dataclass(frozen=True)
class WatchedEvent:
    """Something that happened to a GPU, so many times."""

    device: str
    at_ms: int
    kind: str
    detail: str
    count: float


@dataclass(frozen=True)
class WatchedOutage:
    """A node that cannot be used: `to_ms` is None while that lasts."""

    node: str
    from_ms: int
    to_ms: int | None
    reason: str


@dataclass(frozen=True)
class EndedPrice:
    """A price that is valid no longer, and no other one that is as good follows it: of what, in which basis, until when.

    `gone_ms`: when the last GPU that it was the price of is gone; behind all time where one stays.
    """

    accelerator: str | None
    pool: str | None
    device: str | None
    basis: str
    to_ms: int
    gone_ms: int


class Watched:
    """The books of one session, for one thread."""

    def __init__(self, session: Session, idle_below: float) -> None:
        self._session = session
        self._idle_below = idle_below
        self._attributed: frozenset[Span] = frozenset()
        """The hours of which the table `attributed` says who held what, of all GPUs."""

    @property
    def span(self) -> Span:
        """From the first to the last instant the books know of; (0, 0) where they know of none."""
        return self._session.span()

    def find_chunk_ms(self, step_ms: int) -> int:
        """So many whole days are booked at once in such steps: as many as memory allows, for a booking has a price of its own."""
        per_day = max(1, list_facts(self._session).gpus) * (MS_PER_DAY // step_ms)
        return max(1, min(LONGEST_CHUNK_DAYS, STEPS_AT_ONCE // per_day)) * MS_PER_DAY

    def read_steps(
        self, metrics: Sequence[Metric], by: Sequence[str], span: Span, step_ms: int, kept: KeptHoldings
    ) -> CutRows:
        """The ledger of a span of whole steps, which may end later than the books: then what is held is held still, unobserved.

        Its first and last hour are booked whole: what works while nobody holds it follows from the samples of an hour.
        `kept`: who held what, from call to call until data comes late.
        """
        question = self._ask(metrics, by, span)
        hours = tuple(
            (hour, hour + MS_PER_HOUR) for hour in range(span[0] - span[0] % MS_PER_HOUR, span[1], MS_PER_HOUR)
        )
        kept.show(self._session, span, with_bills=any(metric.is_money for metric in metrics))
        return self._read_rates(question, hours, within=span).cut(span, step_ms)

    def read_job_hours(
        self, jobs: Collection[str], metrics: Sequence[Metric], by: Sequence[str], span: Span
    ) -> CutRows:
        """The same of some jobs by hours: no sample is read, as the ledger that is kept says it all."""
        question = self._ask(metrics, by, span)
        open_ledger(self._session, self._idle_below)
        WindowLedger(self._session, self._idle_below).view(question.window, False)
        own = _name_jobs(jobs)
        self._session.materialize("ledger_of_jobs", f"SELECT * FROM window_ledger WHERE {own}")
        self._session.create_view("window_ledger", "SELECT * FROM ledger_of_jobs")
        return read_cut_rows(self._session, question, MS_PER_HOUR)

    def read_job_rates(
        self, jobs: Mapping[str, Span], metrics: Sequence[Metric], by: Sequence[str], span: Span
    ) -> Iterator[tuple[Span, Rates]]:
        """What each second adds to the ledger of some jobs, some hours of a span after others; `jobs`: when each holds something.

        Of their own rows, made of the samples of the GPUs and hours that they hold.
        """
        question = self._ask(metrics, by, span)
        own = _name_jobs(jobs)
        near = read_nearby_devices(self._session, own, span)
        among = None
        if near and is_by_gpu(self._session, span, list_facts(self._session)):
            among = "near_devices"
            self._session.put(among, {"device_id": near})
        held = merge(list(jobs.values()))
        hours = [h for h in _list_hours(span) if any(s < h[1] and e > h[0] for s, e in held)]
        self._attribute(hours, among)
        self._session.materialize("held_by_jobs", f"SELECT * FROM attributed WHERE {own}")
        for some in list(self._divide(hours)):
            part = some[0][0], some[-1][1]
            within = f"from_utc < {part[1]} AND to_utc > {part[0]}"
            self._session.materialize("holdings", f"SELECT * FROM held_by_jobs WHERE {within}")
            yield part, self._read_rates(question, tuple(some), "held")

    def _divide(self, hours: Sequence[Span]) -> Iterator[list[Span]]:
        """Divide hours into parts whose rates, of the samples of the GPUs in `held_by_jobs` and of the rest, are held at once."""
        rates = estimate_rates(self._session, hours)
        counted = self._session.fetch(
            "SELECT hour_utc, count(*) AS held FROM held_by_jobs GROUP BY hour_utc"
        ).to_pydict()
        held = dict(zip(counted["hour_utc"], counted["held"], strict=True))
        part: list[Span] = []
        rows = 0.0
        for hour in hours:
            more = rates * held.get(hour[0] - hour[0] % MS_PER_HOUR, 0)
            if part and rows + more > SAMPLES_AT_ONCE:
                yield part
                part, rows = [], 0.0
            part.append(hour)
            rows += more
        if part:
            yield part

    def read_held_steps(self, metrics: Sequence[Metric], by: Sequence[str], span: Span, step_ms: int) -> CutRows:
        """The same as `read_steps` without any sample: who held what, and what was free."""
        self._attribute(_list_hours(span))
        within = f"from_utc < {span[1]} AND to_utc > {span[0]}"
        self._session.materialize("holdings", f"SELECT * FROM attributed WHERE {within}")
        return self._read_rates(self._ask(metrics, by, span), _list_hours(span), "none").cut(span, step_ms)

    def _attribute(self, spans: Sequence[Span], among: str | None = None) -> None:
        """Put who held what in whole hours into the table `attributed`, which no sample says. `among`: see `booking.book`."""
        hours = tuple((start - start % MS_PER_HOUR, end + -end % MS_PER_HOUR) for start, end in spans)
        if not self._attributed.issuperset(hours):
            book(self._session, hours, (), self._idle_below, "holdings", among=among)
            self._session.rename("holdings", "attributed")
            self._attributed = frozenset(hours if among is None else ())

    def _read_rates(
        self,
        question: Question,
        hours: tuple[Span, ...],
        read: Literal["all", "held", "none"] = "all",
        within: Span | None = None,
    ) -> Rates:
        """Of the table `holdings`, with samples of some hours; see `book_held`."""
        self._session.create_view("numbered_holdings", "SELECT *, rowid AS holding FROM holdings")
        book_held(self._session, hours, self._idle_below, read, within=within, by_sample=True)
        return read_rates(self._session, question)

    def add_up(self, metrics: Sequence[Metric], by: Sequence[str], span: Span, since: Mapping[str, int]) -> Totals:
        """Add up the parts of metrics by group over a span: of these jobs, of each since an instant."""
        question = self._ask(metrics, by, span)
        open_ledger(self._session, self._idle_below)
        WindowLedger(self._session, self._idle_below).view(question.window, False)
        self._session.materialize("ledger_of_span", "SELECT * FROM window_ledger WHERE job_id IS NOT NULL")
        self._session.put("since_utc", {"job_id": list(since), "since": list(since.values())})
        self._session.create_view(
            "window_ledger",
            "SELECT l.* FROM ledger_of_span AS l JOIN since_utc AS s ON l.job_id = s.job_id AND l.from_utc >= s.since",
        )
        self._session.put("requested", {"start_ms": [span[0]], "end_ms": [span[1]]})
        queries = recall(question.shape, lambda: expressions().write_queries(question))
        return add_up(question, lambda name: self._session.fetch_columns(queries[name]))

    def find_begun_jobs(self, span: Span, step_ms: int) -> list[tuple[int, str]]:
        """Instants at which jobs begin to hold something in a span, in order. Between two runs of one lies a whole step."""
        self._session.view_table("allocations", "allocations")
        return [(at, job) for at, job in self._session.raw.execute(write_begun(span, step_ms)).fetchall()]

    def list_rows(self, name: str, where: str = "true", **among: Collection[str]) -> list[dict[str, Any]]:
        """The rows of a table that a condition in SQL chooses, with columns among some names, in order."""
        if not all(among.values()):
            return []
        self._session.view_table(name, name)
        chosen = [where, *(f'"{column}" IN ({", ".join(map(quote, names))})' for column, names in among.items())]
        found = self._session.raw.execute(f"SELECT * FROM {name} WHERE {' AND '.join(chosen)} ORDER BY ALL")
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]

    def find_job_starts(self, at_ms: int, step_ms: int) -> dict[str, int]:
        """Since when each job holds something that did in the step that ends at an instant."""
        self._session.view_table("allocations", "allocations")
        return dict(self._session.raw.execute(write_lasting(at_ms, step_ms)).fetchall())

    def list_events(self, span: Span) -> list[WatchedEvent]:
        """Events of GPUs in a span and `EVENTS_BEFORE_MS` before it, in order."""
        self._session.view_table("device_events", "device_events")
        rows = self._session.raw.execute(
            "SELECT device_id, at_utc, kind, coalesce(detail, ''), coalesce(count, 1) FROM device_events"
            f" WHERE at_utc >= {span[0] - EVENTS_BEFORE_MS} AND at_utc < {span[1]} ORDER BY at_utc, device_id, kind, 4"
        )
        return [WatchedEvent(*row) for row in rows.fetchall()]

    def list_outages(self, span: Span) -> list[WatchedOutage]:
        """The outages of whole nodes that touch a span, in order."""
        self._session.view_table("outages", "outages")
        rows = self._session.raw.execute(
            "SELECT node, from_utc, to_utc, coalesce(reason, '') FROM outages WHERE node IS NOT NULL"
            f" AND device_id IS NULL AND from_utc < {span[1]} AND coalesce(to_utc >= {span[0]}, true) ORDER BY ALL"
        )
        return [WatchedOutage(*row) for row in rows.fetchall()]

    def list_waits(self, span: Span, kept: WatchedWaits) -> QueuedJobs:
        """The waits that lasted in a span, or ended not long before it."""
        return kept.read(self._session, span)

    def list_usual_waits(self, day_ms: int, kept: WatchedWaits) -> dict[str, UsualWait]:
        """How long jobs usually wait, by queue, else pool, stated from the days before a UTC day."""
        return kept.read_usual(self._session, day_ms)

    def list_ended_prices(self, end_ms: int) -> list[EndedPrice]:
        """Prices that ended before an instant, of GPUs that are listed, where none in the same or a better basis follows.

        Where bills are imported, they say what is paid after a price ended.
        """
        if has_bills(self._session):
            return []
        for name in ("prices", "devices"):
            self._session.view_table(name, name)
        rows = self._session.raw.execute(write_ended_prices(end_ms)).fetchall()
        return [EndedPrice(*row) for row in rows]

    def review_budgets(self, through: date) -> "BudgetReview | None":
        """Where budgets stood when a UTC day was complete; None where there is no budget, or no cost to compare it with.

        Days and months of budgets are those of the settings' zone, as on pages.
        """
        if not (budgets := settings().budget):
            return None
        with closing(self._session.beside()) as session:  # steps that are being read keep their names
            open_ledger(session, self._idle_below)
            view = WindowLedger(session, self._idle_below).view_span
            try:
                here = zone(settings().timezone)
                over = datetime.combine(through + timedelta(1), time(), UTC).astimezone(here).date() - timedelta(1)
                return review_budgets(session, budgets, default_basis(session), view, through=over, zone=here)
            except InputError:
                return None

    def _ask(self, metrics: Sequence[Metric], by: Sequence[str], span: Span) -> Question:
        basis = "estimate"  # which is not read where nothing is money
        if any(metric.is_money for metric in metrics):
            open_ledger(self._session, self._idle_below)
            basis = default_basis(self._session)
        return Question(tuple(metrics), tuple(by), Window(*span), basis)


def _name_jobs(jobs: Collection[str]) -> str:
    return f"job_id IN ({', '.join(map(quote, jobs))})"


def _list_hours(span: Span) -> tuple[Span, ...]:
    start, end = span
    hours = range(start - start % MS_PER_HOUR, end, MS_PER_HOUR)
    return tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in hours)


LIVE = "live "
"""How the digest of an import begins that a flush made of live rows."""
FIRST_INSTANT = {
    "allocations": "from_utc",
    "outages": "from_utc",
    "devices": "from_utc",
    "queue_events": "at_utc",
    "device_events": "at_utc",
}


def find_imported(session: Session, after: int) -> int | None:
    """The earliest instant of what was imported from files since the import of a number; None where nothing was.

    What a device or job was since ever counts from the first instant that is named.
    """
    numbers = [r.number for r in list_imports(session, f"import_no > {after}") if not r.digest.startswith(LIVE)]
    if not numbers:
        return None
    found: list[int | None] = [_first_sample(file, numbers) for file in session.manifest.of("samples")]
    for table, column in FIRST_INSTANT.items():
        files = [f for f in session.manifest.logs_of(table) if any(f.holds_import(n) for n in numbers)]
        if files:
            (first,) = session.fetch_one(
                f"SELECT min({column}) FROM {read(session.paths(files))}"
                f" WHERE import_no IN ({', '.join(map(str, numbers))})"
            )
            found.append(first)
    return min((at for at in found if at is not None), default=None)


def _first_sample(file: StoredFile, numbers: list[int]) -> int | None:
    """Where a file of samples begins that holds some of these imports; of one that holds others too, its day."""
    if not any(file.holds_import(n) for n in numbers):
        return None
    is_new = file.imports is not None and file.imports[0] >= numbers[0]
    return file.from_ms if is_new or file.day is None else file.day * MS_PER_DAY


def read_nearby_devices(session: Session, own: str, span: Span) -> list[str] | None:
    """The GPUs of the nodes of allocations that a condition in SQL chooses, in order.

    None where somebody holds unnamed GPUs of a pool or of the fleet then: any may be theirs.

    A node has one name before its first dot, so more GPUs may be listed than are needed, and never fewer.
    """
    for name in ("allocations", "devices"):
        session.view_table(name, name)
    then = f"coalesce(from_utc < {span[1]}, true) AND coalesce(to_utc > {span[0]}, true)"
    unnamed = f"SELECT 1 FROM allocations WHERE {then} AND device_id IS NULL AND node IS NULL LIMIT 1"
    if session.raw.execute(unnamed).fetchall():
        return None
    held = f"FROM allocations WHERE {then} AND {own}"
    named = f"(SELECT device_id {held})"
    nodes = f"""(SELECT split_part(node, '.', 1) {held} AND node IS NOT NULL
                 UNION SELECT split_part(node, '.', 1) FROM devices WHERE device_id IN {named} AND node IS NOT NULL)"""
    found = session.raw.execute(
        f"SELECT DISTINCT device_id FROM devices WHERE device_id IN {named} OR split_part(node, '.', 1) IN {nodes} ORDER BY ALL"
    )
    return [device for (device,) in found.fetchall()]


_NEVER: Final = ALWAYS[1]


def write_ended_prices(end_ms: int) -> str:
    """SQL: accelerator, pool, device_id, basis, ended, gone of prices of listed GPUs that ended before an instant for good.

    A price is followed by another one that is valid later, in the same or a better basis, for all that it was the price of.
    """
    rank = " ".join(f"WHEN '{basis}' THEN {number}" for number, basis in enumerate(BASES))
    what = ("accelerator", "pool", "device_id")
    covers = " AND ".join(f"(q.{of} IS NULL OR q.{of} = p.{of})" for of in what)
    matches = " AND ".join(f"(p.{of} IS NULL OR d.{of} = p.{of})" for of in what)
    return f"""
        WITH ranked AS (SELECT *, CASE basis {rank} END AS rank FROM prices),
          ended AS (SELECT accelerator, pool, device_id, basis, rank, max(coalesce(to_utc, {_NEVER})) AS ended
                    FROM ranked GROUP BY ALL HAVING ended < {end_ms}),
          last AS (SELECT * FROM ended AS p WHERE NOT EXISTS (
                     SELECT 1 FROM ranked AS q WHERE q.rank <= p.rank AND coalesce(q.to_utc, {_NEVER}) > p.ended AND {covers}))
        SELECT p.accelerator, p.pool, p.device_id, p.basis, p.ended, max(coalesce(d.to_utc, {_NEVER})) AS gone
        FROM last AS p JOIN devices AS d ON {matches} AND coalesce(d.to_utc, {_NEVER}) > p.ended
        GROUP BY ALL ORDER BY ALL"""


def write_begun(span: Span, step_ms: int) -> str:
    """SQL: from_utc and job_id of the runs that begin in a span, in order."""
    start, end = span
    requested = f"SELECT job_id FROM allocations WHERE from_utc >= {start} AND from_utc < {end}"
    return f"""{_mark(requested, end, step_ms)}
        SELECT from_utc, job_id FROM marked WHERE begins AND from_utc >= {start} ORDER BY ALL"""


def write_lasting(at_ms: int, step_ms: int) -> str:
    """SQL: job_id and from_utc of the runs that lasted in the step that ends at an instant."""
    step = at_ms // step_ms - 1
    requested = f"SELECT job_id FROM allocations WHERE from_utc < {at_ms} AND {_last(step_ms)} >= {step}"
    return f"""{_mark(requested, at_ms, step_ms)}
        SELECT job_id, max(from_utc) AS from_utc FROM marked WHERE begins GROUP BY job_id"""


def _mark(requested: str, end: int, step_ms: int) -> str:
    """SQL that names `marked` the allocations of some jobs that began before an instant, with `begins` where a run does."""
    return f"""
        WITH own AS (SELECT job_id, from_utc, from_utc // {step_ms} AS first, {_last(step_ms)} AS last FROM allocations
                     WHERE from_utc < {end} AND coalesce(to_utc > from_utc, true) AND job_id IN ({requested})),
          followed AS (SELECT *, max(last) OVER (PARTITION BY job_id ORDER BY from_utc, last
                                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM own),
          marked AS (SELECT *, coalesce(first > before + 1, true) AS begins FROM followed)"""


def _last(step_ms: int) -> str:
    """SQL: the number of the last step that an allocation holds something in."""
    return f"(coalesce(to_utc, {_NEVER}) - 1) // {step_ms}"
