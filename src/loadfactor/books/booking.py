"""Working out the ledger of some hours: the SQL of its steps, over the store's tables, in the order of the plan.

The definitions are Ibis expressions (`ledger.steps`); this file hands their SQL the store's tables. Each step is put into a
temporary table before the next one reads it, so that nothing is worked out twice.
"""

from collections.abc import Iterable, Sequence

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.charging.billed_prices import has_bills, materialize_billed_prices
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.estimated_prices import list_estimates
from loadfactor.books.ledger_facts import FACT_STEPS, LedgerFacts, list_facts, work_out
from loadfactor.books.ledger_inputs import OwnedPrices
from loadfactor.books.owned_prices import find_owned_prices
from loadfactor.catalog.links import list_link_peaks
from loadfactor.store.sample_files import SamplePart, quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import IDLE_BELOW, LINGER_MS, Span


def book(
    session: Session,
    spans: tuple[Span, ...],
    cuts: Iterable[int] = (),
    idle_below: float = IDLE_BELOW,
    until: str = "book",
    owned: OwnedPrices | None = None,
    with_bills: bool = True,
    facts: LedgerFacts | None = None,
    devices: Sequence[str] | None = None,
    among: str | None = None,
) -> None:
    """Work out the ledger of `spans` (disjoint, in order), a temporary table a step of the plan, up to `until`; the last is a view.

    `cuts` are instants no row may span; `owned` are prices of owned GPUs in place of those that the settings say.
    `with_bills`: whether bills make prices, too. `facts`: as `list_facts` found them, whose tables stand; None to have them listed.
    `devices`: samples of these alone are read; rows of scopes with others say then that those were not observed.
    `among`: a table of the GPUs (device_id) that alone are read, with allocations that name them; None for all.
    """
    cuts = list(cuts)
    session.put("bounds", {"start_ms": [s for s, _ in spans], "end_ms": [e for _, e in spans]})
    session.put("cuts", {"at_utc": cuts})
    _put_estimates(session, find_owned_prices(session) if owned is None else owned)
    facts = facts or list_facts(session)
    for name in ("outages", "prices", "exchange_rates"):
        session.view_table(name, name)
    view_placed(session, spans, among)
    if billed := with_bills and has_bills(session):
        materialize_billed_prices(session, spans)
    empty = {*facts.empty, *(() if cuts else ("cuts",))}
    shape = (facts.renamed, facts.numbered, facts.filled, billed, session.currency)
    work_out(session, recall(f"holders {shape}", lambda: _compile_holders(*shape)), empty, until, FACT_STEPS)
    if until == "book":
        book_held(session, spans, idle_below, devices)
    session.view_table("allocations", "allocations")


def book_held(
    session: Session,
    spans: tuple[Span, ...],
    idle_below: float,
    devices: Sequence[str] | None = None,
    signals: int = -1,
) -> None:
    """The same, where the table `holdings` stands: what samples say of it. `signals`: bits of the measurements that are read."""
    parts = _view_samples(session, spans, devices)
    measured = 0
    for part in parts:
        measured |= part.facts.measured
    shape = (measured & signals, may_overlap(parts), idle_below)
    session.register_once("links", list_link_peaks)
    work_out(session, recall(f"activity {shape}", lambda: _compile_activity(*shape)), set() if parts else {"samples"})


def _put_estimates(session: Session, owned: OwnedPrices) -> None:
    """Put prices of the catalog and of owned GPUs into the table `estimates`."""
    import pyarrow as pa

    session.register_once("estimates", lambda: pa.concat_tables([list_estimates(), owned.table]), owned)


def view_placed(session: Session, spans: tuple[Span, ...], among: str | None = None) -> None:
    """Name the GPUs, and the allocations of these spans: of a year of jobs, a booking of a few days reads those few.

    `among`: see `book`.
    """
    own = f"device_id IN (SELECT device_id FROM {among})" if among else "true"
    session.view_table("all_devices", "devices")
    session.create_view("devices", f"SELECT * FROM all_devices WHERE {own}")
    session.view_table("all_allocations", "allocations")
    within = "true"
    if spans:
        start, end = spans[0][0] - LINGER_MS, spans[-1][1] + LINGER_MS
        within = f"coalesce(from_utc < {end}, true) AND coalesce(to_utc > {start}, true)"
    session.create_view("allocations", f"SELECT * FROM all_allocations WHERE {within} AND {own}")


def _view_samples(session: Session, spans: tuple[Span, ...], devices: Sequence[str] | None = None) -> list[SamplePart]:
    """Name the samples of these spans, of these devices alone: of an hour that is not booked whole, those that touch the part.

    The parts of the store that they are read of.
    """
    files = session.covering("samples", *spans)
    parts = [*session.parts(files), *session.live_samples]
    if devices is None and all(start % MS_PER_HOUR == 0 and end - start == MS_PER_HOUR for start, end in spans):
        session.view_table("samples", "samples", files, spans)
        return parts
    session.view_table("samples_of_hours", "samples", files, spans)
    within = " OR ".join(f"(to_utc > {start} AND from_utc < {end})" for start, end in spans)
    touching = f"SELECT * FROM samples_of_hours WHERE ({within})"
    if devices is None:
        session.create_view("samples", touching)
    elif not devices:
        session.create_view("samples", "SELECT * FROM samples_of_hours WHERE false")
    else:  # few of many, read by several steps
        few = f"{touching} AND device_id IN ({', '.join(map(quote, devices))})"
        session.materialize("samples_of_devices", few)
        session.create_view("samples", "SELECT * FROM samples_of_devices")
    return parts


def _compile_holders(renamed: bool, numbered: bool, filled: bool, billed: bool, currency: str) -> Queries:
    """The SQL of each step of who held what, in order."""
    from loadfactor.ledger.steps import Holders, compile_steps  # Ibis takes a while to import

    return compile_steps(Holders(renamed, numbered, filled, billed, currency))


def _compile_activity(measured: int, overlaps: bool, idle_below: float) -> Queries:
    """The SQL of each step of what holders did, in order."""
    from loadfactor.ledger.steps import Activity, compile_steps

    return compile_steps(Activity(measured, overlaps, idle_below))


def may_overlap(parts: list[SamplePart]) -> bool:
    """True where samples of one GPU may overlap: of given starts, or of several sources that speak of the same devices."""
    if any(part.facts.overlaps for part in parts):
        return True
    if len({source for part in parts for source in part.facts.sources}) == 1 and not any(p.facts.given for p in parts):
        return False
    ordered = sorted(parts, key=lambda p: p.facts.first_device)
    for number, part in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other.facts.first_device > part.facts.last_device:
                break
            near = other.from_ms < part.to_ms and part.from_ms < other.to_ms
            if (
                near
                and not _are_of_one_source(part, other)
                and (part.facts.given or other.facts.given or part.facts.sources != other.facts.sources)
            ):
                return True
    return False


def _are_of_one_source(part: SamplePart, other: SamplePart) -> bool:
    """True where both are settled and hold the same source only: then the later one knows whether it overlaps the earlier one."""
    facts = part.facts, other.facts
    return all(f.settled and len(f.sources) == 1 for f in facts) and facts[0].sources == facts[1].sources
