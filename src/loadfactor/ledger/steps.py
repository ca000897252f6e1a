"""The steps of the ledger in order, each a definition in Ibis, compiled once for the engine that runs it.

Each step is put into a table before the next one reads it. Inputs are the tables of the store by name, `estimates` (prices),
`links` (peaks by accelerator), `cuts` (at_utc) and `bounds` (start_ms, end_ms: the spans to book, disjoint); samples are those
of the hours in them.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import ibis

from loadfactor.base.units import MS_PER_DAY
from loadfactor.ledger.attribution import attribute_time, cut_capacity, list_claims, list_labelled, list_listed
from loadfactor.ledger.capacity import measure_capacity
from loadfactor.ledger.evidence import find_unheld_work, list_spans
from loadfactor.ledger.gpu_numbers import find_misnumbered, list_numbers, name_numbered
from loadfactor.ledger.holders import list_sources, mark_sources
from loadfactor.ledger.intervals import split_by_bucket
from loadfactor.ledger.inventory import cut_segments, list_outages, list_presence
from loadfactor.ledger.labels import pick_labelled, pick_listed
from loadfactor.ledger.links import add_peaks, link_table
from loadfactor.ledger.node_names import call_nodes, pair_names
from loadfactor.ledger.overlaps import resolve_overlaps
from loadfactor.ledger.payers import fill_payers, list_payers, pick_told
from loadfactor.ledger.prices import PRICE_COLUMNS, convert_prices, find_repriced, match_billed, match_prices
from loadfactor.ledger.scope import DAY, locate_devices, scope_claims, scope_places
from loadfactor.ledger.states import book_states, summarize_samples
from loadfactor.ledger.unlisted import complete_devices, count_unlisted
from loadfactor.tables.schema import DEFAULT_CURRENCY, IDLE_BELOW, columns_of

Expr = Any
Steps = dict[str, Expr]


def compile_steps(
    measured: int,
    overlaps: bool,
    cut: bool,
    numbered: bool,
    told: bool,
    idle_below: float,
    currency: str = DEFAULT_CURRENCY,
    dialect: str = "duckdb",
    billed: bool = False,
) -> Iterator[tuple[str, str]]:
    """The ledger as SQL of an engine: what to work out under which name, in order; the last is the book.

    `measured`: which signals the samples hold; `overlaps`: whether samples of one GPU may overlap; `cut`: whether there are cuts;
    `numbered`: whether allocations say numbers of GPUs; `told`: whether labels tell payers that lists do not; `billed`: whether
    there are `billed_prices` of nodes. Each step is compiled when it is reached, once.
    """
    attributed = (cut, numbered, told, currency, billed)
    for make, options in ((_attribute, attributed), (_book, (measured, overlaps, idle_below))):
        for name in make(*options):
            yield name, _sql(dialect, make, options, name)


def list_steps(
    measured: int,
    overlaps: bool,
    cut: bool,
    numbered: bool,
    told: bool,
    idle_below: float,
    currency: str = DEFAULT_CURRENCY,
) -> Steps:
    """The same as Ibis expressions, for an engine's own compiler."""
    return {**_attribute(cut, numbered, told, currency), **_book(measured, overlaps, idle_below)}


def ledger_columns() -> dict[str, str]:
    """Columns of the ledger and their types, as Ibis names them."""
    return {name: str(of) for name, of in _book(0, False, IDLE_BELOW)["book"].schema().items()}


def compile_facts(names: tuple[str, ...], dialect: str = "duckdb") -> dict[str, str]:
    """SQL of steps that follow from all rows of the small tables, whichever spans are booked."""
    return {name: _sql(dialect, _attribute, (False, True, False, DEFAULT_CURRENCY), name) for name in names}


def compile_told(dialect: str = "duckdb") -> str:
    """SQL: the allocations of labels that tell payers which lists do not, see `pick_told`."""
    allocations = _input("allocations")
    return str(ibis.to_sql(pick_told(pick_labelled(allocations), pick_listed(allocations)), dialect=dialect))


def compile_changed_sources(dialect: str = "duckdb") -> str:
    """SQL: the hours in which rows of the table `kept_ledger` say otherwise than `sources` whether a source speaks of their GPU."""
    kept = ibis.table(
        {name: ledger_columns()[name] for name in ("device_id", "node", "pool", "hour_utc", "has_source")},
        name="kept_ledger",
    )
    marked = mark_sources(kept.rename(before="has_source"), _result(_before(), "sources"))
    return str(
        ibis.to_sql(marked.filter(marked.before != marked.has_source).select("hour_utc").distinct(), dialect=dialect)
    )


def compile_repriced(currency: str, dialect: str = "duckdb") -> dict[str, str]:
    """SQL: prices of bills in the reporting currency, and the hours that they change, see `find_repriced`, of `kept_ledger`."""
    worth = convert_prices(_billed_prices(), _input("exchange_rates"), currency)
    wanted = ("node", "hour_utc", *PRICE_COLUMNS)
    kept = ibis.table({name: ledger_columns()[name] for name in wanted}, name="kept_ledger")
    repriced = find_repriced(kept, ibis.table(worth.schema(), name="billed_worth"))
    return {
        name: str(ibis.to_sql(expr, dialect=dialect))
        for name, expr in (("billed_worth", worth), ("repriced", repriced))
    }


@cache
def _sql(dialect: str, make: Callable[..., Steps], options: tuple[Any, ...], name: str) -> str:
    return str(ibis.to_sql(make(*options)[name], dialect=dialect))


@cache
def _attribute(cut: bool, numbered: bool, told: bool, currency: str, billed: bool = False) -> Steps:
    """Who held what, and what it cost."""
    bounds = ibis.table({"start_ms": "int64", "end_ms": "int64"}, name="bounds")
    prices = ibis.union(_input("prices"), ibis.table(ibis.schema(columns_of("prices")), name="estimates"))
    steps: Steps = {}

    def of(name: str) -> Expr:
        return _result(steps, name)

    placed = [_input(name) for name in ("devices", "outages", "allocations")]
    steps["node_names"] = pair_names(*placed)
    devices, outages, allocations = (call_nodes(table, of("node_names")) for table in placed)
    steps["unlisted"] = count_unlisted(allocations, devices)
    steps["inventory"] = complete_devices(devices, of("unlisted"))
    steps["presence"] = list_presence(of("inventory"), bounds)
    steps["down_time"] = list_outages(of("presence"), outages)
    steps["worth"] = convert_prices(prices, _input("exchange_rates"), currency)
    matched = match_prices(of("presence"), of("worth"))
    if billed:
        steps["billed_worth"] = convert_prices(_billed_prices(), _input("exchange_rates"), currency)
        matched = ibis.union(matched, match_billed(of("presence"), of("billed_worth")))
    steps["matched_prices"] = matched
    steps["sources"] = list_sources(allocations, devices)
    steps["segments"] = cut_segments(of("presence"), of("down_time"), of("matched_prices"), of("sources"))
    steps["days"] = split_by_bucket(of("segments"), MS_PER_DAY, DAY)
    steps["locations"] = locate_devices(of("days"))
    steps["labelled"] = list_labelled(allocations, bounds, numbered)
    listed = list_listed(allocations, of("locations"), bounds, numbered)
    if told:
        steps["lists"] = listed
        steps["payers"] = list_payers(of("labelled"), of("lists"))
        listed = fill_payers(of("lists"), of("payers"))
    steps["listed"] = listed
    claims = list_claims(of("listed"), of("labelled"), allocations, of("locations"), bounds)
    if numbered:
        steps["numbers"] = list_numbers(devices)
        steps["misnumbered"] = find_misnumbered(allocations, of("numbers"))
        steps["known_claims"] = claims
        claims = name_numbered(of("known_claims"), of("numbers"), of("locations"), of("misnumbered"))
    steps["claims"] = claims
    steps["scopes"] = scope_places(of("locations"), of("claims"))
    steps["scoped_claims"] = scope_claims(of("claims"), of("locations"), of("scopes"))
    steps["capacity"] = measure_capacity(of("days"), of("scopes"))
    cuts = ibis.table({"at_utc": "int64"}, name="cuts") if cut else None
    steps["slices"] = cut_capacity(of("capacity"), of("scoped_claims"), cuts)
    steps["holdings"] = attribute_time(of("slices"), of("scoped_claims"))
    return steps


@cache
def _book(measured: int, overlaps: bool, idle_below: float) -> Steps:
    """What they did with it."""
    before, samples = _before(), _input("samples")
    samples = samples.mutate(since=samples.from_utc, until=samples.to_utc)
    if overlaps:
        samples = resolve_overlaps(samples, measured)
    steps = {"spans": list_spans(_result(before, "holdings"), weighed=measured != 0)}
    steps["observed"] = summarize_samples(_result(steps, "spans"), samples, idle_below, measured)
    steps["work"] = find_unheld_work(_result(steps, "spans"), _result(steps, "observed"))
    results = (_result(steps, name) for name in ("spans", "observed", "work"))
    steps["book"] = book_states(add_peaks(_result(before, "holdings"), link_table()), *results)
    return steps


def _before() -> Steps:
    """The steps of attribution, for the columns of their results: these are the same whatever is asked."""
    return _attribute(False, False, False, DEFAULT_CURRENCY)


def _billed_prices() -> Expr:
    """Prices of nodes that bills make, in the currency of the bill."""
    instants = dict.fromkeys(("from_utc", "to_utc"), "int64")
    columns = {"node": "string", **instants, "basis": "string", "price_per_gpu_hour": "float64", "currency": "string"}
    return ibis.table(columns, name="billed_prices")


def _input(name: str) -> Expr:
    """A table of the store."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _result(steps: Steps, name: str) -> Expr:
    """The table an earlier step was put into."""
    return ibis.table(steps[name].schema(), name=name)
