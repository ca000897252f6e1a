"""Rebuilding the ledger: hours that an import touched are booked again, a few days at a time; the others stay.

The definitions are Ibis expressions (`ledger.steps`); this file hands their SQL the store's tables. Each step is
put into a temporary table before the next one reads it, so that nothing is worked out twice.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.links import list_link_peaks
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.ledger.holders import list_sources, mark_sources
from loadfactor.ledger.steps import compile_steps
from loadfactor.store.importing import Progress
from loadfactor.store.manifest import StoredFile, merge
from loadfactor.store.store import Store
from loadfactor.tables import BASES, IDLE_BELOW, PRICES, Span
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

DEFINITION = 4
"""Raise when what a ledger row means changes: every store then books itself again."""

SAMPLES_AT_ONCE = 24_000_000  # more at once amortizes planning, less keeps memory small
LONGEST_BATCH_MS = 31 * MS_PER_DAY

Expr = Any


def refresh(store: Store, progress: Progress, idle_below: float = IDLE_BELOW) -> None:
    """Book every hour that is stale. Afterwards the ledger speaks of the whole span of the store."""
    key = ledger_key(idle_below, store.currency)
    if not store.manifest.stale and store.manifest.ledger_key == key:
        return
    with store.writing():
        start, end = store.span()
        everything = store.manifest.ledger_key != key
        sources_key = _digest_sources(store)
        stale = ((start, end),) if everything else (*store.manifest.stale, *_find_changed_hours(store, sources_key))
        booked = [f for f in store.manifest.of("ledger") if f.from_ms is not None and f.to_ms is not None]
        low = min([start, *(f.from_ms or 0 for f in booked)])  # a corrected row may have made the span shorter
        high = max([end, *(f.to_ms or 0 for f in booked)])
        hours = _hours(merge([(max(s, low), min(e, high)) for s, e in stale]))
        days: dict[int, list[StoredFile]] = {}
        batches = list(_batches(store, hours))
        for done, batch in enumerate(batches):
            progress("booking", done / len(batches))
            inside = _intersect(hours, (batch[0], batch[-1] + MS_PER_DAY))
            book(store, _intersect(inside, (start, end)), idle_below=idle_below)
            days |= store.replace_ledger([day // MS_PER_DAY for day in batch], inside, "book", key)
        if everything:
            days |= {f.day: [] for f in store.manifest.of("ledger") if f.day is not None and f.day not in days}
        store.publish_ledger(days, (), key, sources_key)
    progress("booking", 1.0)


def _digest_sources(store: Store) -> str:
    """Put what allocations name into the table `sources`; a digest of it."""
    sources = list_sources(store.relation("allocations"), store.relation("devices"))
    names = store.materialize("sources", sources).order_by("level", "name").to_pyarrow()
    return hashlib.sha256(repr(names.to_pydict()).encode()).hexdigest()[:16]


def _find_changed_hours(store: Store, sources_key: str) -> list[Span]:
    """The booked hours of GPUs of which an allocation source now speaks and did not before, or no longer does."""
    if sources_key == store.manifest.sources_key or not store.manifest.of("ledger"):
        return []
    rows = store.relation("ledger").select("device_id", "node", "pool", "hour_utc", before="has_source")
    marked = mark_sources(rows, store.connection.table("sources"))
    hours = marked.filter(marked.before != marked.has_source).select("hour_utc").distinct().to_pyarrow()
    return [(hour, hour + MS_PER_HOUR) for hour in hours["hour_utc"].to_pylist()]


def book(
    store: Store,
    spans: tuple[Span, ...],
    cuts: Iterable[int] = (),
    idle_below: float = IDLE_BELOW,
    until: str = "book",
) -> Any:
    """Work out the ledger of `spans` (disjoint, in order), a temporary table a step of the plan, up to `until`; the last is a view.

    `cuts` are instants no row may span.
    """
    cuts = list(cuts)
    files = store.covering("samples", *spans)
    measured = 0
    for file in files:
        measured |= file.measured
    bounds = {"start_ms": [s for s, _ in spans], "end_ms": [e for _, e in spans]}
    store.register("bounds", pa.table(bounds, pa.schema({"start_ms": pa.int64(), "end_ms": pa.int64()})))
    store.register("cuts", pa.table({"at_utc": pa.array(cuts, pa.int64())}))
    store.register("estimates", list_estimates())
    store.register("links", list_link_peaks())
    for name in ("devices", "outages", "prices", "exchange_rates", "allocations"):
        store.view_table(name, name)
    store.view_table("samples", "samples", files, spans)
    for name, sql in compile_steps(measured, any(f.overlaps for f in files), bool(cuts), idle_below, store.currency):
        if name == "book":  # read once, when it is written or asked: a table of it would only cost memory
            store.create_view(name, sql)
        else:
            store.materialize(name, sql)
        if name == until:
            break
    return store.connection.table(until)


def default_basis(store: Store) -> str:
    """The best basis the store has a price in; the catalog's estimates when it has none."""
    store.view_table("prices", "prices")
    found = {basis for (basis,) in store.raw.execute("SELECT DISTINCT basis FROM prices").fetchall()}
    return next((basis for basis in BASES if basis in found), "estimate")


def ledger_key(idle_below: float, currency: str) -> str:
    """What a ledger row depends on besides the tables: definitions, idle threshold, currency, the catalog's prices and links."""
    stands_on = f"{DEFINITION} {idle_below} {currency} {list_estimates().to_pylist()} {list_link_peaks().to_pylist()}"
    return hashlib.sha256(stands_on.encode()).hexdigest()[:16]


def list_estimates() -> pa.Table:
    """The catalog's dated prices as rows of the price list."""
    rows = []
    for item in accelerators():
        price = gpu_hour_price(item)
        if price is not None:
            rows.append(
                {
                    "accelerator": item,
                    "basis": "estimate",
                    "price_per_gpu_hour": price.typical,
                    "currency": price.currency,
                    "source": f"{price.source} ({price.as_of})",
                }
            )
    return pa.Table.from_pylist(rows, schema=PRICES.schema)


def _intersect(spans: tuple[Span, ...], of: Span) -> tuple[Span, ...]:
    """The parts of spans that lie in another."""
    return tuple((max(s, of[0]), min(e, of[1])) for s, e in spans if s < of[1] and e > of[0])


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])


def _batches(store: Store, hours: tuple[Span, ...]) -> Iterator[list[int]]:
    """The days the hours lie in (their first instants), in batches of few enough samples; a batch has no holes."""
    rows = {f.day: f.rows for f in store.manifest.of("samples")}
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
