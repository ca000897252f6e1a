"""Which bills the ledger was booked with, and the hours that it must book again because a bill came, was replaced or forgotten."""

import hashlib
from typing import Final

from loadfactor.books.charging.billed_prices import has_bills, materialize_billed_prices, node_rules
from loadfactor.books.charging.instances import list_nodes
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.ledger_inputs import BookedBills, BookedFile, read_inputs
from loadfactor.catalog.instances import rented_types
from loadfactor.store.session import Session
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import ALWAYS

DEFINITION: Final = 1
"""Raise when what makes a price of a bill changes."""


def describe_bills(session: Session) -> BookedBills | None:
    """What prices of bills stand on; None where there are no bills."""
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
    queries = recall(f"repriced {session.currency}", lambda: _compile(session.currency))
    session.materialize("billed_worth", queries["billed_worth"])
    within = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in spans)
    hours = session.raw.execute(f"SELECT hour_utc FROM ({queries['repriced']}) WHERE {within} ORDER BY 1").fetchall()
    return [hour for (hour,) in hours]


def _name_files(session: Session) -> tuple[BookedFile, ...]:
    """Files of charges by checksum and extent."""
    found = (
        BookedFile(
            f"{f.crc32:08x}",
            ALWAYS[0] if f.from_ms is None else f.from_ms,
            ALWAYS[1] if f.to_ms is None else f.to_ms,
        )
        for f in session.manifest.of(CHARGES.name)
    )
    return tuple(sorted(found))


def _digest_rules() -> str:
    return _digest(f"{DEFINITION} {node_rules().digest} {rented_types()}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(currency: str) -> Queries:
    from loadfactor.ledger.steps import compile_repriced  # Ibis takes longer to import than most answers

    return compile_repriced(currency)
