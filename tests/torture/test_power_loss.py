"""Power lost at every durable step: what was not synced is gone or out of order, and the books are as before or as after."""

import random
import shutil
from pathlib import Path

import pytest
from tests.torture.answers import check_one_of
from tests.torture.bench import Bench, share
from tests.torture.children import OPERATIONS, run
from tests.torture.power import Step, Tree, lay_out, record, states_after
from tests.torture.test_kills import check_aftermath

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
