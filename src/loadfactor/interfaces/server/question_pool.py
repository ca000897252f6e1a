"""Threads for questions that block, so many at once and so many that wait."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from loadfactor.base.errors import BusyError

AnswerT = TypeVar("AnswerT")


class QuestionPool:
    """Threads for what blocks: so many questions `at_once`, so many that are `waiting`. For one event loop."""

    def __init__(self, at_once: int, waiting: int, retry_after_s: float) -> None:
        self._threads = ThreadPoolExecutor(at_once, "question")
        self._most, self.retry_after_s = at_once + waiting, retry_after_s
        self._pending = 0

    async def ask(self, work: Callable[[], AnswerT]) -> AnswerT:
        """The result of `work`, worked out in a thread. Raises BusyError where too many wait already."""
        if self.is_full:
            raise BusyError("too many questions at once; ask again a little later", self.retry_after_s)
        self._pending += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(self._count_down)  # not before: a client that leaves does not stop its question
        return await asyncio.shield(running)

    @property
    def is_full(self) -> bool:
        """Whether no further question is taken now."""
        return self._pending >= self._most

    def _count_down(self, done: "asyncio.Future[AnswerT]") -> None:
        self._pending -= 1
        if not done.cancelled():
            done.exception()  # raised where somebody waits; where nobody does, not logged

    def close(self) -> None:
        """Take no more; those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
