"""Both sides of the books: what was installed, and what was booked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR
from loadfactor.books.bill_comparison import DO, NEVER_SEEN, PRICE, UNSAID, compare_bills
from loadfactor.books.booking import book
from loadfactor.books.charging.billed_prices import has_bills, view_billed_lines
from loadfactor.books.charging.fleet_chargeback import ChargeQuestion, charge_fleet
from loadfactor.books.charging.instances import UNKNOWN
from loadfactor.books.check.finding import ROUNDING, SHOWN_NAMES, Examined, Finding, name_some
from loadfactor.books.ledger_inputs import list_estimates
from loadfactor.books.owned_prices import find_owned_prices
from loadfactor.books.rebuild import default_basis
from loadfactor.metrics.query.reading import Reading
from loadfactor.settings.config import settings
from loadfactor.store import sample_files
from loadfactor.store.manifest import subtract
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, columns_of


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


def add_up(session: Session, totals: Mapping[str, Reading]) -> Balance:
    """Add up both sides over the whole span. Costs in the default basis, over the hours that have a price.

    Days whose samples were dropped keep what was booked, whatever is installed by rows that came since: both sides are that.
    """
    basis = default_basis(session)
    book(session, subtract((session.span(),), session.manifest.dropped.hours), until="segments")
    installed_gpu_hours, installed_cost = session.fetch_one(
        f"SELECT coalesce(sum(share * (to_utc - from_utc)), 0) / {MS_PER_HOUR},"
        f" sum(share * (to_utc - from_utc) * price_per_gpu_hour_{basis}) / {MS_PER_HOUR} FROM segments"
    )
    if frozen := _sum_frozen(session, basis):
        installed_gpu_hours += frozen[0]
        installed_cost = (
            None if installed_cost is None and frozen[1] is None else (installed_cost or 0) + (frozen[1] or 0)
        )
    booked = [r.value if isinstance(r.value, float) else None for r in (totals["paid_gpu_hours"], totals["cost"])]
    return Balance(installed_gpu_hours, booked[0] or 0.0, installed_cost, booked[1])


def _sum_frozen(session: Session, basis: str) -> tuple[float, float | None] | None:
    """GPU-hours and cost that are booked of days whose samples were dropped; None where there are none."""
    hours = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in session.manifest.dropped.hours)
    if not hours:
        return None
    found: tuple[float, float | None] = session.fetch_one(
        f"SELECT coalesce(sum(gpu_s), 0) / {S_PER_HOUR}, sum(gpu_s * price_per_gpu_hour_{basis}) / {S_PER_HOUR}"
        f" FROM ledger WHERE {hours}"
    )
    return found


def find_bill_differences(books: Examined) -> Iterator[Finding]:
    """One finding for each kind of difference; hours and cost are those of all of them together, billed less seen."""
    if not has_bills(books.session):
        return
    try:
        compared = compare_bills(books.session)
    except InputError:
        return  # no bill of GPUs, or none of the time that the books know
    kinds: dict[str, list[str]] = {}
    for difference in compared.differences:
        kinds.setdefault(difference.kind, []).append(difference.of)
    for kind, names in kinds.items():
        of = [difference for difference in compared.differences if difference.kind == kind]
        amounts = [difference.amount for difference in of if difference.amount is not None]
        hours = [
            d.billed_gpu_hours
            if kind in (NEVER_SEEN, PRICE)
            else (d.billed_gpu_hours or 0.0) - (d.seen_gpu_hours or 0.0)
            for d in of
        ]
        yield Finding(
            "missing",
            f"{kind}: {len(of):,} ({name_some(names[: SHOWN_NAMES + 1])})",
            f"`loadfactor bill compare --store {quote(books.session.name)}` lists them; {of[0].do}",
            gpu_hours=sum(hour or 0.0 for hour in hours),
            cost=sum(amounts) if amounts and compared.currency == books.session.currency else None,
        )


def find_billed_gpus(books: Examined) -> Iterator[Finding]:
    """GPUs of bills, in books that know of none."""
    session = books.session
    view_billed_lines(session, [ALWAYS])
    session.materialize("billed_gpus", "SELECT * FROM billed_lines WHERE sold IS NOT NULL")
    resources, hours, cost, currencies, currency = session.fetch_one(
        f"""SELECT count(DISTINCT coalesce(resource, billed_type)), sum(gpu_hours),
          sum(EffectiveCost::DOUBLE * coalesce(gpu_share, 1)::DOUBLE), count(DISTINCT BillingCurrency), any_value(BillingCurrency)
        FROM billed_gpus WHERE sold <> '{UNKNOWN}'"""
    )
    do = "import what measures or lists GPUs: `loadfactor check` looks what this machine has"
    if resources:
        known = cost if currencies == 1 and currency == session.currency else None
        what = f"GPUs of {resources:,} machine{'s' * (resources != 1)} are billed, and nothing else is known of them"
        yield Finding("missing", what, do, gpu_hours=hours, cost=known)
    else:
        yield Finding("note", "no line of the bill is known to be of GPUs", do)
    unknown = [
        kind
        for (kind,) in session.raw.execute(
            "SELECT DISTINCT coalesce(billed_type, resource, '?') FROM billed_gpus"
            f" WHERE sold = '{UNKNOWN}' OR gpu_hours IS NULL ORDER BY 1"
        ).fetchall()
    ]
    if unknown:
        yield Finding("missing", f"{UNSAID}: {len(unknown):,} ({name_some(unknown)})", DO[UNSAID])


def find_unowned_charges(books: Examined) -> Iterator[Finding]:
    """Cost of bills that has no team, in books that know of no GPUs, and what hinders charging it."""
    session = books.session
    there = f" --store {quote(session.name)}"
    try:
        question = ChargeQuestion(("team",), None, None, settings().chargeback)
        found = charge_fleet(session, question, "estimate", lambda _: False)
    except InputError as error:
        yield Finding(
            "missing", f"who pays for the bill cannot be told: {error}", f"then `loadfactor chargeback{there}`"
        )
        return
    if found.tag_coverage_share is not None and found.tag_coverage_share < 1:
        do = f"`loadfactor chargeback{there}` shows it; tag it, or write a rule [[tag]] and run `loadfactor retag{there}`"
        yield Finding("missing", "not all cost of the bill has a team", do, coverage=float(found.tag_coverage_share))


def find_missing_rates(books: Examined) -> Iterator[Finding]:
    """Foreign prices of a time without an exchange rate."""
    session = books.session
    for name in ("prices", "exchange_rates"):
        session.view_table(name, name)
    is_estimated = default_basis(session) == "estimate"
    estimates = list_estimates() if is_estimated else find_owned_prices(session).list_prices()
    session.put_rows("estimates", columns_of("prices"), estimates)
    found = session.raw.execute(
        f"""SELECT p.currency FROM (SELECT * FROM prices UNION ALL SELECT * FROM estimates) p LEFT JOIN (
              SELECT currency, min(coalesce(from_utc, {ALWAYS[0]})) AS since FROM exchange_rates GROUP BY currency
            ) r USING (currency)
            WHERE p.currency <> {sample_files.quote(session.currency)} AND coalesce(p.to_utc, {ALWAYS[1]}) > {session.span()[0]}
            GROUP BY p.currency HAVING bool_or(since IS NULL OR since > greatest(coalesce(p.from_utc, 0), {session.span()[0]}))
            ORDER BY p.currency"""
    ).fetchall()
    for (currency,) in found:
        yield Finding(
            "missing",
            f"prices in {currency} have no exchange rate to {session.currency} for all of their time: there they are unknown",
            "import a table exchange_rates (currency, from_utc, rate): `loadfactor tables exchange_rates`",
        )


def find_unpriced(books: Examined) -> Iterator[Finding]:
    """Paid time without a price, and prices that are estimates."""
    coverage = books.totals["cost"].coverage
    if coverage is not None and coverage < 1:
        do = f"import a price list: `loadfactor import prices FILE --store {quote(books.session.name)}`"
        unpriced = books.total("paid_gpu_hours") * (1 - coverage)
        yield Finding("missing", "not all paid time has a price", do, coverage, gpu_hours=unpriced)
    if default_basis(books.session) == "estimate":
        yield Finding(
            "note", "no prices imported: costs are the catalog's dated list prices, estimates", "--price-per-gpu-hour X"
        )
