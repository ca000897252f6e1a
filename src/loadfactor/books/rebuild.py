"""Booking the ledger: hours that were touched are booked again, a few days at a time; the others stay.

The definitions are Ibis expressions (`ledger.steps`); this file hands their SQL the store's tables. Each step is
put into a temporary table before the next one reads it, so that nothing is worked out twice. A writer keeps what it books; a
reader that meets hours nobody has booked yet books them in the memory of its session.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from loadfactor.books.charging.billed_prices import has_bills, materialize_billed_prices
from loadfactor.books.charging.booked_bills import (
    describe_bills,
    find_repriced_hours,
    has_booked_bills,
    mark_bills,
    split_bills,
)
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.estimated_prices import list_estimates, write_estimates
from loadfactor.books.ledger_files import select_ledger
from loadfactor.books.owned_prices import (
    BASIS,
    DIGESTS,
    OwnedPrices,
    find_changed_hours,
    find_owned_prices,
    has_owned,
    measure_loads,
    price_pools,
    read_kept,
)
from loadfactor.catalog.links import link_peaks, list_link_peaks
from loadfactor.config import settings
from loadfactor.store.manifest import Manifest, StoredFile, find_moved_ends, find_restepped, merge, subtract
from loadfactor.store.sample_files import SamplePart
from loadfactor.store.session import NotEnoughMemory, Session, find_span, learnt_steps
from loadfactor.tables import BASES, BILLED, IDLE_BELOW, Span
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress
    from loadfactor.store.writer import Writer

DEFINITION = 8
"""Raise when what a ledger row means changes: every store then books itself again."""

SAMPLES_AT_ONCE = 24_000_000  # more at once amortizes planning, less keeps memory small
LONGEST_BATCH_MS = 31 * MS_PER_DAY
MOST_FILES = 12
"""So many files of one day are read as fast as one."""


def refresh(writer: "Writer", progress: "Progress", idle_below: float = IDLE_BELOW) -> None:
    """Book every hour that is stale, and keep it. Afterwards the ledger speaks of the whole span of the store."""
    key = ledger_key(idle_below, writer.currency)
    owned = find_owned_prices(writer)
    if (
        not writer.manifest.stale
        and writer.manifest.ledger_key == key
        and owned == read_kept(writer.manifest.sources_key)
        and has_booked_bills(writer)
    ):
        return
    _book_stale(writer, progress, idle_below, key, owned)
    pools = settings().owned
    measured = price_pools(pools, measure_loads(writer, pools))
    if measured != owned:  # what was just booked says another load than before
        _book_stale(writer, progress, idle_below, key, measured)


def _book_stale(writer: "Writer", progress: "Progress", idle_below: float, key: str, owned: OwnedPrices) -> None:
    """Book what is stale, and what these prices change."""
    manifest = writer.manifest
    sources_key = _digest_sources(writer, owned)
    if manifest.ledger_key != key:
        writer.swap(manifest.of("ledger"), [])
    hours = find_stale(writer, key, sources_key)
    waiting = deque(_batches(writer.manifest, hours))
    made: list[StoredFile] = []
    done, days = 0, sum(map(len, waiting))
    while waiting:
        progress("booking", done / days)
        batch = waiting.popleft()
        inside = _intersect(hours, (batch[0], batch[-1] + MS_PER_DAY))
        try:
            book(writer, _intersect(inside, writer.span()), idle_below=idle_below, owned=owned)
            made += writer.copy_ledger("SELECT * FROM book")
            done += len(batch)
        except NotEnoughMemory:
            if len(batch) == 1:
                raise
            longest = len(batch) // 2  # what is left is likely to be of the same size
            waiting = deque(chain.from_iterable(_divide(rest, longest) for rest in (batch, *waiting)))
    old = writer.manifest.of("ledger")
    writer.swap(old, [*(f for file in old for f in _without_hours(file, hours)), *made])
    _merge_crowded_days(writer)
    writer.manifest = replace(writer.manifest, stale=(), ledger_key=key, sources_key=sources_key)
    progress("booking", 1.0)


def open_ledger(session: Session, idle_below: float) -> None:
    """Give the ledger the name `ledger` in a session: as it is kept, and hours that are stale booked in memory."""
    key = ledger_key(idle_below, session.currency)
    files = session.manifest.of("ledger") if session.manifest.ledger_key == key else ()
    owned = find_owned_prices(session)
    is_current = not session.manifest.stale and owned == read_kept(session.manifest.sources_key)
    if files and is_current and not session.live and not session.live_samples and has_booked_bills(session):
        session.create_view("ledger", select_ledger(session, files))
        return
    sources_key = _digest_sources(session, owned)
    hours = find_stale(session, key, sources_key)
    book(session, _intersect(hours, session.span()), idle_below=idle_below, owned=owned)
    session.materialize("booked_now", "SELECT * FROM book")
    kept = [f for file in files for f in _without_hours(file, hours)]
    sql = "SELECT * FROM booked_now"
    if kept:
        sql = f"SELECT * FROM booked_now UNION ALL BY NAME ({select_ledger(session, kept)})"
    session.create_view("ledger", sql)


def find_stale(session: Session, key: str, sources_key: str) -> tuple[Span, ...]:
    """The hours to book: those that were touched, or all of them where what a row means has changed."""
    start, end = session.span()
    manifest = session.manifest
    if manifest.ledger_key != key:
        return _hours(((start, end),))
    stale = [*manifest.stale, *_find_changed_hours(session, sources_key)]
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


def _without_hours(file: StoredFile, hours: tuple[Span, ...]) -> list[StoredFile]:
    """A file of the ledger with some of its hours booked elsewhere; none where nothing of it is left."""
    own = file.hours or ((file.from_ms or 0, file.to_ms or 0),)
    left = subtract(own, hours)
    if left == own:
        return [file]
    return [replace(file, hours=left)] if left else []


def _merge_crowded_days(writer: "Writer") -> None:
    """Days whose ledger lies in many files, in one again."""
    by_day: dict[int, list[StoredFile]] = {}
    for file in writer.manifest.of("ledger"):
        by_day.setdefault(file.day or 0, []).append(file)
    for files in by_day.values():
        if len(files) > MOST_FILES:
            sql = select_ledger(writer, files)
            writer.swap(files, writer.copy_ledger(f"{sql} ORDER BY hour_utc, device_id, from_utc"))


def _digest_sources(session: Session, owned: OwnedPrices) -> str:
    """Put what follows from all rows of the small tables into tables; digests of what hours stand on, that of `sources` first.

    With the last stands what prices of bills stand on; behind them the prices of owned GPUs, where there are any.
    """
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    for name, sql in recall("facts", lambda: _compile_facts(False)).items():
        session.materialize(name, sql)
    sources, unlisted, names = (
        session.fetch(f"SELECT * FROM {name} ORDER BY ALL").to_pydict()
        for name in ("sources", "unlisted", "node_names")
    )
    stands_on = (sources, unlisted, (names, list_misnumbered(session)))
    digests = " ".join(hashlib.sha256(repr(of).encode()).hexdigest()[:16] for of in stands_on)
    said = mark_bills(digests, describe_bills(session))
    return f"{said} {owned.key}" if owned.key else said


def name_nodes(session: Session) -> None:
    """Put which names of nodes are one, and what the books call it, into the table `node_names` (node, called)."""
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    session.materialize("node_names", recall("facts", lambda: _compile_facts(False))["node_names"])


def list_misnumbered(session: Session) -> list[str]:
    """The nodes whose GPUs a scheduler numbers otherwise than their driver, as labels show."""
    if not _has_numbers(session):
        return []
    for name in ("devices", "outages"):
        session.view_table(name, name)
    for name, sql in recall("facts of numbers", lambda: _compile_facts(True)).items():
        session.materialize(name, sql)
    return sorted(session.fetch("SELECT node FROM misnumbered")["node"].to_pylist())


def _has_numbers(session: Session) -> bool:
    """Whether any allocation says numbers of GPUs."""
    session.view_table("allocations", "allocations")
    return bool(session.raw.execute("SELECT 1 FROM allocations WHERE gpu_indices IS NOT NULL LIMIT 1").fetchall())


def _find_changed_hours(session: Session, sources_key: str) -> list[Span]:
    """The booked hours of GPUs of which an allocation source now speaks and did not before, or no longer does, or whose price of
    being owned is another, or that a bill prices otherwise.

    All hours where another number of GPUs was held at once than before, which are taken to have been there all the time, where
    a node has another name than before, and where labels contradict the numbers of other nodes than before.
    """
    files = session.manifest.of("ledger")
    if sources_key == session.manifest.sources_key or not files:
        return []
    before, now = (split_bills(key)[0].split(" ", DIGESTS) for key in (session.manifest.sources_key, sources_key))
    if before[1:DIGESTS] != now[1:DIGESTS]:
        return [session.span()]
    hours = find_changed_hours(session, read_kept(session.manifest.sources_key), read_kept(sources_key))
    session.create_view("kept_ledger", select_ledger(session, files))
    hours += find_repriced_hours(session, split_bills(sources_key)[1])
    if before[0] != now[0]:
        hours += [
            hour for (hour,) in session.raw.execute(recall("changed hours", _compile_changed)["changed"]).fetchall()
        ]
    return [(hour, hour + MS_PER_HOUR) for hour in hours]


def book(
    session: Session,
    spans: tuple[Span, ...],
    cuts: Iterable[int] = (),
    idle_below: float = IDLE_BELOW,
    until: str = "book",
    owned: OwnedPrices | None = None,
    with_bills: bool = True,
) -> None:
    """Work out the ledger of `spans` (disjoint, in order), a temporary table a step of the plan, up to `until`; the last is a view.

    `cuts` are instants no row may span; `owned` are prices of owned GPUs in place of those that the settings say.
    `with_bills`: whether bills make prices, too.
    """
    import pyarrow as pa

    cuts = list(cuts)
    files = session.covering("samples", *spans)
    parts = [*session.parts(files), *session.live_samples]
    measured = 0
    for part in parts:
        measured |= part.facts.measured
    bounds = {"start_ms": [s for s, _ in spans], "end_ms": [e for _, e in spans]}
    session.register("bounds", pa.table(bounds, pa.schema({"start_ms": pa.int64(), "end_ms": pa.int64()})))
    session.register("cuts", pa.table({"at_utc": pa.array(cuts, pa.int64())}))
    owned = find_owned_prices(session) if owned is None else owned
    session.register("estimates", pa.concat_tables([list_estimates(), owned.table]))
    session.register("links", list_link_peaks())
    for name in ("devices", "outages", "prices", "exchange_rates", "allocations"):
        session.view_table(name, name)
    session.view_table("samples", "samples", files, spans)
    if billed := with_bills and has_bills(session):
        materialize_billed_prices(session, spans)
    shape = (measured, may_overlap(parts), bool(cuts), _has_numbers(session), idle_below, session.currency, billed)
    for name, sql in recall(f"steps {shape}", lambda: _compile_steps(*shape)).items():
        if name == "book":  # read once, when it is written or asked: a table of it would only cost memory
            session.create_view(name, sql)
        else:
            session.materialize(name, sql)
        if name == until:
            break


def _compile_steps(
    measured: int, overlaps: bool, cut: bool, numbered: bool, idle_below: float, currency: str, billed: bool
) -> Queries:
    """The SQL of each step of the ledger, in order."""
    from loadfactor.ledger.steps import compile_steps  # Ibis takes a while to import

    return dict(compile_steps(measured, overlaps, cut, numbered, idle_below, currency, billed=billed))


def _compile_facts(numbered: bool) -> Queries:
    """The SQL of what follows from all rows of the small tables, in order."""
    from loadfactor.ledger.steps import compile_facts

    return compile_facts(numbered)


def _compile_changed() -> Queries:
    """The SQL of the booked hours that changed sources change."""
    from loadfactor.ledger.steps import compile_changed_sources

    return {"changed": compile_changed_sources()}


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


def default_basis(session: Session) -> str:
    """The best basis the store has a price in, its own or that of a bill; the catalog's estimates when it has none."""
    session.view_table("prices", "prices")
    found = {basis for (basis,) in session.raw.execute("SELECT DISTINCT basis FROM prices").fetchall()}
    found |= {BASIS} if has_owned(session) else set()
    if has_bills(session):
        found.update(basis for basis in BILLED if _is_booked_in(session, basis))
    return next((basis for basis in BASES if basis in found), "estimate")


def _is_booked_in(session: Session, basis: str) -> bool:
    """True where the ledger has a price of this basis."""
    sql = f"SELECT 1 FROM ledger WHERE price_per_gpu_hour_{basis} IS NOT NULL LIMIT 1"
    return session.raw.execute(sql).fetchone() is not None


def ledger_key(idle_below: float, currency: str) -> str:
    """What a ledger row depends on besides the tables: definitions, idle threshold, currency, the catalog's prices and links."""
    stands_on = f"{DEFINITION} {idle_below} {currency} {write_estimates()} {link_peaks()}"
    return hashlib.sha256(stands_on.encode()).hexdigest()[:16]


def _intersect(spans: tuple[Span, ...], of: Span) -> tuple[Span, ...]:
    """The parts of spans that lie in another."""
    return tuple((max(s, of[0]), min(e, of[1])) for s, e in spans if s < of[1] and e > of[0])


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])


def _divide(days: list[int], longest: int) -> list[list[int]]:
    """Days in pieces of at most so many."""
    return [days[first : first + longest] for first in range(0, len(days), longest)]


def _batches(manifest: Manifest, hours: tuple[Span, ...]) -> Iterator[list[int]]:
    """The days the hours lie in (their first instants), in batches of few enough samples; a batch has no holes."""
    rows: dict[int | None, int] = {}
    for file in manifest.of("samples"):
        rows[file.day] = rows.get(file.day, 0) + file.rows
    batch: list[int] = []
    samples = 0
    for day in sorted({d for s, e in hours for d in range(s - s % MS_PER_DAY, e, MS_PER_DAY)}):
        weight = rows.get(day // MS_PER_DAY, 0)
        gap = bool(batch) and day != batch[-1] + MS_PER_DAY
        if batch and (gap or samples + weight > SAMPLES_AT_ONCE or day - batch[0] >= LONGEST_BATCH_MS):
            yield batch
            batch, samples = [], 0
        batch.append(day)
        samples += weight
    if batch:
        yield batch
