"""The pages of what is configured: settings in force with where each comes from, and sources with how each does."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.formats import counted, instant
from loadfactor.interfaces.pages.lists import build_settings
from loadfactor.interfaces.tables import col, table
from loadfactor.interfaces.web.ask import Ask
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.config import Settings, settings
from loadfactor.settings.in_force import DEFAULT, list_in_force
from loadfactor.store.import_records import ImportRecord
from loadfactor.store.source_status import SourceStatus, read_statuses

WELL = ("ok", "waiting", "absent")


def build_settings_page(ask: Ask) -> Document:
    """The settings that somebody set, with where; then every one there is."""
    found = [
        replace(s, value=ask.books.store.name, origin=s.origin if s.is_set else "the command line, or default")
        if s.name == "store"
        else s
        for s in list_in_force(settings())
    ]
    given = [setting for setting in found if setting.origin != DEFAULT]
    listed = table(
        given, col("setting", "name"), col("value", "value"), col("from", "origin"), col("meaning", "description")
    )
    origins = {setting.origin for setting in given if setting.name != "store"}
    headline = (
        f"{counted(len(given), 'setting')} of {len(found):,} are set, by {' and '.join(sorted(origins))}; the others are at "
        "their defaults."
        if origins
        else "Every setting is at its default: no loadfactor.toml and no LOADFACTOR_… of the environment sets one."
    )
    lead = "Of addresses the host alone is shown; tokens and passwords lie in files, of which only the names are shown."
    sections = [Section("In force, other than by default", lead, tables=(listed,)), *build_settings().sections]
    return Document(headline, sections, data=[vars(setting) for setting in found])


@dataclass(frozen=True)
class ConfiguredSource:
    """A source of the configuration: its kind, its name, and how often it is asked."""

    kind: str
    name: str
    every: str


@dataclass(frozen=True)
class ImportedSource:
    """What was imported by one decoder: how often, how many rows, and when last."""

    source: str
    imports: int
    rows: int
    last: str | None


@dataclass(frozen=True)
class SourcesInUse:
    """How sources do: those that `loadfactor up` collects from, what was imported, and what is configured.

    `samples_begin`: from when samples are kept, where earlier ones were dropped.
    """

    live: Sequence[SourceStatus]
    imported: Sequence[ImportedSource]
    configured: Sequence[ConfiguredSource]
    samples_begin: str | None


def build_sources(ask: Ask) -> Document:
    """How each source does, as `loadfactor up` noted it last, what was imported, and what is configured."""
    ask.inquire()  # first: it says where the books know nothing yet
    statuses = read_statuses(ask.books.store.folder)
    begin = ask.snapshot.samples_begin
    begins = None if begin is None else instant(begin)
    data = SourcesInUse(statuses, _sum_imports(ask.books.imports), list(_list_configured(settings())), begins)
    kept = begin and f"Samples are kept from {begin:%Y-%m-%d} on; those of before were dropped ([retention] samples)."
    wrong = [s for s in statuses if s.status not in WELL]
    if wrong:
        headline = f"{counted(len(wrong), 'source')} of {len(statuses)} {'is' if len(wrong) == 1 else 'are'} not well: "
        headline += ", ".join(f"{s.name} ({s.status})" for s in wrong[:3]) + ("…" if len(wrong) > 3 else ".")
    elif statuses:
        headline = f"{'The source is' if len(statuses) == 1 else f'All {len(statuses)} sources are'} well."
    else:
        headline = (
            f"Nothing is collected live; {counted(sum(i.imports for i in data.imported), 'import')} made these books."
        )
    built = (_draw_live(statuses, ask), _draw_failures(statuses), _draw_imported(data), _draw_configured(data))
    return Document(headline, [section for section in built if section], notes=(kept,) if kept else (), data=data)


def _draw_live(statuses: Sequence[SourceStatus], ask: Ask) -> Section | None:
    end_ms = milliseconds(ask.snapshot.span[1])

    def say_late(source: SourceStatus) -> float | None:
        last = source.last_sample_ms
        return None if last is None else max(0, end_ms - last) / MS_PER_S

    def say_answering(source: SourceStatus) -> str | None:
        return None if source.targets is None else f"{source.answering or 0:,} of {source.targets:,}"

    live = table(
        statuses,
        col("source", "name"),
        col("status", "status"),
        col("last sample", lambda s: None if s.last_sample_ms is None else instant(moment(s.last_sample_ms))),
        col("behind", say_late, "duration", hint="The end of the books less its last sample."),
        col("answering", say_answering),
        col("error", lambda s: s.error),
        col("not kept", lambda s: "; ".join(kind.words for kind in s.skipped) or None),
        col("unknown", lambda s: "; ".join(f"{what} (×{count:,})" for what, count in s.unknown) or None),
    )
    return Section("Collected live", "As `loadfactor up` noted last.", tables=(live,)) if statuses else None


def _draw_failures(statuses: Sequence[SourceStatus]) -> Section | None:
    """Times in which a source gave nothing: over, or going on."""
    rows: list[tuple[str, int, int | None, str]] = [
        (s.name, f.from_ms, f.to_ms, f.error) for s in statuses for f in s.failures
    ]
    rows += [(f"{s.name}: {g.target}", g.from_ms, g.to_ms, g.error) for s in statuses for g in s.gaps]
    gaps = table(
        sorted(rows, key=lambda row: -row[1]),
        col("source"),
        col("from", lambda row: instant(moment(row[1]))),
        col("to", lambda row: "goes on" if row[2] is None else instant(moment(row[2]))),
        col("why", lambda row: row[3]),
    )
    return Section("When they gave nothing", tables=(gaps,)) if rows else None


def _sum_imports(records: Sequence[ImportRecord]) -> list[ImportedSource]:
    by_source: dict[str, list[ImportRecord]] = defaultdict(list)
    for record in records:
        by_source[record.source].append(record)
    found = []
    for source, of_it in sorted(by_source.items()):
        last = max((record.at_ms or 0 for record in of_it), default=0)
        rows = sum(sum(record.rows.values()) for record in of_it)
        found.append(ImportedSource(source, len(of_it), rows, instant(moment(last)) if last else None))
    return found


def _draw_imported(data: SourcesInUse) -> Section | None:
    listed = table(
        data.imported,
        col("kind", "source"),
        col("imports", "imports", "number", digits=9),
        col("rows", "rows", "number", digits=12),
        col("last", "last"),
    )
    return Section("Imported", "`loadfactor imports` names the files.", tables=(listed,)) if data.imported else None


def _list_configured(found: Settings) -> Iterator[ConfiguredSource]:
    for server in found.prometheus:
        yield ConfiguredSource("Prometheus", server.label, server.every)
    for group in found.exporters:
        yield ConfiguredSource("exporters", group.label, group.every)
    for account in (*found.cloudwatch, *found.gcp_monitoring):
        yield ConfiguredSource("cloud", account.label, account.every)
    for slurm in found.slurm:
        yield ConfiguredSource("Slurm", slurm.name or "slurm", slurm.every)
    for cluster in found.kubernetes:
        yield ConfiguredSource("Kubernetes", cluster.name or "kubernetes", "watched")


def _draw_configured(data: SourcesInUse) -> Section:
    listed = table(data.configured, col("kind", "kind"), col("name", "name"), col("asked every", "every"))
    lead = (
        "`loadfactor check` asks each of them what it gives and what is missing."
        if data.configured
        else "No source is configured: `loadfactor init` looks around and writes a first loadfactor.toml; Prometheus and agents "
        "may send to /api/v1/write."
    )
    return Section("Configured", lead, tables=(listed,) if data.configured else ())
