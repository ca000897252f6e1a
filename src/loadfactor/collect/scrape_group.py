"""Scraping a group of exporters: each on a schedule of its own, none in the way of another, and the status of all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Final

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.units import MS_PER_S
from loadfactor.collect.exporters import Target, TargetFinder, fetch_page, make_finder, trust_exporters
from loadfactor.collect.http_fetch import RequestPools
from loadfactor.collect.payloads import pack_page
from loadfactor.collect.polling import PartStatus
from loadfactor.settings.sources import ExporterGroup
from loadfactor.store.source_status import SourceStatus, TargetGap

MOST_GAPS: Final = 100
"""So many of a group that are over are remembered."""
NAMED: Final = 3
"""So many exporters that do not answer are named."""

Keep = Callable[[bytes], Awaitable[object]]
"""Given a payload; done when it is durable."""


class ScrapeGroup:
    """The exporters of a group, each fetched on time; its pages go to `keep` as payloads."""

    def __init__(
        self,
        settings: ExporterGroup,
        pools: RequestPools,
        keep: Keep,
        before: Iterable[TargetGap] = (),
        finder: TargetFinder | None = None,
    ) -> None:
        """`before`: gaps that earlier processes left. `finder`: in place of the one that the settings describe."""
        self.name = settings.label
        self.failed = 0
        """Scrapes that failed, since the process began."""
        self.error = ""
        """The error of the list of exporters."""
        self._settings = settings
        self._every_s = settings.every.s
        self._finder = finder or make_finder(settings)
        self._tls = trust_exporters(settings)
        self._pools, self._keep = pools, keep
        self._over = [gap for gap in before if gap.to_ms is not None]
        self._open = {gap.target: gap for gap in before if gap.to_ms is None}
        self._statuses: dict[Target, PartStatus] = {}
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._keeping: set[asyncio.Future[object]] = set()

    async def run(self) -> None:
        """Scrape until cancelled, and look again and again which exporters there are."""
        try:
            while True:
                try:
                    found = await self._finder.find()
                    self.error = found.error
                    self._follow(found.targets)
                except Exception as error:  # whatever stands in files and names, scraping goes on
                    self.error = DEFECTS.explain(self.name, error)
                await asyncio.sleep(self._finder.every_s)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), *self._keeping, return_exceptions=True)

    def _follow(self, targets: Iterable[Target]) -> None:
        expected = dict.fromkeys(targets)
        for target in [target for target in self._tasks if target not in expected]:
            self._tasks.pop(target).cancel()
            self._end_gap(target, self._statuses.pop(target), now_ms())
        names = {target.name for target in expected}
        for name in [name for name in self._open if name not in names]:
            self._remember(self._open.pop(name), now_ms())  # it left while nobody looked
        for target in expected:
            if target not in self._tasks:
                self._statuses[target] = PartStatus()
                if (gap := self._open.pop(target.name, None)) is not None:
                    self._statuses[target] = PartStatus("failing", gap.error, gap.from_ms)
                self._tasks[target] = asyncio.create_task(self._scrape_on(target))

    async def _scrape_on(self, target: Target) -> None:
        """Scrape one exporter at instants that are its own, the same after a restart, and spread over the interval."""
        digest = blake2b(f"{self.name} {target.url}".encode(), digest_size=8).digest()
        offset_s = int.from_bytes(digest, "little") / 2**64 * self._every_s
        due_s = 0.0
        while True:
            now_s = time.time()
            due_s = find_next(due_s, now_s, self._every_s, offset_s)
            await asyncio.sleep(due_s - now_s)
            await self._scrape(target)

    async def _scrape(self, target: Target) -> None:
        pool = self._pools.choose(self._statuses[target].status == "ok")
        at_ms = now_ms()
        try:
            async with asyncio.timeout(self._every_s) as patience:
                await pool.turns.acquire()
                try:
                    patience.reschedule(None)
                    answer = await fetch_page(
                        target, pool, self._settings.timeout_s, self._settings.bearer_token_file, self._tls
                    )
                finally:
                    pool.turns.release()
            at_ms = int(answer.at_s * MS_PER_S)
            await self._keep_page(pack_page(at_ms, target.labels, answer.content, answer.is_gzip))
        except TimeoutError:
            return  # so many others do not answer that this one had no turn; its gap, if it has one, goes on
        except Exception as error:  # whatever an exporter does, it ends neither its own scrapes nor those of others
            self.failed += 1
            self._statuses[target] = self._statuses[target].fail(
                DEFECTS.explain(f"{self.name}: {target.name}", error), at_ms=at_ms
            )
            return
        self._end_gap(target, self._statuses[target], at_ms)
        self._statuses[target] = self._statuses[target].succeed(last_ms=at_ms)

    async def _keep_page(self, payload: bytes) -> None:
        """Hand a page over; one that is there is kept also where scraping ends meanwhile."""
        keeping = asyncio.ensure_future(self._keep(payload))
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)
        await asyncio.shield(keeping)

    def _end_gap(self, target: Target, status: PartStatus, to_ms: int) -> None:
        if status.since_ms is not None:
            self._remember(TargetGap(target.name, status.since_ms, None, status.error), to_ms)

    def _remember(self, gap: TargetGap, to_ms: int) -> None:
        self._over = [*self._over, TargetGap(gap.target, gap.from_ms, to_ms, gap.error)][-MOST_GAPS:]

    def status(self) -> SourceStatus:
        """All of its exporters in one, with the gaps of each."""
        statuses = list(self._statuses.items())
        dead = [(target, status) for target, status in statuses if status.since_ms is not None]
        answering = sum(status.status == "ok" for _, status in statuses)
        problems = [f"{len(dead)} of {len(statuses)} do not answer: {_name_dead(dead)}"] if dead else []
        problems += [self.error] if self.error else []
        if not statuses:
            word = "failing" if self.error else "waiting"
        else:
            word = "degraded" if problems and answering else "failing" if dead else "ok" if answering else "waiting"
        return SourceStatus(
            self.name,
            word,
            max((status.last_ms for _, status in statuses if status.last_ms is not None), default=None),
            "; ".join(problems) or None,
            min((status.since_ms for _, status in dead if status.since_ms is not None), default=None),
            gaps=(
                *self._over,
                *(TargetGap(target.name, status.since_ms or 0, None, status.error) for target, status in dead),
            ),
            targets=len(statuses),
            answering=answering,
        )


def find_next(last_s: float, now_s: float, every_s: float, offset_s: float) -> float:
    """The instant after `now_s` that lies `offset_s` behind a multiple of `every_s`, and is not the last one again.

    >>> find_next(0, 100.0, 15, 4), find_next(109, 108.999, 15, 4), find_next(109, 122.0, 15, 4)
    (109.0, 124.0, 124.0)
    """
    was_set = abs(now_s - last_s) >= every_s  # the clock, or nothing was scraped yet
    since_s = now_s if was_set else max(now_s, last_s + every_s / 2)
    return (since_s - offset_s) // every_s * every_s + every_s + offset_s


def _name_dead(dead: list[tuple[Target, PartStatus]]) -> str:
    named = ", ".join(f"{target.name} ({one.error})" for target, one in dead[:NAMED])
    return named + (f" and {len(dead) - NAMED} more" if len(dead) > NAMED else "")
