"""Several processes at one store: importers that retry, and readers who always see one of the whole states."""

import itertools
import random
import time
from pathlib import Path

import pytest
from tests.torture.answers import Answers, ask, check_one_of, differences, list_leftovers
from tests.torture.bench import Bench
from tests.torture.children import Child, compact, import_part, run
from tests.torture.conftest import ROUNDS

from loadfactor.base.errors import StoreError

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
    """Import a part, which has to work."""
    done = run(import_part, store, part)
    assert done.code == 0, done.said
