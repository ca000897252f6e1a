"""Checks of Prometheus servers and groups of exporters: whether they answer, which exporters, signals, labels, what is missing."""

import asyncio
import json
import ssl
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import S_PER_MIN
from loadfactor.collect.discovery.cluster_check import (
    CloudCheck,
    ClusterCheck,
    SlurmCheck,
    check_cluster,
    check_instances,
    check_slurm,
    list_questions,
)
from loadfactor.collect.discovery.shortfalls import Shortfall, SourceCheck, list_shortfalls, note_clock
from loadfactor.collect.exporters import FoundTargets, Target, fetch_page, make_finder, trust_exporters
from loadfactor.collect.http_fetch import FetchError, RequestPool
from loadfactor.collect.payloads import unpack_gzip
from loadfactor.collect.prometheus_server import PrometheusServer, fetch_answer
from loadfactor.collect.slurm_rest import open_slurm
from loadfactor.settings.config import Settings
from loadfactor.settings.sources import ExporterGroup, ServingEngines
from loadfactor.sources.gpu_scrapes.known_devices import DeviceLabels, read_labels
from loadfactor.sources.prometheus.families import find_family, list_labels
from loadfactor.sources.prometheus.metrics_page import list_series
from loadfactor.sources.prometheus.node_source import NODE_EXPORTER, list_node_names
from loadfactor.sources.prometheus.query_answers import write_selector
from loadfactor.sources.serving_engines.engines import CACHED, COUNTED, ENGINES, OUTPUT, PROMPT, REQUEST, START, spell
from loadfactor.store.source_status import SourceStatus, read_statuses

LONGEST_ANSWER_S: Final = 10.0
LOOK_BACK_S: Final = 5 * S_PER_MIN
"""Samples that are not older are there, as for an instant query of Prometheus."""
CLOCKS_AGREE_S: Final = 2.0
"""The header Date counts whole seconds."""
MOST_AT_ONCE: Final = 200
NAMED: Final = 3
_COSTS = {
    PROMPT: "cost_per_million_prompt_tokens, and all that is shared out by tokens",
    OUTPUT: "cost_per_million_output_tokens, and all that is shared out by tokens",
    CACHED: "cached_prompt_share, cost_per_million_cached_prompt_tokens",
    REQUEST: "cost_per_request",
}


@dataclass(frozen=True)
class CheckedSources:
    """Checks of all configured sources, and their last statuses in `loadfactor up`.

    Of `clouds` no metrics are fetched, only whether instances may be listed.
    """

    sources: tuple[SourceCheck, ...]
    clusters: tuple[ClusterCheck, ...] = ()
    slurm: tuple[SlurmCheck, ...] = ()
    instances: tuple[CloudCheck, ...] = ()
    clouds: tuple[str, ...] = ()
    statuses: tuple[SourceStatus, ...] = ()


def check_sources(settings: Settings, folder: Path) -> CheckedSources:
    """Ask every configured source. Raises InputError where an address or a file that the settings name cannot be used."""
    return CheckedSources(
        tuple(asyncio.run(_check_samples(settings))),
        tuple(map(check_cluster, settings.kubernetes)),
        tuple(check_slurm({cluster.stream_id: open_slurm(cluster) for cluster in settings.slurm})),
        tuple(check_instances(list_questions(settings))),
        (
            *(f"cloudwatch {account.label}" for account in settings.cloudwatch),
            *(f"gcp-monitoring {project.label}" for project in settings.gcp_monitoring),
        ),
        tuple(read_statuses(folder)),
    )


async def _check_samples(settings: Settings) -> list[SourceCheck]:
    servers = [
        (PrometheusServer(s.label, s.url, s.bearer_token_file, LONGEST_ANSWER_S), s.match) for s in settings.prometheus
    ]
    turns = asyncio.Semaphore(MOST_AT_ONCE)
    return list(
        await asyncio.gather(
            *(_check_in_time(server, match) for server, match in servers),
            *(check_group(group, turns) for group in settings.exporters),
        )
    )


async def check_server(server: PrometheusServer, match: str) -> SourceCheck:
    """Check a server, of the series that `match` (matchers in braces, or nothing) chooses. Never raises a LoadfactorError."""
    found = SourceCheck(server.name, hide_password(server.url), reachable=False)
    try:
        began_s = time.time()
        answer = await fetch_answer(server, {"query": f"count by (__name__) ({write_selector(match)})"})
        found = replace(found, clock_s=read_clock(answer.date, (began_s + time.time()) / 2))
        counts = {row["metric"].get("__name__", ""): float(row["value"][1]) for row in _read_vector(answer.content)}
        found = replace(found, reachable=True, **understand(counts))
        unnamed = 0
        if found.signals:
            gpus, unnamed = await _look_at_gpus(server, match, counts)
            found = replace(found, **gpus)
        return replace(found, missing=list_shortfalls(found, unnamed))
    except LoadfactorError as error:
        return replace(found, error=str(error))


async def _check_in_time(server: PrometheusServer, match: str) -> SourceCheck:
    try:
        async with asyncio.timeout(2 * server.timeout_s):  # also of one that answers byte by byte
            return await check_server(server, match)
    except TimeoutError:
        late = f"did not answer within {2 * server.timeout_s:g} seconds"
        return SourceCheck(server.name, hide_password(server.url), reachable=False, error=late)


def understand(names: Collection[str]) -> dict[str, Any]:
    """The exporters, serving engines and fields behind these names of metrics."""
    gpus = {name: found for name in names if (found := find_family({"__name__": name})) is not None}
    exporters = {*(family.name for family, _ in gpus.values()), *find_engines(names)}
    if any(name in names for name in list_node_names()):
        exporters.add(NODE_EXPORTER)
    signals = {field.key for _, field in gpus.values() if field is not None}
    return {"exporters": tuple(sorted(exporters)), "signals": tuple(sorted(signals))}


async def _look_at_gpus(
    server: PrometheusServer, match: str, counts: Mapping[str, float]
) -> tuple[dict[str, Any], int]:
    """The GPUs of the metric that most series have, how often they are scraped, and how many say no model."""
    known = [name for name in counts if (found := find_family({"__name__": name})) is not None and found[1] is not None]
    name = max(sorted(known), key=lambda name: counts[name])
    further = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
    series = f'{{__name__="{name}"{"," if further else ""}{further}}}'
    stamped = await fetch_answer(server, {"query": f"timestamp({series})"})
    rows = _read_vector(stamped.content)
    devices = [read_device({**row["metric"], "__name__": name}) for row in rows]
    ages = [float(row["value"][0]) - float(row["value"][1]) for row in rows]
    gpus, unnamed = count_devices(devices)
    return {
        **gpus,
        "step_s": await _find_step(server, {**rows[0]["metric"], "__name__": name}) if rows else None,
        "newest_s": max(0.0, min(ages)) if ages else None,
    }, unnamed


async def _find_step(server: PrometheusServer, labels: Mapping[str, str]) -> float | None:
    series = "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()) + "}"
    answer = await fetch_answer(server, {"query": f"{series}[{LOOK_BACK_S}s]"})
    try:
        points = json.loads(answer.content)["data"]["result"][0]["values"]
        return median(float(b[0]) - float(a[0]) for a, b in pairwise(points)) if len(points) > 1 else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None  # the series has ended meanwhile


def count_devices(devices: Iterable[DeviceLabels]) -> tuple[dict[str, Any], int]:
    """How many GPUs these are, in how many nodes, how many have a known holder, and how many say no model."""
    gpus = [d for d in devices if d.gpu is not None]
    named = {d.gpu for d in gpus if d.model is not None}
    return {
        "gpus": len({d.gpu for d in gpus}),
        "nodes": len({d.node for d in gpus if d.node is not None}),
        "held_gpus": len({d.gpu for d in gpus if d.holder is not None}),
    }, len({d.gpu for d in gpus} - named)


def read_device(labels: Mapping[str, str]) -> DeviceLabels:
    found = find_family(labels)
    assert found is not None
    lower = {name.lower(): value for name, value in labels.items()}
    return read_labels(lower, None, lower.get("instance", ""), list_labels(found[0]))


def _read_vector(content: bytes) -> list[dict[str, Any]]:
    try:
        data = json.loads(content)["data"]
        rows = data["result"]
        if data["resultType"] != "vector":
            raise TypeError
        for row in rows:
            float(row["value"][0]), float(row["value"][1]), row["metric"].items()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise FetchError("answered, but not as Prometheus does; check the address") from error
    return list(rows)


def read_clock(date: str, ours_s: float) -> float | None:
    """How far the clock of a header Date is ahead of ours; None where there is none."""
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - ours_s  # the date is cut to the second
    except (ValueError, TypeError):
        return None


def find_engines(metrics: Collection[str]) -> tuple[str, ...]:
    names = {spell(name) for name in metrics}
    known = {e.name: {name for of in (*e.counts.values(), *e.gauges.values()) for name in of} for e in ENGINES}
    return tuple(sorted(engine for engine, metrics in known.items() if names & metrics))


def list_engine_shortfalls(metrics: Collection[str]) -> tuple[Shortfall, ...]:
    """List what is unknown where engines have metrics of these names."""
    names = {spell(name) for name in metrics}
    if not find_engines(metrics):
        do = "name the engines in [[serving]] with the port of their /metrics (vLLM: 8000); SGLang: --enable-metrics"
        return (Shortfall("missing", "no metrics of a serving engine", "everything: nothing can be counted", do),)
    found = [
        Shortfall("note", f"no {unit.replace('_', ' ')}s", costs, "nothing, where its version does not count them")
        for unit, costs in _COSTS.items()
        if not names.intersection(COUNTED[unit])
    ]
    if START not in names:
        what = f"no {START}: a process cannot be told from another one"
        costs = "what was made over a gap between scrapes; what replicas behind one name make"
        found.append(Shortfall("note", what, costs, "list each replica by an address of its own"))
    return tuple(found)


@dataclass(frozen=True)
class _Scraped:
    """An exporter that was scraped: the metrics and the GPUs on its page, or why there is none."""

    target: Target
    metrics: frozenset[str] = frozenset()
    devices: frozenset[DeviceLabels] = frozenset()
    clock_s: float | None = None
    error: str = ""


async def check_group(group: ExporterGroup, turns: asyncio.Semaphore) -> SourceCheck:
    """Scrape the exporters of a group once. Raises InputError where the settings of the group cannot be used."""
    listed = await make_finder(group).find()
    tls = trust_exporters(group)
    scraped = await asyncio.gather(*(_scrape(target, group, tls, turns) for target in listed.targets))
    answers = [page for page in scraped if not page.error]
    where = group.dns or ", ".join(group.file_sd or group.targets)
    found = SourceCheck(
        group.label, where, bool(answers), targets=len(scraped), answering=len(answers), step_s=group.every.s
    )
    if not answers:
        why = _name_dead(scraped) if scraped else ""
        return replace(found, error="; ".join(filter(None, (why, listed.error))) or "it has no exporters")
    metrics = {name for page in answers for name in page.metrics}
    clocks = [page.clock_s for page in answers if page.clock_s is not None]
    found = replace(found, clock_s=max(clocks, key=abs, default=None))
    if isinstance(group, ServingEngines):
        dead = _list_dead(listed, scraped, "what they make")
        missing = (*dead, *note_clock(found.clock_s), *list_engine_shortfalls(metrics))
        return replace(found, exporters=find_engines(metrics), missing=missing)
    gpus, unnamed = count_devices([device for page in answers for device in page.devices])
    found = replace(found, **understand(metrics), **gpus)
    missing = (*_list_dead(listed, scraped, "their GPUs"), *list_shortfalls(found, unnamed))
    return replace(found, missing=missing)


async def _scrape(target: Target, group: ExporterGroup, tls: ssl.SSLContext, turns: asyncio.Semaphore) -> _Scraped:
    async with turns:
        try:
            answer = await fetch_page(target, RequestPool(), group.timeout_s, group.bearer_token_file, tls)
            page = unpack_gzip(answer.content) if answer.is_gzip else answer.content
            series = list(list_series(page, target.labels))
        except LoadfactorError as error:
            return _Scraped(target, error=str(error))
    clock_s = read_clock(answer.date, (answer.at_s + answer.end_s) / 2)
    of_gpus = [labels for labels in series if (known := find_family(labels)) is not None and known[1] is not None]
    return _Scraped(target, frozenset(s["__name__"] for s in series), frozenset(map(read_device, of_gpus)), clock_s)


def _list_dead(listed: FoundTargets, scraped: Sequence[_Scraped], whose: str) -> list[Shortfall]:
    dead = [page for page in scraped if page.error]
    found = []
    if dead:
        what = f"{len(dead)} of {len(scraped)} exporters do not answer: {_name_dead(dead)}"
        found.append(
            Shortfall("missing", what, f"{whose}: nothing is measured", "start them, or take them off the list")
        )
    if listed.error:
        found.append(
            Shortfall("missing", listed.error, "exporters that should be asked, or should not", "mend the list")
        )
    return found


def _name_dead(dead: Sequence[_Scraped]) -> str:
    named = ", ".join(f"{page.target.name} ({page.error})" for page in dead[:NAMED])
    return named + (f" and {len(dead) - NAMED} more" if len(dead) > NAMED else "")


def hide_password(url: str) -> str:
    """The address without what may be a password.

    >>> hide_password("https://user:secret@prometheus.example:9090/path")
    'https://prometheus.example:9090/path'
    """
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
