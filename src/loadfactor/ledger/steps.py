"""In which steps is the ledger worked out? Each one a definition in Ibis, compiled once, for the engine that will run it.

Each step is put into a table before the next one reads it. Inputs are the tables of the house by name, `estimates` (prices),
`cuts` (at_utc) and `bounds` (start_ms, end_ms: the spans to book, disjoint); samples are those of the hours in them.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import ibis

from loadfactor.ledger.attribution import asked, holdings, pieces
from loadfactor.ledger.capacity import room
from loadfactor.ledger.evidence import list_spans, unheld_work
from loadfactor.ledger.holders import list_sources
from loadfactor.ledger.intervals import exploded
from loadfactor.ledger.inventory import broken, installed, standing
from loadfactor.ledger.overlaps import disjoint
from loadfactor.ledger.prices import convert_prices, priced
from loadfactor.ledger.scope import DAY, placed, places, stays
from loadfactor.ledger.states import ledger, observed
from loadfactor.tables import USD, columns_of
from loadfactor.units import MS_PER_DAY

Expr = Any
Steps = dict[str, Expr]


def plan(
    measured: int, overlaps: bool, cut: bool, idle_below: float, currency: str = USD, dialect: str = "duckdb"
) -> Iterator[tuple[str, str]]:
    """The ledger as SQL of an engine: what to work out under which name, in order; the last is the book.

    `measured`: which signals the samples hold; `overlaps`: whether samples of one GPU may overlap; `cut`: whether there are cuts.
    Each step is compiled when it is reached, once.
    """
    for make, options in ((_holders, (cut, currency)), (_booked, (measured, overlaps, idle_below))):
        for name in make(*options):
            yield name, _sql(dialect, make, options, name)


def steps(measured: int, overlaps: bool, cut: bool, idle_below: float, currency: str = USD) -> Steps:
    """The same as Ibis expressions, for an engine's own compiler."""
    return {**_holders(cut, currency), **_booked(measured, overlaps, idle_below)}


@cache
def _sql(dialect: str, make: Callable[..., Steps], options: tuple[Any, ...], name: str) -> str:
    return str(ibis.to_sql(make(*options)[name], dialect=dialect))


@cache
def _holders(cut: bool, currency: str) -> Steps:
    """Who held what."""
    bounds = ibis.table({"start_ms": "int64", "end_ms": "int64"}, name="bounds")
    prices = ibis.union(_given("prices"), ibis.table(ibis.schema(columns_of("prices")), name="estimates"))
    steps = {"standing": standing(_given("devices"), bounds)}
    steps["broken"] = broken(_kept(steps, "standing"), _given("outages"))
    steps["converted"] = convert_prices(prices, _given("exchange_rates"), currency)
    steps["priced"] = priced(_kept(steps, "standing"), _kept(steps, "converted"))
    steps["sources"] = list_sources(_given("allocations"), _given("devices"))
    steps["segments"] = installed(*(_kept(steps, name) for name in ("standing", "broken", "priced", "sources")))
    steps["days"] = exploded(_kept(steps, "segments"), MS_PER_DAY, DAY)
    steps["stays"] = stays(_kept(steps, "days"))
    steps["asked"] = asked(_given("allocations"), _kept(steps, "stays"), bounds)
    steps["places"] = places(_kept(steps, "stays"), _kept(steps, "asked"))
    steps["wanted"] = placed(_kept(steps, "asked"), _kept(steps, "places"))
    steps["room"] = room(_kept(steps, "days"), _kept(steps, "places"))
    cuts = ibis.table({"at_utc": "int64"}, name="cuts") if cut else None
    steps["pieces"] = pieces(_kept(steps, "room"), _kept(steps, "wanted"), cuts)
    steps["holdings"] = holdings(_kept(steps, "pieces"), _kept(steps, "wanted"))
    return steps


@cache
def _booked(measured: int, overlaps: bool, idle_below: float) -> Steps:
    """What they did with it."""
    before, samples = _holders(False, USD), _given("samples")
    samples = samples.mutate(since=samples.from_utc, until=samples.to_utc)
    if overlaps:
        samples = disjoint(samples)
    steps = {"spans": list_spans(_kept(before, "holdings"))}
    steps["observed"] = observed(_kept(steps, "spans"), samples, idle_below, measured)
    steps["work"] = unheld_work(_kept(steps, "spans"), _kept(steps, "observed"))
    steps["book"] = ledger(_kept(before, "holdings"), *(_kept(steps, name) for name in ("spans", "observed", "work")))
    return steps


def _given(name: str) -> Expr:
    """A table of the house."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _kept(steps: Steps, name: str) -> Expr:
    """The table an earlier step was put into."""
    return ibis.table(steps[name].schema(), name=name)
