"""Days booked as tasks give the ledger of the whole: in any order, by several processes, killed, late, and after prices changed."""

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, Fleet, add, batch, batches
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of, refresh_ledger
from tests.ledger.test_kept_sums import assert_sums_of_the_ledger
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.day_tasks import FOLDER, TaskList, name_output
from loadfactor.interfaces.engines.local import run_local
from loadfactor.interfaces.engines.worker import name_books
from loadfactor.interfaces.pages.ledger_tasks import list_planned, publish


def quiet(_what: str, _share: float) -> None:
    """Shows no progress."""


def make_books(folder: Path, seed: int) -> tuple[Books, Fleet]:
    """Books of a random fleet that nobody booked yet, and what is in them but the last tenth of its samples and allocations."""
    fleet = Fleet(random.Random(seed))
    books = Books(folder / "store")
    early = {name: rows[: -(len(rows) // 10) or None] for name, rows in fleet.tables.items()}
    add(books, batches(early), "early", folder)
    return books, fleet


def copy_booked_whole(books: Books, folder: Path) -> Books:
    """A copy of the books, booked by one process."""
    shutil.copytree(books.store.folder, folder)
    whole = Books(folder)
    refresh_ledger(whole)
    return whole


def book_all(books: Books, names: list[str]) -> None:
    """Book tasks in this process."""
    run_local(name_books(books.store.folder), names, 1, quiet)


def plan(books: Books, is_all: bool = False) -> list[str]:
    """The tasks that are not booked."""
    return [task.task for task in list_planned(books, is_all) if not task.is_booked]


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(12)))
def test_days_are_the_whole(seed: int, tmp_path: Path) -> None:
    """Some days first, then late rows, then the rest, then all again: at every step readers see the ledger of the whole."""
    books, fleet = make_books(tmp_path, seed)
    rnd = random.Random(seed)
    names = plan(books)
    rnd.shuffle(names)
    book_all(books, names[::2])
    found = publish(books)
    assert (found.tasks, found.dropped) == (len(names[::2]), 0)
    assert plan(books) == sorted(names[1::2])
    assert_same_ledger(ledger_of(books), ledger_of(copy_booked_whole(books, tmp_path / "some")))
    book_all(books, names[1::2])
    late = {name: rows[-(len(rows) // 10) :] for name, rows in fleet.tables.items() if len(rows) >= 10}
    add(books, batches(late), "late", tmp_path)
    while publish(books).stale_hours:
        book_all(books, plan(books))
    assert not books.store.manifest.stale
    whole = copy_booked_whole(books, tmp_path / "whole")
    assert whole.store.manifest == books.store.manifest
    for is_again in (False, True):
        if is_again:
            book_all(books, plan(books, is_all=True))
            publish(books)
        fresh = Books(tmp_path / f"fresh{is_again}")
        add(fresh, batches(fleet.tables), "fresh", tmp_path)
        assert_same_ledger(ledger_of(books), ledger_of(fresh))
        assert_sums_of_the_ledger(books)


def test_what_changed_is_dropped(tmp_path: Path) -> None:
    """A task whose rows changed since is refused by name, what was booked of it is dropped, and the others are published."""
    start = 1_767_225_600_000  # a midnight
    devices = [{"device_id": "g", "from_utc": start, "to_utc": start + 72 * HOUR}]
    samples = [
        {"device_id": "g", "source": "s", "to_utc": start + n * HOUR // 2, "busy_share": 0.5} for n in range(1, 144)
    ]
    books = Books(tmp_path / "store")
    add(books, [batch("devices", devices), batch("samples", samples)], "first", tmp_path)
    names = plan(books)
    assert [name[:10] for name in names] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    book_all(books, names)
    assert plan(books) == []
    outputs = {path.name: path.stat().st_ino for path in (books.store.folder / FOLDER).iterdir()}
    book_all(books, names)
    assert {path.name: path.stat().st_ino for path in (books.store.folder / FOLDER).iterdir()} == outputs
    other = {"device_id": "g", "source": "s", "to_utc": start + 5 * HOUR + 7, "busy_share": 0.9}
    add(books, [batch("samples", [other])], "late", tmp_path)
    with pytest.raises(InputError, match=r"has changed; `loadfactor ledger plan`"):
        book_all(books, names[:1])
    with pytest.raises(InputError, match="is no task"):
        book_all(books, ["yesterday"])
    found = publish(books)
    assert (found.tasks, found.dropped) == (2, 1)
    assert [name[:10] for name in plan(books)] == ["2026-01-01"]
    assert not (books.store.folder / FOLDER).exists()


@pytest.mark.long
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    """Processes of `local:2` are killed while they book: the tasks are done in the end, and give the ledger of the whole."""
    books, _ = make_books(tmp_path, 3)
    names = plan(books)
    ended = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        """End the first two processes that appear."""
        while not ended.is_set() and len(killed) < 2:
            for path in Path("/proc").glob("[0-9]*/stat"):
                try:
                    parent = int(path.read_text().rpartition(")")[2].split()[1])
                    is_worker = b"spawn_main" in (path.parent / "cmdline").read_bytes()
                except (OSError, ValueError):
                    continue
                pid = int(path.parent.name)
                if parent == os.getpid() and is_worker and pid not in killed:
                    time.sleep(0.5 * len(killed))
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    break
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run_local(name_books(books.store.folder), names, 2, quiet)
    finally:
        ended.set()
        killer.join()
    assert len(killed) == 2
    publish(books)
    assert plan(books) == []
    assert_same_ledger(ledger_of(books), ledger_of(copy_booked_whole(books, tmp_path / "whole")))


@pytest.mark.long
def test_another_definition_is_published_in_parts(tmp_path: Path) -> None:
    """Where what a row means has changed, days that were not booked anew are stale, and readers book them."""
    books, _ = make_books(tmp_path, 5)
    refresh_ledger(books)
    busy = Books(books.store.folder, idle_below=0.4)
    with busy.store.read() as session:
        tasks = TaskList(session, 0.4)
        first = tasks.list()[0]
        tasks.book(first)
        assert session.place.has(name_output(first.name))
    found = publish(busy)
    assert found.tasks == 1
    assert found.stale_hours
    fresh = Books(copy_booked_whole(books, tmp_path / "whole").store.folder, idle_below=0.4)
    assert_same_ledger(ledger_of(busy), ledger_of(fresh))
