"""Tasks in processes of this machine, each with one thread and a memory of its own: what fails is tried again in new ones."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from loadfactor.base.errors import StoreError
from loadfactor.interfaces.engines.worker import TaskBooks, book_task

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress

TRIES: Final = 3


def run_local(books: TaskBooks, names: Sequence[str], workers: int, progress: "Progress") -> None:
    """Book tasks in so many processes; one alone in this process. Raises StoreError where processes end again and again."""
    if workers == 1:
        for done, name in enumerate(names):
            progress("booking days", done / len(names))
            book_task(books, name)
        return
    left = list(names)
    for _ in range(TRIES):
        left = _run_once(books, left, workers, len(names), progress)
        if not left:
            return
    raise StoreError(
        f"processes that booked {left[0]} ended without a word {TRIES} times; each takes LOADFACTOR_MEMORY: begin fewer at once"
    )


def _run_once(books: TaskBooks, names: Sequence[str], workers: int, of: int, progress: "Progress") -> list[str]:
    """The tasks that are left where a process was killed."""
    left = dict.fromkeys(names)
    pool = ProcessPoolExecutor(
        min(workers, len(names)), get_context("spawn")
    )  # a fork would share the engine's threads
    try:
        with suppress(BrokenProcessPool):
            for done in as_completed([pool.submit(book_task, books, name) for name in names]):
                left.pop(done.result())
                progress("booking days", 1 - len(left) / of)
    finally:
        pool.shutdown(cancel_futures=True)
    return list(left)
