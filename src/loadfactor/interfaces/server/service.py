"""`loadfactor up` as a process: it collects, books and flushes on its own schedules, and serves HTTP, until it is told to stop."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect.cloud_pull import CloudPull
from loadfactor.collect.collector import LiveCollector
from loadfactor.collect.decoding import PAGE, QUERY
from loadfactor.collect.engine_page import pack_engine_page
from loadfactor.collect.instance_watch import InstanceWatch
from loadfactor.collect.kubernetes_api import ClusterAccess
from loadfactor.collect.kubernetes_watch import ClusterWatch
from loadfactor.collect.lanes import Lanes
from loadfactor.collect.listed_body import LISTED, pack_listed
from loadfactor.collect.listed_stream import ListedStream
from loadfactor.collect.metric_stream import MetricStreamWatch
from loadfactor.collect.own_gpus import ORIGIN, sample_own_gpus
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.pull import Pull, ScheduledPull, Take
from loadfactor.collect.pulled_body import pack_answer
from loadfactor.collect.scrape_group import ScrapeGroup
from loadfactor.collect.slurm_watch import SlurmWatch
from loadfactor.interfaces.cloud_sources import (
    AskedCloud,
    AskedInstances,
    AskedStream,
    make_clouds,
    make_instances,
    make_streams,
)
from loadfactor.interfaces.exporter_groups import make_access, make_finder
from loadfactor.interfaces.server.guard import write_line
from loadfactor.interfaces.server.receiver import ReceiverCounts, WriteAnswer
from loadfactor.interfaces.slurm_clusters import name_slurm, open_slurm
from loadfactor.metrics.query.calendar import instant
from loadfactor.settings.clusters import AskedSlurm, WatchedCluster
from loadfactor.settings.config import PulledServer, Settings, take_changes
from loadfactor.settings.exporters import ExporterGroup, ServingEngines
from loadfactor.sources.progress_records.live_decoder import PROGRESS_ORIGIN
from loadfactor.sources.prometheus.query_answers import ALL, EXPORTERS, write_selector
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import count_set_aside
from loadfactor.store.source_status import Failure, SourceStatus, read_statuses, write_statuses

BOOK_EVERY_S = 2.0
FLUSH_ROWS = 1_000_000
"""With so many live rows they are made files before their time."""
FLUSH_AGAIN_S = 20.0
"""After a flush that could not be done: an import may be writing."""
STATUS_EVERY_S = 5.0
SILENT_S = 900.0
"""A source that sent samples and sends none for so long is called silent."""
MOST_ANSWERS = 3
"""So many pulled answers may wait for their booking; then the pull waits."""


@dataclass
class _Flush:
    """When live rows became files last, and what hinders it."""

    at_s: float
    rows: int = 0
    error: str = ""


class LiveService:
    """Everything that runs beside the HTTP server, on its event loop; what takes long runs in threads."""

    def __init__(self, books: Books, live: LiveLog, settings: Settings) -> None:
        self.books = books
        self.collector = LiveCollector(live)
        self._live = live
        self._flush_every_s = settings.server.flush_every_s
        self._flush = _Flush(time.monotonic())
        self._flushing = threading.Lock()
        self._aside_before = count_set_aside(books.store.folder)
        self._told_aside = 0
        self._written: list[SourceStatus] = []
        self._said = {s.name: s for s in read_statuses(books.store.folder)}
        lanes = Lanes()
        scrapes_engines = any(isinstance(group, ServingEngines) for group in settings.exporters)
        self._pulls: list[ScheduledPull] = [
            self._make_pull(server, lanes, scrapes_engines) for server in settings.prometheus
        ]
        self._pulls += [self._make_cloud_pull(cloud) for cloud in make_clouds(settings)]
        self._groups = [self._make_group(group, lanes) for group in settings.exporters]
        self._samples_own = all(isinstance(group, ServingEngines) for group in settings.exporters)
        self._clusters: list[ClusterWatch | SlurmWatch | InstanceWatch | MetricStreamWatch] = [
            *map(self._make_cluster, settings.kubernetes),
            *map(self._make_slurm, settings.slurm),
            *map(self._make_instances, make_instances(settings)),
            *map(self._make_metric_stream, make_streams(settings)),
        ]
        self.book_error = ""

    async def run(self) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(BOOK_EVERY_S, self._book))
            tasks.create_task(self._repeat(BOOK_EVERY_S, self._flush_when_due))
            tasks.create_task(self._repeat(STATUS_EVERY_S, self._keep_statuses))
            for pull in self._pulls:
                tasks.create_task(pull.run())
            for group in self._groups:
                tasks.create_task(group.run())
            for cluster in self._clusters:
                tasks.create_task(cluster.run(asyncio.get_running_loop()))
            if not self._pulls and self._samples_own:  # nothing is configured that samples GPUs: collect what is here
                tasks.create_task(sample_own_gpus(lambda body: self.collector.write(body, ORIGIN), _say_of_own_gpus))

    async def stop(self) -> None:
        """Book what came, make files of it, and close the log. What cannot be done now is done at the next start."""
        with suppress(LoadfactorError):
            await asyncio.to_thread(self.collector.book)
            await asyncio.to_thread(self._flush_rows)
        with suppress(LoadfactorError, OSError):
            await asyncio.to_thread(write_statuses, self.books.store.folder, self.statuses())
        self.collector.close()
        await asyncio.to_thread(self._live.close)

    async def write(self, body: bytes, origin: str) -> WriteAnswer:
        """Take a remote_write request as it came; returns when it is durable. Raises as `LiveCollector.write`."""
        received = await self.collector.write(body, origin)
        return WriteAnswer(received.samples, received.not_understood)

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:
        """Take the records of a tracked run; returns when they are durable. Raises as `LiveCollector.write`."""
        body = await asyncio.to_thread(pack_listed, records, {})
        await self.collector.write(body, PROGRESS_ORIGIN, LISTED)

    def counts(self) -> ReceiverCounts:
        """What was received so far, over all origins."""
        of = self.collector.counts.values()
        refused: Counter[str] = Counter()
        for one in of:
            refused += one.refused
        return ReceiverCounts(
            received=sum(one.received_samples for one in of),
            acknowledged=sum(one.acknowledged_samples for one in of),
            refused=refused,
            not_understood=sum(self.collector.not_understood.values()),
            queue_bytes=self.collector.waiting_bytes,
            lag_s=self.collector.lag_s,
            errors={pull.name: pull.status.errors for pull in self._pulls}
            | {group.name: group.counts.failed for group in self._groups},
        )

    def health(self) -> dict[str, Any]:
        """What GET /health answers; it asks neither the disk nor the books. `set_aside`: bodies that nobody could decode."""
        sources = self.statuses()
        wrong = [s for s in sources if s.status in ("failing", "degraded", "silent")]
        error, aside = self.book_error or self.collector.keep_error or self._flush.error, len(self.collector.set_aside)
        return {
            "status": "failing" if error else "degraded" if wrong or aside else "ok",
            "sources": [_describe(source) for source in sources],
            "lag_s": round(self.collector.lag_s, 3),
            "error": error or None,
            "set_aside": self._aside_before + aside,
        }

    def statuses(self) -> list[SourceStatus]:
        """How every source fares: what is pulled, and what sends."""
        found = []
        for pull in self._pulls:
            said = pull.status
            since_ms = said.failing_since_ms
            error = said.error or said.lacking or None
            found.append(SourceStatus(pull.name, said.status, said.through_ms, error, since_ms, said.over))
        found += map(self._describe_group, self._groups)
        found += [status for cluster in self._clusters for status in cluster.statuses()]
        for source, at_ms in sorted(self.collector.last_sample_ms.items()):
            silent = self.collector.seen_s_ago(source) > SILENT_S
            error = f"no sample since {_iso(at_ms)}" if silent else None
            found.append(SourceStatus(source, "silent" if silent else "ok", at_ms, error, at_ms if silent else None))
        return found or [SourceStatus("remote_write", "waiting")]

    def _make_pull(self, server: PulledServer, lanes: Lanes, scrapes_engines: bool) -> Pull:
        origin = f"prometheus {server.label}"
        begin_ms, take = self._take_answers(origin, server.backfill_s)
        asked = PrometheusServer(origin, server.url, server.bearer_token_file)
        asks_for_engines = not scrapes_engines if server.serving is None else server.serving
        selector = write_selector(server.match, ALL if asks_for_engines else EXPORTERS)
        return Pull(asked, selector, server.every_s, begin_ms, take, lanes, self._failed_before(origin))

    def _make_cloud_pull(self, cloud: AskedCloud) -> CloudPull:
        begin_ms, take = self._take_answers(cloud.origin, cloud.backfill_s)
        over = self._failed_before(cloud.origin)
        return CloudPull(cloud.origin, cloud.metrics, cloud.every_s, begin_ms, take, over)

    def _take_answers(self, origin: str, backfill_s: float) -> tuple[int, Take]:
        """Where an origin that is pulled goes on, in ms, and what takes its answers."""
        stream = self.collector.stream(origin)

        async def take(answer: bytes, from_ms: int, to_ms: int) -> None:
            while stream.waiting > MOST_ANSWERS:
                await asyncio.sleep(BOOK_EVERY_S / 10)
            await self.collector.write(pack_answer(answer, from_ms, to_ms), origin, QUERY)

        return stream.reached_ms or int((time.time() - backfill_s) * MS_PER_S), take

    def _failed_before(self, origin: str) -> tuple[Failure, ...]:
        return self._said[origin].failures if origin in self._said else ()

    def _make_group(self, group: ExporterGroup, lanes: Lanes) -> ScrapeGroup:
        origin, step_ms = group.label, group.every_s * MS_PER_S

        async def take(page: bytes) -> None:
            if isinstance(group, ServingEngines):
                body = await asyncio.to_thread(pack_engine_page, page, step_ms)
                await self.collector.write(body, origin, LISTED)
            else:
                await self.collector.write(page, origin, PAGE)

        before = self._said[origin].gaps if origin in self._said else ()
        return ScrapeGroup(origin, make_finder(group), make_access(group), group.every_s, lanes, take, before)

    def _describe_group(self, group: ScrapeGroup) -> SourceStatus:
        """How a group fares; of serving engines with what they could not tell since the process began."""
        stream = self.collector.stream(group.name)
        told = sorted(stream.gaps.items()) if isinstance(stream, ListedStream) else ()
        return replace(group.status(), unknown=tuple((what, count) for (_, what), count in told))

    def _make_cluster(self, cluster: WatchedCluster) -> ClusterWatch:
        access = ClusterAccess(**cluster.model_dump())
        stream = self.collector.stream(access.origin)
        assert isinstance(stream, ListedStream)

        return ClusterWatch(access, stream.marks, self._make_keeper(stream))

    def _make_slurm(self, cluster: AskedSlurm) -> SlurmWatch:
        stream = self.collector.stream(name_slurm(cluster))
        assert isinstance(stream, ListedStream)
        begin_s = int(time.time() - cluster.backfill_s)
        stopped = threading.Event()
        keep = self._make_keeper(stream)
        return SlurmWatch(
            stream.origin,
            open_slurm(cluster, stopped),
            cluster.every_s,
            begin_s,
            stream.marks,
            keep,
            stopped,
            self._said,
        )

    def _make_instances(self, asked: AskedInstances) -> InstanceWatch:
        stream = self.collector.stream(asked.origin)
        assert isinstance(stream, ListedStream)
        return InstanceWatch(stream.origin, asked.instances, asked.every_s, self._make_keeper(stream), self._said)

    def _make_metric_stream(self, asked: AskedStream) -> MetricStreamWatch:
        stream = self.collector.stream(asked.origin)
        assert isinstance(stream, ListedStream)
        begin_s = int(time.time() - asked.backfill_s)
        keep = self._make_keeper(stream)
        return MetricStreamWatch(stream.origin, asked.objects, asked.every_s, begin_s, stream.marks, keep, self._said)

    def _make_keeper(self, stream: ListedStream) -> Callable[[bytes], Coroutine[Any, Any, None]]:
        """What keeps a body of a list, when not too many wait."""

        async def keep(body: bytes) -> None:
            while stream.waiting > MOST_ANSWERS:
                await asyncio.sleep(BOOK_EVERY_S / 10)
            await self.collector.write(body, stream.origin, LISTED)

        return keep

    async def _repeat(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do it again and again, whatever comes out: one failure ends nothing."""
        while True:
            began = time.monotonic()
            try:
                await work()
            except Exception as error:  # a defect of ours must not stop collection
                write_line(
                    level="error",
                    event="a repeated task failed",
                    task=work.__name__,
                    error=f"{type(error).__name__}: {error}",
                )
            await asyncio.sleep(max(0.05, began + every_s - time.monotonic()))

    async def _book(self) -> None:
        take_changes()
        try:
            self._flush.rows += await asyncio.to_thread(self.collector.book)
            self.book_error = ""
        except LoadfactorError as error:
            self.book_error = str(error)
        for path in self.collector.set_aside[self._told_aside :]:
            self._told_aside += 1
            write_line(level="error", event="a body that could not be decoded was set aside", file=str(path))

    async def _flush_when_due(self) -> None:
        now = time.monotonic()
        if now - self._flush.at_s >= self._flush_every_s or self._flush.rows >= FLUSH_ROWS:
            await asyncio.to_thread(self._flush_rows)

    def _flush_rows(self) -> None:
        """Make files of the live rows; where another import is writing, a little later."""
        with self._flushing:  # the last one waits for one that is under way
            try:
                self._live.discard_through(self.books.flush())
                self._flush = _Flush(time.monotonic())
            except LoadfactorError as error:
                again_s = time.monotonic() - self._flush_every_s + FLUSH_AGAIN_S
                self._flush = _Flush(again_s, error=str(error))
                write_line(level="warning", event="live rows stay live for now", error=str(error))

    async def _keep_statuses(self) -> None:
        now = self.statuses()
        if [replace(s, last_sample_ms=None) for s in now] != [replace(s, last_sample_ms=None) for s in self._written]:
            await asyncio.to_thread(write_statuses, self.books.store.folder, now)
            self._written = now


def _say_of_own_gpus(text: str) -> None:
    write_line(level="info", event="own GPUs", said=text)


def _describe(source: SourceStatus) -> dict[str, Any]:
    """One source in /health; of a group of exporters how many there are and answer, of engines what they could not tell."""
    found = {
        "name": source.name,
        "status": source.status,
        "last_sample": _iso(source.last_sample_ms),
        "error": source.error,
    }
    group = {} if source.targets is None else {"targets": source.targets, "answering": source.answering}
    return {**found, **group, **({"unknown": dict(source.unknown)} if source.unknown else {})}


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else instant(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
