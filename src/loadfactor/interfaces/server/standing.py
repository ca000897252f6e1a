"""Long answers made beside the questions, one at a time, and kept for those who ask again."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from time import monotonic
from traceback import format_exception
from typing import Final

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.web.standing import Standing

MOST_KEPT: Final = 64
ERROR_STANDS_S: Final = 60
MOST_OF_ONE: Final = 2
"""So many answers that one caller waits for at once."""

Progress = Callable[[str, float], None]


@dataclass
class _Kept:
    standing: Standing = field(default_factory=Standing)
    running: "asyncio.Task[None] | None" = None


class StandingAnswers:
    """Answers by what they are of. For one event loop; they are worked out in the threads of `pool`.

    `fresh_s`: so long an answer stands although the books have gone on.
    """

    def __init__(self, pool: QuestionPool, fresh_s: float = 0.0) -> None:
        self._pool, self._fresh_s = pool, fresh_s
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._pending: Counter[str] = Counter()  # by who waits for them

    async def look(
        self, key: Hashable, state: Hashable, owner: str, work: Callable[[Progress], Document], wait_s: float | None
    ) -> Standing:
        """How an answer stands after waiting so long at most; begins to make it where there is none of this state of the books.

        Where others are made first, it is begun when it is looked at again.
        """
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if kept.running is None and self._is_due(kept.standing, state):
            if self._pool.is_full or self._pending[owner] >= MOST_OF_ONE:
                self._forget()
                return replace(kept.standing, is_making=True, what="others are made first")
            kept.standing = replace(kept.standing, is_making=True, what="", share=0.0)
            self._pending[owner] += 1
            kept.running = asyncio.create_task(self._make(kept, state, owner, work))
        if kept.running is not None:
            await asyncio.wait([kept.running], timeout=wait_s)
        self._forget()
        return kept.standing

    def _is_due(self, standing: Standing, state: Hashable) -> bool:
        if standing.state == state and not standing.error:
            return not standing.made_ms
        stands_s = ERROR_STANDS_S if standing.error else self._fresh_s
        return now_ms() - standing.made_ms >= stands_s * MS_PER_S

    async def _make(self, kept: _Kept, state: Hashable, owner: str, work: Callable[[Progress], Document]) -> None:
        began_s = monotonic()

        def tell(what: str, share: float) -> None:
            kept.standing = replace(kept.standing, what=what, share=share)

        document: Document | None = None
        refusal: LoadfactorError | RefusedError | None = None
        try:
            document = await self._pool.ask(lambda: work(tell))
        except (LoadfactorError, RefusedError) as refused:
            refusal = refused.with_traceback(None)  # it is kept, and would keep what was read
            refusal.__context__ = refusal.__cause__ = None
        except Exception as failure:
            write_line(level="error", event="a long answer failed", traceback="".join(format_exception(failure)))
            refusal = LoadfactorError(f"an error in loadfactor itself ({type(failure).__name__}); the log says more")
        finally:
            kept.running = None
            self._pending[owner] -= 1
        kept.standing = Standing(document, refusal, now_ms(), monotonic() - began_s, state)

    def _forget(self) -> None:
        """Let go of answers that nobody looked at for longest."""
        idle = [key for key, kept in self._kept.items() if kept.running is None]
        for key in idle[: max(0, len(self._kept) - MOST_KEPT)]:
            del self._kept[key]
