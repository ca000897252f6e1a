"""Compaction and forgetting: files of a day merged into one a device range, sorted and merged, or without the rows of an import.

Neither changes an answer, but for what is forgotten: gaps are those that reading would have found, votes for the step are added up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from loadfactor.store.import_records import TABLE as IMPORTS
from loadfactor.store.import_records import change_records
from loadfactor.store.manifest import StoredFile, find_moved_ends, name_file
from loadfactor.store.sample_columns import AS_TAKEN
from loadfactor.store.sample_files import SamplePart, quote, read, taken
from loadfactor.store.sample_imports import Series, list_hours, mark_changed_steps, reaches_next_day, write_cell
from loadfactor.store.sample_layout import LONGEST_REACH_MS
from loadfactor.store.session import learnt_steps
from loadfactor.store.settle import settle
from loadfactor.store.small_imports import fold_table, merge_files, merge_logs
from loadfactor.store.staged_samples import ROWS_AT_ONCE
from loadfactor.store.step_votes import add_votes
from loadfactor.store.writer import Writer
from loadfactor.tables import ALWAYS, Span, Table, table
from loadfactor.units import MS_PER_DAY

MOST_FILES: Final = 8
"""So many files of one day and range of devices are read as fast as one."""
MOST_UNSETTLED: Final = 3
"""Files of a day among whose samples others lie: the hours around each are put together anew whenever they are read."""
UNSETTLED_SHARE: Final = 1 / 16
"""Of the rows of a day: more than that, and merging the day once is less work than reading around it."""


def compact_store(writer: Writer, everything: bool) -> None:
    """Merge what waits for it: days with unsettled or many files; with `everything`, every day of several files and all logs."""
    for day in list_days(writer.manifest.of("samples"), everything):
        compact_day(writer, day)
    for name in sorted({f.table for f in writer.manifest.files if f.is_log} - {"samples"}):
        merge_logs(writer, name, everything)


def list_days(files: Sequence[StoredFile], everything: bool = False) -> list[int]:
    """The days that are worth it, in order. A day whose files reach into the next one takes that with it.

    A few late samples wait for others, so that the day they belong to is not rewritten for each minute that comes late; but not
    where starts were given, since samples of several files that may overlap are booked far slower.
    """
    days: set[int] = set()
    by_day: dict[int, list[StoredFile]] = {}
    for file in files:
        by_day.setdefault(file.day or 0, []).append(file)
    for day, there in by_day.items():
        unsettled = [f for f in there if f.samples is not None and not f.samples.settled]
        crowded = len(there) > (1 if everything else MOST_FILES) and not _are_ranges(there)
        waiting = not everything and not any(f.samples.given for f in there if f.samples is not None)
        many = len(unsettled) > (MOST_UNSETTLED if waiting else 0)
        heavy = sum(f.rows for f in unsettled) > UNSETTLED_SHARE * sum(f.rows for f in there)
        if many or heavy or crowded:
            days.add(day)
        if day in days and day + 1 in by_day and any(reaches_next_day(f) for f in unsettled):
            days.add(day + 1)
    return sorted(days)


def compact_day(writer: Writer, day: int, without: int | None = None) -> None:
    """Merge the files of a day; `without` leaves the rows of an import out."""
    old = [f for f in writer.manifest.of("samples") if f.day == day]
    logs = [f for f in writer.manifest.logs_of("samples") if f.day == day]
    if without is None:
        votes = add_votes(vote for f in old if f.samples is not None for vote in f.samples.votes)
    else:
        votes = ()
    numbers = [n for f in (*old, *logs) for n in (f.imports or ())]
    imports: Span | None = (min(numbers), max(numbers)) if numbers else None
    new: list[StoredFile] = []
    for first, last in _divide(writer, old):
        rows = _take(writer, old, logs, without, first, last)
        if not rows.num_rows:
            continue
        settled = settle(rows, _find_before(writer, day, first, last, without), refuse=False)
        if without is None:  # the first of the ranges carries what the day has voted for
            settled = replace(settled, facts=replace(settled.facts, votes=votes))
            votes = ()
        new.append(write_cell(writer, settled, day, imports, settled_alone=True, replaces=[*old, *logs]))
        writer.mark_stale(list_hours(settled.rows) if without is not None else ())
        if settled.met is not None:
            writer.register("met", settled.met)
            log = StoredFile(name_file("samples", day), "samples", 0, 0, 0, day=day, is_log=True, imports=imports)
            new.append(writer.copy("SELECT * FROM met", log, [*old, *logs]))
    writer.swap([*old, *logs], new)


def forget_import(writer: Writer, number: int) -> None:
    """Take the rows of an import out of every table, as if it had never been."""
    steps, span = learnt_steps(writer.manifest), writer.span()
    files = [f for f in writer.manifest.of("samples") if f.holds_import(number)]
    days = {f.day for f in files if f.day is not None}
    reached = {f.day + 1 for f in files if f.day is not None and reaches_next_day(f)}
    there = {f.day for f in writer.manifest.of("samples")}
    for file in files:
        writer.mark_stale([(file.from_ms or 0, (file.to_ms or 0) + LONGEST_REACH_MS)])
    for day in sorted(days | (reached & there)):
        compact_day(writer, day, without=number)
    mark_changed_steps(writer, steps)
    for name in sorted({f.table for f in writer.manifest.files if f.is_log} - {"samples", IMPORTS}):
        logs = [f for f in writer.manifest.logs_of(name) if f.holds_import(number)]
        if logs:
            left = merge_files(writer, logs, f"import_no IS DISTINCT FROM {number}")
            writer.swap(logs, [left] if left.rows else [])
            refold_table(writer, table(name))
    writer.mark_stale(find_moved_ends(span, writer.span()))
    change_records(writer, f"SELECT * FROM records WHERE import_no <> {number}")


def refold_table(writer: Writer, kept: Table) -> None:
    """Make a table anew from its logs."""
    logs = writer.manifest.logs_of(kept.name)
    if logs:
        fold_table(writer, kept, read(writer.paths(logs)))
    else:
        old = writer.manifest.of(kept.name)
        writer.mark_stale([(f.from_ms or 0, f.to_ms or ALWAYS[1]) for f in old])
        writer.swap(old, [])


def _divide(writer: Writer, files: Sequence[StoredFile]) -> Iterator[tuple[str, str]]:
    """Ranges of devices, the first and the last of each, with about as many rows as are settled at once."""
    parts = writer.parts(files)
    counted = writer.raw.execute(
        f"SELECT device_id, count(*) FROM {taken(parts)} GROUP BY device_id ORDER BY device_id"
    ).fetchall()
    first, rows = None, 0
    for place, (device, count) in enumerate(counted):
        first = device if first is None else first
        rows += count
        if place + 1 == len(counted) or rows + counted[place + 1][1] > ROWS_AT_ONCE:
            yield first, device
            first, rows = None, 0


def _take(
    writer: Writer, files: Sequence[StoredFile], logs: Sequence[StoredFile], without: int | None, first: str, last: str
) -> pa.Table:
    """The samples of a range of devices as they were taken; of what several imports speak of, what each said."""
    columns = ", ".join(AS_TAKEN.names)
    devices = f"device_id BETWEEN {quote(first)} AND {quote(last)}"
    stored = f"SELECT * FROM {taken(writer.parts(files), devices)}"
    sql = f"SELECT *, 0::BIGINT AS seq FROM ({stored})"
    if logs:
        sql += " WHERE import_no IS NOT NULL"
        sql = (
            f"SELECT {columns} FROM ({sql}) UNION ALL SELECT {columns} FROM {read(writer.paths(logs))} WHERE {devices}"
        )
    if without is not None:
        sql = f"SELECT * FROM ({sql}) WHERE import_no IS DISTINCT FROM {without}"
    rows = writer.fetch(f"SELECT {columns} FROM ({sql})")
    return rows.cast(AS_TAKEN) if rows.schema != AS_TAKEN else rows


def _find_before(writer: Writer, day: int, first: str, last: str, without: int | None) -> dict[Series, int]:
    """The last instant of each series before a day, as far as it is near."""
    start = day * MS_PER_DAY
    near: list[SamplePart] = [
        part
        for part in writer.parts(f for f in writer.manifest.of("samples") if f.day != day)
        if part.facts.first_taken_ms <= start and part.facts.last_taken_ms > start - part.reach_ms
    ]
    if not near:
        return {}
    low = start - max(part.reach_ms for part in near)
    where = f"to_utc > {low} AND to_utc <= {start} AND device_id BETWEEN {quote(first)} AND {quote(last)}" + (
        f" AND import_no IS DISTINCT FROM {without}" if without is not None else ""
    )
    found = writer.raw.execute(
        f"SELECT device_id, source, max(sampled_utc) FROM {taken(near, where)} GROUP BY ALL"
    ).fetchall()
    return {(device, source): at for device, source, at in found}


def _are_ranges(files: Sequence[StoredFile]) -> bool:
    """True where no two files hold the same device: then they are one file in pieces."""
    limits = sorted((f.samples.first_device, f.samples.last_device) for f in files if f.samples is not None)
    return all(before[1] < after[0] for before, after in pairwise(limits))
