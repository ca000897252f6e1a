"""The live collection of one store: every configured source, what it sends on its way to the books, and how all of them go."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadfactor.base.clock import ClockWatch, format_utc, now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.errors import LoadfactorError
from loadfactor.base.health import HealthReason, Severity, Trouble, derive_status
from loadfactor.base.units import MS_PER_MIN, MS_PER_S, S_PER_DAY, S_PER_HOUR
from loadfactor.collect.amazon import CloudWatchMetrics, Ec2Instances, S3Objects
from loadfactor.collect.backups import ScheduledBackups
from loadfactor.collect.collector import LiveCollector
from loadfactor.collect.event_stream import EventStream
from loadfactor.collect.google_cloud import GceInstances, MonitoringMetrics
from loadfactor.collect.http_fetch import RequestPools
from loadfactor.collect.kubernetes_watch import ClusterWatch
from loadfactor.collect.metric_stream import MetricStreamWatch
from loadfactor.collect.own_gpus import OWN_STREAM, sample_own_gpus
from loadfactor.collect.payload_stream import PayloadStream
from loadfactor.collect.payloads import EVENTS, PAGE, QUERY, REMOTE_WRITE, pack_answer, pack_engine_page, pack_events
from loadfactor.collect.polling import CloudInstances, InstanceWatch, Keep, PartStatus, PolledSource
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.pull import CloudMetrics, CloudPull, KeepChunk, Pull, ScheduledPull
from loadfactor.collect.scrape_group import ScrapeGroup
from loadfactor.collect.scraped_payloads import ScrapedPayloads
from loadfactor.collect.slurm_rest import open_slurm
from loadfactor.collect.slurm_watch import SlurmWatch
from loadfactor.settings.config import Settings, take_changes
from loadfactor.settings.server import BackupSettings
from loadfactor.settings.sources import (
    CloudSource,
    CloudWatchAccount,
    ExporterGroup,
    KubernetesCluster,
    PrometheusSettings,
    ServingEngines,
    SlurmCluster,
)
from loadfactor.sources.progress_records.live_decoder import PROGRESS_ORIGIN
from loadfactor.sources.prometheus.query_answers import ALL, EXPORTERS, write_selector
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import count_quarantined
from loadfactor.store.source_status import Failure, SourceStatus, explain_status, read_statuses, write_statuses

INGEST_EVERY_S: Final = 2.0
HELD_EVERY_S: Final = 1.0
"""So often what the disk did not take is handed over again."""
FLUSH_ROWS: Final = 1_000_000
"""With so many live rows they are made files before their time."""
FLUSH_AGAIN_S: Final = 20.0
"""After a flush that could not be done: an import may be writing."""
STATUS_EVERY_S: Final = 5.0
SILENT_S: Final = 900.0
"""A source that sent samples and sends none for so long is called silent."""
CLOCK_S: Final = float(S_PER_HOUR)
"""So long after our clock was set that is reported."""
ASIDE_S: Final = float(S_PER_DAY)
"""For so long after a payload was set aside the server is degraded; then it is a note."""
BUSY_MS: Final = 15 * MS_PER_MIN
"""A flush that is put off for less is a note: another command may be writing."""
MOST_ANSWERS: Final = 3
"""So many fetched answers may wait to be ingested; then fetching waits."""

Log = Callable[..., None]
"""Writes a line of the log of the process: `level`, `event` and further fields by name."""


class WriteAnswer(NamedTuple):
    """Answer to a request that is durable now: how many samples, and how many of them of series that no decoder knows."""

    samples: int
    not_understood: int = 0


@dataclass(frozen=True)
class ReceiverCounts:
    """Counts since the process began. `refused` and `skipped` (samples) by reason, `errors` by source."""

    received: int = 0  # samples
    acknowledged: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    not_understood: int = 0
    queue_bytes: int = 0
    lag_s: float = 0.0
    held_bytes: int = 0
    dropped: int = 0  # scraped payloads
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _Flush:
    """When live rows became files last."""

    at_s: float
    rows: int = 0


class LiveService:
    """Everything that runs beside the HTTP server, on its event loop; what takes long runs in threads."""

    def __init__(
        self,
        folder: Path,
        flush: Callable[[], int],
        live: LiveLog,
        settings: Settings,
        log: Log,
        back_up: Callable[[BackupSettings], int] | None = None,
    ) -> None:
        """`flush` makes files of the live rows; it gives the number of the last batch that is in files.

        `back_up` makes a backup where one is due, and gives when the newest was made, in ms.
        """
        self.collector = LiveCollector(live)
        self._ingest_trouble, self._flush_trouble = Trouble(), Trouble()
        self._folder, self._flush_books, self._live, self._log = folder, flush, live, log
        self._flush = _Flush(time.monotonic())
        self._flushing = threading.Lock()
        self._held = ScrapedPayloads(self.collector.write)
        self._quarantined_before = count_quarantined(folder)
        self._logged_quarantined = 0
        self._aside_s, self._aside_ms = 0.0, 0  # when the last payload was set aside: monotonic, and ms UTC
        self._written: list[SourceStatus] = []
        self._clock_watch, self._clock, self._clock_s = ClockWatch(), PartStatus(), 0.0
        self._before = {status.name: status for status in read_statuses(folder)}
        self._pools = RequestPools()
        self._back_up = back_up
        self._sources: dict[str, ScheduledPull | ScrapeGroup | PolledSource] = {}
        self._samples_own = False
        """Nothing is configured that samples GPUs: those of this machine are sampled."""
        self._changed = asyncio.Event()
        self.take(settings)

    def take(self, settings: Settings) -> None:
        """Collect as these settings say. A source whose settings are as before goes on; others go on where their streams are.

        Raises InputError where a source cannot be reached as they say; then nothing has changed.
        """
        engines = [group for group in settings.exporters if isinstance(group, ServingEngines)]
        makers: dict[str, Callable[[], ScheduledPull | ScrapeGroup | PolledSource]] = {
            **{
                f"{bool(engines)} {server!r}": partial(self._pull_server, server, bool(engines))
                for server in settings.prometheus
            },
            **{f"{group!r}": partial(self._scrape_group, group) for group in settings.exporters},
            **{f"{cluster!r}": partial(self._watch_cluster, cluster) for cluster in settings.kubernetes},
            **{f"{cluster!r}": partial(self._watch_slurm, cluster) for cluster in settings.slurm},
        }
        for account in settings.cloudwatch:
            name = f"cloudwatch {account.label}"
            if not account.stream:
                makers[f"{account!r}"] = partial(self._pull_cloud, name, CloudWatchMetrics(account), account)
            if account.instances:
                makers[f"ec2 {account!r}"] = partial(
                    self._watch_instances, f"ec2 {account.label}", Ec2Instances(account), account
                )
        for project in settings.gcp_monitoring:
            name = f"gcp-monitoring {project.label}"
            makers[f"{project!r}"] = partial(self._pull_cloud, name, MonitoringMetrics(project), project)
            if project.instances:
                makers[f"gce {project!r}"] = partial(
                    self._watch_instances, f"gce {project.label}", GceInstances(project), project
                )
        makers |= {
            f"stream {account!r}": partial(self._watch_metric_stream, account)
            for account in settings.cloudwatch
            if account.stream
        }
        if settings.backup.to and self._back_up is not None:
            makers[f"{settings.backup!r}"] = partial(ScheduledBackups, settings.backup, self._back_up, self._before)
        if self._sources:
            self._before = {status.name: status for status in self.statuses()}
        self._sources = {key: self._sources.get(key) or make() for key, make in makers.items()}
        self._samples_own = not self._pulls and len(engines) == len(settings.exporters)
        self._flush_every_s = settings.server.flush_every.s
        self._exit_after = settings.server.exit_after
        self._changed.set()

    @property
    def _pulls(self) -> list[ScheduledPull]:
        return [source for source in self._sources.values() if isinstance(source, ScheduledPull)]

    @property
    def _groups(self) -> list[ScrapeGroup]:
        return [source for source in self._sources.values() if isinstance(source, ScrapeGroup)]

    @property
    def _polled(self) -> list[PolledSource]:
        return [source for source in self._sources.values() if isinstance(source, PolledSource)]

    async def run(self) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(INGEST_EVERY_S, self._ingest))
            tasks.create_task(self._repeat(INGEST_EVERY_S, self._flush_when_due))
            tasks.create_task(self._repeat(HELD_EVERY_S, self._held.deliver))
            tasks.create_task(self._repeat(STATUS_EVERY_S, self._keep_statuses))
            tasks.create_task(self._run_sources())

    async def _run_sources(self) -> None:
        """Run the sources that there are, those of changed settings in place of those before."""
        running: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                runs = {key: source.run for key, source in self._sources.items()}
                if self._samples_own:
                    runs["own GPUs"] = self._sample_own
                for key in [key for key in running if key not in runs]:
                    running.pop(key).cancel()
                running |= {key: tasks.create_task(run()) for key, run in runs.items() if key not in running}
                await self._changed.wait()

    async def _sample_own(self) -> None:
        await sample_own_gpus(
            lambda payload: self._held.keep(payload, OWN_STREAM, REMOTE_WRITE),
            lambda text: self._log(level="info", event="own GPUs", said=text),
        )

    async def stop(self) -> None:
        """Ingest what came, make files of it, and close the log. What cannot be done now is done at the next start."""
        await self._held.deliver()
        if len(self._held):
            self._log(level="error", event="scraped payloads are lost: the disk took none", payloads=len(self._held))
        with suppress(LoadfactorError):
            self._live.check_writable()  # else who books would wait until it can be written
            await asyncio.to_thread(self.collector.ingest)
            await asyncio.to_thread(self._flush_rows)
        with suppress(LoadfactorError, OSError):
            await asyncio.to_thread(write_statuses, self._folder, self.statuses())
        self.collector.close()
        await asyncio.to_thread(self._live.close)

    async def write(self, body: bytes, origin: str) -> WriteAnswer:
        """Take a remote_write request as it came; returns when it is durable. Raises as `LiveCollector.write`."""
        received = await self.collector.write(body, origin)
        return WriteAnswer(received.samples, received.not_understood)

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:
        """Take the records of a tracked run; returns when they are durable. Raises as `LiveCollector.write`."""
        payload = await asyncio.to_thread(pack_events, records)
        await self.collector.write(payload, PROGRESS_ORIGIN, EVENTS)

    def counts(self) -> ReceiverCounts:
        """Count what was received so far, on all streams."""
        streams = self.collector.counts.values()
        refused: Counter[str] = Counter()
        for counts in streams:
            refused += counts.refused
        return ReceiverCounts(
            received=sum(counts.received_samples for counts in streams),
            acknowledged=sum(counts.acknowledged_samples for counts in streams),
            refused=refused,
            skipped=self.collector.skipped,
            not_understood=sum(self.collector.not_understood.values()),
            queue_bytes=self.collector.waiting_bytes,
            lag_s=self.collector.lag_s,
            held_bytes=self._held.bytes,
            dropped=self._held.dropped,
            errors={pull.name: pull.errors for pull in self._pulls}
            | {group.name: group.failed for group in self._groups},
        )

    def health(self) -> dict[str, Any]:
        """The answer of GET /health; it asks neither the disk nor the books. `set_aside`: payloads that could not be decoded."""
        statuses = self.statuses()
        reasons = self._explain(statuses)
        error = self._describe_fault() or self._ingest_trouble.cause or self._flush_trouble.cause
        return {
            "status": derive_status(reasons),
            "reasons": [asdict(reason) for reason in reasons],
            "sources": [_describe(status) for status in statuses],
            "lag_s": round(self.collector.lag_s, 3),
            "error": error or None,
            "set_aside": self._quarantined_before + len(self.collector.quarantined),
        }

    def reasons(self) -> list[HealthReason]:
        """List why something is not collected or booked; it asks neither the disk nor the books."""
        return self._explain(self.statuses())

    def _explain(self, statuses: Sequence[SourceStatus]) -> list[HealthReason]:
        explained = map(explain_status, statuses)
        return [
            *self._explain_store(),
            *(reason for reason in explained if reason is not None),
            *self._explain_skipped(),
            *self._explain_set_aside(),
        ]

    def _explain_store(self) -> Iterator[HealthReason]:
        def explain(severity: Severity, cause: str, since_ms: int | None, action: str) -> HealthReason:
            return HealthReason("store", None, severity, cause, format_utc(since_ms), action)

        if fault := self._describe_fault():
            since_ms = now_ms() - int(self._live.fault_s * MS_PER_S)
            action = "give the disk of the books room, or see what ails it; writing goes on by itself"
            yield explain("failing", fault, since_ms, action)
        if self._ingest_trouble.cause:
            action = "see what the cause names; what came is kept, and booked when that is over"
            yield explain("failing", self._ingest_trouble.cause, self._ingest_trouble.since_ms, action)
        if self._flush_trouble.cause and self._flush_trouble.since_ms is not None:
            is_long = now_ms() - self._flush_trouble.since_ms > BUSY_MS
            action = "wait for another command that writes, or see to the disk; rows are readable meanwhile"
            severity: Severity = "degraded" if is_long else "note"
            yield explain(severity, self._flush_trouble.cause, self._flush_trouble.since_ms, action)

    def _explain_skipped(self) -> Iterator[HealthReason]:
        """A series that is odd is a note: its neighbours are kept, and nothing that the server can do helps."""
        for stream_id in self.collector.stream_ids:
            for missed in self.collector.stream(stream_id).skipped.list_missed():
                action = "see to what sends these series; all others are kept"
                yield HealthReason("collector", stream_id, "note", missed.cause, format_utc(missed.since_ms), action)

    def _explain_set_aside(self) -> Iterator[HealthReason]:
        now = len(self.collector.quarantined)
        if count := self._quarantined_before + now:
            is_recent = now > 0 and time.monotonic() - self._aside_s < ASIDE_S
            noun = "payload" if count == 1 else "payloads"
            cause = f"{count:,} {noun} could not be decoded and lie in quarantine/ of the books, not booked"
            action = "report it with the files, and delete them; the log names each one and why"
            severity: Severity = "degraded" if is_recent else "note"
            since_utc = format_utc(self._aside_ms if now else None)
            yield HealthReason("collector", None, severity, cause, since_utc, action)

    def note_clock(self, what: str) -> None:
        """The clock is, or was, not right: health and `doctor` say so for a while."""
        self._clock, self._clock_s = PartStatus().fail(what, "degraded"), time.monotonic()
        self._log(level="warning", event="the clock was set", what=what)

    @property
    def given_up(self) -> str:
        """Why the process should end: the books could not be written for longer than is set. Empty where they can."""
        if self._live.fault_s <= self._exit_after.s:
            return ""
        ended = f"ended after {self._exit_after} of that (exit_after in [server])"
        return f"{self._live.fault}; {ended}: see to the disk, and start it again"

    def _describe_fault(self) -> str:
        """Why the books cannot be written now, and what was scraped meanwhile; empty where they can."""
        fault, lost = self._live.fault, f", {self._held.dropped:,} were dropped" if self._held.dropped else ""
        held = f"; {len(self._held):,} scraped payloads wait in memory{lost}" if len(self._held) else ""
        return f"{fault}{held}" if fault else ""

    def statuses(self) -> list[SourceStatus]:
        """The status of every source: what is fetched, and what sends."""
        found = [pull.status.describe(pull.name) for pull in self._pulls]
        found += map(self._describe_group, self._groups)
        found += [status for source in self._polled for status in source.statuses()]
        for name, at_ms in sorted(self.collector.last_sample_ms.items()):
            silent = self.collector.seen_s_ago(name) > SILENT_S
            error = f"no sample since {format_utc(at_ms)}" if silent else None
            found.append(SourceStatus(name, "silent" if silent else "ok", at_ms, error, at_ms if silent else None))
        found = self._report_shortfalls(found) or [SourceStatus(REMOTE_WRITE, "waiting")]
        was_set = self._clock.error and time.monotonic() - self._clock_s < CLOCK_S
        return [*found, self._clock.describe("clock")] if was_set else found

    def _report_shortfalls(self, statuses: Sequence[SourceStatus]) -> list[SourceStatus]:
        """Add what their streams skip. A refused request degrades a source that is well; samples ahead of the clock do not."""
        by_name = {status.name: status for status in statuses}
        for stream_id in self.collector.stream_ids:
            stream = self.collector.stream(stream_id)
            refusal, ahead, skipped = self.collector.find_refusal(stream_id), stream.find_ahead(), stream.skipped.list()
            short = [shortfall for shortfall in (refusal, ahead) if shortfall is not None]
            if short or skipped:
                status = by_name.get(stream_id, SourceStatus(stream_id, "ok"))
                if short and status.error is None:
                    status = replace(
                        status,
                        status="degraded" if refusal is not None else status.status,
                        error="; ".join(shortfall.cause for shortfall in short),
                        since_ms=min(shortfall.since_ms for shortfall in short),
                    )
                by_name[stream_id] = replace(status, skipped=skipped)
        return list(by_name.values())

    def _pull_server(self, server: PrometheusSettings, scrapes_engines: bool) -> Pull:
        name = f"prometheus {server.label}"
        begin_ms, keep = self._keep_answers(name, server.backfill.s)
        takes_engines = not scrapes_engines if server.serving is None else server.serving
        selector = write_selector(server.match, ALL if takes_engines else EXPORTERS)
        address = PrometheusServer(name, server.url, server.bearer_token_file)
        return Pull(address, selector, server.every.s, begin_ms, keep, self._pools, self._failed_before(name))

    def _pull_cloud(self, name: str, metrics: CloudMetrics, cloud: CloudSource) -> CloudPull:
        begin_ms, keep = self._keep_answers(name, cloud.backfill.s)
        return CloudPull(name, metrics, cloud.every.s, begin_ms, keep, self._failed_before(name))

    def _keep_answers(self, stream_id: str, backfill_s: float) -> tuple[int, KeepChunk]:
        """Where a stream that is pulled goes on, in ms, and what keeps its answers."""
        stream = self.collector.stream(stream_id)

        async def keep(answer: bytes, from_ms: int, to_ms: int) -> None:
            await self._write_in_turn(stream, pack_answer(answer, from_ms, to_ms), QUERY)

        return stream.reached_ms or now_ms() - int(backfill_s * MS_PER_S), keep

    async def _write_in_turn(self, stream: PayloadStream, payload: bytes, kind: str) -> None:
        while stream.waiting > MOST_ANSWERS:
            await asyncio.sleep(INGEST_EVERY_S / 10)
        await self.collector.write(payload, stream.stream_id, kind)

    def _failed_before(self, name: str) -> tuple[Failure, ...]:
        return self._before[name].failures if name in self._before else ()

    def _scrape_group(self, group: ExporterGroup) -> ScrapeGroup:
        async def keep(page: bytes) -> None:
            if isinstance(group, ServingEngines):
                payload = await asyncio.to_thread(pack_engine_page, page, group.every.s * MS_PER_S)
                await self._held.keep(payload, group.label, EVENTS)
            else:
                await self._held.keep(page, group.label, PAGE)

        gaps = self._before[group.label].gaps if group.label in self._before else ()
        return ScrapeGroup(group, self._pools, keep, gaps)

    def _describe_group(self, group: ScrapeGroup) -> SourceStatus:
        stream = self.collector.stream(group.name)
        gaps = sorted(stream.gaps.items()) if isinstance(stream, EventStream) else ()
        return replace(group.status(), unknown=tuple((what, count) for (_, what), count in gaps))

    def _watch_cluster(self, cluster: KubernetesCluster) -> ClusterWatch:
        cursor, keep = self._keep_events(cluster.stream_id)
        return ClusterWatch(cluster, cursor, keep, self._before)

    def _watch_slurm(self, cluster: SlurmCluster) -> SlurmWatch:
        cursor, keep = self._keep_events(cluster.stream_id)
        stopped, begin_s = threading.Event(), int(time.time() - cluster.backfill.s)
        slurm = open_slurm(cluster, stopped)
        return SlurmWatch(cluster.stream_id, slurm, cluster.every.s, begin_s, cursor, keep, stopped, self._before)

    def _watch_instances(self, stream_id: str, instances: CloudInstances, cloud: CloudSource) -> InstanceWatch:
        _, keep = self._keep_events(stream_id)
        return InstanceWatch(stream_id, instances, cloud.every.s, keep, self._before)

    def _watch_metric_stream(self, account: CloudWatchAccount) -> MetricStreamWatch:
        stream_id = f"metric-stream {account.label}"
        cursor, keep = self._keep_events(stream_id)
        objects, begin_s = S3Objects(account, account.stream), int(time.time() - account.backfill.s)
        return MetricStreamWatch(stream_id, objects, account.every.s, begin_s, cursor, keep, self._before)

    def _keep_events(self, stream_id: str) -> tuple[Mapping[str, str], Keep]:
        """Where a stream of events goes on, and what keeps its payloads."""
        stream = self.collector.stream(stream_id)

        async def keep(payload: bytes) -> None:
            await self._write_in_turn(stream, payload, EVENTS)

        return stream.cursor, keep

    async def _repeat(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do it again and again, whatever comes out: one failure ends nothing."""
        while True:
            began = time.monotonic()
            try:
                await work()
            except Exception as error:  # a defect of ours must not stop collection
                DEFECTS.explain(work.__name__.strip("_"), error)
            await asyncio.sleep(max(0.05, began + every_s - time.monotonic()))

    async def _ingest(self) -> None:
        take_changes()
        if step_s := self._clock_watch.read_step():
            self.note_clock(f"our clock was set {'forward' if step_s > 0 else 'back'} by {_show_length(abs(step_s))}")
        try:
            self._flush.rows += await asyncio.to_thread(self.collector.ingest)
            self._ingest_trouble.note("")
        except Exception as error:  # also a defect of ours: /health has to say that nothing is booked
            self._ingest_trouble.note(DEFECTS.explain("ingest", error))
        for path in self.collector.quarantined[self._logged_quarantined :]:
            self._logged_quarantined += 1
            self._aside_s, self._aside_ms = time.monotonic(), now_ms()
            self._log(level="error", event="a body that could not be decoded was set aside", file=str(path))

    async def _flush_when_due(self) -> None:
        now = time.monotonic()
        if now - self._flush.at_s >= self._flush_every_s or self._flush.rows >= FLUSH_ROWS:
            await asyncio.to_thread(self._flush_rows)

    def _flush_rows(self) -> None:
        """Make files of the live rows; where another import is writing, a little later."""
        with self._flushing:  # the last one waits for one that is under way
            try:
                self._live.discard_through(self._flush_books())
                self._flush = _Flush(time.monotonic())
                self._flush_trouble.note("")
            except Exception as error:  # also a defect of ours: rows stay live, and readers see them
                again_s = time.monotonic() - self._flush_every_s + FLUSH_AGAIN_S
                self._flush = _Flush(again_s)
                why = DEFECTS.explain("flush", error)
                self._flush_trouble.note(why)
                self._log(level="warning", event="live rows stay live for now", error=why)

    async def _keep_statuses(self) -> None:
        now = self.statuses()
        if [replace(s, last_sample_ms=None) for s in now] != [replace(s, last_sample_ms=None) for s in self._written]:
            with suppress(OSError):  # on a full disk, of which /health speaks: they are written again at the next turn
                await asyncio.to_thread(write_statuses, self._folder, now)
                self._written = now


def _describe(source: SourceStatus) -> dict[str, Any]:
    """One source in /health; of a group of exporters how many there are and answer, of engines what is unknown of them."""
    found = {
        "name": source.name,
        "status": source.status,
        "last_sample": format_utc(source.last_sample_ms),
        "error": source.error,
    }
    group = {} if source.targets is None else {"targets": source.targets, "answering": source.answering}
    return {**found, **group, **({"unknown": dict(source.unknown)} if source.unknown else {})}


def _show_length(seconds: float) -> str:
    """A length of time.

    >>> _show_length(42), _show_length(10_800), _show_length(31_536_000)
    ('42 s', '3 h', '365 days')
    """
    for factor, unit in ((S_PER_DAY, "days"), (S_PER_HOUR, "h")):
        if seconds >= 2 * factor:
            return f"{seconds / factor:,.4g} {unit}"
    return f"{seconds:,.0f} s"
