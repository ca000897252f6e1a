"""How does the ledger stay current? Hours that an import touched are booked again, a few days at a time; the others stay.

The definitions are Ibis expressions (`installed`, `holdings`, `ledger`); this file hands their SQL the store's tables. Each step is
put into a temporary table before the next one reads it, so that nothing is worked out twice. Who held what is worked out for
many days at once, as it is small; samples are read a day or so at a time.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.metrics.plan import booking_plan, holding_plan
from loadfactor.store.manifest import Span, StoredFile, merge
from loadfactor.store.store import Progress, Store
from loadfactor.tables import BASES, IDLE_BELOW, PRICES
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

DEFINITION = 2
"""Raise when what a ledger row means changes: every store then books itself again."""

HELD_AT_ONCE = (
    24_000_000  # samples of the days whose holdings are worked out together: more saves planning, less memory
)
LONGEST_BATCH_MS = 31 * MS_PER_DAY
BOOKED_AT_ONCE = 12_000_000  # samples read in one go, likewise

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
        booked = [f for f in store.manifest.of("ledger") if f.from_ms is not None and f.to_ms is not None]
        low = min([start, *(f.from_ms or 0 for f in booked)])  # a corrected row may have made the span shorter
        high = max([end, *(f.to_ms or 0 for f in booked)])
        hours = _hours(merge([(max(s, low), min(e, high)) for s, e in stale]))
        days: dict[int, list[StoredFile]] = {}
        batches = list(_batches(store, hours))
        for done, batch in enumerate(batches):
            hold(store, max(batch[0][0], start), min(batch[-1][-1] + MS_PER_DAY, end))
            for part, of_part in enumerate(batch):
                progress("booking", (done + part / len(batch)) / len(batches))
                first, last = of_part[0], of_part[-1] + MS_PER_DAY
                book_held(store, max(first, start), min(last, end), idle_below)
                inside = tuple((max(s, first), min(e, last)) for s, e in hours if s < last and e > first)
                days |= store.replace_ledger([day // MS_PER_DAY for day in of_part], inside, "book", key)
        if everything:
            days |= {f.day: [] for f in store.manifest.of("ledger") if f.day is not None and f.day not in days}
        store.publish_ledger(days, (), key)
    progress("booking", 1.0)


def book(store: Store, start: int, end: int, cuts: tuple[int, ...] = (), idle_below: float = IDLE_BELOW) -> Any:
    """The ledger of [start, end) as a view; `cuts` are instants no row may span."""
    hold(store, start, end, cuts)
    return book_held(store, start, end, idle_below)


def hold(store: Store, start: int, end: int, cuts: tuple[int, ...] = (), until: str = "holdings") -> None:
    """Work out who held what in [start, end), one temporary table a step, up to `until`."""
    _lend_span(store, "bounds", start, end)
    store.lend("cuts", pa.table({"at_utc": pa.array(cuts, pa.int64())}))
    store.lend("estimates", _estimates())
    for name in ("devices", "outages", "prices", "allocations"):
        store.name_view(name, name)
    for name, sql in holding_plan(bool(cuts)):
        store.keep(name, sql)
        if name == until:
            return


def book_held(store: Store, start: int, end: int, idle_below: float) -> Any:
    """The ledger of [start, end), a part of what `hold` was asked for, as a view."""
    files = store.covering("samples", start, end)
    measured = 0
    for file in files:
        measured |= file.measured
    _lend_span(store, "slice", start, end)
    store.name_view("samples", "samples", files, (start, end))
    for name, sql in booking_plan(measured, any(f.overlaps for f in files), idle_below):
        if name in ("held", "book"):  # cheap to read again, and read once: tables of them would only cost memory
            store.view(name, sql)
        else:
            store.keep(name, sql)
    return store.connection.table("book")


def _lend_span(store: Store, name: str, start: int, end: int) -> None:
    store.lend(name, pa.table({"start_ms": [start], "end_ms": [end]}))


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


def _hours(stale: tuple[Span, ...]) -> tuple[Span, ...]:
    """Spans widened to whole UTC hours."""
    return merge([(s - s % MS_PER_HOUR, e + -e % MS_PER_HOUR) for s, e in stale])


def _batches(store: Store, hours: tuple[Span, ...]) -> Iterator[list[list[int]]]:
    """The days the hours lie in (their first instants), in parts of few enough samples to book at once.

    A batch is the parts whose holdings are worked out together; neither has holes.
    """
    rows = {f.day: f.rows for f in store.manifest.of("samples")}
    batch: list[list[int]] = []
    held = booked = 0
    for day in sorted({d for s, e in hours for d in range(s - s % MS_PER_DAY, e, MS_PER_DAY)}):
        weight = rows.get(day // MS_PER_DAY, 0)
        gap = bool(batch) and day != batch[-1][-1] + MS_PER_DAY
        if batch and (gap or held + weight > HELD_AT_ONCE or day - batch[0][0] >= LONGEST_BATCH_MS):
            yield batch
            batch, held = [], 0
        if not batch or booked + weight > BOOKED_AT_ONCE:
            batch.append([])
            booked = 0
        batch[-1].append(day)
        held += weight
        booked += weight
    if batch:
        yield batch
