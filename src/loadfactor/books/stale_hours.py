"""The hours of the ledger to book again: what was touched, and what follows from rows elsewhere that are others than before."""

import hashlib
from typing import Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.charging.booked_bills import find_repriced_hours
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.estimated_prices import write_estimates
from loadfactor.books.ledger_files import select_ledger
from loadfactor.books.ledger_inputs import LedgerInputs, read_inputs
from loadfactor.books.owned_prices import find_changed_hours
from loadfactor.catalog.links import link_peaks
from loadfactor.store.manifest import find_moved_ends, find_restepped, merge
from loadfactor.store.session import Session, find_span, learnt_steps
from loadfactor.tables.schema import Span

DEFINITION: Final = 9
"""Raise when what a ledger row means changes, or kept rows may be wrong: every store then books itself again."""


def ledger_key(idle_below: float, currency: str) -> str:
    """What a ledger row depends on besides the tables: definitions, idle threshold, currency, the catalog's prices and links."""
    stands_on = f"{DEFINITION} {idle_below} {currency} {write_estimates()} {link_peaks()}"
    return hashlib.sha256(stands_on.encode()).hexdigest()[:16]


def find_stale(session: Session, key: str, inputs: LedgerInputs) -> tuple[Span, ...]:
    """The hours to book: those that were touched, or all of them where what a row means has changed."""
    start, end = session.span()
    manifest = session.manifest
    if manifest.ledger_key != key:
        return _hours(((start, end),))
    stale = [*manifest.stale, *_find_changed_hours(session, inputs)]
    stale += [(part.from_ms, part.to_ms + part.reach_ms) for part in session.live_samples]
    stale += session.live_spans
    if session.live or session.live_samples:  # what they say may change what was kept elsewhere
        steps = learnt_steps(manifest)
        stale += find_restepped(manifest, steps, session.steps())
        stale += find_moved_ends(find_span(manifest, steps), (start, end))
    # a corrected row may have made the span shorter than what is booked, or empty
    known = [(f.from_ms, f.to_ms) for f in manifest.of("ledger") if f.from_ms is not None and f.to_ms is not None]
    known += [(start, end)] if start < end else []
    if not known:
        return ()
    low, high = min(s for s, _ in known), max(e for _, e in known)
    return _hours(merge([(max(s, low), min(e, high)) for s, e in stale]))


def _find_changed_hours(session: Session, now: LedgerInputs) -> list[Span]:
    """The booked hours of GPUs of which an allocation source now speaks and did not before, or no longer does, or whose price of
    being owned is another, or that a bill prices otherwise.

    All hours where another number of GPUs was held at once than before, which are taken to have been there all the time, where
    a node has another name than before, and where labels contradict the numbers of other nodes than before.
    """
    files = session.manifest.of("ledger")
    before = read_inputs(session.manifest.sources_key)
    if now == before or not files:
        return []
    if (before.unlisted, before.names) != (now.unlisted, now.names):
        return [session.span()]
    hours = find_changed_hours(session, before.owned, now.owned)
    session.create_view("kept_ledger", select_ledger(session, files))
    hours += find_repriced_hours(session, before.bills, now.bills)
    if before.sources != now.sources:
        hours += [
            hour for (hour,) in session.raw.execute(recall("changed hours", _compile_changed)["changed"]).fetchall()
        ]
    return [(hour, hour + MS_PER_HOUR) for hour in hours]


def _compile_changed() -> Queries:
    """The SQL of the booked hours that changed sources change."""
    from loadfactor.ledger.steps import compile_changed_sources

    return {"changed": compile_changed_sources()}


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])
