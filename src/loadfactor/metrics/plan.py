"""In which steps is the ledger worked out? Each one a definition in Ibis, compiled once, for the engine that will run it.

Each step is put into a table before the next one reads it. Inputs are the tables of the house by name, `estimates` (prices),
`cuts` (at_utc), `bounds` (one row: start_ms, end_ms) and, once the holdings are known, `slice`, alike: the part of them to book.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import ibis

from loadfactor.metrics.holdings import asked, holdings, pieces
from loadfactor.metrics.installed import broken, installed, priced, standing
from loadfactor.metrics.intervals import exploded
from loadfactor.metrics.ledger import ledger, observed, spans
from loadfactor.metrics.places import DAY, placed, places, stays
from loadfactor.metrics.room import room
from loadfactor.metrics.timeline import disjoint
from loadfactor.store.layout import columns_of
from loadfactor.units import MS_PER_DAY

Expr = Any
Steps = dict[str, Expr]
Sql = tuple[tuple[str, str], ...]


def holding_plan(cut: bool, dialect: str = "duckdb") -> Sql:
    """Who held what within `bounds`, as SQL of an engine: what to work out under which name, in order. `cut`: are there cuts?"""
    return _sql(dialect, holding_steps, cut)


def booking_plan(measured: int, overlaps: bool, idle_below: float, dialect: str = "duckdb") -> Sql:
    """The ledger of a `slice` of the holdings, alike; the last is the book.

    `measured`: which signals the samples hold; `overlaps`: whether samples of one GPU may overlap.
    """
    return _sql(dialect, booking_steps, measured, overlaps, idle_below)


@cache
def _sql(dialect: str, steps: Callable[..., Steps], *options: Any) -> Sql:
    return tuple((name, ibis.to_sql(expr, dialect=dialect)) for name, expr in steps(*options).items())


@cache
def holding_steps(cut: bool) -> Steps:
    """`holding_plan` as Ibis expressions, for an engine's own compiler."""
    start, end = _instants("bounds")
    prices = ibis.union(_given("prices"), ibis.table(ibis.schema(columns_of("prices")), name="estimates"))
    steps = {"standing": standing(_given("devices"), start, end)}
    steps["broken"] = broken(_kept(steps, "standing"), _given("outages"), start, end)
    steps["priced"] = priced(_kept(steps, "standing"), prices, start, end)
    steps["segments"] = installed(*(_kept(steps, name) for name in ("standing", "broken", "priced")))
    steps["days"] = exploded(_kept(steps, "segments"), MS_PER_DAY, DAY)
    steps["stays"] = stays(_kept(steps, "days"))
    steps["asked"] = asked(_given("allocations"), _kept(steps, "stays"), start, end)
    steps["places"] = places(_kept(steps, "stays"), _kept(steps, "asked"))
    steps["wanted"] = placed(_kept(steps, "asked"), _kept(steps, "places"))
    steps["room"] = room(_kept(steps, "days"), _kept(steps, "places"))
    cuts = ibis.table({"at_utc": "int64"}, name="cuts") if cut else None
    steps["pieces"] = pieces(_kept(steps, "room"), _kept(steps, "wanted"), cuts)
    steps["holdings"] = holdings(_kept(steps, "pieces"), _kept(steps, "wanted"))
    return steps


@cache
def booking_steps(measured: int, overlaps: bool, idle_below: float) -> Steps:
    """`booking_plan` as Ibis expressions."""
    start, end = _instants("slice")
    held = _kept(holding_steps(False), "holdings")
    steps = {"held": held.filter(held.from_utc >= start, held.to_utc <= end)}
    steps["spans"] = spans(_kept(steps, "held"))
    samples = _given("samples")
    if overlaps:
        samples = disjoint(samples.filter(samples.to_utc > start, samples.from_utc < end))
    steps["observed"] = observed(_kept(steps, "spans"), samples, idle_below, measured)
    steps["book"] = ledger(_kept(steps, "held"), _kept(steps, "spans"), _kept(steps, "observed"))
    return steps


def _given(name: str) -> Expr:
    """A table of the house."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _kept(steps: Steps, name: str) -> Expr:
    """The table an earlier step was put into."""
    return ibis.table(steps[name].schema(), name=name)


def _instants(name: str) -> tuple[Expr, Expr]:
    """The one row of a table that says from when to when."""
    row = ibis.table({"start_ms": "int64", "end_ms": "int64"}, name=name)
    return row.start_ms.as_scalar(), row.end_ms.as_scalar()
