"""The time of which books know something, and what to do where they know of no GPU, or of bills alone."""

from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError
from loadfactor.books.charging.bill_lines import find_extent, view_charges
from loadfactor.books.charging.billed_prices import has_bills
from loadfactor.metrics.query.calendar import instant
from loadfactor.tables.schema import TABLES

if TYPE_CHECKING:
    from loadfactor.store.session import Session


def find_span(session: "Session") -> tuple[datetime, datetime]:
    """From the first to the last instant the books of a session know of. Raises InputError when they know of none."""
    start, end = session.span()
    if start == end:
        raise InputError(say_no_gpus(session))
    return instant(start), instant(end)


def has_only_bills(session: "Session") -> bool:
    """True where charges are known and no GPUs."""
    start, end = session.span()
    return start == end and has_bills(session)


def find_bill_span(session: "Session") -> tuple[datetime, datetime]:
    """From the first to the last instant that bills charge for."""
    view_charges(session, None)
    start, end = find_extent(session)
    return instant(start), instant(end)


def say_no_gpus(session: "Session") -> str:
    """What the books hold instead, and what to do."""
    tables = dict.fromkeys(f.table.replace("_", " ") for t in TABLES for f in session.manifest.of(t.name))
    known = f"hold {', '.join(tables)} and no GPUs yet" if tables else "are empty"
    begin = "begin with `loadfactor import` or `loadfactor demo`"
    if has_bills(session):
        who = f"`loadfactor chargeback --store {quote(str(session.folder))}`"
        begin = f"{who} says who pays the bill; for the rest import what measures or lists its GPUs"
    return f"the books in {session.folder} {known}; {begin}"
