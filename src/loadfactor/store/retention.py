"""Dropping what is older than it is kept: samples of whole days, hours of the ledger, rows of small tables.

Nothing of it is booked again afterwards: of a day without samples the ledger and its sums stay as they are, in a file that says of
itself what it is, so that a lost manifest can be rebuilt with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.store.compaction import compact_day, refold_table
from loadfactor.store.import_records import GONE, list_imports, put_records
from loadfactor.store.manifest import Manifest, StoredFile, intersect, is_booked, merge, name_file, subtract
from loadfactor.store.sample_files import read
from loadfactor.store.session import LEDGER, read_rows
from loadfactor.store.small_imports import merge_files
from loadfactor.store.step_votes import add_votes
from loadfactor.store.writer import Writer
from loadfactor.tables.schema import (
    DEVICE_EVENTS,
    NODE_SAMPLES,
    QUEUE_EVENTS,
    SAMPLES,
    STATEMENTS,
    Span,
    table,
)
from loadfactor.tables.work import JOB_SECTIONS, PROGRESS, SERVED_REQUESTS

DROPPED_BY: Final = {
    SAMPLES.name: (SAMPLES.name, NODE_SAMPLES.name),
    "steps": (PROGRESS.name, JOB_SECTIONS.name),
    "events": (DEVICE_EVENTS.name, QUEUE_EVENTS.name),
    "requests": (SERVED_REQUESTS.name,),
    STATEMENTS.name: (STATEMENTS.name,),
    LEDGER: (LEDGER,),
}
"""By setting of [retention], the tables that it drops rows of."""


@dataclass(frozen=True)
class DroppedRows:
    """Rows of a table that were dropped or would be: how many, in how many bytes, of how many UTC days, all before an instant."""

    table: str
    rows: int
    bytes: int
    days: int
    until_ms: int


def list_expired_days(manifest: Manifest, span: Span, until_ms: int) -> list[int]:
    """The days whose samples end before an instant, but for the newest of the books, which more may be added to."""
    last = min(until_ms, span[1]) // MS_PER_DAY
    return sorted({f.day for f in manifest.files if f.table == SAMPLES.name and f.day is not None and f.day < last})


def measure_samples(manifest: Manifest, days: Iterable[int], until_ms: int) -> DroppedRows:
    """The samples of some days."""
    chosen = {*days}
    files = [f for f in manifest.files if f.table == SAMPLES.name and f.day in chosen]
    rows = sum(f.rows for f in files if not f.is_log)
    return DroppedRows(SAMPLES.name, rows, sum(f.bytes for f in files), len(chosen), until_ms)


def drop_samples(writer: Writer, days: Iterable[int]) -> None:
    """Drop the samples of some days, whose hours are booked; their ledger is frozen."""
    chosen = sorted(days)
    span = writer.span()
    gone = [f for f in writer.manifest.files if f.table == SAMPLES.name and f.day in {*chosen}]
    for day in sorted({day + 1 for day in chosen} - {*chosen}):
        files = [f for f in writer.manifest.of(SAMPLES.name) if f.day == day]
        if any(f.samples is not None and not f.samples.settled for f in files):
            compact_day(writer, day)  # its first samples reach back to the last ones before it, which go
    _note_in_records(writer, SAMPLES.name, [f for f in gone if not f.is_log], "late_ms = 0")
    votes = [vote for f in gone if f.samples is not None for vote in f.samples.votes]
    writer.swap(gone, [])
    # samples whose start was given may reach into days before
    reached = merge(
        [(_floor(min(f.from_ms or 0, f.day * MS_PER_DAY)), (f.day + 1) * MS_PER_DAY) for f in gone if f.day]
    )
    for day in sorted({day for start, end in reached for day in range(start // MS_PER_DAY, end // MS_PER_DAY)}):
        _freeze(writer, day)
    frozen = intersect(reached, (span,))
    before = writer.manifest.dropped
    dropped = replace(before, frozen=merge([*before.frozen, *frozen]), votes=add_votes([*before.votes, *votes]))
    writer.manifest = replace(writer.manifest, dropped=dropped)


def _floor(at_ms: int) -> int:
    return at_ms - at_ms % MS_PER_DAY


def _freeze(writer: Writer, day: int) -> None:
    """Put the ledger of a day into one file that says of itself what it is."""
    files = [f for f in writer.manifest.of(LEDGER) if f.day == day]
    if files:
        hours = merge([span for f in files for span in f.booked])
        made = StoredFile(name_file(LEDGER, day), LEDGER, 0, 0, 0, hours[0][0], hours[-1][1], day, hours=hours)
        sql = f"SELECT * FROM ({_read_booked(writer, files)}) ORDER BY hour_utc, device_id, from_utc"
        new = writer.copy(sql, made, files)
        writer.swap(files, [replace(new, from_ms=made.from_ms, to_ms=made.to_ms)])


def _read_booked(writer: Writer, files: Iterable[StoredFile]) -> str:
    """SQL: of files of the ledger the hours that count."""
    parts = []
    for file in files:
        hours = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in file.booked)
        parts.append(f"SELECT * FROM {read(writer.paths([file]))} WHERE {hours}")
    return " UNION ALL BY NAME ".join(parts)


def measure_ledger(manifest: Manifest, span: Span, until_ms: int) -> DroppedRows:
    """The ledger and its sums before an instant, about where files have hours on both sides of it."""
    until_ms = min(until_ms, _floor(span[1] - 1))  # the newest day stays: books begin somewhere
    before = ((0, until_ms),)
    files = [f for f in manifest.files if is_booked(f.table) and intersect(f.booked, before)]
    days = {f.day for f in files if f.table == LEDGER}
    rows = sum(f.rows for f in files if f.table == LEDGER)
    return DroppedRows(LEDGER, rows, sum(f.bytes for f in files), len(days), until_ms)


def drop_ledger(writer: Writer, until_ms: int) -> None:
    """Let the books begin at a midnight: the ledger and its sums of before go."""
    before = ((0, until_ms),)
    files = [f for f in writer.manifest.files if is_booked(f.table)]
    writer.swap(files, [left for f in files for left in f.keep(subtract(f.booked, before))])
    dropped = replace(writer.manifest.dropped, begins_ms=max(until_ms, writer.manifest.dropped.begins_ms or 0))
    writer.manifest = replace(writer.manifest, dropped=dropped)


def measure_rows(writer: Writer, name: str, until_ms: int) -> DroppedRows:
    """The rows of a small table that ended before an instant, about in how many bytes."""
    files = writer.manifest.logs_of(name)
    if not files:
        return DroppedRows(name, 0, 0, 0, until_ms)
    end = _find_end(name)
    rows, days = writer.fetch_one(
        f"SELECT count(*), count(DISTINCT ({end}) // {MS_PER_DAY}) FROM {read_rows(name, writer.paths(files))}"
        f" WHERE ({end}) < {until_ms}"
    )
    share = rows / max(1, sum(f.rows for f in files))
    return DroppedRows(name, rows, round(share * sum(f.bytes for f in files)), days, until_ms)


def drop_rows(writer: Writer, name: str, until_ms: int) -> None:
    """Drop the rows of a small table that ended before an instant."""
    logs, end = writer.manifest.logs_of(name), _find_end(name)
    _note_in_records(writer, name, logs, f"({end}) < {until_ms}")
    left = merge_files(writer, logs, f"coalesce(({end}) >= {until_ms}, true)")
    writer.swap(logs, [left] if left.rows else [])
    refold_table(writer, table(name))
    rows = {**dict(writer.manifest.dropped.rows), name: until_ms}
    dropped = replace(writer.manifest.dropped, rows=tuple(sorted(rows.items())))
    writer.manifest = replace(writer.manifest, dropped=dropped)


def _find_end(name: str) -> str:
    """SQL: when a row ended, in ms; a statement when its month did, at the latest."""
    if name == STATEMENTS.name:
        return "epoch_ms(CAST(month || '-01' AS TIMESTAMP) + INTERVAL 1 MONTH) - 1"
    columns = {column.name for column in table(name).columns}
    return "at_utc" if "at_utc" in columns else "to_utc"


def _note_in_records(writer: Writer, name: str, files: Iterable[StoredFile], where: str) -> None:
    """Say in the records of imports how many of their rows were dropped."""
    counted: dict[int, int] = {}
    if paths := writer.paths(files):
        relation = read(paths) if name == SAMPLES.name else read_rows(name, paths)
        sql = f"SELECT import_no, count(*) FROM {relation} WHERE import_no IS NOT NULL AND {where} GROUP BY import_no"
        for number, rows in writer.raw.execute(sql).fetchall():
            counted[number] = counted.get(number, 0) + rows
    if not counted:
        return
    records = []
    for record in list_imports(writer, f"import_no IN ({', '.join(map(str, sorted(counted)))})"):
        gaps = {(of, what): count for of, what, count in record.gaps}
        gaps[name, GONE] = gaps.get((name, GONE), 0) + counted[record.number]
        records.append(replace(record, gaps=tuple((of, what, count) for (of, what), count in gaps.items())))
    put_records(writer, records)
