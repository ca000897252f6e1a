"""Kills, power loss and full disks at every durable step of whatever changes a store, and several processes at one.

That is imports, a refresh, compaction, forgetting, retagging, a flush of live batches, and repairs, also after an older
manifest was put back.

The model of a power loss promises no more than POSIX does: bytes of a file are certain once it is synced, names in a folder once
that is. Before that, each new, renamed or removed name may be there or not, whatever happened to the others, and the bytes of a
file missing, zeros or only begun. A rename happens whole or not at all.
"""

import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.small_disk import mounted_disk
from tests.torture.bench import DAMAGED, Answers, Bench, ask, check_one_of, differences, list_leftovers, share
from tests.torture.children import (
    OPERATIONS,
    Child,
    Outcome,
    at_each_step,
    command,
    compact,
    dying_at,
    failing_at,
    import_part,
    run,
)
from tests.torture.conftest import ROUNDS

from loadfactor.base.errors import StoreError

Tree = dict[str, tuple[int, bytes | None]]
"""Names under the folder → inode and bytes (None: a folder)."""


@dataclass(frozen=True)
class Step:
    """A durable step: what it is called, the names it is about, and everything that was there just before it."""

    name: str
    paths: tuple[str, ...]
    before: Tree


def look(folder: Path) -> Tree:
    """Everything in a folder now."""
    return {
        str(p.relative_to(folder)): (p.lstat().st_ino, None if p.is_dir() else p.read_bytes())
        for p in sorted(folder.rglob("*"))
    }


def record(operation: str, store: Path, parts: Path) -> tuple[list[Step], Tree]:
    """Do an operation; its durable steps and what was there at the end."""
    folder = store.parent
    steps = [Step("begin", (), look(folder))]

    def hook(_number: int, name: str, arguments: tuple[Any, ...]) -> None:
        paths = tuple(str(a.relative_to(folder)) for a in arguments if isinstance(a, Path))
        steps.append(Step(name, paths, look(folder)))

    at_each_step(hook)
    OPERATIONS[operation](store, parts)
    return steps, look(folder)


@dataclass(frozen=True)
class Naming:
    """A change of names that is not certain yet: `path` names `file` from now on (None: nothing), and `old` nothing."""

    path: str
    file: int | None
    old: str | None = None


@dataclass
class Disk:
    """What is certain, and what has happened since. Files are numbered as they appear."""

    names: dict[str, int] = field(default_factory=dict)
    content: dict[int, bytes | None] = field(default_factory=dict)
    pending: list[Naming] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)
    written: dict[int, bytes | None] = field(default_factory=dict)
    _inodes: dict[int, int] = field(default_factory=dict)  # of `now`: file → inode

    def see(self, tree: Tree) -> None:
        """Take in what is there, with changes that no durable step announced."""
        files = {inode: file for file, inode in self._inodes.items()}
        for path in [p for p in self.now if p not in tree or tree[p][0] != self._inodes[self.now[p]]]:
            del self.now[path]
            self.pending.append(Naming(path, None))
        for path, (inode, content) in tree.items():
            if path not in self.now:
                file = files.get(inode, len(self.written))
                if self.written.get(file) != content:  # the number of a file that is gone was given to another one
                    file = len(self.written)
                self.pending.append(Naming(path, file))
                self.now[path] = file
                self._inodes[file] = inode
            self.written[self.now[path]] = content
        self._inodes = {file: self._inodes[file] for file in self.now.values()}

    def settle(self) -> None:
        """Make all of it certain."""
        self.names, self.content, self.pending = dict(self.now), dict(self.written), []

    def take(self, step: Step) -> None:
        """What a durable step does."""
        if not step.paths:
            return
        first = step.paths[0]
        if step.name == "sync_file":
            self.content[self.now[first]] = self.written[self.now[first]]
        elif step.name == "sync_folder":
            certain = [n for n in self.pending if first in _folders(n)]
            self.pending = [n for n in self.pending if first not in _folders(n)]
            for naming in certain:
                _rename(self.names, naming)
        elif step.name in ("rename", "link", "remove") and first in self.now:
            path, file = (first, None) if step.name == "remove" else (step.paths[1], self.now[first])
            naming = Naming(path, file, first if step.name == "rename" else None)
            self.pending.append(naming)
            _rename(self.now, naming)

    def lose_power(self, rnd: random.Random) -> dict[str, bytes | None]:
        """One of the states that the disk may be in afterwards: names → bytes."""
        names = dict(self.names)
        kind = rnd.choice(("nothing", "all", "first", "some", "some"))
        chosen = {
            "nothing": [],
            "all": self.pending,
            "first": self.pending[: rnd.randint(0, len(self.pending))],
            "some": [n for n in self.pending if rnd.random() < 0.5],
        }[kind]
        for naming in chosen:
            _rename(names, naming)
        return {
            path: self._bytes(file, rnd)
            for path, file in sorted(names.items())
            if all(str(p) in names for p in Path(path).parents[:-1])
        }

    def _bytes(self, file: int, rnd: random.Random) -> bytes | None:
        certain, written = self.content.get(file, b""), self.written[file]
        if written is None or certain == written:
            return written
        return rnd.choice((certain or b"", written, written[: len(written) // 2], bytes(len(written))))


def states_after(steps: list[Step], end: Tree, lost_at: int, rnd: random.Random) -> dict[str, bytes | None]:
    """What may be there when the power went just before a step (from 0), or, behind the last one, after the operation returned."""
    disk = Disk()
    disk.see((*[s.before for s in steps], end)[0])
    disk.settle()
    for step in steps[:lost_at]:
        disk.see(step.before)
        disk.take(step)
    disk.see(steps[lost_at].before if lost_at < len(steps) else end)
    return disk.lose_power(rnd)


def lay_out(state: dict[str, bytes | None], folder: Path) -> None:
    """Make a folder hold that state."""
    for path, content in state.items():
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)


def _folders(naming: Naming) -> set[str]:
    return {str(Path(p).parent) for p in (naming.path, naming.old) if p is not None}


def _rename(names: dict[str, int], naming: Naming) -> None:
    if naming.old is not None:
        names.pop(naming.old, None)
    if naming.file is None:
        names.pop(naming.path, None)
    else:
        names[naming.path] = naming.file


def check_aftermath(bench: Bench, operation: str, store: Path) -> None:
    """As before or as after; doctor is content and changes nothing; then the operation works and leaves nothing of a dead one."""
    before, after, _ = bench.states(operation)
    threshold = bench.idle_below(operation)
    there = sorted(p.name for p in store.iterdir()) if store.exists() else []
    reached = (before, after)[check_one_of(store, before, after, idle_below=threshold)]
    checked = run(command, "doctor", "--store", store)
    assert checked.code == (2 if reached is None else int(reached == DAMAGED)), checked.said
    assert (sorted(p.name for p in store.iterdir()) if store.exists() else []) == there
    again = run(OPERATIONS[operation], store, bench.parts)
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
        for draw in range(max(2, ROUNDS // 10)):
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
