"""Work that may hang, done in a thread of its own: whoever waits for it waits so long and no longer."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NotAnsweredError(Exception):
    """The work is not done yet."""


class Attendant(Generic[T]):
    """Does its work each time it is asked; while it hangs it is not asked again."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._work = work
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Begin, unless it is still at an earlier question: then whoever waits next hears the answer to that."""
        if not self._is_busy:
            self._is_busy = True
            self._asked.put(None)

    def wait(self, until_s: float) -> T:
        """What came out. Raises NotAnsweredError where nothing did by `until_s` (monotonic clock), else what the work raised."""
        try:
            answer = self._answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            raise NotAnsweredError from None
        self._is_busy = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _run(self) -> None:
        while True:
            self._asked.get()
            try:
                self._answers.put(self._work())
            except Exception as error:  # whoever asked hears of it
                self._answers.put(error)
