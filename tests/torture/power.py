"""What a disk may hold after a power loss: the durable steps of an operation, replayed with what was not synced lost or reordered.

The model promises no more than POSIX does: bytes of a file are certain once it is synced, names in a folder once that is. Before
that, each new, renamed or removed name may be there or not, whatever happened to the others, and the bytes of a file missing, zeros
or only begun. A rename happens whole or not at all.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.children import OPERATIONS, at_each_step

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
