"""How one of the questions fares that a scheduler or a cloud is asked again and again."""

import time
from dataclasses import dataclass, replace

from loadfactor.base.units import MS_PER_S
from loadfactor.store.source_status import MOST_FAILURES, Failure, SourceStatus


@dataclass(frozen=True)
class PartStatus:
    """One question: ok, waiting, degraded (a part of the answer is not understood), failing, or absent (it may not be asked)."""

    status: str = "waiting"
    error: str = ""
    since_ms: int | None = None  # of the error
    last_ms: int | None = None  # when it was answered last
    over: tuple[Failure, ...] = ()

    def succeed(self, unread: str = "") -> "PartStatus":
        """It was answered; `unread` says what of the answer is not understood."""
        now_ms = _now_ms()
        over = self.over
        if self.status == "failing" and self.since_ms is not None:
            over = (*over, Failure(self.since_ms, now_ms, self.error))[-MOST_FAILURES:]
        since_ms = (self.since_ms if self.status == "degraded" else now_ms) if unread else None
        return PartStatus("degraded" if unread else "ok", unread, since_ms, now_ms, over)

    def fail(self, error: str, status: str = "failing") -> "PartStatus":
        """It was not answered."""
        since_ms = self.since_ms if self.status == status else None
        return replace(self, status=status, error=error, since_ms=since_ms or _now_ms())

    def describe(self, name: str) -> SourceStatus:
        """For /health and doctor; `name`: what the question is called."""
        return SourceStatus(name, self.status, self.last_ms, self.error or None, self.since_ms, self.over)


def _now_ms() -> int:
    return int(time.time() * MS_PER_S)
