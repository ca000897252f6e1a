"""The time that the books speak of, or that bills do where the books know no GPU; and what to say where they know none."""

from datetime import datetime
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.charging.billed_prices import has_bills
from loadfactor.metrics.query.calendar import instant
from loadfactor.store.session import Session
from loadfactor.tables.schema import TABLES


def find_span(session: Session) -> tuple[datetime, datetime]:
    """From the first to the last instant the books of a session know of. Raises InputError when they know of none."""
    start, end = session.span()
    if start == end:
        raise InputError(say_no_gpus(session))
    return instant(start), instant(end)


def has_only_bills(session: Session) -> bool:
    """True where charges are known and no GPUs."""
    start, end = session.span()
    return start == end and has_bills(session)


def find_bill_span(session: Session) -> tuple[datetime, datetime]:
    """From the first to the last instant that bills charge for."""
    from loadfactor.books.charging.bill_lines import find_extent, view_charges  # slow to import

    view_charges(session, None)
    start, end = find_extent(session)
    return instant(start), instant(end)


def say_no_gpus(session: Session) -> str:
    """Tell that no GPU is known: what the books hold instead, and what to do."""
    tables = dict.fromkeys(f.table.replace("_", " ") for t in TABLES for f in session.manifest.of(t.name))
    known = f"hold {', '.join(tables)} and no GPUs yet" if tables else "are empty"
    begin = "begin with `loadfactor import` or `loadfactor demo`"
    if {"devices", "samples"} & {*tables}:
        known = f"hold {', '.join(tables)} and no time yet, an instant at most"
        begin = "import samples with --step SECONDS or from_utc, and devices with from_utc and to_utc or without an end"
    if has_bills(session):
        who = f"`loadfactor chargeback --store {quote(session.name)}`"
        begin = f"{who} says who pays the bill; for the rest import what measures or lists its GPUs"
    return f"the books in {session.name} {known}; {begin}"
