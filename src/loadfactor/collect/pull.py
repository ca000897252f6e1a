"""Pulling samples from Prometheus-compatible servers and clouds: chunk by chunk, on a schedule, and on from where it stopped."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.http_fetch import FetchError, LateError, RequestPools, TooMuchError
from loadfactor.collect.polling import PartStatus
from loadfactor.collect.prometheus_server import PrometheusServer, fetch_range, read_clock_ms
from loadfactor.sources.clouds.cloud_series import CloudSeries, write_matrix
from loadfactor.store.source_status import Failure

DELAY_S = 20.0
"""So long after a scrape began all its samples are there: scrapes may take ten seconds."""
OVERLAP_S = 60.0
"""So much is requested again, for samples that a server stored late. A stream takes each sample once."""
FIRST_CHUNK_S = 10.0 * S_PER_MIN
LONGEST_CHUNK_S = 6.0 * S_PER_HOUR
SHORTEST_CHUNK_S = 1.0
ENOUGH_BYTES = 8 * BYTES_PER_MIB
"""A chunk whose answer is smaller may be longer next time."""
LONGEST_PAUSE_S = 5.0 * S_PER_MIN
LARGEST_SKEW_S = 5.0 * S_PER_MIN
BACK_S = float(S_PER_HOUR)
"""So much is requested again after our clock was ahead: nobody knows when it was set back."""

KeepChunk = Callable[[bytes, int, int], Awaitable[None]]
"""Given a chunk; done when it is durable."""


class Chunk(NamedTuple):
    """An answer with all samples after `from_ms`, through `to_ms`; it may have earlier ones, too."""

    answer: bytes
    from_ms: int
    to_ms: int


class ScheduledPull(ABC):
    """Samples from `through_ms` on, handed to `keep` chunk by chunk; `fetch_next` fetches them."""

    overlap_s = OVERLAP_S
    lacking = ""
    """Gap of the last answer."""

    def __init__(
        self, name: str, every_s: float, through_ms: int, keep: KeepChunk, over: tuple[Failure, ...] = ()
    ) -> None:
        self.name = name
        self.status = PartStatus(failures=over)
        self.errors = 0
        """How often it failed in this process."""
        self._failures_in_a_row = 0
        self._every_s = every_s
        self._through_ms = through_ms
        self._keep = keep
        self._overlap_ms = 0  # of the first: an earlier process took exactly what lies before

    @abstractmethod
    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows, at most through `to_ms`; it ends where it begins while there is nothing. Raises FetchError."""

    async def run(self) -> None:
        """Pull until cancelled. A server that fails is queried again later, and later still while it goes on failing."""
        await asyncio.sleep(random.uniform(0, min(self._every_s, S_PER_MIN) / 10))  # not all at once
        while True:
            began = time.monotonic()
            try:
                await self.catch_up(now_ms() - int(DELAY_S * MS_PER_S))
            except Exception as error:  # whatever a server does, it ends neither its own pull nor the others
                self.status = self.status.fail(DEFECTS.explain(self.name, error))
                self.errors += 1
                self._failures_in_a_row += 1
            pause = min(self._every_s * 2 ** min(self._failures_in_a_row, 6), max(LONGEST_PAUSE_S, self._every_s))
            if self._failures_in_a_row:
                pause *= random.uniform(0.8, 1.2)  # those that failed at once do not come back at once
            await asyncio.sleep(max(0.0, began + pause - time.monotonic()))

    def read_their_clock(self) -> int | None:
        """What time it is by the server's clock, as far as it reported it, in ms."""
        return None

    async def catch_up(self, to_ms: int) -> None:
        """Take everything through `to_ms`. Raises FetchError, with what was taken before it taken."""
        if (ahead_ms := self._through_ms - to_ms) > LARGEST_SKEW_S * MS_PER_S:
            theirs_ms = self.read_their_clock()
            if theirs_ms is not None and theirs_ms - to_ms > LARGEST_SKEW_S * MS_PER_S:
                ahead_s = ahead_ms / MS_PER_S
                raise FetchError(
                    f"samples were taken {ahead_s:,.0f} seconds ahead of our clock; set it by NTP, or wait"
                )
            self._through_ms, self._overlap_ms = (
                to_ms - int(BACK_S * MS_PER_S),
                0,
            )  # our clock was ahead, and is right now
        while self._through_ms < to_ms:
            chunk = await self.fetch_next(to_ms)
            if chunk.to_ms <= chunk.from_ms:
                return  # its clock is a little behind
            await self._keep(*chunk)
            self.go_on(chunk.to_ms)

    def go_on(self, through_ms: int, overlap_s: float | None = None) -> None:
        """A chunk was taken: what follows comes next, with some of it again, and what failed before is over."""
        overlap_s = self.overlap_s if overlap_s is None else overlap_s
        self._through_ms, self._overlap_ms = through_ms, int(overlap_s * MS_PER_S)
        self.status = self.status.succeed(self.lacking, through_ms)
        self._failures_in_a_row = 0


class Pull(ScheduledPull):
    """Samples of one Prometheus-compatible server."""

    def __init__(
        self,
        server: PrometheusServer,
        selector: str,
        every_s: float,
        through_ms: int,
        keep: KeepChunk,
        pools: RequestPools,
        over: tuple[Failure, ...] = (),
    ) -> None:
        super().__init__(server.name, every_s, through_ms, keep, over)
        self.server = server
        self._selector = selector
        self._pools = pools
        self._chunk_s = FIRST_CHUNK_S
        self._their_offset_ms: int | None = None  # of their clock to our monotonic one

    def read_their_clock(self) -> int | None:
        """By the head of its last answer, and the time since by our monotonic clock."""
        return None if self._their_offset_ms is None else self._their_offset_ms + int(time.monotonic() * MS_PER_S)

    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows, at most through `to_ms`; as long as its server answers well. Raises FetchError."""
        while True:
            end_ms = min(to_ms, self._through_ms + int(self._chunk_s * MS_PER_S))
            from_ms = self._through_ms - self._overlap_ms
            pool = self._pools.choose(self.status.status == "ok")
            try:
                async with pool.turns:
                    answer = await fetch_range(self.server, self._selector, from_ms, end_ms, pool)
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
                server_ms := read_clock_ms(answer)
            ) is not None:  # samples bear the time of its clock: what is ahead of it is not there yet
                self._their_offset_ms = server_ms - int(time.monotonic() * MS_PER_S)
                end_ms = min(end_ms, self._read_clock(server_ms))
            return Chunk(answer.content, self._through_ms, end_ms)

    def _read_clock(self, server_ms: int) -> int:
        """Through when a server has everything. Raises FetchError where its clock and ours are far apart."""
        behind_s = time.time() - server_ms / MS_PER_S
        complete_ms = server_ms + MS_PER_S - int(DELAY_S * MS_PER_S)
        if complete_ms <= self._through_ms and behind_s > LARGEST_SKEW_S:
            raise FetchError(f"its clock is {behind_s:,.0f} seconds behind ours; set both by NTP")
        return complete_ms


LATE_S = 10.0 * S_PER_MIN
"""So much is requested again, for values that a cloud gets late. A stream takes each once."""
LONGEST_CLOUD_CHUNK_S = 3.0 * S_PER_HOUR
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
        """Describe what there should be and is not, since it was read last; empty where all is there."""

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
        keep: KeepChunk,
        over: tuple[Failure, ...] = (),
    ) -> None:
        step_ms = metrics.step_ms
        super().__init__(name, every_s, through_ms // step_ms * step_ms, keep, over)
        self._metrics = metrics
        # A thread of its own: clouds that hang hold up neither others nor booking.
        self._reading = ThreadPoolExecutor(1, "read metrics")

    async def fetch_next(self, to_ms: int) -> Chunk:
        """The chunk that follows; it ends where it begins while nothing is settled. Raises FetchError."""
        settled_ms = to_ms - int(self._metrics.settled_s * MS_PER_S)
        end_ms = min(settled_ms, self._through_ms + int(LONGEST_CLOUD_CHUNK_S * MS_PER_S))
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

    @property
    def lacking(self) -> str:  # type: ignore[override]
        """As the metrics give it."""
        return self._metrics.lacking
