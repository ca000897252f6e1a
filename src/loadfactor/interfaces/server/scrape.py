"""`/metrics`: the fleet's own numbers, and the server's."""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import Response

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect.live import ReceiverCounts
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rule import Rule
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.exposition import SPLITS, GaugeSplit, MetricFamily, write_exposition
from loadfactor.interfaces.gauges.measured import WholeJobs, measure_budgets, measure_end, measure_split
from loadfactor.interfaces.gauges.rules import RuleGauges, RuleVerdicts
from loadfactor.interfaces.reach import is_empty
from loadfactor.interfaces.server.gate import Gate
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.quota import Quota
from loadfactor.interfaces.server.replies import Receiver, describe_errors
from loadfactor.settings.config import settings

BUDGETS_FRESH_S: Final = 300


def configure_rules() -> Sequence[Rule]:
    return configure(RULES, settings().alert)


@dataclass(frozen=True)
class GaugeWindow:
    """Splits of the gauges, and how often they are looked at. `wait_s`: how long who asks waits for newer ones."""

    splits: tuple[GaugeSplit, ...] = SPLITS
    rules: Callable[[], Sequence[Rule]] = configure_rules
    fresh_s: float = 30
    wait_s: float = 2


@dataclass(frozen=True)
class _Kept:
    at_s: float
    families: list[MetricFamily]


class FleetGauges:
    """The gauges, kept for a while. For one event loop; `clock_s` is in seconds since 1970."""

    def __init__(
        self,
        books: Books,
        pool: QuestionPool,
        window: GaugeWindow,
        clock_s: Callable[[], float],
        read_verdicts: Callable[[], RuleVerdicts | None] | None = None,
    ) -> None:
        """`read_verdicts`: what the rules say, where alerts are judged already; without it they are judged here."""
        self._read_verdicts = read_verdicts
        self._books, self._pool, self._window, self._clock_s = books, pool, window, clock_s
        self._kept: dict[GaugeSplit | str, _Kept] = {}
        self._whole_jobs, self._rules = WholeJobs(), RuleGauges(books)
        self._at_s: float | None = None
        self._running: asyncio.Task[None] | None = None

    async def get(self) -> list[MetricFamily]:
        """The gauges as they are known; waits a moment for newer ones, never longer."""
        stale = self._at_s is None or self._clock_s() - self._at_s >= self._window.fresh_s
        if stale and self._running is None:
            self._running = asyncio.create_task(self._renew())
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._window.wait_s)
        return [family for kept in self._kept.values() for family in kept.families]

    async def _renew(self) -> None:
        try:
            self._kept = await self._pool.ask(lambda: self._measure(self._clock_s(), dict(self._kept)))
        except LoadfactorError as error:  # busy, or damaged: the gauges stay away rather than stay old
            self._kept = {}
            write_line(warning=f"/metrics has no numbers of the fleet now: {error}")
        finally:
            self._at_s = self._clock_s()
            self._running = None

    def _measure(self, now_s: float, kept: dict[GaugeSplit | str, _Kept]) -> dict[GaugeSplit | str, _Kept]:
        """The gauges of now: those that are not fresh any more measured again, all of one snapshot."""
        now, currency = datetime.fromtimestamp(now_s, UTC), self._books.store.currency

        def is_due(name: GaugeSplit | str, fresh_s: float) -> bool:
            return name not in kept or now_s - kept[name].at_s >= fresh_s

        with self._books.snapshot() as snapshot:
            if is_empty(snapshot):
                return {}
            kept["end"] = _Kept(now_s, measure_end(snapshot))
            due = [split for split in self._window.splits if is_due(split, split.fresh_s)]
            windows = {S_PER_HOUR, *(split.window_s for split in due)}
            snapshot.prepare((now - timedelta(seconds=window_s), now) for window_s in sorted(windows))
            for split in due:
                kept[split] = _Kept(now_s, measure_split(snapshot, split, now, currency))
            if is_due("budgets", BUDGETS_FRESH_S):
                kept["budgets"] = _Kept(now_s, measure_budgets(snapshot))
            kept["whole jobs"] = _Kept(now_s, self._whole_jobs.measure(snapshot, now, currency))
        kept["rules"] = _Kept(now_s, self._judge(now_s))
        return kept

    def _judge(self, now_s: float) -> list[MetricFamily]:
        """Gauges of rules; nothing where that fails, as the other gauges do not depend on it."""
        if self._read_verdicts is not None:
            verdicts = self._read_verdicts()
            return verdicts.tell(self._books.store.currency, now_s) if verdicts else []
        try:
            return self._rules.measure(self._window.rules(), now_s)
        except LoadfactorError as error:
            write_line(warning=f"/metrics has nothing that rules of alerts watch now: {error}")
            return []


LIMITS: Final = ("rows_per_s", "series", "store_gb", "questions")
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_scrape(app: FastAPI, receiver: Receiver, gauges: FleetGauges, gate: Gate, quota: Quota) -> None:
    """Add it to an app."""
    text: dict[int | str, dict[str, object]] = {
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @app.get("/metrics", responses={**text, **describe_errors()}, response_class=Response)
    async def scrape() -> Response:
        """The fleet's own numbers over the last hour and day and the server's, for Prometheus to scrape."""
        counts = receiver.counts()
        server = [*count_server(counts, gate.answered), *tell_sources(receiver.health())]
        server += measure_process() if quota.settings is None else []  # of a tenant, that tells of the others
        server += count_limits({"": (quota, counts, gate.limited)})
        families = [*await gauges.get(), *server]
        return Response(write_exposition(families), media_type=MEDIA_TYPE)


def count_server(counts: ReceiverCounts, answered: Counter[tuple[str, int]]) -> list[MetricFamily]:

    def one(name: str, about: str, value: float) -> MetricFamily:
        return MetricFamily(
            f"loadfactor_server_{name}", about, "counter" if name.endswith("_total") else "gauge", [({}, value)]
        )

    def many(name: str, about: str, label: str, values: dict[str, int]) -> MetricFamily:
        samples = [({label: key}, float(value)) for key, value in sorted(values.items())]
        return MetricFamily(f"loadfactor_server_{name}", about, "counter", samples)

    requests = [({"path": path, "status": str(status)}, float(n)) for (path, status), n in sorted(answered.items())]
    return [
        one("rows_received_total", "Samples received.", counts.received),
        one("rows_acknowledged_total", "Samples acknowledged: they are durable.", counts.acknowledged),
        one("rows_not_understood_total", "Samples of series that no decoder knows.", counts.not_understood),
        many("refused_total", "Requests refused, by reason.", "reason", dict(counts.refused)),
        many("skipped_total", "Samples that came and are not kept, by reason.", "reason", dict(counts.skipped)),
        one("queue_bytes", "Bytes that wait to be durable.", counts.queue_bytes),
        one("lag_seconds", "How long the oldest sample waits that readers cannot see yet.", counts.lag_s),
        one("held_bytes", "Bytes of what was scraped while the disk takes nothing.", counts.held_bytes),
        one(
            "dropped_total", "Scraped payloads dropped: the disk took none for longer than memory held.", counts.dropped
        ),
        many("source_errors_total", "Errors by source.", "source", dict(counts.errors)),
        MetricFamily("loadfactor_server_requests_total", "Requests answered, by path and status.", "counter", requests),
    ]


def count_limits(tenants: Mapping[str, tuple[Quota, ReceiverCounts, Mapping[str, int]]]) -> list[MetricFamily]:
    """What limits refused, and where they are, of each tenant; `""` is the one whose own page it is."""
    refused, most, series, stored = [], [], [], []
    for name, (quota, counts, limited) in tenants.items():
        of = {"tenant": name} if name else {}
        refused += [({**of, "limit": limit}, float(count)) for limit, count in sorted(limited.items())]
        if quota.settings is not None:
            limits = {limit: getattr(quota.settings, limit) for limit in LIMITS}
            most += [({**of, "limit": limit}, float(value)) for limit, value in limits.items() if value is not None]
            stored.append((of, float(quota.store_bytes)))
        series.append((of, float(counts.series)))
    return [
        MetricFamily("loadfactor_server_limited_total", "Requests refused by a limit.", "counter", refused),
        MetricFamily("loadfactor_server_limit", "The limits of a tenant, by setting.", "gauge", most),
        MetricFamily("loadfactor_server_series", "Series of samples that were sent.", "gauge", series),
        MetricFamily("loadfactor_server_store_bytes", "Bytes that the books of a tenant take.", "gauge", stored),
    ]


def tell_sources(health: Mapping[str, Any]) -> list[MetricFamily]:
    sources = health["sources"]
    up = [({"source": s["name"]}, float(s["status"] == "ok")) for s in sources]
    heard = [
        ({"source": s["name"]}, datetime.fromisoformat(s["last_sample"]).timestamp())
        for s in sources
        if s.get("last_sample")
    ]
    about = "1 if the source is well; 0 if it waits, fails or is silent."
    last = "When the last sample of the source was taken, in seconds since 1970."
    aside = "Bodies that were acknowledged and that nobody could decode."
    return [
        MetricFamily("loadfactor_server_source_up", about, "gauge", up),
        MetricFamily("loadfactor_server_source_last_sample_timestamp_seconds", last, "gauge", heard),
        MetricFamily("loadfactor_server_set_aside", aside, "gauge", [({}, float(health.get("set_aside", 0)))]),
    ]


PROC: Final = Path("/proc/self")


def measure_process() -> list[MetricFamily]:
    """What this process uses, under the names that Prometheus' own clients give; without /proc the processor time alone."""
    used, (fds, _) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_NOFILE)
    values = [
        ("cpu_seconds_total", "Processor time used, in seconds.", used.ru_utime + used.ru_stime),
        ("max_fds", "Files that may be open.", fds),
    ]
    with suppress(OSError):
        pages = (PROC / "statm").read_text().split()
        began = int((PROC / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        booted = (PROC.parent / "stat").read_text().partition("btime ")[2].split()[0]
        values += [
            ("virtual_memory_bytes", "Virtual memory, in bytes.", int(pages[0]) * resource.getpagesize()),
            ("resident_memory_bytes", "Resident memory, in bytes.", int(pages[1]) * resource.getpagesize()),
            ("open_fds", "Files that are open.", len(os.listdir(PROC / "fd")) - 1),
            ("start_time_seconds", "When the process began, in seconds since 1970.", int(booted) + began),
        ]
    return [
        MetricFamily(f"process_{name}", about, "counter" if name.endswith("_total") else "gauge", [({}, float(value))])
        for name, about, value in values
    ]
