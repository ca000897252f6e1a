"""Backups and restores that are killed: what is there is whole, what was there stays, and the next one works."""

import random
from datetime import UTC, datetime
from pathlib import Path

from tests.torture.bench import Bench, ask_in_child, differences
from tests.torture.children import OPERATIONS, Child, Outcome, at_each_step, die_at, run

from loadfactor.store.backup import find_damage
from loadfactor.store.folder import Folder
from loadfactor.store.scheduled_backups import back_up_when_due, restore

# At most a day from the newest row of the fleet: else the clock is not trusted, and no backup is removed.
FIRST, SECOND = datetime(2026, 5, 2, 12, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)


def back_up(store: Path, copies: Path, at: datetime, last: int = 0) -> int:
    """Back up as it is due, and die at a durable step; how many there were."""
    steps = count_and_die(last)
    back_up_when_due(Folder(store), copies, "daily", 1, at)
    return len(steps)


def bring_back(copies: Path, target: Path, last: int = 0) -> int:
    """Restore the newest, and die at a durable step; how many there were."""
    steps = count_and_die(last)
    restore(copies, target)
    return len(steps)


def count_and_die(last: int) -> list[str]:
    steps: list[str] = []

    def hook(number: int, name: str, arguments: tuple[object, ...]) -> None:
        steps.append(name)
        if number == last:
            die_at(name, arguments)

    at_each_step(hook)
    return steps


def check_backups(copies: Path) -> None:
    """Each that has a name is whole."""
    for folder in copies.glob("2026-*Z"):
        assert find_damage(folder, Folder(folder).read_newest()) == []


def test_a_kill_of_a_backup_and_of_a_restore(bench: Bench, round_: int, tmp_path: Path) -> None:
    """While another process writes: at a durable step or at any moment. Restored books are those of a moment, live rows too."""
    rnd = random.Random(round_)
    store, copies, target = bench.copy("flush", tmp_path / "store"), tmp_path / "copies", tmp_path / "again"
    before = ask_in_child(store)
    steps = done(run(back_up, store, copies, FIRST)).result
    states = [before, bench.states("flush")[1]]

    def kill(task: object, *arguments: object) -> None:
        if rnd.random() < 0.7:
            died = run(task, *arguments, rnd.randint(1, steps))  # type: ignore[arg-type]
            assert died.code == 0 or died.was_killed, died
        else:
            child = Child(task, *arguments)  # type: ignore[arg-type]
            child.kill(rnd.uniform(0, 0.5))
            child.end()
        check_backups(copies)

    flush = Child(OPERATIONS["flush"], store, bench.parts)
    kill(back_up, store, copies, SECOND)
    assert list(copies.glob("2026-*Z"))
    done(run(back_up, store, copies, SECOND))
    done(flush.end())
    assert [path.name for path in copies.glob("2026-*")] == ["2026-05-03T000000Z"]
    kill(bring_back, copies, target)
    if not target.exists():
        done(run(bring_back, copies, target))
    found = ask_in_child(target)
    assert found in states, [differences(found, state) for state in states]
    assert {path.name for path in tmp_path.iterdir()} == {"store", "copies", "again"}


def done(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.said
    return outcome
