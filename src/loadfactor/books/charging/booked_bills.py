"""Which bills the ledger was booked with, and the hours that it must book again because a bill came, was replaced or forgotten.

What was booked is told behind the last digest of the manifest's `sources_key`: rules, nodes, then each file of charges by its
checksum and extent.
"""

import hashlib
from typing import Final

from loadfactor.books.charging.billed_prices import has_bills, materialize_billed_prices, node_rules
from loadfactor.books.charging.instances import list_nodes
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.owned_prices import DIGESTS
from loadfactor.catalog.instances import rented_types
from loadfactor.charges import CHARGES
from loadfactor.store.session import Session
from loadfactor.tables import ALWAYS, Span
from loadfactor.units import MS_PER_DAY

DEFINITION: Final = 1
"""Raise when what makes a price of a bill changes."""
_MARK: Final = "|"


def describe_bills(session: Session) -> str:
    """What prices of bills stand on, as one word; empty where there are no bills."""
    if not has_bills(session):
        return ""
    nodes = _digest(repr(sorted(list_nodes(session).items())))
    return ",".join([_digest_rules(), nodes, *_name_files(session)])


def has_booked_bills(session: Session) -> bool:
    """True where the ledger was booked with these bills under these rules."""
    booked = split_bills(session.manifest.sources_key)[1].split(",")
    if not has_bills(session):
        return booked == [""]
    return booked[:1] + booked[2:] == [_digest_rules(), *_name_files(session)]


def mark_bills(digests: str, bills: str) -> str:
    """Digests with what prices of bills stand on behind the last of them."""
    return f"{digests}{_MARK}{bills}" if bills else digests


def split_bills(sources_key: str) -> tuple[str, str]:
    """What a ledger was booked with besides bills, and its bills.

    >>> split_bills("a b c|r,n,f {...}"), split_bills("a b c"), split_bills("")
    (('a b c {...}', 'r,n,f'), ('a b c', ''), ('', ''))
    """
    words = sources_key.split(" ", DIGESTS)
    if len(words) < DIGESTS:
        return sources_key, ""
    words[DIGESTS - 1], _, bills = words[DIGESTS - 1].partition(_MARK)
    return " ".join(words), bills


def find_repriced_hours(session: Session, now: str) -> list[int]:
    """The booked hours (ms) whose price another bill, rule or node changes; `kept_ledger` is the ledger as it is kept.

    Only time of files that came or went is looked at, or of all files where rules or nodes are others.
    """
    before = split_bills(session.manifest.sources_key)[1]
    if before == now:
        return []
    old, new = before.split(","), now.split(",")
    files = set(old[2:]) ^ set(new[2:]) if old[:2] == new[:2] else {*old[2:], *new[2:]}
    spans = [_read_extent(file) for file in files]
    if not spans:
        return []
    session.view_table("exchange_rates", "exchange_rates")
    materialize_billed_prices(session, spans)
    queries = recall(f"repriced {session.currency}", lambda: _compile(session.currency))
    session.materialize("billed_worth", queries["billed_worth"])
    within = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in spans)
    hours = session.raw.execute(f"SELECT hour_utc FROM ({queries['repriced']}) WHERE {within} ORDER BY 1").fetchall()
    return [hour for (hour,) in hours]


def _name_files(session: Session) -> list[str]:
    """Files of charges by checksum and extent."""
    return sorted(
        f"{f.crc32:08x}@{ALWAYS[0] if f.from_ms is None else f.from_ms}-{ALWAYS[1] if f.to_ms is None else f.to_ms}"
        for f in session.manifest.of(CHARGES.name)
    )


def _read_extent(file: str) -> Span:
    """The days that a file speaks of: prices are of whole days.

    >>> _read_extent("0a1b@90000000-172800000")
    (86400000, 259200000)
    """
    start, end = map(int, file.partition("@")[2].rpartition("-")[::2])
    return start - start % MS_PER_DAY, end + 1 + -(end + 1) % MS_PER_DAY


def _digest_rules() -> str:
    return _digest(f"{DEFINITION} {node_rules().digest} {rented_types()}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(currency: str) -> Queries:
    from loadfactor.ledger.steps import compile_repriced  # Ibis takes longer to import than most answers

    return compile_repriced(currency)
