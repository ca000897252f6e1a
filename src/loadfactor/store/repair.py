"""Repair of a damaged store: a generation is taken (`generations`), damaged files go into quarantine, losses are noted.

Files say through which number live batches are in files, so that after a rebuild a live batch still counts exactly once.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from loadfactor.base.errors import DamageError, InputError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.store import disk
from loadfactor.store.charge_imports import settle_charges
from loadfactor.store.compaction import refold_table
from loadfactor.store.folder import Folder
from loadfactor.store.generations import Choice, find_newer, is_whole, list_choices, set_aside, start_from
from loadfactor.store.import_records import TABLE as IMPORTS
from loadfactor.store.import_records import ImportRecord, add_records, change_records, list_imports
from loadfactor.store.live import set_damaged_aside
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.live_database import QUARANTINE
from loadfactor.store.manifest import (
    OWN_NAME,
    Loss,
    Manifest,
    StoredFile,
    is_booked,
    merge,
    subtract,
)
from loadfactor.store.place import Place
from loadfactor.store.sample_files import read, taken
from loadfactor.store.sample_imports import reaches_next_day, recount_votes
from loadfactor.store.session import read_rows
from loadfactor.store.small_imports import LOGGED, name_columns
from loadfactor.store.writer import Writer, read_footer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import ALWAYS, TABLES

UNKNOWN = "unknown"
"""The source of an import whose record was lost."""


def find_choices(place: Place) -> tuple[Choice, ...]:
    """The generations that a repair can take, the newest first. Raises InputError for a bucket."""
    if not isinstance(place, Folder):
        raise InputError(
            f"only folders are repaired: copy {place.name} with the object store's own tool, name the folder with --store, and"
            " copy it back into a new prefix"
        )
    return list_choices(place.folder)


def start_repair(place: Place, choice: Choice, choices: tuple[Choice, ...]) -> Manifest:
    """The manifest of a choice: as it is if that is what the folder is at, else newer than all there is."""
    with suppress(DamageError):
        newest = place.read_newest()
        if newest == choice.manifest and not find_newer(place.folder, newest):
            return newest
    return start_from(place.folder, choice, choices)


def repair_store(writer: Writer) -> tuple[Loss, ...]:
    """Put damaged files into quarantine, make good what other files can, and note what is lost with what would bring it again.

    What is lost for good and changes no answer is returned, not noted: what the lost records of imports reported.
    """
    rebuilt = not writer.manifest.ledger_key  # from the files: they do not say what time their rows speak of
    damaged = [f for f in writer.manifest.files if not is_whole(writer.folder, f)]
    if set_damaged_aside(writer.folder, writer.folder / QUARANTINE, writer.manifest.live_through):
        lost_live = Loss(LIVE, f"what was taken live and is in no file: batches after {writer.manifest.live_through:,}")
        writer.manifest = replace(writer.manifest, losses=(*writer.manifest.losses, lost_live))
    if not damaged and not rebuilt:
        return ()
    if rebuilt:
        _tidy_unnamed(writer)
    gone = {f.name for f in damaged}
    writer.swap(damaged, [])
    _recount_votes(writer, [*damaged, *writer.manifest.of("samples")] if rebuilt else damaged)
    lost = [f for f in damaged if not is_booked(f.table) or writer.manifest.dropped.has_booked(f)]
    days = [f.day for f in lost if is_booked(f.table) and f.day is not None]
    thawed = merge([(day * MS_PER_DAY, (day + 1) * MS_PER_DAY) for day in days])
    dropped = writer.manifest.dropped
    dropped = replace(dropped, frozen=subtract(dropped.frozen, thawed), changed=subtract(dropped.changed, thawed))
    writer.manifest = replace(writer.manifest, dropped=dropped)
    # every hour that can be: who knows what was lost, or which ledger a rebuilt manifest is without
    writer.mark_stale(subtract((ALWAYS,), dropped.hours))
    names = {f.table for f in writer.manifest.files} | {f.table for f in damaged}
    for kept in (t for t in TABLES if t.name in names - {"samples", CHARGES.name}):
        logs, base = writer.manifest.logs_of(kept.name), writer.manifest.of(kept.name)
        of_table = [f for f in damaged if f.table == kept.name]
        if base and (not logs or any(f.is_log for f in of_table)):
            _log_anew(writer, kept, base, logs)  # what was logged is in the table still, but no longer apart
            of_table = [f for f in of_table if not f.is_log]
            lost = [f for f in lost if not (f.table == kept.name and f.is_log)]
        if not base or rebuilt:
            refold_table(writer, kept)  # what a table says is in its logs
        if not any(f.is_log for f in of_table):
            lost = [f for f in lost if f.table != kept.name]
    settle_charges(writer)
    records = [f for f in damaged if f.table == IMPORTS]
    if records:
        _list_anew(writer)
        lost = [f for f in lost if f.table != IMPORTS]
    digests = list(_forget_digests(writer, lost))
    losses = tuple(Loss(f.name, f"{f.table}, {f.rows:,} rows", tuple(d)) for f, d in zip(lost, digests, strict=True))
    writer.manifest = replace(writer.manifest, losses=writer.manifest.losses + losses)
    for name in sorted(gone):
        with suppress(FileNotFoundError):
            set_aside(writer.folder, name)
    return tuple(Loss(f.name, "names of imported files") for f in records)


def _recount_votes(writer: Writer, files: Iterable[StoredFile]) -> None:
    """Count the votes for steps of the days of these files anew: only the manifest reported how they vote together."""
    found = [(f.day, reaches_next_day(f)) for f in files if f.day is not None and f.samples is not None]
    for day in sorted({day for day, _ in found} | {day + 1 for day, reaches in found if reaches}):
        recount_votes(writer, day)


def _forget_digests(writer: Writer, lost: Iterable[StoredFile]) -> Iterator[set[str]]:
    """The digests of the imports that lost files came from; these may be imported again."""
    again: set[str] = set()
    for file in lost:
        first, last = file.imports or (0, -1)
        digests = {r.digest for r in list_imports(writer, f"import_no BETWEEN {first} AND {last}")}
        again |= digests
        yield digests
    if again:
        known = ", ".join(f"'{d}'" for d in sorted(again))
        change_records(writer, f"SELECT * REPLACE (if(digest IN ({known}), '', digest) AS digest) FROM records")


def _list_anew(writer: Writer) -> None:
    """Records of the imports whose own are lost, as far as their rows tell: which numbers, how many rows of which tables."""
    rows: dict[int, dict[str, int]] = {}
    for kept in TABLES:
        if kept.name == CHARGES.name:
            for file in (f for f in writer.manifest.files if f.table == kept.name):
                of = rows.setdefault(file.imports[0] if file.imports else 0, {})
                of[kept.name] = of.get(kept.name, 0) + file.rows
            continue
        if kept.name == "samples":
            parts = writer.parts(writer.manifest.of(kept.name))
            relation = taken(parts) if parts else None
        else:
            logs = writer.manifest.logs_of(kept.name)
            relation = read(writer.paths(logs)) if logs else None
        if relation is not None:
            counted = f"SELECT import_no, count(*) FROM {relation} WHERE import_no > 0 GROUP BY import_no"
            for number, count in writer.raw.execute(counted).fetchall():
                rows.setdefault(number, {})[kept.name] = count
    known = {record.number for record in list_imports(writer)}
    found = [ImportRecord(n, "", UNKNOWN, (), of, at_ms=0) for n, of in sorted(rows.items()) if n not in known]
    if found:
        add_records(writer, found)


def _log_anew(writer: Writer, kept: Table, base: tuple[StoredFile, ...], logs: tuple[StoredFile, ...]) -> None:
    """Log what the table says, as of no import that could be taken out, before what the logs that are left say."""
    rows = f"SELECT {name_columns(kept)}, NULL::INTEGER AS import_no, 0::BIGINT AS seq, false AS watched"
    made = StoredFile(base[0].name, kept.name, 0, 0, 0, is_log=True)
    path = writer.name_new(kept.name)
    log = writer.copy(
        f"SELECT {name_columns(kept)}, {LOGGED} FROM ({rows} FROM {read_rows(kept.name, writer.paths(base))})",
        replace(made, name=path.name),
        logs,
    )
    writer.swap(logs, [log])


def _tidy_unnamed(writer: Writer) -> None:
    """Files that a rebuilt manifest could not name: those of the ledger go, it is booked anew; those without a footer are lost."""
    named = {f.name for f in writer.manifest.files}
    for path in [p for p in writer.folder.iterdir() if OWN_NAME.fullmatch(p.name) and p.name not in named]:
        if is_booked(path.name.partition("-")[0]):
            disk.remove(path)
        elif read_footer(path) is None:
            lost = Loss(path.name, f"{path.name.split('-')[0]}, rows nobody can count")
            writer.manifest = replace(writer.manifest, losses=(*writer.manifest.losses, lost))
            set_aside(writer.folder, path.name)
