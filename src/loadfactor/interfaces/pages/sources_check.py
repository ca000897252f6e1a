"""The page of `loadfactor check`: what each configured source gives, what is missing, and what comes in live."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cloud_check import CloudCheck, check_instances
from loadfactor.collect.discovery.cluster_check import ClusterCheck, check_clusters
from loadfactor.collect.discovery.exporter_check import AskedGroup, check_groups
from loadfactor.collect.discovery.shortfalls import Shortfall
from loadfactor.collect.discovery.slurm_check import SlurmCheck, check_slurm
from loadfactor.collect.discovery.source_check import CLOCKS_AGREE_S, SourceCheck, check_servers
from loadfactor.collect.kubernetes_api import ClusterAccess
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.interfaces.cloud_sources import list_questions
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.exporter_groups import make_asked_group
from loadfactor.interfaces.formats import counted, duration, instant
from loadfactor.interfaces.pages.books import MARKS
from loadfactor.interfaces.requests import SourcesRequest, find_store
from loadfactor.interfaces.slurm_clusters import name_slurm, open_slurm
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.settings.config import Settings, read_settings, settings
from loadfactor.store.manifest import has_books
from loadfactor.store.source_status import SourceStatus, read_statuses

LONGEST_ANSWER_S = 10.0
MISSING = (TableColumn(""), TableColumn("missing"), TableColumn("unknown without it"), TableColumn("what to do"))
SIGNALS = (TableColumn(""), TableColumn("signal"), TableColumn("unknown without it"), TableColumn("field"))
ENABLE = "The field is what dcgm-exporter calls it: a line each in its file of counters (-f, DCGM_EXPORTER_COLLECTORS)."
CLUSTER = (TableColumn("kind"), TableColumn("can be read"), TableColumn("why not"))
COMMANDS = (TableColumn("asked"), TableColumn("answers"), TableColumn("why not"))
LIVE = (TableColumn("source"), TableColumn("status"), TableColumn("last sample"), TableColumn("error"))


@dataclass(frozen=True)
class CheckedSource:
    """What one source gives. `clock_s`: how far its clock is ahead of ours; `signals`: the fields of GPUs it gives; `targets`: the
    exporters of a group, of which so many are `answering`.
    """

    name: str
    url: str
    reachable: bool
    error: str | None
    exporters: tuple[str, ...]
    gpus: int
    nodes: int
    held_gpus: int
    step_s: float | None
    newest_s: float | None
    clock_s: float | None
    signals: tuple[str, ...]
    missing: tuple[Shortfall, ...]
    targets: int | None = None
    answering: int | None = None


@dataclass(frozen=True)
class LiveSource:
    """How a source of `loadfactor up` fared last."""

    name: str
    status: str
    last_sample: datetime | None
    error: str | None


@dataclass(frozen=True)
class SourcesCheck:
    """The configured sources, and what the books last received live."""

    sources: tuple[CheckedSource, ...]
    live: tuple[LiveSource, ...]
    store: str
    has_books: bool
    clusters: tuple[ClusterCheck, ...] = ()
    slurm: tuple[SlurmCheck, ...] = ()
    instances: tuple[CloudCheck, ...] = ()


def build_page(request: SourcesRequest) -> Document:
    """The check of the sources that the configuration names."""
    if request.config is not None and not request.config.is_file():
        raise InputError(f"there is no file {request.config}; `loadfactor init` writes a loadfactor.toml")
    chosen = settings() if request.config is None else read_settings(request.config)
    folder = chosen.store if request.store is None else find_store(request.store)
    return check_sources(chosen, folder)


def check_sources(configured: Settings, folder: Path) -> Document:
    """Ask every configured source; the answer is no where one cannot be reached."""
    asked = [
        (PrometheusServer(s.label, s.url, s.bearer_token_file, LONGEST_ANSWER_S), s.match)
        for s in configured.prometheus
    ]
    groups = [make_asked_group(group) for group in configured.exporters]
    found = asyncio.run(_ask(asked, groups))
    clusters = check_clusters([ClusterAccess(**one.model_dump()) for one in configured.kubernetes])
    slurm = check_slurm({name_slurm(one): open_slurm(one) for one in configured.slurm})
    clouds = [f"cloudwatch {one.label}" for one in configured.cloudwatch]
    clouds += [f"gcp-monitoring {one.label}" for one in configured.gcp_monitoring]
    instances = check_instances(list_questions(configured))
    return build_document(found, read_statuses(folder), folder, clusters, slurm, clouds, instances)


async def _ask(servers: Sequence[tuple[PrometheusServer, str]], groups: Sequence[AskedGroup]) -> list[SourceCheck]:
    found = await asyncio.gather(check_servers(servers), check_groups(groups))
    return [one for several in found for one in several]


def build_document(
    found: Sequence[SourceCheck],
    statuses: Sequence[SourceStatus],
    folder: Path,
    clusters: Sequence[ClusterCheck] = (),
    slurm: Sequence[SlurmCheck] = (),
    clouds: Sequence[str] = (),
    instances: Sequence[CloudCheck] = (),
) -> Document:
    """The page of what was found; of `clouds`, which are configured, no metrics are asked here."""
    live = tuple(
        LiveSource(s.name, s.status, None if s.last_sample_ms is None else read_ms(s.last_sample_ms), s.error)
        for s in statuses
    )
    exists = folder.is_dir() and has_books(folder)
    data = SourcesCheck(
        tuple(map(_describe, found)), live, str(folder), exists, tuple(clusters), tuple(slurm), tuple(instances)
    )
    sections = [*map(_draw_source, found), *map(_draw_cluster, clusters), *map(_draw_slurm, slurm)]
    if live:
        rows = [(s.name, s.status, instant(s.last_sample) if s.last_sample else None, s.error or "") for s in live]
        lead = "As `loadfactor up` said last."
        sections.append(Section("Collected live", lead=lead, tables=(DataTable(LIVE, rows),)))
    books = f"The books are in {folder}." if exists else f"No books in {folder} yet."
    if clouds:
        asks = "`loadfactor up` asks them, and says in /health and `loadfactor doctor` how they fare; no metric is asked for here."
        sections.append(Section("Clouds", lead=f"{', '.join(clouds)}: {asks}"))
    sections += map(_draw_instances, instances)
    others = [*map(_say_cluster, clusters), *map(_say_slurm, slurm)]
    others += [f"Clouds that `loadfactor up` asks: {len(clouds)}."] if clouds else []
    if not found and not others:
        sections.append(Section("Next", suggestions=_list_steps(exists)))
    answer = [
        *(one.reachable for one in found),
        *(one.reachable for one in clusters),
        *(one.reachable for one in slurm),
    ]
    said = " ".join([*([_say(found)] if found or not others else []), *others])
    return Document(said, sections, books, data=data, is_no=not all(answer))


def _describe(one: SourceCheck) -> CheckedSource:
    return CheckedSource(
        one.name,
        _hide_password(one.url),
        one.reachable,
        one.error,
        one.exporters,
        one.gpus,
        one.nodes,
        one.held_gpus,
        one.step_s,
        one.newest_s,
        one.clock_s,
        tuple(sorted(one.keys)),
        one.shortfalls,
        one.targets,
        one.answering,
    )


def _say_cluster(one: ClusterCheck) -> str:
    return f"{one.name}: pods can be read." if one.reachable else f"{one.name}: pods cannot be read."


def _draw_cluster(one: ClusterCheck) -> Section:
    """The kinds of a cluster, and which of them can be read."""
    if not one.kinds:
        return Section(one.name, lead=f"Not reachable: {one.error}.")
    rows = [(kind.kind, "yes" if kind.can_read else "no", kind.error or "") for kind in one.kinds]
    lead = f"At {_hide_password(one.address or '')}. docs/connect-kubernetes.md has the role that reading them takes."
    return Section(one.name, lead=lead, tables=(DataTable(CLUSTER, rows),))


def _draw_instances(one: CloudCheck) -> Section:
    """The questions about instances, and which of them may be asked. What may not is a gap in the books, and hinders nothing."""
    rows = [(said.asked, "yes" if said.works else "no", said.error or "") for said in one.questions]
    lead = "docs/connect-clouds.md has the permissions; `instances = false` asks for no instances."
    return Section(one.name, lead=lead, tables=(DataTable(COMMANDS, rows),))


def _say_slurm(one: SlurmCheck) -> str:
    if not one.reachable:
        return f"{one.name}: jobs cannot be known."
    missing = sum(s.grade == "missing" for s in one.missing) + sum(not asked.works for asked in one.commands)
    lacking = f"{counted(missing, 'thing')} missing" if missing else "nothing that matters is missing"
    return f"{one.name}: {counted(one.gpus, 'GPU')}; {lacking}."


def _draw_slurm(one: SlurmCheck) -> Section:
    """What answers of a cluster, and what its configuration leaves out."""
    rows = [(asked.command, "yes" if asked.works else "no", asked.error or "") for asked in one.commands]
    tables = [DataTable(COMMANDS, rows)]
    if one.missing:
        tables.append(DataTable(MISSING, [(MARKS[s.grade], s.what, s.costs, s.do) for s in one.missing]))
    parts = [f"Slurm {one.version}."] if one.version else []
    if one.nodes:
        parts.append(f"{counted(one.gpus, 'GPU')} in {counted(one.nodes, 'node')}.")
    if one.clock_s is not None and abs(one.clock_s) <= CLOCKS_AGREE_S:
        parts.append("Clocks agree.")
    return Section(one.name, lead=" ".join(parts) if one.reachable else f"Not reachable: {one.error}.", tables=tables)


def _hide_password(url: str) -> str:
    """The address without what may be a password.

    >>> _hide_password("https://user:secret@prometheus.example:9090/path")
    'https://prometheus.example:9090/path'
    """
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _say(found: Sequence[SourceCheck]) -> str:
    if not found:
        return "No source is configured: there is no [[prometheus]] and no [[dcgm]] in loadfactor.toml."
    answering = [one for one in found if one.reachable]
    gpus = f", {counted(sum(one.gpus for one in answering), 'GPU')}" if answering else ""
    missing = sum(s.grade == "missing" for one in answering for s in one.shortfalls)
    lacking = f"; {counted(missing, 'thing')} missing" if missing else "; nothing that matters is missing"
    return f"Sources that answer: {len(answering)} of {len(found)}{gpus}{lacking if answering else ''}."


def _draw_source(one: SourceCheck) -> Section:
    if not one.reachable:
        return Section(one.name, lead=f"Not reachable: {one.error}.")
    others = [(MARKS[s.grade], s.what, s.costs, s.do) for s in one.shortfalls if not s.field]
    signals = [(MARKS[s.grade], s.what, s.costs, s.field) for s in one.shortfalls if s.field]
    tables = [DataTable(MISSING, others)] if others else []
    if signals:
        tables.append(DataTable(SIGNALS, signals, note=ENABLE))
    return Section(one.name, lead=_say_given(one), tables=tables)


def _say_given(one: SourceCheck) -> str:
    """What the source gives, in a sentence or two."""
    parts = []
    if one.targets is not None:
        parts.append(f"Exporters that answer: {one.answering} of {one.targets}.")
    if one.gpus:
        of = [
            f"{counted(one.gpus, 'GPU')} in {counted(one.nodes, 'node')}",
            f"{one.held_gpus} held by a pod or job now",
        ]
        if one.step_s is not None:
            of.append(f"scraped every {duration(round(one.step_s))}")
        if one.newest_s is not None:
            of.append(f"the last {duration(round(one.newest_s))} ago")
        parts.append(", ".join(of) + ".")
    kinds = "Exporters" if one.targets is None else "They are"
    none = "It has no exporter that is understood." if one.targets is None else "Nothing on their pages is understood."
    parts.append(f"{kinds}: {', '.join(one.exporters)}." if one.exporters else none)
    if one.clock_s is not None:
        agree = abs(one.clock_s) <= CLOCKS_AGREE_S
        way = "ahead" if one.clock_s > 0 else "behind"
        whose = "Its clock is" if one.targets is None else "The clock that differs most is"
        parts.append("Clocks agree." if agree else f"{whose} {duration(round(abs(one.clock_s)))} {way}.")
    return " ".join(parts)


def _list_steps(exists: bool) -> tuple[Suggestion, ...]:
    init = Suggestion("loadfactor init", "Look around and write a loadfactor.toml.")
    if exists:
        return (init, Suggestion("loadfactor doctor", "Whether the books balance, and what they lack."))
    return (init, Suggestion("loadfactor demo", "How the answers look, with a simulated fleet."))
