"""In which steps is the ledger worked out? Each one a definition in Ibis, compiled once, for the engine that will run it.

Each step is put into a table before the next one reads it. Inputs are the tables of the house by name, `estimates` (prices),
`cuts` (at_utc) and `bounds` (one row: start_ms, end_ms).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import ibis

from loadfactor.metrics.holdings import asked, holdings
from loadfactor.metrics.installed import installed
from loadfactor.metrics.intervals import exploded
from loadfactor.metrics.ledger import ledger, observed, spans
from loadfactor.metrics.places import DAY, places, stays
from loadfactor.metrics.timeline import disjoint
from loadfactor.store.layout import columns_of
from loadfactor.units import MS_PER_DAY

Expr = Any
Steps = dict[str, Expr]


def plan(
    measured: int, overlaps: bool, cut: bool, idle_below: float, dialect: str = "duckdb"
) -> tuple[tuple[str, str], ...]:
    """The ledger as SQL of an engine: what to work out under which name, in order; the last is the book.

    `measured`: which signals the samples hold; `overlaps`: whether samples of one GPU may overlap; `cut`: whether there are cuts.
    """
    return (
        *_sql(dialect, _places),
        *_sql(dialect, _holders, cut),
        *_sql(dialect, _seen, measured, overlaps, idle_below),
        *_sql(dialect, _book),
    )


def steps(measured: int, overlaps: bool, cut: bool, idle_below: float) -> Steps:
    """The same as Ibis expressions, for an engine's own compiler."""
    return {**_places(), **_holders(cut), **_seen(measured, overlaps, idle_below), **_book()}


@cache
def _sql(dialect: str, steps: Callable[..., Steps], *options: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, ibis.to_sql(expr, dialect=dialect)) for name, expr in steps(*options).items())


def _given(name: str) -> Expr:
    """A table of the house."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _kept(steps: Steps, name: str) -> Expr:
    """The table an earlier step was put into."""
    return ibis.table(steps[name].schema(), name=name)


def _bounds() -> tuple[Expr, Expr]:
    bounds = ibis.table({"start_ms": "int64", "end_ms": "int64"}, name="bounds")
    return bounds.start_ms.as_scalar(), bounds.end_ms.as_scalar()


@cache
def _places() -> Steps:
    start, end = _bounds()
    prices = ibis.union(_given("prices"), ibis.table(ibis.schema(columns_of("prices")), name="estimates"))
    steps = {"segments": installed(_given("devices"), _given("outages"), prices, start, end)}
    steps["days"] = exploded(_kept(steps, "segments"), MS_PER_DAY, DAY)
    steps["stays"] = stays(_kept(steps, "days"))
    steps["asked"] = asked(_given("allocations"), _kept(steps, "stays"), start, end)
    steps["places"] = places(_kept(steps, "stays"), _kept(steps, "asked"))
    return steps


@cache
def _holders(cut: bool) -> Steps:
    before = _places()
    cuts = ibis.table({"at_utc": "int64"}, name="cuts") if cut else None
    days, wanted, where = (_kept(before, name) for name in ("days", "asked", "places"))
    steps = {"holdings": holdings(days, wanted, where, cuts)}
    steps["spans"] = spans(_kept(steps, "holdings"))
    return steps


@cache
def _seen(measured: int, overlaps: bool, idle_below: float) -> Steps:
    samples = _given("samples")
    if overlaps:
        start, end = _bounds()
        samples = disjoint(samples.filter(samples.to_utc > start, samples.from_utc < end))
    return {"observed": observed(_kept(_holders(False), "spans"), samples, idle_below, measured)}


@cache
def _book() -> Steps:
    before, seen = _holders(False), _seen(0, False, 0.0)
    return {"book": ledger(_kept(before, "holdings"), _kept(before, "spans"), _kept(seen, "observed"))}
