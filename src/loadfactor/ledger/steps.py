"""The steps of the ledger in order, each a definition in Ibis, compiled once for the engine that runs it.

Each step is put into a table before the next one reads it. Inputs are the tables of the store by name, `estimates` (prices),
`links` (peaks by accelerator), `cuts` (at_utc), `suspects` (hour_utc, see `Activity`) and `bounds` (start_ms, end_ms: the spans to
book, disjoint); samples are those of the hours in them. Most stores lack most of what a step provides for, so a step has shorter
forms for what is empty.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ibis

from loadfactor.base.units import MS_PER_DAY
from loadfactor.ledger.attribution import (
    attribute_time,
    cut_capacity,
    list_claims,
    list_labelled,
    list_listed,
    list_runs,
)
from loadfactor.ledger.columns import HOLDER, LOCATION, WITHOUT
from loadfactor.ledger.intervals import Expr, split_by_bucket
from loadfactor.ledger.inventory import (
    call_nodes,
    complete_devices,
    count_unlisted,
    cut_segments,
    list_devices,
    list_outages,
    list_presence,
    list_sources,
    mark_sources,
    pair_names,
)
from loadfactor.ledger.labels import (
    fill_payers,
    find_misnumbered,
    list_numbers,
    list_payers,
    name_numbered,
    pick_labelled,
    pick_listed,
    pick_stated,
)
from loadfactor.ledger.prices import PRICE_COLUMNS, convert_prices, find_repriced, match_billed, match_prices
from loadfactor.ledger.scope import DAY, locate_devices, measure_capacity, scope_claims, scope_places
from loadfactor.ledger.states import (
    add_peaks,
    book_states,
    find_overlaps,
    find_unheld_work,
    link_table,
    list_spans,
    rate_samples,
    rate_states,
    resolve_overlaps,
    summarize_samples,
)
from loadfactor.tables.schema import DEFAULT_CURRENCY, IDLE_BELOW, columns_of

FEATURES: Final = ("labels", "bridged", "unnamed", "domains", "numbered_devices")
"""Kinds of rows that may be missing as a table may be empty: allocations that labels name, those of them that are bridged over a
gap, allocations that name no GPU, nodes with a domain in their name, GPUs that are known by node and number alone."""

HOLDING_COLUMNS: Final = {
    **dict.fromkeys(HOLDER, "string"),
    "attempt": "float64",
    "device_id": "string",
    **dict.fromkeys(LOCATION, "string"),
    **dict.fromkeys(PRICE_COLUMNS, "float64"),
    "gpus": "float64",
    **dict.fromkeys(("held", "down", "has_source", "by_list", "free"), "boolean"),
    **dict.fromkeys(("from_utc", "to_utc", "hour_utc", "span"), "int64"),
}
"""Columns of `holdings` and their types, whatever its steps depend on."""


@dataclass(frozen=True)
class Facts:
    """Inputs that the steps of facts depend on, which all rows of the small tables say; `renamed`: see `Holders`."""

    renamed: bool = True


@dataclass(frozen=True)
class Holders:
    """Inputs that the steps of holdings depend on, which read those of `Facts`.

    `renamed`: nodes go by two names; `numbered`: allocations say numbers of GPUs; `filled`: labels name payers that lists do not;
    `tracked`: runs name themselves; `billed`: there are `billed_prices` of nodes; `currency`: that of the books.
    """

    renamed: bool = True
    numbered: bool = False
    filled: bool = False
    tracked: bool = False
    billed: bool = False
    currency: str = DEFAULT_CURRENCY


@dataclass(frozen=True)
class Activity:
    """Inputs that the steps of activity depend on.

    `measured`: which signals the samples hold; `overlaps`: in the hours of `suspects`, samples of one GPU may overlap. `by_sample`:
    a row for each sample of what it adds in a second (`rate_states`), of `numbered_holdings`: holdings with a number, `holding`.
    `idle_alone`: of what somebody holds, only idle samples are read; all other time is unobserved then.
    """

    measured: int = 0
    overlaps: bool = False
    idle_below: float = IDLE_BELOW
    by_sample: bool = False
    idle_alone: bool = False


@dataclass(frozen=True)
class Step:
    """A table of the chain: its definition, and shorter ones by the tables and features that are empty then, shortest first."""

    full: Expr
    shorter: Mapping[tuple[str, ...], Expr]


class Steps(dict[str, Step]):
    """The steps of a chain by the names of their tables, in order."""

    def put(self, name: str, full: Expr, shorter: Mapping[tuple[str, ...], Expr | None] | None = None) -> Expr:
        """Add a step; its table, for the definitions that read it. A shorter form that is None has no rows."""
        forms = {empty: _no_rows(full) if expr is None else expr for empty, expr in (shorter or {}).items()}
        self[name] = Step(full, forms)
        return self.result(name)

    def result(self, name: str) -> Expr:
        """The table that a step is put into."""
        return ibis.table(self[name].full.schema(), name=name)


def compile_steps(of: Facts | Holders | Activity, names: Iterable[str] | None = None) -> dict[str, str]:
    """The ledger as SQL: what to work out under which name, in order; the last step of `Activity` is the book.

    Shorter forms come before the full one, called `name without table table`. `names`: of these steps alone.
    """
    return {key: _write(expr) for key, expr in list_forms(of, names).items()}


def list_forms(of: Facts | Holders | Activity, names: Iterable[str] | None = None) -> dict[str, Expr]:
    """The same as Ibis expressions: of a chain most forms are never needed, and each takes time to compile."""
    steps = list_steps(of)
    forms: dict[str, Expr] = {}
    for name in steps if names is None else names:
        forms |= {f"{name}{WITHOUT}{' '.join(empty)}": expr for empty, expr in steps[name].shorter.items()}
        forms[name] = steps[name].full
    return forms


def compile_form(of: Facts | Holders | Activity, key: str) -> str:
    """SQL of one of `list_forms`."""
    return _write(list_forms(of)[key])


def list_steps(of: Facts | Holders | Activity) -> Steps:
    """The same as Ibis expressions, each with its shorter forms."""
    if isinstance(of, Facts):
        return _list_facts(of)
    return _list_holders(of) if isinstance(of, Holders) else _list_activity(of)


@cache
def ledger_columns() -> dict[str, str]:
    """Columns of the ledger and their types, as Ibis names them."""
    return {name: str(of) for name, of in _list_activity(Activity())["book"].full.schema().items()}


def compile_stated() -> dict[str, str]:
    """SQL of `stated`: the allocations of labels that tell payers which lists do not, see `pick_stated`."""
    allocations = _input("allocations")
    return {"stated": _write(pick_stated(pick_labelled(allocations), pick_listed(allocations)))}


def compile_changed_sources() -> dict[str, str]:
    """SQL of `changed`: the hours of `kept_ledger` in which `has_source` or `by_list` is another than `sources` make it."""
    kept = _kept_ledger("device_id", "node", "pool", "hour_utc", "has_source", "by_list")
    kept = kept.rename(before="has_source", before_list="by_list")
    marked = mark_sources(kept, _list_facts(Facts()).result("sources"))
    changed = marked.filter((marked.before != marked.has_source) | (marked.before_list != marked.by_list))
    return {"changed": _write(changed.select("hour_utc").distinct())}


def compile_repriced(currency: str) -> dict[str, str]:
    """SQL: prices of bills in the reporting currency, and the hours that they change, see `find_repriced`, of `kept_ledger`."""
    worth = convert_prices(_billed_prices(), _input("exchange_rates"), currency)
    kept = _kept_ledger("node", "hour_utc", *PRICE_COLUMNS)
    repriced = find_repriced(kept, ibis.table(worth.schema(), name="billed_worth"))
    return {"billed_worth": _write(worth), "repriced": _write(repriced)}


@cache
def _list_facts(of: Facts) -> Steps:
    """Steps of what follows from all rows of the small tables, whichever hours are booked."""
    steps = Steps()
    devices, outages, allocations = _list_inventory()
    names = steps.put("node_names", pair_names(devices, outages, allocations), {("domains",): None})
    if of.renamed:
        devices, allocations = (call_nodes(table, names) for table in (devices, allocations))
    steps.put("unlisted", count_unlisted(allocations, devices), {("unnamed",): None})
    steps.put("sources", list_sources(allocations, devices), {("allocations",): None})
    numbers = steps.put("numbers", list_numbers(devices))
    steps.put("misnumbered", find_misnumbered(allocations, numbers))
    return steps


@cache
def _list_holders(of: Holders) -> Steps:
    """Steps from the tables to holdings and their costs."""
    bounds = ibis.table({"start_ms": "int64", "end_ms": "int64"}, name="bounds")
    cuts = ibis.table({"at_utc": "int64"}, name="cuts")
    estimates = ibis.table(ibis.schema(columns_of("prices")), name="estimates")
    rates = _input("exchange_rates")
    facts = _list_facts(Facts(of.renamed))
    steps = Steps()
    devices, outages, allocations = _list_inventory()
    if of.renamed:
        names = facts.result("node_names")
        devices, outages, allocations = (call_nodes(table, names) for table in (devices, outages, allocations))
    inventory = steps.put(
        "inventory",
        complete_devices(devices, facts.result("unlisted")),
        {("unlisted", "numbered_devices"): list_devices(devices)},
    )
    presence = steps.put("presence", list_presence(inventory, bounds))
    down_time = steps.put("down_time", list_outages(presence, outages), {("outages",): None})
    prices = ibis.union(_input("prices"), estimates)
    worth = steps.put(
        "worth",
        convert_prices(prices, rates, of.currency),
        {("exchange_rates",): convert_prices(prices, None, of.currency)},
    )
    matched = match_prices(presence, worth)
    if of.billed:
        billed = steps.put("billed_worth", convert_prices(_billed_prices(), rates, of.currency))
        matched = ibis.union(matched, match_billed(presence, billed))
    matched = steps.put("matched_prices", matched)
    sources = facts.result("sources")
    segments = steps.put(
        "segments",
        cut_segments(presence, down_time, matched, sources),
        {
            ("down_time", "sources"): cut_segments(presence, None, matched, None),
            ("down_time",): cut_segments(presence, None, matched, sources),
        },
    )
    days = steps.put("days", split_by_bucket(segments, MS_PER_DAY, DAY))
    locations = steps.put("locations", locate_devices(days))
    shorter: dict[tuple[str, ...], Expr | None] = {} if of.tracked else {("labels",): None}
    labelled = list_labelled(allocations, bounds, of.numbered, of.tracked)
    labelled = steps.put("named" if of.tracked else "labelled", labelled, shorter)
    if of.tracked:
        told = steps.put("told", list_payers(list_runs(allocations, bounds), labelled))
        labelled = steps.put("labelled", fill_payers(labelled, told))
    listed = steps.put(
        "lists" if of.filled else "listed",
        list_listed(allocations, locations, bounds, of.numbered),
        {("allocations",): None, ("unnamed",): list_listed(allocations, None, bounds, of.numbered)},
    )
    if of.filled:
        payers = steps.put("payers", list_payers(labelled, listed))
        listed = steps.put("listed", fill_payers(listed, payers))
    claims = steps.put(
        "known_claims" if of.numbered else "claims",
        list_claims(listed, labelled, allocations, locations, bounds, days),
        {
            ("labelled",): list_claims(listed, None, allocations, locations, bounds),
            ("bridged",): list_claims(listed, labelled, allocations, locations, bounds),
        },
    )
    if of.numbered:
        numbers, misnumbered = (facts.result(name) for name in ("numbers", "misnumbered"))
        claims = steps.put("claims", name_numbered(claims, numbers, locations, misnumbered))
    unnamed = steps.put("unnamed_claims", claims.filter(claims.device_id.isnull()), {("unnamed",): None})
    scopes = steps.put("scopes", scope_places(locations, unnamed), {("unnamed_claims",): scope_places(locations, None)})
    scoped = steps.put(
        "scoped_claims",
        scope_claims(claims, unnamed, locations, scopes),
        {("claims",): None, ("unnamed_claims",): scope_claims(claims, None, locations, scopes)},
    )
    capacity = steps.put(
        "capacity", measure_capacity(days, scopes), {("unnamed_claims",): measure_capacity(days, None)}
    )
    slices = steps.put(
        "slices",
        cut_capacity(capacity, scoped, cuts),
        {
            ("scoped_claims", "cuts"): cut_capacity(capacity, None, None),
            ("cuts",): cut_capacity(capacity, scoped, None),
        },
    )
    steps.put("holdings", attribute_time(slices, scoped), {("scoped_claims",): attribute_time(slices, None)})
    return steps


@cache
def _list_activity(of: Activity) -> Steps:
    """Steps from holdings and samples to the ledger's rows."""
    samples = _input("samples")
    samples = samples.mutate(since=samples.from_utc, until=samples.to_utc)
    holdings = ibis.table(HOLDING_COLUMNS, name="holdings")
    if of.by_sample:
        holdings = ibis.table({**HOLDING_COLUMNS, "holding": "int64"}, name="numbered_holdings")
    summarize, book = (rate_samples, rate_states) if of.by_sample else (summarize_samples, book_states)
    steps = Steps()
    spans = steps.put("spans", list_spans(holdings, weighed=of.measured != 0))

    forms: dict[tuple[str, ...], Expr] = {}
    if of.overlaps:
        keys = ["device_id", "hour_utc"]
        suspects = ibis.table({"hour_utc": "int64"}, name="suspects")
        overlapping = steps.put("overlapping", find_overlaps(samples, suspects), {("samples",): None})
        resolved = resolve_overlaps(samples.semi_join(overlapping, keys), of.measured)
        resolved = steps.put("resolved", resolved, {("overlapping",): None})
        forms = {("overlapping",): samples}
        samples = ibis.union(samples.anti_join(overlapping, keys), resolved)

    def put(name: str, read: Callable[[Expr], Expr]) -> Expr:
        """Add a step that reads the samples."""
        return steps.put(name, read(samples), {("samples",): None, **{empty: read(of) for empty, of in forms.items()}})

    def observe(samples: Expr, spans: Expr = spans) -> Expr:
        return summarize(spans, samples, of.idle_below, of.measured, of.idle_alone)

    if of.by_sample:  # samples of GPUs that somebody holds are read once, by the book
        observed = put("rated", observe)
        free = spans.filter(spans.free_from.notnull())
        work = put("work", lambda samples: find_unheld_work(spans, observe(samples, free)))
    else:
        observed = put("observed", observe)
        work = steps.put("work", find_unheld_work(spans, observed), {("observed",): None})
    steps.put("book", book(add_peaks(holdings, link_table()), spans, observed, work))
    return steps


def _kept_ledger(*columns: str) -> Expr:
    types = ledger_columns()
    return ibis.table({name: types[name] for name in columns}, name="kept_ledger")


def _billed_prices() -> Expr:
    instants = dict.fromkeys(("from_utc", "to_utc"), "int64")
    columns = {"node": "string", **instants, "basis": "string", "price_per_gpu_hour": "float64", "currency": "string"}
    return ibis.table(columns, name="billed_prices")


def _list_inventory() -> tuple[Expr, Expr, Expr]:
    devices, outages, allocations = (_input(name) for name in ("devices", "outages", "allocations"))
    return devices, outages, allocations


def _input(name: str) -> Expr:
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _no_rows(like: Expr) -> Expr:
    nothing = ibis.range(0, 0).unnest().name("nothing").as_table()
    return nothing.select(**{name: ibis.null(of) for name, of in like.schema().items()})


def _write(expr: Expr) -> str:
    """An expression as SQL: steps that are the same in several chains are compiled once."""
    return _compile(expr.op())


@cache
def _compile(op: Any) -> str:
    return str(ibis.to_sql(op.to_expr(), dialect="duckdb"))
