"""The store that is tortured, everything that it says before and after each operation, and the cases of a round."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.torture.children import OPERATIONS, acknowledge, close_month, counted, flush, import_part, run
from tests.torture.conftest import ALL_ROUNDS, ROUNDS
from tests.torture.fleet import PARTS, write_parts

from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger
from loadfactor.store.folder import has_books, name_numbered
from loadfactor.store.import_records import list_imports
from loadfactor.store.manifest import NAME
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
    """The names in a store that the manifest does not name, besides itself, its copy, locks, the audit log and the quarantine."""
    manifest = json.loads((store / NAME).read_bytes())
    named = {file["name"] for file in manifest["files"]}
    kept = {NAME, name_numbered(manifest["generation"]), "lock", "quarantine", "audit.log", *LIVE}
    return {p.name for p in store.iterdir()} - named - kept


def _rows(session: Any, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in session.fetch(f"SELECT * FROM {table}").to_pylist()), key=repr)


Case = TypeVar("Case")
BEFORE_EACH = {
    "first": 0,
    "import": 3,
    "forget": 4,
    "compact": 4,
    "refresh": 4,
    "flush": 4,
    "retag": 4,
    "retain": 4,
    "repair": 4,
    "rebuild": "live",
    "older": 4,
}
"""How many parts of the fleet are in the store when an operation begins; or which store it is."""
OLDER = "older.json"
"""The manifest of before the last import, which is put back before a repair."""
LOST = "outages"
"""The table whose only file is damaged before a repair: its logs bring it back."""


class Bench:
    """A store for each operation, as it is before, to be copied; what it says before and after; and its durable steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        write_parts(self.parts)
        self._made: dict[str, tuple[Answers, Answers, list[str]]] = {}
        for count in sorted({count for count in BEFORE_EACH.values() if isinstance(count, int)}):
            for part in list(PARTS)[:count]:
                if part == list(PARTS)[3]:
                    shutil.copy(folder / f"store{count}" / NAME, folder / OLDER)
                self._do(import_part, folder / f"store{count}", self.parts / part)
            if count == BEFORE_EACH["import"]:
                self._do(close_month, folder / f"store{count}")
        live = shutil.copytree(folder / "store4", folder / "storelive")
        self._do(acknowledge, live, self.parts)
        self._do(flush, live, self.parts)  # what is in files now stays in the log as well
        self._do(acknowledge, folder / "store4", self.parts)

    def _do(self, act: Callable[..., object], *arguments: Path) -> None:
        done = run(act, *arguments)
        assert done.code == 0, done.said

    def copy(self, operation: str, to: Path) -> Path:
        """The store as it is before the operation."""
        shutil.rmtree(to, ignore_errors=True)
        if BEFORE_EACH[operation]:
            shutil.copytree(self.folder / f"store{BEFORE_EACH[operation]}", to)
        if operation == "rebuild":
            (to / NAME).unlink()
        if operation == "older":
            (to / NAME).write_bytes((self.folder / OLDER).read_bytes())
        if operation == "repair":
            files = json.loads((to / NAME).read_bytes())["files"]
            (name,) = (f["name"] for f in files if f["table"] == LOST and not f["is_log"])
            (to / name).write_bytes(b"damaged")
        return to

    def idle_below(self, operation: str) -> float | None:
        """The threshold that the operation books with."""
        return 0.2 if operation == "refresh" else None

    def states(self, operation: str) -> tuple[Answers, Answers, list[str]]:
        """What the store says before and after the operation, and the names of its durable steps."""
        if operation not in self._made:
            store = self.copy(operation, self.folder / "once")
            before = ask_in_child(store, self.idle_below(operation))
            done = run(counted, operation, store, self.parts)
            assert done.code == 0, done.said
            self._made[operation] = before, ask_in_child(store, self.idle_below(operation)), done.result
        return self._made[operation]

    def steps(self) -> list[tuple[str, int]]:
        """Every durable step of every operation, numbered from 1."""
        return [(name, number + 1) for name in OPERATIONS for number in range(len(self.states(name)[2]))]


def share(round_: int, cases: Sequence[Case]) -> Sequence[Case]:
    """The cases of a round: together all of them in `make torture`, one a round from the first to the last in CI."""
    return cases[round_::ROUNDS] if ROUNDS >= ALL_ROUNDS else cases[round_ * len(cases) // ROUNDS :][:1]
