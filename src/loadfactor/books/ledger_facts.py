"""What follows from all rows of the small tables, whichever hours are booked; and whether they ask for more steps than usual.

Where it changes, booked hours must be booked again: `digest_facts` says what the manifest keeps of it.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from loadfactor.books.charging.booked_bills import describe_bills
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.ledger_inputs import LedgerInputs, OwnedPrices
from loadfactor.store.session import Session

_FACTS: Final = ("node_names", "sources", "unlisted")
_OF_NUMBERS: Final = ("node_names", "numbers", "misnumbered")
"""Steps of the ledger that follow from all rows of the small tables; the latter where allocations say numbers of GPUs."""
FACT_STEPS: Final = frozenset((*_FACTS, *_OF_NUMBERS))


@dataclass(frozen=True)
class LedgerFacts:
    """What asks for more steps than usual (see `compile_steps`), and how many GPUs are listed or estimated, whenever they were."""

    numbered: bool
    told: bool
    gpus: int


def list_facts(session: Session) -> LedgerFacts:
    """Put what follows from all rows of the small tables into tables, `FACT_STEPS`: whichever hours are booked then, they stand."""
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    for name, sql in recall("facts", lambda: _compile_facts(_FACTS)).items():
        session.materialize(name, sql)
    numbered = has_numbers(session)
    if numbered:
        list_misnumbered(session)
    listed = "(SELECT count(DISTINCT device_id) FROM devices)"
    (gpus,) = session.fetch_one(f"SELECT {listed} + (SELECT coalesce(sum(most), 0) FROM unlisted)")
    return LedgerFacts(numbered, has_told_payers(session), int(gpus))


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
    if not has_numbers(session):
        return []
    for name in ("devices", "outages"):
        session.view_table(name, name)
    for name, sql in recall("facts of numbers", lambda: _compile_facts(_OF_NUMBERS)).items():
        session.materialize(name, sql)
    return _read_misnumbered(session)


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


def _compile_facts(names: tuple[str, ...]) -> Queries:
    """The SQL of steps that follow from all rows of the small tables, in order."""
    from loadfactor.ledger.steps import compile_facts  # Ibis takes longer to import than most answers

    return compile_facts(names)


def _compile_told() -> Queries:
    """The SQL of what labels tell of payers."""
    from loadfactor.ledger.steps import compile_told

    return {"told": compile_told()}
