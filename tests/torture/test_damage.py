"""Every kind of damage to every kind of file: it heals or is said, no number changes in silence, and repair opens the books."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.torture.bench import Bench, ask, check_one_of
from tests.torture.children import Outcome, command, import_last, run
from tests.torture.conftest import ALL_ROUNDS, ROUNDS

from loadfactor.store.manifest import NAME
from loadfactor.tables.schema import TABLES


def flip(content: bytes, rnd: random.Random) -> bytes:
    """One bit is another one."""
    at = rnd.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rnd.randrange(8))]) + content[at + 1 :]


def zero(content: bytes, rnd: random.Random) -> bytes:
    """A stretch of zeros, as a lost sector leaves it."""
    at = rnd.randrange(max(1, len(content) - 512))
    return content[:at] + bytes(len(content[at : at + 512])) + content[at + 512 :]


def truncate(content: bytes, rnd: random.Random) -> bytes:
    """The end is missing."""
    return content[: rnd.randrange(len(content))]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes] | None] = {
    "flip": flip,
    "zero": zero,
    "truncate": truncate,
    "remove": None,
}
FILES = [("manifest", False), ("ledger", False), ("imports", True)]
FILES += [(table.name, is_log) for table in TABLES for is_log in (False, True)]
CASES = [(table, is_log, kind) for table, is_log in FILES for kind in DAMAGE]
if ROUNDS < ALL_ROUNDS:  # of each file one kind, in turn for tables and in turn for their logs
    CASES = [(*file, list(DAMAGE)[(place + place // 2) % len(DAMAGE)]) for place, file in enumerate(FILES)]


def damage(store: Path, table: str, is_log: bool, kind: str, seed: int) -> str:
    """Damage a file of a store; its name."""
    rnd = random.Random(seed)
    name = NAME
    if table != "manifest":
        files = json.loads((store / NAME).read_bytes())["files"]
        name = rnd.choice([f["name"] for f in files if f["table"] == table and f["is_log"] == is_log])
    path, harm = store / name, DAMAGE[kind]
    if harm is None:
        path.unlink()
    else:
        path.write_bytes(harm(path.read_bytes(), rnd))
    return name


def says_damage(outcome: Outcome) -> bool:
    """True where a child ended with 1 and one line that tells what to do."""
    return outcome.code == 1 and len(outcome.said.strip().splitlines()) == 1 and "loadfactor repair" in outcome.said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}{'-log' * case[1]}-{case[2]}")
def test_damage_heals_or_is_said(bench: Bench, case: tuple[str, bool, str], tmp_path: Path) -> None:
    """Questions answer as before or end in one line; doctor says it; an import loses nothing more; repair opens the books again."""
    before, after, _ = bench.states("import")
    store = bench.copy("import", tmp_path / "store")
    name = damage(store, *case, seed=CASES.index(case))
    there = {p.name: p.stat().st_mtime_ns for p in store.iterdir()}

    asked = run(ask, store)
    assert asked.result == before if asked.code == 0 else says_damage(asked), asked.said
    checked = run(command, "doctor", "--store", store)
    assert checked.code == 1, checked.said
    assert "damaged" in checked.said
    assert {p.name: p.stat().st_mtime_ns for p in store.iterdir()} == there

    added = run(import_last, store, bench.parts)
    asked = run(ask, store)
    if asked.code == 0:
        assert asked.result == (after if added.code == 0 else before)
    else:
        assert says_damage(asked), asked.said
    assert added.code == 0 or says_damage(added), added.said

    bench.copy("import", store)
    damage(store, *case, seed=CASES.index(case))
    repaired = run(command, "repair", "--store", store)
    if repaired.code == 0:
        check_one_of(store, before)
        assert run(command, "doctor", "--store", store).code == 0
        return
    assert repaired.code == 1, repaired.said
    assert name in repaired.said.replace("\n", ""), repaired.said
    asked = run(ask, store)
    assert asked.code == 0, asked.said
    checked = run(command, "doctor", "--store", store)
    assert checked.code == (case[0] != "imports"), checked.said  # of those, numbers and rows are found again
    for part in ("inventory", "work", "late"):  # what was lost may be imported again
        added = run(command, "import", "tables", bench.parts / part, "--store", store)
        assert added.code == 0, added.said
    checked = run(command, "doctor", "--store", store)
    assert checked.code == 0, checked.said
