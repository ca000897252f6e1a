"""What follows from all rows of the small tables, whichever hours are booked; and whether they ask for more steps than usual.

Where it changes, booked hours must be booked again: `digest_facts` says what the manifest keeps of it.
"""

import hashlib
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from loadfactor.books.charging.booked_bills import describe_bills
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.ledger_inputs import LedgerInputs, OwnedPrices
from loadfactor.ledger.columns import NUMBERED, WITHOUT
from loadfactor.store.session import Session
from loadfactor.tables.schema import LABELS

_FACTS: Final = ("node_names", "sources", "unlisted")
_OF_NUMBERS: Final = ("numbers", "misnumbered")
"""Steps of the ledger that follow from all rows of the small tables; the latter where allocations say numbers of GPUs."""
FACT_STEPS: Final = frozenset((*_FACTS, *_OF_NUMBERS))
_INPUTS: Final = ("allocations", "devices", "outages", "prices", "exchange_rates")
_HAS_DOMAIN: Final = "count(*) FILTER (contains(node, '.'))"


@dataclass(frozen=True)
class LedgerFacts:
    """What the steps of who held what depend on (see `ledger.steps.Holders`), and how many GPUs are listed or estimated.

    `empty`: tables, fact steps and features (see `ledger.steps.FEATURES`) that have no rows, whenever they would be.
    """

    renamed: bool
    numbered: bool
    filled: bool
    gpus: int
    empty: frozenset[str]


def list_facts(session: Session) -> LedgerFacts:
    """Put what follows from all rows of the small tables into tables, `FACT_STEPS`: whichever hours are booked then, they stand."""
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    key = tuple(session.manifest.of(name) for name in ("allocations", "devices", "outages"))
    if (known := session.derived.get("facts")) and known[0] == key:
        return known[1]
    facts = _find_facts(session)
    session.derived["facts"] = key, facts
    return facts


def _find_facts(session: Session) -> LedgerFacts:
    rows, numbers, labels, unnamed, domains = session.fetch_one(
        "SELECT count(*), count(gpu_indices), count(*) FILTER (known_from = ?), count(*) FILTER (device_id IS NULL),"
        f" {_HAS_DOMAIN} FROM allocations",
        [LABELS],
    )
    devices, of_devices, by_number = session.fetch_one(
        f"SELECT count(DISTINCT device_id), {_HAS_DOMAIN}, count(*) FILTER (starts_with(device_id, node || ?)) FROM devices",
        [NUMBERED],
    )
    (of_outages,) = session.fetch_one(f"SELECT {_HAS_DOMAIN} FROM outages")
    known = {
        "allocations": rows,
        "labels": labels,
        "unnamed": unnamed,
        "domains": domains + of_devices + of_outages,
        "numbered_devices": by_number,
    }
    empty = {name for name, count in known.items() if not count}
    empty |= {name for name in _INPUTS if not session.has_rows(name)}
    work_out(session, _recall_facts(_FACTS[:1], renamed=True), empty)
    renamed = "node_names" not in empty
    work_out(session, _recall_facts((*_FACTS[1:], *(_OF_NUMBERS if numbers else ())), renamed), empty)
    estimated = 0
    if "unlisted" not in empty:
        (estimated,) = session.fetch_one("SELECT sum(most) FROM unlisted")
    filled = bool(labels) and has_told_payers(session)
    return LedgerFacts(renamed, bool(numbers), filled, devices + int(estimated), frozenset(empty))


def digest_facts(session: Session, facts: LedgerFacts, owned: OwnedPrices) -> LedgerInputs:
    """What hours booked at these prices of owned GPUs stand on, from the tables of `list_facts`."""
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


def has_told_payers(session: Session) -> bool:
    """Whether labels tell a payer of a listed job that its list does not."""
    session.view_table("allocations", "allocations")
    told = recall("told payers", _compile_told)["told"]
    return bool(session.raw.execute(f"SELECT 1 FROM ({told}) LIMIT 1").fetchall())


def work_out(
    session: Session, queries: Queries, empty: set[str], until: str | None = None, known: Container[str] = ()
) -> None:
    """Put steps of the ledger into tables, in the shortest form that holds, through `until`; `known` are made already.

    `empty`: tables and features without rows, to which steps without rows are added.
    """
    forms: dict[str, list[tuple[set[str], str]]] = {}
    for key, sql in queries.items():
        name, _, without = key.partition(WITHOUT)
        forms.setdefault(name, []).append(({*without.split()}, sql))
    for name in forms:
        sql = next(sql for without, sql in forms[name] if without <= empty)
        if name == "book":  # read once, when it is written or asked: a table of it would only cost memory
            session.create_view(name, sql)
        elif name not in known and not session.materialize(name, sql):
            empty.add(name)
        if name == until:
            break


def _recall_facts(names: tuple[str, ...], renamed: bool) -> Queries:
    return recall(f"facts {names} {renamed}", lambda: _compile_facts(names, renamed))


def _compile_facts(names: tuple[str, ...], renamed: bool) -> Queries:
    """The SQL of steps that follow from all rows of the small tables, in order."""
    from loadfactor.ledger.steps import Holders, compile_steps  # Ibis takes longer to import than most answers

    return compile_steps(Holders(renamed, numbered=True), names)


def _compile_told() -> Queries:
    """The SQL of what labels tell of payers."""
    from loadfactor.ledger.steps import compile_told

    return {"told": compile_told()}
