"""kill -9 at every durable step of whatever changes a store, and at random moments.

That is imports, a refresh, compaction, forgetting, retagging, a flush of live batches, repairs, and migrations.
"""

import random
from pathlib import Path

from tests.torture.answers import DAMAGED, check_one_of, list_leftovers
from tests.torture.bench import Bench, share
from tests.torture.children import OPERATIONS, Child, command, dying_at, run

MIGRATIONS = ("format-1", "format-2")


def check_aftermath(bench: Bench, operation: str, store: Path) -> None:
    """As before or as after; doctor is content and changes nothing; then the operation works and leaves nothing of a dead one."""
    before, after, _ = bench.states(operation)
    threshold = bench.idle_below(operation)
    if operation in MIGRATIONS:  # who opens the store completes it
        check_one_of(store, after)
    there = sorted(p.name for p in store.iterdir()) if store.exists() else []
    reached = (before, after)[check_one_of(store, before, after, idle_below=threshold)]
    checked = run(command, "doctor", "--store", store)
    assert checked.code == (2 if reached is None else int(reached == DAMAGED)), checked.said
    assert (sorted(p.name for p in store.iterdir()) if store.exists() else []) == there
    again = run(OPERATIONS["compact" if operation in MIGRATIONS else operation], store, bench.parts)
    if operation == "forget" and reached == after:
        assert again.code == 1, again.said
        assert "no import 3" in again.said
        again = run(OPERATIONS["compact"], store, bench.parts)
    assert again.code == 0, again.said
    check_one_of(store, after, idle_below=threshold)
    assert not list_leftovers(store)


def test_a_kill_at_a_durable_step(bench: Bench, round_: int, tmp_path: Path) -> None:
    """Whichever step the process dies at, the books are as before or as after, and the next import works and cleans up."""
    for operation, step in share(round_, bench.steps()):
        store = bench.copy(operation, tmp_path / "store")
        died = run(dying_at, step, operation, store, bench.parts)
        assert died.was_killed, (operation, step, died)
        check_aftermath(bench, operation, store)


def test_a_kill_at_a_random_moment(bench: Bench, round_: int, tmp_path: Path) -> None:
    """Whenever the process dies, the books are as before or as after, and the next import works and cleans up."""
    rnd = random.Random(round_)
    operation = rnd.choice(sorted(OPERATIONS))
    store = bench.copy(operation, tmp_path / "store")
    child = Child(OPERATIONS[operation], store, bench.parts)
    child.kill(rnd.uniform(0, 1.5))
    child.end()
    check_aftermath(bench, operation, store)
