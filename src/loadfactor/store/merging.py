"""Bringing what another store holds into this one: imports that are not here, and what came live there and did not come here.

Two servers that receive the same have the same books once each has merged the other. Rows that are here already are left out, so
merging again, in any order, changes nothing, and one measurement counts once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.sources import find_source
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.live import corrects_rows
from loadfactor.store.import_records import LIVE_DAY, ImportRecord, list_imports
from loadfactor.store.importing import Receipt, import_rows
from loadfactor.store.live_database import LiveBatch
from loadfactor.store.live_rows import add_live_day
from loadfactor.store.manifest import StoredFile, intersect, is_booked, merge, name_file, subtract
from loadfactor.store.sample_files import read, taken
from loadfactor.store.session import LEDGER, Session, read_rows
from loadfactor.store.small_imports import take_last
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import MEASUREMENTS, SAMPLES, STATEMENTS, TABLES
from loadfactor.tables.tagging import ORIGINAL
from loadfactor.tables.tagging_rules import GIVES

ROWS_AT_ONCE: Final = 1_000_000


def merge_store(writer: Writer, other: Session, progress: Callable[[str, float], None]) -> list[Receipt]:
    """Add what `other` holds and this store does not, import by import; a receipt of each that brought rows.

    Raises InputError where the other books are kept in another currency, and as imports do.
    """
    if other.manifest.files and other.currency != writer.currency:
        raise InputError(
            f"the books in {other.name} are kept in {other.currency}, these in {writer.currency}; merge books of one currency"
        )
    here = {record.digest for record in list_imports(writer)}
    records = [record for record in list_imports(other) if record.source != STATEMENTS.name]  # months are closed here
    receipts: list[Receipt | None] = []
    for place, record in enumerate(records):
        progress(f"import {record.number} of {other.name}", place / len(records))
        if record.is_live:
            receipts.append(_add_live(writer, other, record))
        elif record.digest not in here:
            receipts.append(_add_import(writer, other, record, progress))
    _take_frozen(writer, other)
    return [receipt for receipt in receipts if receipt is not None and receipt.rows]


def _take_frozen(writer: Writer, other: Session) -> None:
    """Take the ledger of days whose samples `other` dropped and of which none are here, as it was booked there."""
    there = other.manifest.dropped
    here = {f.day for f in writer.manifest.of(SAMPLES.name)}
    days = [
        day
        for start, end in there.frozen
        for day in range(start // MS_PER_DAY, -(-end // MS_PER_DAY))
        if day not in here and not writer.manifest.dropped.lacks_samples(day)
    ]
    files = [f for f in other.manifest.of(LEDGER) if f.day in days]
    if not files:
        return
    whole = merge([(day * MS_PER_DAY, (day + 1) * MS_PER_DAY) for day in days])
    taken = intersect(whole, there.frozen)
    booked = [f for f in writer.manifest.files if is_booked(f.table)]
    writer.swap(booked, [left for f in booked for left in f.keep(subtract(f.booked, whole))])
    for file, path in zip(files, other.paths(files), strict=True):
        made = replace(file, name=name_file(LEDGER, file.day))
        copied = writer.copy(f"SELECT * FROM {read([path])}", made)
        writer.swap((), [replace(copied, from_ms=file.from_ms, to_ms=file.to_ms)])
    before = writer.manifest.dropped
    is_redefined = writer.manifest.ledger_key not in ("", other.manifest.ledger_key)
    redefined = taken if is_redefined else intersect(there.redefined, taken)
    dropped = replace(
        before,
        frozen=merge([*before.frozen, *taken]),
        changed=merge([*before.changed, *intersect(there.changed, taken)]),
        redefined=merge([*before.redefined, *redefined]),
    )
    writer.manifest = replace(writer.manifest, stale=subtract(writer.manifest.stale, whole), dropped=dropped)


def _add_import(
    writer: Writer, other: Session, record: ImportRecord, progress: Callable[[str, float], None]
) -> Receipt:
    """Add an import that is not here, as it was there."""
    source, found = find_source(record.source), _Import(writer, other, record)
    options = ReadOptions(step_s=found.read_step_s(), held_by=record.held_by)
    items = found.read(_take_all, source.watches)
    return import_rows(writer, source, items, options, record.digest, map(Path, record.paths), progress)


def _add_live(writer: Writer, other: Session, record: ImportRecord) -> Receipt | None:
    """Add what came live of a source on a day, as far as it is not here; None where all of it is."""
    is_list = corrects_rows(record.source)
    items = _Import(writer, other, record).read(_leave_earlier if is_list else _leave_known, not is_list)
    batches = [LiveBatch(record.source, item.table, item.data, item.where) for item in items]
    if not batches:
        return None
    day = (date.fromisoformat(record.paths[0].removeprefix(LIVE_DAY)) - date(1970, 1, 1)).days
    return add_live_day(writer, record.source, day, batches)


LeaveOut = Callable[[Writer, Table, str], str]
"""SQL of the rows of a small table that come over, of those that an import has there."""


@dataclass(frozen=True)
class _Import:
    """The rows of one import of the other store."""

    writer: Writer
    other: Session
    record: ImportRecord

    def read(self, leave_out: LeaveOut, is_watched: bool) -> Iterator[Rows]:
        """Its rows, those of a table after those of another. `is_watched`: its source sees devices and holders, and lists none."""
        for kept in TABLES:
            reader = self.writer.raw.cursor()  # others read while it goes on
            sql = self._select_samples() if kept is SAMPLES else self._select_small(kept, leave_out)
            if sql is None:
                continue
            for batch in reader.sql(sql).to_arrow_reader(ROWS_AT_ONCE):
                rows = pa.Table.from_batches([batch])
                inferred = "watched" in rows.column_names and not is_watched and pc.any(rows["watched"]).as_py()
                data = rows.select([name for name in kept.schema.names if name in rows.column_names])
                yield Rows(kept.name, data, f"{self.other.name}: import {self.record.number}", inferred=bool(inferred))

    def read_step_s(self) -> float | None:
        """The step of its samples as it was stated."""
        files = self._list_files(SAMPLES.name)
        if not files:
            return None
        sql = f"SELECT max(step_ms) FROM {read(self.other.paths(files))} WHERE import_no = {self.record.number}"
        (step_ms,) = self.writer.fetch_one(sql)
        return None if step_ms is None else step_ms / MS_PER_S

    def _list_files(self, name: str) -> list[StoredFile]:
        return [f for f in self.other.manifest.files if f.table == name and f.holds_import(self.record.number)]

    def _select_small(self, kept: Table, leave_out: LeaveOut) -> str | None:
        if kept is CHARGES:  # of deliveries those that do not count, too
            files = self._list_files(kept.name)
            return f"SELECT * FROM {read_rows(kept.name, self.other.paths(files))}" if files else None
        files = [f for f in self._list_files(kept.name) if f.is_log]
        if not files:
            return None
        rows = f"SELECT * FROM {read_rows(kept.name, self.other.paths(files))} WHERE import_no = {self.record.number}"
        return f"SELECT * FROM ({leave_out(self.writer, kept, rows)}) ORDER BY seq"

    def _select_samples(self) -> str | None:
        """Its samples as they were taken, without those of which all that was measured is here."""
        dropped = self.writer.manifest.dropped
        files = [f for f in self._list_files(SAMPLES.name) if f.day is None or not dropped.lacks_samples(f.day)]
        if not files:
            return None
        of_import = f"import_no = {self.record.number}"
        logs = self.other.paths(f for f in files if f.is_log)
        columns = ", ".join(_TAKEN)
        there = f"SELECT {columns} FROM {taken(self.other.parts(f for f in files if not f.is_log), of_import)}"
        if logs:  # what each of several imports has of one sample
            there += f" UNION ALL SELECT {columns} FROM {read(logs)} WHERE {of_import}"
        days = {f.day for f in files}
        here = self.writer.parts(f for f in self.writer.manifest.of(SAMPLES.name) if f.day in days)
        sql = f"SELECT * RENAME (began_utc AS from_utc, sampled_utc AS to_utc) FROM ({there}) AS there"
        if not here:
            return sql
        known = f"SELECT device_id, source, sampled_utc, bit_or(measured_mask) AS known_mask FROM {taken(here)} GROUP BY ALL"
        return (
            f"{sql} ANTI JOIN ({known}) AS here ON there.device_id = here.device_id AND there.source = here.source"
            " AND there.sampled_utc = here.sampled_utc AND there.measured_mask & ~here.known_mask = 0"
        )


_TAKEN: Final = ("device_id", "source", "began_utc", "sampled_utc", "measured_mask", *MEASUREMENTS)
"""Columns of samples as they were taken."""


def _take_all(_writer: Writer, _kept: Table, rows: str) -> str:
    return rows


def _leave_known(writer: Writer, kept: Table, rows: str) -> str:
    """Rows that were not logged here. Who rules say that pays is no part of what a source stated."""
    logs = writer.manifest.logs_of(kept.name)
    if not logs:
        return rows
    stated = [c.name for c in kept.columns if c.name not in (*GIVES.values(), ORIGINAL)]
    same = " AND ".join(f"there.{name} IS NOT DISTINCT FROM here.{name}" for name in stated)
    known = read_rows(kept.name, writer.paths(logs))
    return f"SELECT there.* FROM ({rows}) AS there ANTI JOIN {known} AS here ON {same}"


def _leave_earlier(writer: Writer, kept: Table, rows: str) -> str:
    """Of a list that is corrected, here as well as there: what was never listed here, and what is known to end later."""
    last = f"({_leave_known(writer, kept, take_last(kept, f'({rows})'))})"
    files = writer.manifest.of(kept.name)
    if not files:
        return f"SELECT * FROM {last}"
    keys = [f"key_{place}" for place in range(len(kept.identity))]
    keyed = ", ".join(f"{sql} AS {key}" for sql, key in zip(kept.identity, keys, strict=True))
    same = " AND ".join(f"there.{key} IS NOT DISTINCT FROM here.{key}" for key in keys)
    ends = any(column.name == "to_utc" for column in kept.columns)
    later = "AND (there.to_utc IS NULL OR there.to_utc <= coalesce(here.to_utc, 0))" if ends else ""
    return (
        f"SELECT there.* EXCLUDE ({', '.join(keys)}) FROM (SELECT *, {keyed} FROM {last}) AS there"
        f" ANTI JOIN (SELECT *, {keyed} FROM {read_rows(kept.name, writer.paths(files))}) AS here ON {same} {later}"
    )
