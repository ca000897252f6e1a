"""Kills, power loss and full disks at every durable step of whatever changes a store, and several processes at one.

That is imports, a refresh, compaction, forgetting, retagging, a flush of live batches, repairs, and migrations.
"""

import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.small_disk import mounted_disk
from tests.torture.bench import DAMAGED, Answers, Bench, ask, check_one_of, differences, list_leftovers, share
from tests.torture.children import OPERATIONS, Child, Outcome, command, compact, dying_at, failing_at, import_part, run
from tests.torture.conftest import ROUNDS
from tests.torture.power import Step, Tree, lay_out, record, states_after

from loadfactor.base.errors import StoreError

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


def says_full(outcome: Outcome) -> bool:
    """True where a child ended with one line that says that the disk is full."""
    line = outcome.said.strip()
    return outcome.code == 1 and len(line.splitlines()) == 1 and line.startswith("StoreError writing to ")


def test_a_disk_that_is_full_from_a_step_on(bench: Bench, round_: int, tmp_path: Path) -> None:
    """One line, the books as before; with room again the operation works and nothing is left of the first attempt."""
    for operation, step in share(round_, bench.steps()):
        before, after, steps = bench.states(operation)
        threshold = bench.idle_below(operation)
        if steps[step - 1].split()[0] in ("remove", "sync_folder"):
            continue  # they need no room
        store = bench.copy(operation, tmp_path / "store")
        failed = run(failing_at, step, operation, store, bench.parts)
        # True where a child ended with one line that says that all was done, and only the audit log has no room for it.
        line = failed.said.strip()
        told = line.startswith("StoreError ") and "/audit.log cannot be written" in line and "was done" in line
        if failed.code == 1 and len(line.splitlines()) == 1 and told:
            check_one_of(store, after, idle_below=threshold)
            continue
        assert says_full(failed), (operation, step, failed)
        check_one_of(store, before, idle_below=threshold)
        again = run(OPERATIONS[operation], store, bench.parts)
        assert again.code == 0, again.said
        check_one_of(store, after, idle_below=threshold)
        assert not list_leftovers(store)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk in memory; a test that needs it skips where none may be mounted."""
    with mounted_disk(tmp_path / "disk", 64) as folder:
        yield folder


def test_a_disk_a_little_too_small(bench: Bench, round_: int, disk: Path) -> None:
    """Wherever an operation runs out of room: one line, the books as before; or it had enough, and they are as after."""
    operation = sorted(OPERATIONS)[round_ % len(OPERATIONS)]
    before, after, _ = bench.states(operation)
    threshold = bench.idle_below(operation)
    store = bench.copy(operation, disk / "store")
    used = sum(p.stat().st_size + 4095 & ~4095 for p in store.iterdir()) if store.exists() else 0
    size = used + 8192 + 200_000 * round_ // ROUNDS
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
    tried = run(OPERATIONS[operation], store, bench.parts)
    if tried.code:
        assert says_full(tried), tried.said
    if not operation.startswith("format"):  # books of an earlier format are brought to today's before they are asked
        check_one_of(store, before if tried.code else after, idle_below=threshold)
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    again = run(OPERATIONS[operation if tried.code else "compact"], store, bench.parts)
    assert again.code == 0, again.said
    check_one_of(store, after, idle_below=threshold)
    assert not list_leftovers(store)


PARTS = ("late", "last")


def import_with_retry(store: Path, part: Path) -> None:
    """Import, and again while another process writes."""
    while True:
        try:
            return import_part(store, part)
        except StoreError as error:
            if "another import is writing" not in str(error):
                raise
            time.sleep(0.02)


def compact_until(store: Path, flag: Path) -> int:
    """Compact again and again; how often it could."""
    times = 0
    while not flag.exists():
        try:
            compact(store, store)
            times += 1
        except StoreError as error:
            if "another import is writing" not in str(error):
                raise
        time.sleep(0.05)
    return times


def read_until(store: Path, flag: Path) -> list[Answers]:
    """Ask again and again; every answer that differs from the one before."""
    seen: list[Answers] = []
    while not flag.exists() or not seen:
        found = ask(store)
        if not seen or seen[-1] != found:
            seen.append(found)
    return seen


@pytest.mark.parametrize("seed", range(max(1, ROUNDS // 10)))
def test_importers_retry_and_readers_see_whole_states(bench: Bench, seed: int, tmp_path: Path) -> None:
    """Two importers and a compaction at once, two readers meanwhile: each answer is a whole state, the last one has it all."""
    states = [bench.states("first")[1]]
    ends = []
    for number, order in enumerate(itertools.permutations(PARTS)):
        made = tmp_path / f"made{number}"
        import_part_in_child(made, bench.parts / "work")
        for part in order:
            import_part_in_child(made, bench.parts / part)
            states.append(run(ask, made).result)
        ends.append(states[-1])
    store, flag = tmp_path / "store", tmp_path / "stop"
    import_part_in_child(store, bench.parts / "work")
    readers = [Child(read_until, store, flag) for _ in range(2)]
    compaction = Child(compact_until, store, flag)
    importers = [Child(import_with_retry, store, bench.parts / part) for part in random.Random(seed).sample(PARTS, 2)]
    for importer in importers:
        done = importer.end()
        assert done.code == 0, done.said
    flag.touch()
    for reader in readers:
        done = reader.end()
        assert done.code == 0, done.said
        strange = [answer for answer in done.result if answer not in states]
        if strange:
            pytest.fail("; or ".join("; ".join(differences(strange[0], state)) for state in states))
    done = compaction.end()
    assert done.code == 0, done.said
    check_one_of(store, *ends)
    import_part_in_child(store, bench.parts / "inventory")
    assert not list_leftovers(store)


def import_part_in_child(store: Path, part: Path) -> None:
    done = run(import_part, store, part)
    assert done.code == 0, done.said


DRAWS = 3
"""States that are drawn for each step."""
Recording = tuple[list[Step], Tree]


@pytest.fixture(scope="session")
def recordings(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Every operation with its durable steps."""
    found = {}
    for operation in OPERATIONS:
        store = bench.copy(operation, tmp_path_factory.mktemp("recorded") / "store")
        done = run(record, operation, store, bench.parts)
        assert done.code == 0, done.said
        found[operation] = done.result
    return found


def test_power_is_lost_at_a_step(bench: Bench, recordings: dict[str, Recording], round_: int, tmp_path: Path) -> None:
    """Whatever of it reached the disk: as before or as after; once the operation has returned, as after."""
    moments = [(name, at) for name, (steps, _) in recordings.items() for at in range(len(steps) + 1)]
    rnd = random.Random(round_)
    for operation, at in share(round_, moments):
        before, after, _ = bench.states(operation)
        steps, end = recordings[operation]
        for _ in range(DRAWS):
            shutil.rmtree(tmp_path / "disk", ignore_errors=True)
            lay_out(states_after(steps, end, at, rnd), tmp_path / "disk")
            allowed = (after,) if at == len(steps) else (before, after)
            check_one_of(tmp_path / "disk" / "store", *allowed, idle_below=bench.idle_below(operation))
        check_aftermath(bench, operation, tmp_path / "disk" / "store")


def test_what_returned_outlasts_a_power_loss(bench: Bench, recordings: dict[str, Recording], tmp_path: Path) -> None:
    """When an operation has returned, nothing of it is lost, whatever was not synced."""
    for operation, (steps, end) in recordings.items():
        for draw in range(20):
            folder = tmp_path / f"{operation}{draw}"
            lay_out(states_after(steps, end, len(steps), random.Random(draw)), folder)
            check_one_of(folder / "store", bench.states(operation)[1], idle_below=bench.idle_below(operation))


def test_the_model_loses_what_was_not_synced() -> None:
    """A file that was named without being synced, or synced without its folder, is lost in some of the states."""
    tree: Tree = {"store": (1, None), "store/old": (2, b"old")}
    beside: Tree = {**tree, "store/new": (3, b"new bytes")}
    swapped: Tree = {"store": (1, None), "store/old": (3, b"new bytes")}
    rename = Step("rename", ("store/new", "store/old"), beside)

    def outcomes(steps: list[Step]) -> set[bytes | None]:
        return {states_after(steps, swapped, len(steps), random.Random(k)).get("store/old") for k in range(200)}

    begin = Step("sync_folder", ("store",), tree)
    sync = Step("sync_file", ("store/new",), beside)
    end = Step("sync_folder", ("store",), swapped)
    assert outcomes([begin, rename, end]) == {b"", b"new ", bytes(9), b"new bytes"}
    assert outcomes([begin, sync, rename]) == {b"old", b"new bytes"}
    assert outcomes([begin, sync, rename, end]) == {b"new bytes"}
