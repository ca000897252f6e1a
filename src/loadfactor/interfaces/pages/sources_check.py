"""The page of `loadfactor check`: what each configured source gives, what is missing, and what comes in live."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cluster_check import CloudCheck, ClusterCheck, SlurmCheck
from loadfactor.collect.discovery.shortfalls import SourceCheck
from loadfactor.collect.discovery.source_check import CLOCKS_AGREE_S, CheckedSources, check_sources, hide_password
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import counted, duration, instant
from loadfactor.interfaces.pages.books import MARKS
from loadfactor.interfaces.requests import SourcesRequest, find_store
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.settings.config import read_settings, settings
from loadfactor.settings.reload import Changes, compare, digest_settings
from loadfactor.store.place import Place
from loadfactor.store.source_status import read_running
from loadfactor.store.store import find_place

MISSING = (TableColumn(""), TableColumn("missing"), TableColumn("unknown without it"), TableColumn("what to do"))
SIGNALS = (TableColumn(""), TableColumn("signal"), TableColumn("unknown without it"), TableColumn("field"))
ENABLE = "The field is what dcgm-exporter calls it: a line each in its file of counters (-f, DCGM_EXPORTER_COLLECTORS)."
CLUSTER = (TableColumn("kind"), TableColumn("can be read"), TableColumn("why not"))
COMMANDS = (TableColumn("asked"), TableColumn("answers"), TableColumn("why not"))
LIVE = (TableColumn("source"), TableColumn("status"), TableColumn("last sample"), TableColumn("error"))


@dataclass(frozen=True)
class LiveSource:
    """The last status of a source of `loadfactor up`."""

    name: str
    status: str
    last_sample: datetime | None
    error: str | None


@dataclass(frozen=True)
class SourcesCheck:
    """The configured sources, and what the books last received live."""

    sources: tuple[SourceCheck, ...]
    live: tuple[LiveSource, ...]
    store: str
    has_books: bool
    clusters: tuple[ClusterCheck, ...] = ()
    slurm: tuple[SlurmCheck, ...] = ()
    instances: tuple[CloudCheck, ...] = ()
    reload: Changes | None = None


def build_page(request: SourcesRequest) -> Document:
    """The check of the sources that the configuration names; the answer is no where one cannot be reached."""
    if request.config is not None and not request.config.is_file():
        raise InputError(f"there is no file {request.config}; `loadfactor init` writes a loadfactor.toml")
    configured = settings() if request.config is None else read_settings(request.config)
    place = find_place(
        configured.store if request.store is None else find_store(request.store), configured.local_folder
    )
    running = read_running(place.folder)
    changes = compare(running, digest_settings(configured)) if running else None
    return build_document(check_sources(configured, place.folder), place, changes)


def build_document(found: CheckedSources, place: Place, changes: Changes | None = None) -> Document:
    """The page of what was found beside the books; `changes`: beside the configuration that a server runs by."""
    live = tuple(
        LiveSource(s.name, s.status, None if s.last_sample_ms is None else read_ms(s.last_sample_ms), s.error)
        for s in found.statuses
    )
    exists = place.has_books()
    sections = [
        *map(_draw_source, found.sources),
        *map(_draw_cluster, found.clusters),
        *map(_draw_slurm, found.slurm),
    ]
    if live:
        rows = [(s.name, s.status, instant(s.last_sample) if s.last_sample else None, s.error or "") for s in live]
        lead = "As `loadfactor up` said last."
        sections.append(Section("Collected live", lead=lead, tables=(DataTable(LIVE, rows),)))
    if found.clouds:
        asks = "`loadfactor up` asks them, and says in /health and `loadfactor doctor` how they fare; no metric is asked for here."
        sections.append(Section("Clouds", lead=f"{', '.join(found.clouds)}: {asks}"))
    sections += map(_draw_instances, found.instances)
    if changes is not None:
        sections.append(
            Section("Reload", lead=f"Beside what `loadfactor up` runs by, or ran by last: {changes.words}.")
        )
    others = [*map(_sum_up_cluster, found.clusters), *map(_sum_up_slurm, found.slurm)]
    others += [f"Clouds that `loadfactor up` asks: {len(found.clouds)}."] if found.clouds else []
    if not found.sources and not others:
        sections.append(Section("Next", suggestions=_list_steps(exists)))
    answers = [source.reachable for source in found.sources]
    answers += [cluster.reachable for cluster in found.clusters] + [cluster.reachable for cluster in found.slurm]
    return Document(
        " ".join([*([_sum_up(found.sources)] if found.sources or not others else []), *others]),
        sections,
        f"The books are in {place.name}." if exists else f"No books in {place.name} yet.",
        data=SourcesCheck(
            found.sources,
            live,
            place.name,
            exists,
            found.clusters,
            found.slurm,
            found.instances,
            changes,
        ),
        is_no=not all(answers),
    )


def _sum_up_cluster(one: ClusterCheck) -> str:
    return f"{one.name}: pods can be read." if one.reachable else f"{one.name}: pods cannot be read."


def _draw_cluster(one: ClusterCheck) -> Section:
    """The kinds of a cluster, and which of them can be read."""
    if not one.kinds:
        return Section(one.name, lead=f"Not reachable: {one.error}.")
    rows = [(kind.kind, "yes" if kind.can_read else "no", kind.error or "") for kind in one.kinds]
    lead = f"At {hide_password(one.address or '')}. docs/connect-kubernetes.md has the role that reading them takes."
    return Section(one.name, lead=lead, tables=(DataTable(CLUSTER, rows),))


def _draw_instances(one: CloudCheck) -> Section:
    """The questions about instances, and which are permitted. One that is not is a gap in the books, and hinders nothing."""
    rows = [(question.asked, "yes" if question.works else "no", question.error or "") for question in one.questions]
    lead = "docs/connect-clouds.md has the permissions; `instances = false` asks for no instances."
    return Section(one.name, lead=lead, tables=(DataTable(COMMANDS, rows),))


def _sum_up_slurm(one: SlurmCheck) -> str:
    if not one.reachable:
        return f"{one.name}: jobs cannot be known."
    missing = sum(s.grade == "missing" for s in one.missing) + sum(not command.works for command in one.commands)
    lacking = f"{counted(missing, 'thing')} missing" if missing else "nothing that matters is missing"
    return f"{one.name}: {counted(one.gpus, 'GPU')}; {lacking}."


def _draw_slurm(one: SlurmCheck) -> Section:
    """Shows what answers of a cluster, and what its configuration leaves out."""
    rows = [(command.command, "yes" if command.works else "no", command.error or "") for command in one.commands]
    tables = [DataTable(COMMANDS, rows)]
    if one.missing:
        tables.append(DataTable(MISSING, [(MARKS[s.grade], s.what, s.costs, s.do) for s in one.missing]))
    parts = [f"Slurm {one.version}."] if one.version else []
    if one.nodes:
        parts.append(f"{counted(one.gpus, 'GPU')} in {counted(one.nodes, 'node')}.")
    if one.clock_s is not None and abs(one.clock_s) <= CLOCKS_AGREE_S:
        parts.append("Clocks agree.")
    return Section(one.name, lead=" ".join(parts) if one.reachable else f"Not reachable: {one.error}.", tables=tables)


def _sum_up(found: Sequence[SourceCheck]) -> str:
    if not found:
        return "No source is configured: there is no [[prometheus]] and no [[dcgm]] in loadfactor.toml."
    answering = [one for one in found if one.reachable]
    gpus = f", {counted(sum(one.gpus for one in answering), 'GPU')}" if answering else ""
    missing = sum(s.grade == "missing" for one in answering for s in one.missing)
    lacking = f"; {counted(missing, 'thing')} missing" if missing else "; nothing that matters is missing"
    return f"Sources that answer: {len(answering)} of {len(found)}{gpus}{lacking if answering else ''}."


def _draw_source(one: SourceCheck) -> Section:
    if not one.reachable:
        return Section(one.name, lead=f"Not reachable: {one.error}.")
    others = [(MARKS[s.grade], s.what, s.costs, s.do) for s in one.missing if not s.field]
    signals = [(MARKS[s.grade], s.what, s.costs, s.field) for s in one.missing if s.field]
    tables = [DataTable(MISSING, others)] if others else []
    if signals:
        tables.append(DataTable(SIGNALS, signals, note=ENABLE))
    return Section(one.name, lead=_describe_given(one), tables=tables)


def _describe_given(one: SourceCheck) -> str:
    """Describe what the source gives, in a sentence or two."""
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
