"""Keeping the ledger booked: hours that were touched are booked again, a few days at a time; the others stay.

A writer keeps what it books; a reader that meets hours nobody has booked yet books them in the memory of its session.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from loadfactor.base.units import H_PER_DAY, MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.booking import book, digest_facts, list_facts
from loadfactor.books.charging.billed_prices import describe_bills, find_repriced_hours, has_bills, has_booked_bills
from loadfactor.books.compiled_sql import ledger_steps, recall
from loadfactor.books.kept_sums import (
    LEDGER_FILES,
    LedgerFiles,
    drop_hours,
    find_untold,
    limit_hours,
    list_sums,
    write_sum,
)
from loadfactor.books.kept_waits import keep_waits
from loadfactor.books.ledger_inputs import (
    BASIS,
    LedgerInputs,
    OwnedPrices,
    find_redefined,
    list_estimates,
    read_inputs,
    select_ledger,
)
from loadfactor.books.owned_prices import find_changed_hours, find_owned_prices, has_owned, measure_loads, price_pools
from loadfactor.catalog.links import list_link_peaks
from loadfactor.ledger.columns import KEPT_SUMS
from loadfactor.settings.config import settings
from loadfactor.store.manifest import Manifest, StoredFile, find_moved_ends, find_restepped, intersect, merge, subtract
from loadfactor.store.session import NotEnoughMemory, Session, find_span, learnt_steps
from loadfactor.tables.schema import BASES, BILLED, IDLE_BELOW, Span

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress
    from loadfactor.store.writer import Writer


SAMPLES_AT_ONCE = 24_000_000  # more at once amortizes planning, less keeps memory small
SAMPLES_PER_GPU_HOUR = 24
"""So many samples take as much memory as what is booked of a GPU in an hour, with samples or without."""
LONGEST_BATCH_MS = 31 * MS_PER_DAY
MOST_FILES = 12
"""So many files of one day are read as fast as one."""


def refresh(writer: "Writer", progress: "Progress", idle_below: float = IDLE_BELOW) -> None:
    """Book every hour that is stale, and keep it, with waits. Afterwards the ledger speaks of the whole span of the store."""
    _refresh_ledger(writer, progress, idle_below)
    keep_waits(writer)


def _refresh_ledger(writer: "Writer", progress: "Progress", idle_below: float) -> None:
    key = ledger_key(idle_below, writer.currency)
    owned = find_owned_prices(writer)
    if (
        not writer.manifest.stale
        and writer.manifest.ledger_key == key
        and owned == read_inputs(writer.manifest.sources_key).owned
        and has_booked_bills(writer)
    ):
        return
    _book_stale(writer, progress, idle_below, key, owned)
    pools = settings().owned
    measured = price_pools(pools, measure_loads(writer, pools))
    if measured != owned:  # what was just booked says another load than before
        _book_stale(writer, progress, idle_below, key, measured)


def _book_stale(writer: "Writer", progress: "Progress", idle_below: float, key: str, owned: OwnedPrices) -> None:
    facts = list_facts(writer)
    inputs = digest_facts(writer, facts, owned)
    hours, frozen = find_stale(writer, key, inputs)
    waiting = deque(_batches(writer.manifest, hours, facts.gpus))
    made: list[StoredFile] = []
    done, days = 0, sum(map(len, waiting))
    while waiting:
        progress("booking", done / days)
        batch = waiting.popleft()
        inside = intersect(hours, ((batch[0], batch[-1] + MS_PER_DAY),))
        try:
            book(writer, intersect(inside, (writer.span(),)), idle_below=idle_below, owned=owned)
            made += writer.copy_ledger("SELECT * FROM book")
            done += len(batch)
        except NotEnoughMemory:
            if len(batch) == 1:
                raise
            longest = len(batch) // 2  # what is left is likely to be of the same size
            waiting = deque(chain.from_iterable(_divide(rest, longest) for rest in (batch, *waiting)))
    keep_booked(writer, hours, made, (), key, inputs, frozen)
    progress("booking", 1.0)


def keep_booked(
    writer: "Writer",
    hours: tuple[Span, ...],
    made: list[StoredFile],
    left: tuple[Span, ...],
    key: str,
    inputs: LedgerInputs,
    frozen: tuple[Span, ...],
) -> None:
    """Put files made of these hours in place of what the ledger has of them, with their sums; hours that are `left` are stale.

    `frozen`: hours that would be, and cannot be booked again.
    """
    dropped = writer.manifest.dropped
    if writer.manifest.ledger_key != key:  # what is kept means something else
        writer.swap(writer.manifest.of("ledger"), limit_hours(writer.manifest.of("ledger"), dropped.hours))
        writer.swap([f for table in KEPT_SUMS for f in writer.manifest.of(table)], [])
        redefined = dropped.hours
        if not writer.manifest.ledger_key:  # of a lost manifest, or brought from another store: the files tell
            redefined = merge([*dropped.redefined, *find_redefined(writer, writer.manifest.of("ledger"))])
        dropped = replace(dropped, redefined=redefined)
    dropped = replace(dropped, changed=merge([*dropped.changed, *frozen]))
    writer.manifest = replace(writer.manifest, dropped=dropped)  # which says how files are read from here on
    old = writer.manifest.of("ledger")
    writer.swap(old, [*(f for file in old for f in _without_hours(file, hours)), *made])
    _merge_crowded_days(writer)
    _add_up_untold(writer, hours)
    inputs = replace(inputs, waits=read_inputs(writer.manifest.sources_key).waits)
    writer.manifest = replace(writer.manifest, stale=left, ledger_key=key, sources_key=inputs.write())


def _add_up_untold(writer: "Writer", stale: tuple[Span, ...]) -> None:
    """Keep the sums of hours that were booked, and of others that no sum tells yet."""
    for table in KEPT_SUMS:
        left = drop_hours(table, writer.manifest.of(table), stale)
        made = write_sum(writer, table, find_untold(table, left, writer.span()))
        writer.swap(writer.manifest.of(table), [*left, *made])
        for files in _list_crowded(writer, table):
            hours = merge([span for file in files for span in file.booked])
            writer.swap(files, [writer.copy_sum(table, select_ledger(writer, files), hours)])


def open_ledger(session: Session, idle_below: float) -> bool:
    """Give the ledger the name `ledger` in a session: as it is kept, and hours that are stale booked in memory.

    True where nothing had to be booked. What is kept of its sums for other hours is noted for `WindowLedger`.
    """
    key = ledger_key(idle_below, session.currency)
    files = session.manifest.of("ledger")
    if is_redefined := session.manifest.ledger_key != key:
        files = tuple(limit_hours(files, session.manifest.dropped.hours))
    owned = find_owned_prices(session)
    is_kept = not is_redefined and not session.manifest.stale
    is_current = is_kept and owned == read_inputs(session.manifest.sources_key).owned
    if files and is_current and not session.live and not session.live_samples and has_booked_bills(session):
        session.create_view("ledger", select_ledger(session, files))
        session.derived[LEDGER_FILES] = LedgerFiles(files, list_sums(session))
        return True

    def book_stale() -> tuple[tuple[Span, ...], str]:
        hours, _ = find_stale(session, key, digest_facts(session, list_facts(session), owned))
        book(session, intersect(hours, (session.span(),)), idle_below=idle_below, owned=owned)
        return hours, session.materialize_shared("booked_now", "SELECT * FROM book")

    hours, booked = session.find_once((key, owned, describe_bills(session)), book_stale)
    kept = [f for file in files for f in _without_hours(file, hours)]
    sums = {} if is_redefined else list_sums(session, hours)
    session.derived[LEDGER_FILES] = LedgerFiles(tuple(kept), sums if kept else {}, hours)
    sql = f"SELECT * FROM {booked}"
    if kept:
        sql = f"{sql} UNION ALL BY NAME ({select_ledger(session, kept, are_earlier=is_redefined)})"
    session.create_view("ledger", sql)
    return False


def _without_hours(file: StoredFile, hours: tuple[Span, ...]) -> list[StoredFile]:
    return file.keep(subtract(file.booked, hours))


def _list_crowded(writer: "Writer", table: str) -> list[list[StoredFile]]:
    """The files of days that have many of them."""
    by_day: dict[int, list[StoredFile]] = {}
    for file in writer.manifest.of(table):
        by_day.setdefault(file.day or 0, []).append(file)
    return [files for files in by_day.values() if len(files) > MOST_FILES]


def _merge_crowded_days(writer: "Writer") -> None:
    """Days whose ledger lies in many files, in one again."""
    for files in _list_crowded(writer, "ledger"):
        sql = select_ledger(writer, files)
        writer.swap(files, writer.copy_ledger(f"{sql} ORDER BY hour_utc, device_id, from_utc"))


def default_basis(session: Session) -> str:
    """The best basis the store has a price in, its own or that of a bill; the catalog's estimates when it has none."""
    session.view_table("prices", "prices")
    found = {basis for (basis,) in session.raw.execute("SELECT DISTINCT basis FROM prices").fetchall()}
    found |= {BASIS} if has_owned(session) else set()
    if has_bills(session):
        found.update(basis for basis in BILLED if _is_booked_in(session, basis))
    return next((basis for basis in BASES if basis in found), "estimate")


def _is_booked_in(session: Session, basis: str) -> bool:
    sql = f"SELECT 1 FROM ledger WHERE price_per_gpu_hour_{basis} IS NOT NULL LIMIT 1"
    return bool(session.fetch_one(sql))


def _divide(days: list[int], longest: int) -> list[list[int]]:
    return [days[first : first + longest] for first in range(0, len(days), longest)]


def _batches(manifest: Manifest, hours: tuple[Span, ...], gpus: int) -> Iterator[list[int]]:
    """The days the hours lie in (their first instants), in batches of few enough samples and GPU-hours; a batch has no holes."""
    rows: dict[int | None, int] = {}
    for file in manifest.of("samples"):
        rows[file.day] = rows.get(file.day, 0) + file.rows
    batch: list[int] = []
    samples = 0
    for day in sorted({d for s, e in hours for d in range(s - s % MS_PER_DAY, e, MS_PER_DAY)}):
        weight = rows.get(day // MS_PER_DAY, 0) + gpus * H_PER_DAY * SAMPLES_PER_GPU_HOUR
        gap = bool(batch) and day != batch[-1] + MS_PER_DAY
        if batch and (gap or samples + weight > SAMPLES_AT_ONCE or day - batch[0] >= LONGEST_BATCH_MS):
            yield batch
            batch, samples = [], 0
        batch.append(day)
        samples += weight
    if batch:
        yield batch


DEFINITION: Final = 12
"""Raise when what a ledger row means changes, or kept rows may be wrong: every store then books itself again."""


def ledger_key(idle_below: float, currency: str) -> str:
    """Digest of what ledger rows depend on besides the tables: definitions, idle threshold, currency, catalog prices and links."""
    stands_on = f"{DEFINITION} {idle_below} {currency} {list_estimates()} {list_link_peaks()}"
    return hashlib.sha256(stands_on.encode()).hexdigest()[:16]


class StaleHours(NamedTuple):
    """Hours to book, and `frozen` ones that would be and stay as they are: the samples that they were booked of are gone."""

    hours: tuple[Span, ...]
    frozen: tuple[Span, ...]


def find_stale(session: Session, key: str, inputs: LedgerInputs) -> StaleHours:
    """The hours to book: those that were touched, or all of them where what a row means has changed."""
    frozen = session.manifest.dropped.hours
    if session.manifest.ledger_key != key:
        return StaleHours(subtract(_hours((session.span(),)), frozen), ())
    touched = _find_touched(session, inputs)
    return StaleHours(subtract(touched, frozen), intersect(touched, frozen))


def _find_touched(session: Session, inputs: LedgerInputs) -> tuple[Span, ...]:
    start, end = session.span()
    manifest = session.manifest
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
    before = replace(read_inputs(session.manifest.sources_key), waits=now.waits)
    if now == before or not files:
        return []
    if (before.unlisted, before.names) != (now.unlisted, now.names):
        return [session.span()]
    hours = find_changed_hours(session, before.owned, now.owned)
    session.create_view("kept_ledger", select_ledger(session, files))
    hours += find_repriced_hours(session, before.bills, now.bills)
    if before.sources != now.sources:
        sql = recall("changed hours", lambda: ledger_steps().compile_changed_sources())["changed"]
        hours += [hour for (hour,) in session.raw.execute(sql).fetchall()]
    return [(hour, hour + MS_PER_HOUR) for hour in hours]


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])
