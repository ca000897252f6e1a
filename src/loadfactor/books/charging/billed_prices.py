"""Prices that bills make: what a GPU-hour of a node cost on a day, effective and as contracted, in the currency of the bill.

A price is the cost of a node's GPUs on a day ÷ the GPU-hours billed for it. A charge of several days counts on each in proportion
to time. There is no price where a line does not say how long it was used, or lacks the cost, or where lines are in two currencies.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.charging.instances import NodeRules, list_nodes, read_rules, view_bill_gpus, view_sold
from loadfactor.books.compiled_sql import ledger_steps, recall
from loadfactor.books.ledger_inputs import BookedBills, BookedFile, read_inputs
from loadfactor.catalog.instances import rented_types
from loadfactor.settings.config import settings
from loadfactor.settings.money import BillingSettings
from loadfactor.store.session import Session
from loadfactor.tables.charges import ACTUAL, AMORTIZED, CHARGES, DELIVERY
from loadfactor.tables.schema import ALWAYS, Span

COST_OF: Final = {"effective": "EffectiveCost", "contracted": "ContractedCost"}
"""The column of a bill that a basis of cost is made of."""
_ACCOUNT: Final = tuple(name for name in DELIVERY if name != "x_Dataset")


def node_rules(given: BillingSettings | None = None) -> NodeRules:
    """The rules of the settings of now. Raises InputError where the mapping is wrong."""
    return read_rules(given or settings().billing)


def has_bills(session: Session) -> bool:
    """True where the books hold charges."""
    return bool(session.manifest.of(CHARGES.name)) or CHARGES.name in session.live


def materialize_billed_prices(session: Session, spans: Iterable[Span] = (ALWAYS,)) -> None:
    """Put prices of days that these spans touch into `billed_prices`: node, from_utc, to_utc, basis, price, currency."""
    widened = [(start - start % MS_PER_DAY, end + -end % MS_PER_DAY) for start, end in spans]
    materialize_billed_days(session, widened)
    prices = " UNION ALL ".join(
        f"SELECT node, day AS from_utc, day + {MS_PER_DAY} AS to_utc, '{basis}' AS basis,"
        f" {cost} / gpu_hours AS price_per_gpu_hour, currency FROM billed_days"
        f" WHERE node IS NOT NULL AND gpu_hours > 0 AND unsaid = 0 AND currencies = 1 AND {cost} IS NOT NULL"
        for basis, cost in COST_OF.items()
    )
    within = " OR ".join(f"(from_utc < {end} AND to_utc > {start})" for start, end in widened) or "false"
    session.materialize("billed_prices", f"SELECT * FROM ({prices}) WHERE {within}")


def materialize_billed_days(session: Session, spans: Iterable[Span], node: str = "node") -> None:
    """Put what was billed for GPUs by node (null: not known) and day into `billed_days`, of charges that touch these spans.

    Columns: `node`, day (ms), currency and how many currencies, gpu_hours, unsaid (lines that do not say how long), and each cost,
    the GPUs' part of it; null where a line lacks it.
    """
    view_billed_lines(session, spans)
    sums = ", ".join(
        f"if(count({cost}) = count(*), sum({cost})::DOUBLE * coalesce(gpu_share, 1)::DOUBLE, NULL) AS {cost}"
        for cost in COST_OF.values()
    )
    start, end = "ChargePeriodStart", "greatest(coalesce(ChargePeriodEnd, ChargePeriodStart), ChargePeriodStart)"
    summed = f"""
    SELECT {node}, BillingCurrency AS currency, {start} AS start_ms, {end} AS end_ms,
      sum(gpu_hours) AS gpu_hours, count(*) FILTER (gpu_hours IS NULL) AS unsaid, {sums}
    FROM billed_lines WHERE sold IS NOT NULL AND sold <> 'unknown'
    GROUP BY {node}, BillingCurrency, {start}, {end}, gpu_share"""
    days = f"unnest(range(start_ms - start_ms % {MS_PER_DAY}, greatest(end_ms, start_ms + 1), {MS_PER_DAY}))"
    weight = (
        f"if(end_ms > start_ms, (least(end_ms, day + {MS_PER_DAY}) - greatest(start_ms, day)) / (end_ms - start_ms), 1)"
    )
    costs = ", ".join(
        f"if(count({cost}) = count(*), sum({cost} * weight), NULL) AS {cost}" for cost in COST_OF.values()
    )
    session.materialize(
        "billed_days",
        f"""SELECT {node}, day, any_value(currency) AS currency, count(DISTINCT currency) AS currencies,
          sum(gpu_hours * weight) AS gpu_hours, sum(unsaid) AS unsaid, {costs}
        FROM (SELECT *, {weight} AS weight FROM (SELECT *, {days} AS day FROM ({summed}))) GROUP BY ALL ORDER BY ALL""",
    )


def view_billed_lines(session: Session, spans: Iterable[Span]) -> None:
    """Name the charges of files that touch these spans, with their GPUs, `billed_lines`.

    Of a period that came as actual and as amortized export, those of the second: both tell the same hours.
    """
    files = session.covering(CHARGES.name, *spans)
    session.view_table("priced_charges", CHARGES.name, files)
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM c.{name}" for name in _ACCOUNT)
    session.create_view(
        "charges_once",
        f"SELECT * FROM priced_charges c WHERE x_Dataset IS DISTINCT FROM '{ACTUAL}' OR NOT EXISTS"
        f" (SELECT 1 FROM priced_charges a WHERE a.x_Dataset = '{AMORTIZED}' AND {same})",
    )
    view_sold(session, "charges_once")
    view_bill_gpus(session, node_rules(), "billed_lines")


DEFINITION: Final = 1
"""Raise when what makes a price of a bill changes."""


def describe_bills(session: Session) -> BookedBills | None:
    """Digests of the bills that prices stand on; None where there are no bills."""
    if not has_bills(session):
        return None
    nodes = _digest(repr(sorted(list_nodes(session).items())))
    return BookedBills(_digest_rules(), nodes, _name_files(session))


def has_booked_bills(session: Session) -> bool:
    """True where the ledger was booked with these bills under these rules."""
    booked = read_inputs(session.manifest.sources_key).bills
    if booked is None or not has_bills(session):
        return booked is None and not has_bills(session)
    return (booked.rules, booked.files) == (_digest_rules(), _name_files(session))


def find_repriced_hours(session: Session, before: BookedBills | None, now: BookedBills | None) -> list[int]:
    """The booked hours (ms) whose price another bill, rule or node changes; `kept_ledger` is the ledger as it is kept.

    Only time of files that came or went is looked at, or of all files where rules or nodes are others.
    """
    old, new = (set(bills.files) if bills else set() for bills in (before, now))
    same = before and now and (before.rules, before.nodes) == (now.rules, now.nodes)
    spans = [file.days for file in sorted(old ^ new if same else old | new)]
    if before == now or not spans:
        return []
    session.view_table("exchange_rates", "exchange_rates")
    materialize_billed_prices(session, spans)
    queries = recall(f"repriced {session.currency}", lambda: ledger_steps().compile_repriced(session.currency))
    session.materialize("billed_worth", queries["billed_worth"])
    within = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in spans)
    hours = session.raw.execute(f"SELECT hour_utc FROM ({queries['repriced']}) WHERE {within} ORDER BY 1").fetchall()
    return [hour for (hour,) in hours]


def _name_files(session: Session) -> tuple[BookedFile, ...]:
    found = (
        BookedFile(
            f"{f.crc32:08x}", ALWAYS[0] if f.from_ms is None else f.from_ms, ALWAYS[1] if f.to_ms is None else f.to_ms
        )
        for f in session.manifest.of(CHARGES.name)
    )
    return tuple(sorted(found))


def _digest_rules() -> str:
    return _digest(f"{DEFINITION} {node_rules().digest} {rented_types()}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
