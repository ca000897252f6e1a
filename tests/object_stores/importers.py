"""Processes that import into a bucket, or ask it, until they are ended; forked from a server that has everything loaded."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from tests.waiting import LONGEST_S

from loadfactor.books.books import Books
from loadfactor.sources.base import Rows, Source
from loadfactor.store import bucket
from loadfactor.store.import_records import list_imports

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.object_stores.importers", "loadfactor.books.writing", "loadfactor.store.bucket"])
SOURCE = Source("scheduler", lambda paths: paths, lambda _paths, _options: iter(()))


class Importer:
    """A process that imports rows named after it, one import after the other, or reads; each with a cache of its own."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        task = read_again if name == "reader" else import_again
        self._process = _server.Process(
            target=_work, args=(task, name, url, self._folder, dict(os.environ)), daemon=True
        )
        self._process.start()

    def list_done(self) -> list[str]:
        """What it acknowledged."""
        done = self._folder / "done"
        return done.read_text().splitlines() if done.exists() else []

    def said(self) -> str:
        """What it printed."""
        return (self._folder / "said").read_text()

    def is_running(self) -> bool:
        """False where it has ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """kill -9."""
        assert self.is_running(), self.said()
        self._process.kill()

    def end(self) -> None:
        """Let it finish the import under way, and wait for it."""
        (self._folder / "stop").touch()
        self._process.join(LONGEST_S)
        assert self._process.exitcode in (0, -9), self.said()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: BaseException | TracebackType | None) -> None:
        self._process.kill() if kind else self.end()


def _work(task: Callable[[str, str, Path], None], name: str, url: str, folder: Path, names: dict[str, str]) -> None:
    os.environ.update(names)
    bucket.cache_folder = lambda: folder / "cache"
    handle = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    with (folder / "done").open("a", buffering=1) as done:
        for number in count():
            if (folder / "stop").exists():
                break
            task(f"{name}-{number}", url, folder)
            done.write(f"{name}-{number}\n")


def import_again(name: str, url: str, _folder: Path) -> None:
    """Import a row of its own."""
    row = pa.table({"at_utc": [1_700_000_000_000], "device_id": ["gpu"], "kind": ["reset"], "detail": [name]})
    Books(url).add_rows(SOURCE, [Rows("device_events", row)], name)


def read_again(_name: str, url: str, _folder: Path) -> None:
    """Count the imports."""
    count_imports(url)


def count_imports(url: str) -> list[str]:
    """The names of the imports, each as often as a row of it counts. Raises AssertionError where the list of them has others."""
    with Books(url).store.read() as session:
        session.view_table("device_events", "device_events")
        rows = session.raw.execute("SELECT detail FROM device_events ORDER BY 1").fetchall()
        listed = sorted(record.digest for record in list_imports(session))
    assert listed == [name for (name,) in rows]
    return listed
