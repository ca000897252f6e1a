"""Child processes that work on a store: forked from a server that has everything loaded, so that hundreds of them are cheap."""

import errno
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from tests.torture.fleet import LIVE, MAPPING_FILE, MONTH, START

from loadfactor.base.errors import LoadfactorError
from loadfactor.books.books import Books
from loadfactor.books.retention import retain as drop_expired
from loadfactor.settings.retention import Age, RetentionSettings
from loadfactor.store import disk
from loadfactor.store.live import LiveBatch, LiveLog

STEPS = ("sync_file", "sync_folder", "write_file", "rename", "link", "remove")
"""The durable steps: the functions of `store/disk.py`."""
LONGEST_S = 240

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.torture.warm"])


@dataclass(frozen=True)
class Outcome:
    """How a child ended: its exit code (negative: the signal that killed it), what it printed, and what its task returned."""

    code: int
    said: str
    result: Any = None

    @property
    def was_killed(self) -> bool:
        """True where it did not come to an end."""
        return self.code == -signal.SIGKILL


class Child:
    """A task under way in a process of its own."""

    def __init__(self, task: Callable[..., object], *arguments: object) -> None:
        self._folder = TemporaryDirectory(prefix="torture-")
        self._explaining = Path(self._folder.name) / "said"
        self.process = _server.Process(target=_work, args=(self._explaining, task, arguments), daemon=True)
        self.process.start()

    def kill(self, after_s: float) -> None:
        """kill -9, so many seconds from now, unless it has ended by then."""
        self.process.join(after_s)
        self.process.kill()

    def end(self) -> Outcome:
        """Wait for it."""
        self.process.join(LONGEST_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"no end after {LONGEST_S} s: {self._explaining.read_text()}")
        said = self._explaining.read_text() if self._explaining.exists() else ""
        returned = self._explaining.with_name("result")
        result = pickle.loads(returned.read_bytes()) if self.process.exitcode == 0 and returned.exists() else None
        self._folder.cleanup()
        return Outcome(self.process.exitcode, said, result)


def run(task: Callable[..., object], *arguments: object) -> Outcome:
    """Do a task in a child, to its end."""
    return Child(task, *arguments).end()


def _work(said: Path, task: Callable[..., object], arguments: tuple[object, ...]) -> None:
    handle = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    code = 0
    try:
        said.with_name("result").write_bytes(pickle.dumps(task(*arguments)))
    except SystemExit as ended:
        code = int(ended.code or 0)
    except LoadfactorError as error:
        print(f"{type(error).__name__} {error}")
        code = 1
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# -- what children do ------------------------------------------------------------------------------------------------------


def close_month(store: Path) -> None:
    """Keep the statements of the month of the bills."""
    Books(store).close_month(MONTH, is_known_to_lack=True)


def import_part(store: Path, part: Path) -> None:
    """Import a folder of tables and book it."""
    Books(store).add("tables", [part])


def forget_late(store: Path, _parts: Path) -> None:
    """Take out the third import, whose rows met those of others."""
    Books(store).forget(3)


def compact(store: Path, _parts: Path) -> None:
    """Merge what can be merged."""
    Books(store).compact()


def import_last(store: Path, parts: Path) -> None:
    """Import the last part of the fleet."""
    import_part(store, parts / "last")


def book_anew(store: Path, _parts: Path) -> None:
    """Book every hour anew: with another threshold the whole ledger is stale."""
    Books(store, idle_below=0.2).compact()


def import_first(store: Path, parts: Path) -> None:
    """Import into a folder that is not there yet."""
    import_part(store, parts / "work")


def flush(store: Path, _parts: Path) -> None:
    """Make files of the live batches; their log is trimmed by who has it open."""
    Books(store).flush()


def acknowledge(store: Path, _parts: Path) -> None:
    """Have live batches acknowledged, and no file made of them."""
    with LiveLog.open(store) as log:
        for source, table, rows in LIVE:
            log.acknowledge([LiveBatch(source, table, pa.table(rows), "live")])


def retag(store: Path, parts: Path) -> None:
    """Give the jobs of history an experiment by a mapping."""
    Books(store).retag(parts / MAPPING_FILE)


def retain(store: Path, _parts: Path) -> None:
    """Drop the samples of the first day, and steps and events of it."""
    books, now_ms = Books(store), int((START + timedelta(days=8)).timestamp() * 1000)
    kept = RetentionSettings(samples=Age("7d"), steps=Age("7d"), events=Age("7d"))
    drop_expired(books.store, books.idle_below, kept, lambda _what, _share: None, now_ms, is_confirmed=True)


def repair(store: Path, _parts: Path) -> None:
    """Repair what is damaged."""
    Books(store).repair()


OPERATIONS: dict[str, Callable[[Path, Path], None]] = {
    "first": import_first,
    "import": import_last,
    "forget": forget_late,
    "compact": compact,
    "refresh": book_anew,
    "flush": flush,
    "retag": retag,
    "retain": retain,
    "repair": repair,
    "rebuild": repair,
    "older": repair,
}


def command(*arguments: object) -> None:
    """A command of the command line; ends with its exit code."""
    from loadfactor.interfaces.cli import main

    sys.argv = ["loadfactor", *(str(a) for a in arguments)]
    main()


def at_each_step(hook: Callable[[int, str, tuple[Any, ...]], None]) -> None:
    """Have `hook` called with the number, the name and the arguments of every durable step, just before it is taken."""
    number = 0

    def wrap(name: str, original: Callable[..., None]) -> Callable[..., None]:
        def step(*arguments: Any) -> None:
            nonlocal number
            number += 1
            hook(number, name, arguments)
            original(*arguments)

        return step

    for name in STEPS:
        original = getattr(disk, name)
        wrapped = wrap(name, original)
        for module in [m for n, m in sys.modules.items() if n.startswith("loadfactor.")]:
            if getattr(module, name, None) is original:
                setattr(module, name, wrapped)


def dying_at(last: int, operation: str, store: Path, parts: Path) -> None:
    """Begin an operation and die at one of its durable steps, a file that is written half there."""

    def hook(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number == last:
            die_at(name, arguments)

    at_each_step(hook)
    OPERATIONS[operation](store, parts)


def die_at(name: str, arguments: tuple[Any, ...]) -> None:
    """kill -9 as a step is taken; a file that would be written is half there."""
    if name == "write_file":
        arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def failing_at(first: int, operation: str, store: Path, parts: Path) -> None:
    """Do an operation on a disk that is full from one of its durable steps on: nothing can be written, things can be removed."""

    def hook(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number >= first and name not in ("remove", "sync_folder"):
            if name == "write_file":
                arguments[0].write_bytes(arguments[1][: len(arguments[1]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))

    at_each_step(hook)
    OPERATIONS[operation](store, parts)


def counted(operation: str, store: Path, parts: Path) -> list[str]:
    """Do an operation; the name of each durable step."""
    steps: list[str] = []
    at_each_step(lambda _number, name, arguments: steps.append(f"{name} {Path(arguments[0]).name}"))
    OPERATIONS[operation](store, parts)
    return steps
