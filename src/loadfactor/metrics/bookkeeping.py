"""How does the ledger stay current? Hours that an import touched are booked again, a few days at a time; the others stay.

The definitions are Ibis expressions (`installed`, `holdings`, `ledger`); this file hands them the store's tables and writes
what they say. Holdings are put into a temporary table before samples are joined, so that they are worked out once.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import ibis
import pyarrow as pa

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.metrics.holdings import holdings
from loadfactor.metrics.installed import installed
from loadfactor.metrics.kinds import IDLE_BELOW
from loadfactor.metrics.ledger import ledger, observed, spans
from loadfactor.metrics.timeline import disjoint
from loadfactor.store.manifest import Span, merge
from loadfactor.store.store import Progress, Store
from loadfactor.tables import BASES, PRICES
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

DEFINITION = 1
"""Raise when what a ledger row means changes: every store then books itself again."""

SAMPLES_AT_ONCE = 12_000_000

Expr = Any


def refresh(store: Store, progress: Progress, idle_below: float = IDLE_BELOW) -> None:
    """Book every hour that is stale. Afterwards the ledger speaks of the whole span of the store."""
    key = ledger_key(idle_below)
    if not store.manifest.stale and store.manifest.ledger_key == key:
        return
    with store.writing():
        start, end = store.span()
        everything = store.manifest.ledger_key != key
        stale = ((start, end),) if everything else store.manifest.stale
        hours = _hours(merge([(max(s, start), min(e, end)) for s, e in stale]))
        days = {}
        batches = list(_batches(store, hours))
        for done, batch in enumerate(batches):
            progress("booking", done / len(batches))
            first, last = batch[0], batch[-1] + MS_PER_DAY
            inside = tuple((max(s, first), min(e, last)) for s, e in hours if s < last and e > first)
            rows = book(store, max(first, start), min(last, end), idle_below=idle_below)
            for day in batch:
                number = day // MS_PER_DAY
                days[number] = store.replace_ledger(number, inside, rows, key)
        if everything:
            days |= {f.day: None for f in store.manifest.of("ledger") if f.day is not None and f.day not in days}
        store.publish_ledger(days, (), key)
    progress("booking", 1.0)


def book(store: Store, start: int, end: int, cuts: tuple[int, ...] = (), idle_below: float = IDLE_BELOW) -> str:
    """Work out the ledger of [start, end) into a temporary table; its name. `cuts` are instants no row may span."""
    segments = installed(store.relation("devices"), store.relation("outages"), prices(store), start, end)
    segments = _kept(store, "segments", segments)
    points = ibis.memtable({"at_utc": list(cuts)}, schema={"at_utc": "int64"}) if cuts else None
    held = _kept(store, "holdings", holdings(segments, store.relation("allocations"), start, end, points))
    stretches = _kept(store, "spans", spans(held))
    files = store.covering("samples", start, end)
    samples = store.relation("samples", files)
    if any(f.overlaps for f in files):
        samples = disjoint(samples.filter(samples.to_utc > start, samples.from_utc < end))
    measured = 0
    for file in files:
        measured |= file.measured
    seen = _kept(store, "observed", observed(stretches, samples, idle_below, measured))
    _kept(store, "book", ledger(held, stretches, seen))
    return "book"


def prices(store: Store) -> Expr:
    """The store's prices, and beside them the catalog's dated list prices, marked as estimates by their basis."""
    return ibis.union(store.relation("prices"), ibis.memtable(_estimates()))


def default_basis(store: Store) -> str:
    """The best basis the store has a price in; the catalog's estimates when it has none."""
    rows = store.relation("prices")
    found = set(rows.select("basis").distinct().basis.to_pyarrow().to_pylist())
    return next((basis for basis in BASES if basis in found), "estimate")


def ledger_key(idle_below: float) -> str:
    """What a ledger row depends on besides the tables: the definitions, the idle threshold, the catalog's prices."""
    stands_on = f"{DEFINITION} {idle_below} {_estimates().to_pylist()}"
    return hashlib.sha256(stands_on.encode()).hexdigest()[:16]


def _estimates() -> pa.Table:
    rows = []
    for item in accelerators():
        price = gpu_hour_price(item)
        if price is not None:
            rows.append(
                {
                    "accelerator": item,
                    "basis": "estimate",
                    "usd_per_gpu_hour": price.typical_usd,
                    "source": f"{price.source} ({price.as_of})",
                }
            )
    return pa.Table.from_pylist(rows, schema=PRICES.schema)


def _kept(store: Store, name: str, expr: Expr) -> Expr:
    """An expression worked out into a temporary table."""
    return store.connection.create_table(name, expr, temp=True, overwrite=True)


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])


def _batches(store: Store, hours: tuple[Span, ...]) -> Iterator[list[int]]:
    """The days the hours lie in (their first instants), in batches of few enough samples; a batch has no holes."""
    rows = {f.day: f.rows for f in store.manifest.of("samples")}
    days = sorted({d for s, e in hours for d in range(s - s % MS_PER_DAY, e, MS_PER_DAY)})
    batch: list[int] = []
    samples = 0
    for day in days:
        weight = rows.get(day // MS_PER_DAY, 0)
        if batch and (day != batch[-1] + MS_PER_DAY or samples + weight > SAMPLES_AT_ONCE or len(batch) >= 31):
            yield batch
            batch, samples = [], 0
        batch.append(day)
        samples += weight
    if batch:
        yield batch
