"""Bills: what they and the books disagree about, in money."""

from collections.abc import Iterator
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.charging.bill_comparison import DO, NEVER_SEEN, PRICE, UNSAID, compare_bills
from loadfactor.books.charging.billed_prices import has_bills, view_billed_lines
from loadfactor.books.charging.fleet_chargeback import ChargeQuestion, charge_fleet
from loadfactor.books.charging.instances import UNKNOWN
from loadfactor.books.check.finding import SHOWN_NAMES, Examined, Finding, name_some
from loadfactor.settings.config import settings
from loadfactor.tables.schema import ALWAYS


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
            f"`loadfactor bill compare --store {quote(str(books.session.folder))}` lists them; {of[0].do}",
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
    there = f" --store {quote(str(session.folder))}"
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
