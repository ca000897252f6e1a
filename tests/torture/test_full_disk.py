"""A disk that is full from any step on, and disks a little too small: one line, and the books are as before."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.small_disk import mounted_disk
from tests.torture.answers import check_one_of, list_leftovers
from tests.torture.bench import Bench, share
from tests.torture.children import OPERATIONS, Outcome, failing_at, run
from tests.torture.conftest import ROUNDS


def says_full(outcome: Outcome) -> bool:
    """True where a child ended with one line that says that the disk is full."""
    line = outcome.said.strip()
    return outcome.code == 1 and len(line.splitlines()) == 1 and line.startswith("StoreError writing to ")


def says_unlogged(outcome: Outcome) -> bool:
    """True where a child ended with one line that says that all was done, and only the audit log has no room for it."""
    line = outcome.said.strip()
    told = line.startswith("StoreError ") and "/audit.log cannot be written" in line and "was done" in line
    return outcome.code == 1 and len(line.splitlines()) == 1 and told


def test_a_disk_that_is_full_from_a_step_on(bench: Bench, round_: int, tmp_path: Path) -> None:
    """One line, the books as before; with room again the operation works and nothing is left of the first attempt."""
    for operation, step in share(round_, bench.steps()):
        before, after, steps = bench.states(operation)
        threshold = bench.idle_below(operation)
        if steps[step - 1].split()[0] in ("remove", "sync_folder"):
            continue  # they need no room
        store = bench.copy(operation, tmp_path / "store")
        failed = run(failing_at, step, operation, store, bench.parts)
        if says_unlogged(failed):
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
