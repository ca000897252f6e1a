"""Pulling samples from a Prometheus-compatible server: in chunks of time, on a schedule, and on from where it stopped."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError, LateError, TooMuchError
from loadfactor.collect.lanes import Lanes
from loadfactor.collect.prometheus_server import PrometheusServer, fetch_range
from loadfactor.store.source_status import MOST_FAILURES, Failure

DELAY_S = 20.0
"""So long after a scrape began all its samples can be asked for: scrapes may take ten seconds."""
OVERLAP_S = 60.0
"""So much is asked for again, for samples that a server stored late. A stream takes each sample once."""
FIRST_CHUNK_S = 10.0 * S_PER_MIN
LONGEST_CHUNK_S = 6.0 * S_PER_HOUR
SHORTEST_CHUNK_S = 1.0
ENOUGH_BYTES = 8 * BYTES_PER_MIB
"""A chunk whose answer is smaller may be longer next time."""
LONGEST_PAUSE_S = 5.0 * S_PER_MIN
LARGEST_SKEW_S = 5.0 * S_PER_MIN

Take = Callable[[bytes, int, int], Awaitable[None]]
"""Given a chunk; done when it is kept."""


class Chunk(NamedTuple):
    """An answer with all samples after `from_ms`, through `to_ms`; it may have earlier ones, too."""

    answer: bytes
    from_ms: int
    to_ms: int


@dataclass
class PullStatus:
    """How a pull fares."""

    through_ms: int | None = None
    error: str = ""
    failures: int = 0
    failing_since_ms: int | None = None
    over: tuple[Failure, ...] = ()  # failures that are
    errors: int = 0  # ever, in this process
    lacking: str = ""  # what an answer should have and has not

    @property
    def status(self) -> str:
        """One word for it."""
        if self.error:
            return "failing"
        if self.lacking:
            return "degraded"
        return "waiting" if self.through_ms is None else "ok"


class ScheduledPull(ABC):
    """Samples from `through_ms` on, handed to `take` chunk by chunk; where they come from is said by `fetch_next`."""

    overlap_s = OVERLAP_S

    def __init__(self, name: str, every_s: float, through_ms: int, take: Take, over: tuple[Failure, ...] = ()) -> None:
        """`over`: failures of earlier processes."""
        self.name = name
        self.status = PullStatus(over=over)
        self._every_s = every_s
        self._through_ms = through_ms
        self._take = take
        self._overlap_ms = 0  # of the first: an earlier process took exactly what lies before

    @abstractmethod
    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows, at most through `to_ms`; it ends where it begins while there is nothing. Raises FetchError."""

    async def run(self) -> None:
        """Pull until cancelled. A server that fails is asked again later, and later still while it goes on failing."""
        await asyncio.sleep(random.uniform(0, min(self._every_s, S_PER_MIN) / 10))  # not all at once
        while True:
            began = time.monotonic()
            try:
                await self.catch_up(int(time.time() * MS_PER_S) - int(DELAY_S * MS_PER_S))
            except Exception as error:  # whatever a server does, it ends neither its own pull nor the others
                self._fail(error)
            pause = min(self._every_s * 2 ** min(self.status.failures, 6), max(LONGEST_PAUSE_S, self._every_s))
            if self.status.failures:
                pause *= random.uniform(0.8, 1.2)  # those that failed at once do not come back at once
            await asyncio.sleep(max(0.0, began + pause - time.monotonic()))

    async def catch_up(self, to_ms: int) -> None:
        """Take everything through `to_ms`. Raises FetchError, with what was taken before it taken."""
        if self._through_ms - to_ms > LARGEST_SKEW_S * MS_PER_S:
            ahead_s = (self._through_ms - to_ms) / MS_PER_S
            raise FetchError(f"samples were taken {ahead_s:,.0f} seconds ahead of our clock; set it by NTP, or wait")
        while self._through_ms < to_ms:
            chunk = await self.fetch_next(to_ms)
            if chunk.to_ms <= chunk.from_ms:
                return  # its clock is a little behind
            await self._take(*chunk)
            self.go_on(chunk.to_ms)

    def go_on(self, through_ms: int, overlap_s: float | None = None) -> None:
        """A chunk was taken: what follows comes next, with some of it again, and what failed before is over."""
        overlap_s = self.overlap_s if overlap_s is None else overlap_s
        self._through_ms, self._overlap_ms = through_ms, int(overlap_s * MS_PER_S)
        was = self.status
        over = was.over
        if was.failing_since_ms:
            over = (*over, Failure(was.failing_since_ms, int(time.time() * MS_PER_S), was.error))[-MOST_FAILURES:]
        self.status = PullStatus(through_ms, over=over, errors=was.errors)

    def _fail(self, error: BaseException) -> None:
        now_ms = int(time.time() * MS_PER_S)
        self.status.failures += 1
        self.status.errors += 1
        self.status.error = str(error) if isinstance(error, LoadfactorError) else f"{type(error).__name__}: {error}"
        self.status.failing_since_ms = self.status.failing_since_ms or now_ms


class Pull(ScheduledPull):
    """Samples of one Prometheus-compatible server."""

    def __init__(
        self,
        server: PrometheusServer,
        selector: str,
        every_s: float,
        through_ms: int,
        take: Take,
        lanes: Lanes,
        over: tuple[Failure, ...] = (),
    ) -> None:
        """`over`: failures of earlier processes."""
        super().__init__(server.name, every_s, through_ms, take, over)
        self.server = server
        self._selector = selector
        self._lanes = lanes
        self._chunk_s = FIRST_CHUNK_S

    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows, at most through `to_ms`; as long as its server answers well. Raises FetchError."""
        while True:
            end_ms = min(to_ms, self._through_ms + int(self._chunk_s * MS_PER_S))
            from_ms = self._through_ms - self._overlap_ms
            lane = self._lanes.choose(self.status.status == "ok")
            try:
                async with lane.turns:
                    answer = await fetch_range(self.server, self._selector, from_ms, end_ms, lane)
            except TooMuchError:
                if self._chunk_s <= SHORTEST_CHUNK_S:
                    raise
                self._chunk_s = max(SHORTEST_CHUNK_S, self._chunk_s / 4)
                continue
            except LateError:
                self._chunk_s = max(SHORTEST_CHUNK_S, self._chunk_s / 2)
                raise
            if len(answer.content) < ENOUGH_BYTES:
                self._chunk_s = min(LONGEST_CHUNK_S, 2 * self._chunk_s)
            if (
                answer.now_ms is not None
            ):  # samples bear the time of its clock: nothing is there yet of what is ahead of it
                end_ms = min(end_ms, self._read_clock(answer.now_ms))
            return Chunk(answer.content, self._through_ms, end_ms)

    def _read_clock(self, now_ms: int) -> int:
        """Through when a server has everything. Raises FetchError where its clock and ours are far apart."""
        behind_s = time.time() - now_ms / MS_PER_S
        there_ms = now_ms + MS_PER_S - int(DELAY_S * MS_PER_S)
        if there_ms <= self._through_ms and behind_s > LARGEST_SKEW_S:
            raise FetchError(f"its clock is {behind_s:,.0f} seconds behind ours; set both by NTP")
        return there_ms
