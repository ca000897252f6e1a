"""Pulling the metrics of GPUs that a cloud keeps: what is settled, chunk by chunk, and on from where it stopped."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.pull import Chunk, ScheduledPull, Take
from loadfactor.sources.clouds.cloud_series import CloudSeries, write_matrix
from loadfactor.store.source_status import Failure

LATE_S = 10.0 * S_PER_MIN
"""So much is asked for again, for values that a cloud gets late. A stream takes each once."""
LONGEST_CHUNK_S = 3.0 * S_PER_HOUR
LONGEST_READ_S = 10.0 * S_PER_MIN


class CloudMetrics(Protocol):
    """The metrics of an account or a project."""

    @property
    def settled_s(self) -> float:
        """Values so old are there."""

    @property
    def step_ms(self) -> int:
        """Chunks end at its multiples."""

    @property
    def lacking(self) -> str:
        """What there should be and is not, since it was read last; empty where all is there."""

    def read(self, from_ms: int, to_ms: int) -> list[CloudSeries]:
        """The series with points after `from_ms`, through `to_ms`. It waits. Raises FetchError in the cloud's words."""


class CloudPull(ScheduledPull):
    """Metrics of one account or project."""

    overlap_s = LATE_S

    def __init__(
        self,
        name: str,
        metrics: CloudMetrics,
        every_s: float,
        through_ms: int,
        take: Take,
        over: tuple[Failure, ...] = (),
    ) -> None:
        """`over`: failures of earlier processes."""
        step_ms = metrics.step_ms
        super().__init__(name, every_s, through_ms // step_ms * step_ms, take, over)
        self._metrics = metrics
        # A thread of its own: clouds that hang hold up neither others nor booking.
        self._reading = ThreadPoolExecutor(1, "read metrics")

    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows; it ends where it begins while nothing is settled. Raises FetchError."""
        settled_ms = to_ms - int(self._metrics.settled_s * MS_PER_S)
        end_ms = min(settled_ms, self._through_ms + int(LONGEST_CHUNK_S * MS_PER_S))
        end_ms -= end_ms % self._metrics.step_ms
        if end_ms <= self._through_ms:
            return Chunk(b"", self._through_ms, self._through_ms)
        from_ms, loop = self._through_ms - self._overlap_ms, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LONGEST_READ_S):
                series = await loop.run_in_executor(self._reading, self._metrics.read, from_ms, end_ms)
        except TimeoutError as error:
            raise FetchError(f"did not answer within {LONGEST_READ_S:g} seconds") from error
        return Chunk(await loop.run_in_executor(self._reading, write_matrix, series), self._through_ms, end_ms)

    def go_on(self, through_ms: int, overlap_s: float | None = None) -> None:
        """A chunk was taken, which may lack what should be there."""
        super().go_on(through_ms, overlap_s)
        self.status.lacking = self._metrics.lacking
