"""Whether the books balance, what is missing in them and what contradicts itself, each with what to do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from loadfactor.books.inventory_check import find_counted_twice, find_unlisted
from loadfactor.books.rebuild import book, default_basis, list_estimates
from loadfactor.errors import DamageError
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import Reading
from loadfactor.store.import_records import list_imports
from loadfactor.store.session import Session, check_file
from loadfactor.store.source_status import read_statuses
from loadfactor.tables import ALWAYS, EVEN_SPLIT, LABELS, PRICES
from loadfactor.units import MS_PER_HOUR

Show = Callable[[Sequence[str]], Sequence[Reading]]
"""Answers with the readings of metrics over the whole of the books."""
ASKED = ("paid_gpu_hours", "cost", "allocated_gpu_hours", "unattributed_gpu_hours", "observed_gpu_hours")
Grade = Literal["wrong", "missing", "note"]
ROUNDING = 1e-9
SHOWN_DEVICES = 3
UNATTRIBUTED_REMEDY = "import allocations, use an exporter with job labels, or import the log with --held-by JOB"


@dataclass(frozen=True)
class Finding:
    """One thing to know of the books. `wrong`: they do not balance or are damaged; `missing`: not measured or contradictory."""

    grade: Grade
    what: str
    do: str
    coverage: float | None = None  # the share that is covered, where that is what was found


@dataclass(frozen=True)
class Balance:
    """Both sides of the book: what was installed, worked out from the device list and the prices, and what was booked."""

    installed_gpu_hours: float
    booked_gpu_hours: float
    installed_cost: float | None
    booked_cost: float | None

    @property
    def residual_gpu_hours(self) -> float:
        """Booked less installed: zero but for rounding."""
        return self.booked_gpu_hours - self.installed_gpu_hours

    @property
    def residual_cost(self) -> float | None:
        """Booked less price × installed; None where there is no price at all."""
        return (
            None if self.booked_cost is None or self.installed_cost is None else self.booked_cost - self.installed_cost
        )

    @property
    def holds(self) -> bool:
        """True when both sides agree to a billionth."""
        hours = abs(self.residual_gpu_hours) <= ROUNDING * max(1.0, self.installed_gpu_hours)
        cost = self.residual_cost is None or abs(self.residual_cost) <= ROUNDING * max(
            1.0, abs(self.installed_cost or 0)
        )
        return hours and cost


@dataclass(frozen=True)
class CheckResult:
    """Both sides of the books, and what is worth knowing of them, worst first."""

    balance: Balance
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """True when the books balance and nothing in them is wrong."""
        return self.balance.holds and not any(finding.grade == "wrong" for finding in self.findings)


def check_books(session: Session, show: Show) -> CheckResult:
    """Check the books of a session; `show` answers questions of them. Raises DamageError where a file is not what was written."""
    check_files(session)
    readings = {reading.metric: reading for reading in show(ASKED)}  # all of them in one question

    def recall(metrics: Sequence[str]) -> Sequence[Reading]:
        return [readings[name] for name in metrics]

    return CheckResult(add_up(session, recall), tuple(find_problems(session, recall)))


def check_files(session: Session) -> None:
    """Read every file of the books. Raises DamageError naming the first damaged one, and how many more there are."""
    damaged = []
    for file in session.manifest.files:
        try:
            check_file(session.folder, file, again=True)
        except DamageError as error:
            damaged.append(error)
    if len(damaged) > 1:
        raise DamageError(f"{damaged[0]}; {len(damaged) - 1} more of its files are damaged")
    if damaged:
        raise damaged[0]


def add_up(session: Session, show: Show) -> Balance:
    """Add up both sides over the whole span. Costs in the default basis, over the hours that have a price."""
    basis = default_basis(session)
    start, end = session.span()
    book(session, ((start, end),), until="segments")
    ask = session.raw.execute(
        f"SELECT coalesce(sum(share * (to_utc - from_utc)), 0) / {MS_PER_HOUR},"
        f" sum(share * (to_utc - from_utc) * price_per_gpu_hour_{basis}) / {MS_PER_HOUR} FROM segments"
    ).fetchone()
    paid, cost = show(["paid_gpu_hours", "cost"])
    installed_gpu_hours, installed_cost = ask or (0.0, None)
    booked = [r.value if isinstance(r.value, float) else None for r in (paid, cost)]
    return Balance(installed_gpu_hours, booked[0] or 0.0, installed_cost, booked[1])


def find_problems(session: Session, show: Show) -> Iterator[Finding]:
    """Everything worth knowing, worst first."""
    for loss in session.manifest.losses:
        yield Finding(
            "wrong",
            f"lost with a damaged file, now in quarantine: {loss.what}",
            "import again what `loadfactor imports` names",
        )
    yield from _contradictions(session, show)
    yield from _unattributed(show)
    for what, do in (*find_unlisted(session), *find_counted_twice(session)):
        yield Finding("missing", what, do)
    yield from _without_rate(session)
    yield from _gaps(session, show)
    yield from _inferred_holders(session)
    yield from _failing_sources(session)


def _contradictions(session: Session, show: Show) -> Iterator[Finding]:
    start, end = session.span()
    for name in ("allocations", "devices", "samples", "progress"):
        session.view_table(name, name)
    asked = session.raw.execute(
        f"""WITH asking AS (
              SELECT *, greatest(from_utc, {start}) AS since, least(coalesce(to_utc, {end}), {end}) AS until
              FROM allocations WHERE from_utc < {end} AND known_from IS DISTINCT FROM '{LABELS}'
            ), again AS (  -- a run that overlapping logs name twice on one GPU asks once
              SELECT *, if(device_id IS NULL, NULL, max(until) OVER (
                PARTITION BY device_id, job_id, attempt ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
              )) AS before FROM asking
            )
            SELECT coalesce(sum(coalesce(gpus, 1) * coalesce(a.share, 1) * coalesce(d.share, 1)
              * greatest(0, until - greatest(since, coalesce(before, since)))), 0) / {MS_PER_HOUR}
            FROM again a LEFT JOIN (SELECT device_id, min(share) AS share FROM devices GROUP BY ALL) d USING (device_id)"""
    ).fetchone()
    held = show(["allocated_gpu_hours"])[0].value
    excess = (asked or (0.0,))[0] - (held if isinstance(held, float) else 0.0)
    if excess > ROUNDING * max(1.0, (asked or (0.0,))[0]):
        yield Finding(
            "missing",
            f"allocations ask for {excess:,.2f} GPU-hours more than was installed: they overlap, or name GPUs not installed then",
            "check the times of allocations and devices; overlapping holders share what there was",
        )
    strangers = session.raw.execute(
        "SELECT count(DISTINCT device_id) FROM samples WHERE device_id NOT IN (SELECT device_id FROM devices)"
    ).fetchone()
    if strangers and strangers[0]:
        yield Finding(
            "missing", f"devices with samples that are in no device list: {strangers[0]}", "import their devices"
        )
    unused = session.raw.execute(
        "SELECT DISTINCT device_id FROM samples WHERE device_id IN (SELECT device_id FROM devices)"
        " AND device_id NOT IN (SELECT device_id FROM ledger WHERE device_id IS NOT NULL) ORDER BY device_id"
    ).fetchall()
    if unused:
        named = ", ".join(device for (device,) in unused[:SHOWN_DEVICES]) + (
            ", …" if len(unused) > SHOWN_DEVICES else ""
        )
        yield Finding(
            "missing",
            f"GPUs whose samples count for nobody: {len(unused):,} ({named}); who held them is known by node or pool alone",
            "import allocations that name GPUs (device_id)",
        )
    orphans = session.raw.execute(
        "SELECT count(DISTINCT job_id) FROM progress WHERE job_id NOT IN (SELECT job_id FROM allocations)"
    ).fetchone()
    if orphans and orphans[0]:
        yield Finding(
            "missing", f"jobs with progress and without an allocation: {orphans[0]}", "import their allocations"
        )


def _unattributed(show: Show) -> Iterator[Finding]:
    """Time with an unknown holder, and how to say who held it."""
    unattributed, paid = (r.value for r in show(["unattributed_gpu_hours", "paid_gpu_hours"]))
    if isinstance(unattributed, float) and isinstance(paid, float) and unattributed > ROUNDING * paid:
        yield Finding(
            "missing",
            f"{unattributed:,.2f} of {paid:,.2f} GPU-hours have an unknown holder: no allocation speaks of these GPUs,"
            " or they work unallocated",
            UNATTRIBUTED_REMEDY,
        )


def _without_rate(session: Session) -> Iterator[Finding]:
    """Foreign prices of a time without an exchange rate."""
    for name in ("prices", "exchange_rates"):
        session.view_table(name, name)
    session.register(
        "estimates", list_estimates() if default_basis(session) == "estimate" else PRICES.schema.empty_table()
    )
    found = session.raw.execute(
        f"""SELECT p.currency FROM (SELECT * FROM prices UNION ALL SELECT * FROM estimates) p LEFT JOIN (
              SELECT currency, min(coalesce(from_utc, {ALWAYS[0]})) AS since FROM exchange_rates GROUP BY currency
            ) r USING (currency)
            WHERE p.currency <> ? AND coalesce(p.to_utc, {ALWAYS[1]}) > {session.span()[0]}
            GROUP BY p.currency HAVING bool_or(since IS NULL OR since > greatest(coalesce(p.from_utc, 0), {session.span()[0]}))
            ORDER BY p.currency""",
        [session.currency],
    ).fetchall()
    for (currency,) in found:
        yield Finding(
            "missing",
            f"prices in {currency} have no exchange rate to {session.currency} for all of their time: there they are unknown",
            "import a table exchange_rates (currency, from_utc, rate): `loadfactor tables exchange_rates`",
        )


def _gaps(session: Session, show: Show) -> Iterator[Finding]:
    there = f" --store {quote(str(session.folder))}"
    for reading, do in (
        (
            show(["observed_gpu_hours"])[0],
            f"check the exporters of the hours in `loadfactor show unobserved_gpu_hours --by day{there}`",
        ),
        (show(["cost"])[0], f"import a price list: `loadfactor import prices FILE{there}`"),
    ):
        if reading.coverage is not None and reading.coverage < 1:
            subject = "held time is observed" if reading.metric == "observed_gpu_hours" else "paid time has a price"
            yield Finding("missing", f"not all {subject}", do, reading.coverage)
    if default_basis(session) == "estimate":
        yield Finding(
            "note",
            "no prices imported: costs are the catalog's dated list prices, estimates",
            "--price-per-gpu-hour X",
        )
    for record in list_imports(session):
        for where, what, count in record.gaps:
            yield Finding("note", f"{where.rsplit('/', 1)[-1]}: {what} (×{count:,})", "not measured there")


def _failing_sources(session: Session) -> Iterator[Finding]:
    """Sources of live collection that send nothing, or sent nothing for a while, as the server said it last."""
    for source in read_statuses(session.folder):
        if source.status == "absent":
            yield Finding("note", f"{source.name}: {source.error}", "nothing, unless you use it")
        elif source.error:
            since = f" since {instant(source.since_ms):%Y-%m-%d %H:%M} UTC" if source.since_ms else ""
            yield Finding(
                "missing", f"{source.name} is {source.status}{since}: {source.error}", "see /health of `loadfactor up`"
            )
        for gap in source.gaps:
            began = f"{source.name}: {gap.target} gave nothing"
            if gap.to_ms is None:
                since = f"{instant(gap.from_ms):%Y-%m-%d %H:%M} UTC"
                yield Finding("missing", f"{began} since {since}: {gap.error}", "start it, or take it off the list")
            else:
                yield Finding(
                    "note", f"{began} from {_say_times(gap.from_ms, gap.to_ms)}: {gap.error}", "not measured there"
                )
        for failure in source.failures:
            times = _say_times(failure.from_ms, failure.to_ms)
            yield Finding(
                "note",
                f"{source.name} failed from {times}: {failure.error}",
                "it was asked for that time later",
            )


def _say_times(from_ms: int, to_ms: int) -> str:
    return f"{instant(from_ms):%Y-%m-%d %H:%M} to {instant(to_ms):%Y-%m-%d %H:%M} UTC"


def _inferred_holders(session: Session) -> Iterator[Finding]:
    """Holders that nobody listed as they are: read from labels of samples, or estimated."""
    session.view_table("allocations", "allocations")
    listed = f"FROM allocations WHERE known_from IS DISTINCT FROM '{LABELS}'"
    labelled, split = session.fetch_one(
        f"""SELECT
              count(DISTINCT job_id) FILTER (known_from = '{LABELS}' AND job_id NOT IN (
                SELECT job_id {listed} UNION SELECT coalesce(job_number, job_id) {listed})),
              count(DISTINCT job_id) FILTER (known_from = '{EVEN_SPLIT}')
            FROM allocations"""
    )
    if labelled:
        yield Finding(
            "note",
            f"jobs that only labels of samples name: {labelled:,}; who held their GPUs is inferred",
            "import what a scheduler says, where there is one",
        )
    if split:
        yield Finding(
            "note",
            f"jobs of several nodes whose GPUs were split evenly over these: {split:,}; how many were on which node is an estimate",
            "collect labels of samples, or import what the scheduler says of single nodes",
        )
