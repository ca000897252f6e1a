"""The store that is tortured, what it says before and after each operation, and the cases of a round."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.torture.answers import Answers, ask_in_child
from tests.torture.children import OPERATIONS, acknowledge, close_month, counted, flush, import_part, run
from tests.torture.conftest import ALL_ROUNDS, ROUNDS
from tests.torture.fleet import PARTS, write_parts

from loadfactor.store.manifest import NAME

Case = TypeVar("Case")
BEFORE_EACH = {
    "first": 0,
    "import": 3,
    "forget": 4,
    "compact": 4,
    "refresh": 4,
    "flush": 4,
    "retag": 4,
    "repair": 4,
    "rebuild": "live",
    **{name: name for name in ("format-1", "format-2")},
}
"""How many parts of the fleet are in the store when an operation begins; or which store it is."""
EARLIER = Path(__file__).parents[1] / "store" / "earlier_formats"
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
                self._do(import_part, folder / f"store{count}", self.parts / part)
            if count == BEFORE_EACH["import"]:
                self._do(close_month, folder / f"store{count}")
        for name in ("format-1", "format-2"):
            shutil.copytree(EARLIER / name, folder / f"store{name}")
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
            store = self.copy(operation, store)  # to ask a store of an earlier version migrates it
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
