"""What every engine runs: a task of the ledger, by its name. A process that gets several of them opens the books once.

What a task follows from is in its name, so that a process that sees other books than those that were planned refuses it.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadfactor.base.paths import read_url
from loadfactor.books.books import Books
from loadfactor.books.day_tasks import TaskList
from loadfactor.settings.config import CHOSEN, choose_file, settings


@dataclass(frozen=True)
class TaskBooks:
    """The books of tasks, and the file of settings, as a process elsewhere finds them."""

    store: str
    config: str


def name_books(store: Path) -> TaskBooks:
    """These books, with the settings in force."""
    return TaskBooks(read_url(store) or str(store.absolute()), str(CHOSEN.path.absolute()))


_opened: Final[dict[tuple[TaskBooks, int], tuple[ExitStack, TaskList]]] = {}
"""That of the last task, by its books and their generation."""


def book_task(books: TaskBooks, name: str) -> str:
    """Book one task; its name. Raises as `TaskList.find`."""
    if Path(books.config) != CHOSEN.path.absolute():
        choose_file(Path(books.config))
    store = Books(books.store, settings().idle_below).store
    opened = books, store.manifest.generation
    if opened not in _opened:
        for stack, _ in _opened.values():
            stack.close()
        _opened.clear()
        stack = ExitStack()
        session = stack.enter_context(store.read()).beside()
        stack.callback(session.close)
        _opened[books, session.manifest.generation] = stack, TaskList(session, settings().idle_below)
    ((_, tasks),) = _opened.values()
    tasks.book(tasks.find(name))
    return name
