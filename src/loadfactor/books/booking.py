"""Working out the ledger of some hours: the SQL of its steps, over the store's tables, in the order of the plan.

The definitions are Ibis expressions (`ledger.steps`); this file hands their SQL the store's tables. Each step is put into a
temporary table before the next one reads it, so that nothing is worked out twice. What follows from all rows of the small tables,
whichever hours are booked, is found once a session; where it changes, booked hours are booked again (`digest_facts`).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.charging.billed_prices import describe_bills, has_bills, materialize_billed_prices
from loadfactor.books.compiled_sql import keep, ledger_steps, recall
from loadfactor.books.ledger_inputs import LedgerInputs, OwnedPrices, list_estimates
from loadfactor.books.owned_prices import find_owned_prices
from loadfactor.catalog.links import LINK_COLUMNS, list_link_peaks
from loadfactor.ledger.columns import WITHOUT
from loadfactor.store.manifest import merge
from loadfactor.store.sample_files import SamplePart, quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import (
    BRIDGED,
    IDLE_BELOW,
    IS_LISTED,
    LINGER_MS,
    MEASUREMENTS,
    NUMBERED,
    RUN,
    Span,
    columns_of,
    measured_bit,
)

_FACTS: Final = ("node_names", "sources", "unlisted")
_OF_NUMBERS: Final = ("numbers", "misnumbered")
"""Steps of the ledger that follow from all rows of the small tables; the latter where allocations say numbers of GPUs."""
_READ_ONCE: Final = ("rated", "book")
"""Steps that one query reads, when a ledger is written or requested."""
INPUTS: Final = ("allocations", "devices", "outages", "prices", "exchange_rates")
"""The small tables that booking reads, besides bills."""
MOST_NAMED: Final = 1000
"""Of more GPUs hardly a part of a file has none."""
_HAS_DOMAIN: Final = "count(*) FILTER (contains(node, '.'))"


@dataclass(frozen=True)
class LedgerFacts:
    """Facts that the steps of holdings depend on (see `ledger.steps.Holders`), and how many GPUs are listed or estimated.

    `empty`: tables, fact steps and features (see `ledger.steps.FEATURES`) that have no rows, whenever they would be.
    """

    renamed: bool
    numbered: bool
    filled: bool
    tracked: bool
    gpus: int
    empty: frozenset[str]


def list_facts(session: Session) -> LedgerFacts:
    """Put what follows from all rows of the small tables into tables once: whatever is booked then, they stand."""
    tables = ("allocations", "devices", "outages")
    key = tuple(session.manifest.of(name) for name in tables)
    before: tuple[object, LedgerFacts | None] = session.derived.get("facts", (None, None))
    facts = before[1] if before[0] == key else None
    if facts is None:
        for name in tables:
            session.view_table(name, name)
        facts = _find_facts(session)
        session.derived["facts"] = key, facts
    return facts


def _find_facts(session: Session) -> LedgerFacts:
    rows, numbers, labels, bridged, runs, unnamed, domains = session.fetch_one(
        f"SELECT count(*), count(gpu_indices), count(*) FILTER (NOT {IS_LISTED}), count(*) FILTER (known_from = {quote(BRIDGED)}),"
        f" count(*) FILTER (known_from = {quote(RUN)}), count(*) FILTER (device_id IS NULL), {_HAS_DOMAIN} FROM allocations"
    )
    devices, of_devices, by_number = session.fetch_one(
        f"SELECT count(DISTINCT device_id), {_HAS_DOMAIN}, count(*) FILTER (starts_with(device_id, node || {quote(NUMBERED)}))"
        " FROM devices"
    )
    (of_outages,) = session.fetch_one(f"SELECT {_HAS_DOMAIN} FROM outages")
    known = {
        "allocations": rows,
        "labels": labels,
        "bridged": bridged,
        "unnamed": unnamed,
        "domains": domains + of_devices + of_outages,
        "numbered_devices": by_number,
    }
    empty = {name for name, count in known.items() if not count}
    empty |= {name for name in INPUTS if not session.has_rows(name)}
    _work_out_facts(session, empty, _FACTS[:1], renamed=True)
    renamed = "node_names" not in empty
    _work_out_facts(session, empty, (*_FACTS[1:], *(_OF_NUMBERS if numbers else ())), renamed)
    (estimated,) = session.fetch_one("SELECT sum(most) FROM unlisted") if "unlisted" not in empty else (0,)
    filled = bool(labels) and has_stated_payers(session)
    return LedgerFacts(renamed, bool(numbers), filled, bool(runs), devices + int(estimated), frozenset(empty))


def _work_out_facts(session: Session, empty: set[str], names: tuple[str, ...], renamed: bool) -> None:
    work_out(session, f"facts {names} {renamed}", lambda: ledger_steps().Facts(renamed), empty, names)


def digest_facts(session: Session, facts: LedgerFacts, owned: OwnedPrices) -> LedgerInputs:
    """Digest the tables of `list_facts`, on which hours booked at these prices of owned GPUs stand."""
    names, sources, unlisted = (session.fetch(f"SELECT * FROM {name} ORDER BY ALL").to_pydict() for name in _FACTS)
    misnumbered = _read_misnumbered(session) if facts.numbered else []
    return LedgerInputs(
        _digest(sources), _digest(unlisted), _digest((names, misnumbered)), describe_bills(session), owned
    )


def _digest(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]


def list_misnumbered(session: Session) -> list[str]:
    """The nodes whose GPUs a scheduler numbers otherwise than their driver, as labels show."""
    return _read_misnumbered(session) if list_facts(session).numbered else []


def _read_misnumbered(session: Session) -> list[str]:
    return sorted(session.fetch("SELECT node FROM misnumbered")["node"].to_pylist())


def has_numbers(session: Session) -> bool:
    """Whether any allocation says numbers of GPUs."""
    session.view_table("allocations", "allocations")
    return bool(session.raw.execute("SELECT 1 FROM allocations WHERE gpu_indices IS NOT NULL LIMIT 1").fetchall())


def has_stated_payers(session: Session) -> bool:
    """Whether labels tell a payer of a listed job that its list does not."""
    session.view_table("allocations", "allocations")
    stated = recall("stated payers", lambda: ledger_steps().compile_stated())["stated"]
    return bool(session.raw.execute(f"SELECT 1 FROM ({stated}) LIMIT 1").fetchall())


def work_out(
    session: Session,
    shape: str,
    find: Callable[[], Any],
    empty: set[str],
    names: tuple[str, ...] | None = None,
    until: str | None = None,
) -> None:
    """Put steps of the ledger into tables, those of these names, in the shortest form that holds, through `until`.

    `find`: what they depend on, which `shape` says (see `ledger.steps`). `empty`: tables and features without rows, to which steps
    without rows are added. Of most steps one form is ever used: each is compiled when it first is.
    """
    queries = recall(shape, lambda: dict.fromkeys(ledger_steps().list_forms(find(), names), ""))
    forms: dict[str, list[tuple[set[str], str]]] = {}
    for key in queries:
        name, _, without = key.partition(WITHOUT)
        forms.setdefault(name, []).append(({*without.split()}, key))
    is_more = False
    for name in forms:
        key = next(key for without, key in forms[name] if without <= empty)
        if not queries[key]:
            queries[key] = ledger_steps().compile_form(find(), key)
            is_more = True
        if name in _READ_ONCE:  # a table of it would only cost memory
            session.create_view(name, queries[key])
        elif not session.materialize(name, queries[key]):
            empty.add(name)
        if name == until:
            break
    if is_more:
        keep(shape, queries)


def book(
    session: Session,
    spans: tuple[Span, ...],
    cuts: Iterable[int] = (),
    idle_below: float = IDLE_BELOW,
    until: str = "book",
    owned: OwnedPrices | None = None,
    with_bills: bool = True,
    among: str | None = None,
) -> None:
    """Work out the ledger of `spans` (disjoint, in order), a temporary table a step of the plan, up to `until`; the last is a view.

    `cuts` are instants no row may span; `owned` are prices of owned GPUs in place of those that the settings say.
    `with_bills`: whether bills make prices, too.
    `among`: a table of the GPUs (device_id) that alone are read, with allocations that name them; None for all.
    """
    cuts = list(cuts)
    session.put("bounds", {"start_ms": [s for s, _ in spans], "end_ms": [e for _, e in spans]})
    session.put("cuts", {"at_utc": cuts})
    _put_estimates(session, find_owned_prices(session) if owned is None else owned)
    facts = list_facts(session)
    for name in ("outages", "prices", "exchange_rates"):
        session.view_table(name, name)
    view_placed(session, spans, among)
    if billed := with_bills and has_bills(session):
        materialize_billed_prices(session, spans)
    empty = {*facts.empty, *(() if cuts else ("cuts",))}
    shape = (facts.renamed, facts.numbered, facts.filled, facts.tracked, billed, session.currency)
    work_out(session, f"holders {shape}", lambda: ledger_steps().Holders(*shape), empty, until=until)
    if until == "book":
        book_held(session, spans, idle_below)
    session.view_table("allocations", "allocations")


def book_held(
    session: Session,
    spans: tuple[Span, ...],
    idle_below: float,
    read: Literal["all", "held", "none"] = "all",
    signals: int = -1,
    within: Span | None = None,
    by_sample: bool = False,
    idle_alone: bool = False,
) -> None:
    """The same, where the table `holdings` stands: what samples say of it. `signals`: bits of the measurements that are read.

    `read`: all samples, those of the GPUs and hours in `holdings`, or none. `within`: of all in whole hours, only those that touch
    this span, and all of GPUs that are free in `holdings`.
    `by_sample`, `idle_alone`: see `ledger.steps.Activity`.
    """
    files = session.covering("samples", *spans)
    parts = [] if read == "none" else [*session.parts(files), *session.live_samples]
    suspects = find_suspects(parts)
    if parts:
        session.view_table("samples_of_hours", "samples", files, spans)
        if read == "held":
            chosen = _choose_held(session, spans)
        else:
            chosen = _choose_touching(spans) if within is None else _choose_within(session, within)
        if read == "held" and suspects:  # several steps read them, of each what it takes
            unread = ", ".join(f"if(false, {c}, NULL) AS {c}" for c in MEASUREMENTS if not signals & measured_bit(c))
            columns = f"* REPLACE ({unread})" if unread else "*"
            session.materialize("samples_of_held", f"SELECT {columns} FROM ({chosen})")
            chosen = "SELECT * FROM samples_of_held"
        session.create_view("samples", chosen)
    measured = 0
    for part in parts:
        measured |= part.facts.measured
    hours = {hour for start, end in suspects for hour in range(start - start % MS_PER_HOUR, end, MS_PER_HOUR)}
    session.put("suspects", {"hour_utc": sorted(hours)})
    shape = (measured & signals, bool(suspects), idle_below, by_sample, idle_alone)
    session.put_once("links", LINK_COLUMNS, list_link_peaks)
    work_out(
        session,
        f"activity {shape}",
        lambda: ledger_steps().Activity(*shape),
        set() if parts else {"samples"},
    )


def _choose_touching(spans: tuple[Span, ...]) -> str:
    """SQL: the samples of these spans; of an hour that is not booked whole, those that touch the part."""
    if all(start % MS_PER_HOUR == 0 and end - start == MS_PER_HOUR for start, end in spans):
        return "SELECT * FROM samples_of_hours"
    return f"SELECT * FROM samples_of_hours WHERE {' OR '.join(map(_touch, merge([*spans])))}"


def _choose_within(session: Session, span: Span) -> str:
    """SQL: the samples that touch a span, and the others of GPUs that are free in `holdings`.

    Both stand alone, so that files say which of their parts have neither: minute by minute most of an hour's samples have not.
    """
    chosen = f"SELECT * FROM samples_of_hours WHERE {_touch(span)}"
    if free := _list_devices(session, "free"):
        among = ", ".join(map(quote, free)) if len(free) <= MOST_NAMED else "SELECT device_id FROM holdings WHERE free"
        chosen += f" UNION ALL SELECT * FROM samples_of_hours WHERE NOT {_touch(span)} AND device_id IN ({among})"
    return chosen


def _choose_held(session: Session, spans: tuple[Span, ...]) -> str:
    """SQL: those of the GPUs and hours in `holdings`; files say which GPUs a part of them has, so few GPUs are named."""
    gpus = _list_devices(session, "device_id IS NOT NULL")
    touching = _choose_touching(merge([*spans]))
    if len(gpus) <= MOST_NAMED:
        touching = f"FROM ({touching}) WHERE device_id IN ({', '.join(map(quote, gpus)) or 'NULL'})"
    return f"FROM ({touching}) SEMI JOIN holdings USING (device_id, hour_utc)"


def _touch(span: Span) -> str:
    """SQL: whether a sample touches a span."""
    return f"(to_utc > {span[0]} AND from_utc < {span[1]})"


def _list_devices(session: Session, where: str) -> list[str]:
    """The GPUs of `holdings` that a condition in SQL chooses, in order."""
    return sorted(session.fetch_columns(f"SELECT DISTINCT device_id FROM holdings WHERE {where}")["device_id"])


def _put_estimates(session: Session, owned: OwnedPrices) -> None:
    session.put_once("estimates", columns_of("prices"), lambda: [*list_estimates(), *owned.list_prices()], owned)


def view_placed(session: Session, spans: tuple[Span, ...], among: str | None = None) -> None:
    """Name the GPUs, and the allocations of these spans: of a year of jobs, a booking of a few days reads those few.

    `among`: see `book`.
    """
    own = f"device_id IN (SELECT device_id FROM {among})" if among else "true"
    session.view_table("all_devices", "devices")
    session.create_view("devices", f"SELECT * FROM all_devices WHERE {own}")
    session.view_table("all_allocations", "allocations")
    within = "true"
    if spans:
        start, end = spans[0][0] - LINGER_MS, spans[-1][1] + LINGER_MS
        within = f"coalesce(from_utc < {end}, true) AND coalesce(to_utc > {start}, true)"
    session.create_view("allocations", f"SELECT * FROM all_allocations WHERE {within} AND {own}")


def find_suspects(parts: list[SamplePart]) -> tuple[Span, ...]:
    """Times in which samples of one GPU may overlap: of given starts, or of several sources that speak of the same devices."""
    found = [(part.from_ms, part.to_ms) for part in parts if part.facts.overlaps]
    if len({source for part in parts for source in part.facts.sources}) > 1 or any(p.facts.given for p in parts):
        ordered = sorted(parts, key=lambda p: p.facts.first_device)
        for number, part in enumerate(ordered):
            for other in ordered[number + 1 :]:
                if other.facts.first_device > part.facts.last_device:
                    break
                start, end = max(part.from_ms, other.from_ms), min(part.to_ms, other.to_ms)
                if (
                    start < end
                    and not _are_of_one_source(part, other)
                    and (part.facts.given or other.facts.given or part.facts.sources != other.facts.sources)
                ):
                    found.append((start, end))
    return merge(found)


def _are_of_one_source(part: SamplePart, other: SamplePart) -> bool:
    """True where both are settled and hold the same source only: then the later one knows whether it overlaps the earlier one."""
    facts = part.facts, other.facts
    return all(f.settled and len(f.sources) == 1 for f in facts) and facts[0].sources == facts[1].sources
