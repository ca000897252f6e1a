"""Everything that books say: two states of a store are the same when this is."""

import json
from pathlib import Path
from typing import Any, Final

from tests.torture.children import run

from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger
from loadfactor.store.import_records import list_imports
from loadfactor.store.manifest import NAME, has_books
from loadfactor.tables.schema import IDLE_BELOW, TABLES

Answers = dict[str, list[Any]] | None
"""None: there are no books, or nothing in them."""
DAMAGED: Final[Answers] = {"damage": ["it is said in one line, with what to do"]}
"""The answer of books that have to be repaired first."""

LIVE: Final = ("live.sqlite", "live.lock")
"""What a log of live batches that nobody has open leaves."""


def ask(store: Path, idle_below: float | None = None) -> Answers:
    """The ledger and every table row by row, from which every metric is made, and the list of imports.

    Raises what a reader would see.
    """
    if not has_books(store):
        return None
    threshold = IDLE_BELOW if idle_below is None else idle_below
    with Books.open(store, idle_below=threshold).store.read() as session:
        if not session.manifest.files:
            return None
        open_ledger(session, threshold)
        tables = [table.name for table in TABLES]
        for table in tables:
            session.view_table(table, table)
        found = {table: _rows(session, table) for table in ("ledger", *tables)}
        found["imports"] = [(i.number, i.source, sorted(i.rows.items())) for i in list_imports(session)]
    return found


def differences(one: Answers, other: Answers) -> list[str]:
    """In what two states differ, for messages."""
    if one is None or other is None:
        return [f"{'no ' if one is None else ''}books, not {'none' if other is None else 'those expected'}"]
    if set(one) != set(other):
        return [f"{sorted(one)}, not {sorted(other)}"]
    return [
        f"{name}: {len(one[name])} and {len(other[name])} rows, e. g. "
        f"{[r for r in one[name] if r not in other[name]][:1]} {[r for r in other[name] if r not in one[name]][:1]}"
        for name in one
        if one[name] != other[name]
    ]


def ask_in_child(store: Path, idle_below: float | None = None) -> Answers:
    """What a process says that asks."""
    asked = run(ask, store, idle_below)
    if asked.code == 1 and len(asked.said.splitlines()) == 1 and "loadfactor repair" in asked.said:
        return DAMAGED
    assert asked.code == 0, asked.said
    found: Answers = asked.result
    return found


def check_one_of(store: Path, *states: Answers, idle_below: float | None = None) -> int:
    """Ask, and fail unless the books are in one of these states; its place among them."""
    found = ask_in_child(store, idle_below)
    for place, state in enumerate(states):
        if found == state:
            return place
    raise AssertionError("; or ".join("; ".join(differences(found, state)) for state in states))


def list_leftovers(store: Path) -> set[str]:
    """The names in a store that are neither its manifest, its locks, its audit log, in quarantine, nor named by the manifest."""
    named = {file["name"] for file in json.loads((store / NAME).read_bytes())["files"]}
    kept = {NAME, "lock", "quarantine", "audit.log", *LIVE}
    return {p.name for p in store.iterdir()} - named - kept


def _rows(session: Any, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in session.fetch(f"SELECT * FROM {table}").to_pylist()), key=repr)
