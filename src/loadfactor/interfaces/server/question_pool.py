"""Questions of the books, worked on in a few threads: no more at once than there are, and few that wait."""

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
        self._most, self._retry_after_s = at_once + waiting, retry_after_s
        self._asked = 0

    async def ask(self, work: Callable[[], AnswerT]) -> AnswerT:
        """What `work` returns, worked out in a thread. Raises BusyError where too many wait already."""
        if self._asked >= self._most:
            raise BusyError("too many questions at once; ask again a little later", self._retry_after_s)
        self._asked += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(self._count_down)  # not before: a client that leaves does not stop its question
        return await asyncio.shield(running)

    def _count_down(self, done: "asyncio.Future[AnswerT]") -> None:
        self._asked -= 1
        if not done.cancelled():
            done.exception()  # said to who asked; where nobody is left, not to the log

    def close(self) -> None:
        """Take no more; those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
