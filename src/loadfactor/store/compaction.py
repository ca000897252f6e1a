"""Compaction and forgetting: files of a day merged into one a device range, sorted and merged, or without the rows of an import.

Neither changes an answer, but for what is forgotten: gaps are those that reading would have found, votes for the step are added up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_DAY
from loadfactor.store.charge_imports import forget_charges, retag_charges
from loadfactor.store.import_records import TABLE as IMPORTS
from loadfactor.store.import_records import change_records
from loadfactor.store.manifest import LONGEST_REACH_MS, StepVote, StoredFile, find_moved_ends, name_file
from loadfactor.store.normalize import AS_TAKEN, Normalized, normalize
from loadfactor.store.sample_files import SamplePart, quote, read, taken
from loadfactor.store.sample_imports import (
    Series,
    list_hours,
    look_around,
    mark_changed_steps,
    reaches_next_day,
    write_cell,
)
from loadfactor.store.session import TAGGED, ChangeRows, learnt_steps, read_rows
from loadfactor.store.small_imports import BOOKED, find_changed, fold_table, merge_files, merge_logs, write_tagged
from loadfactor.store.staged_import import ROWS_AT_ONCE
from loadfactor.store.step_votes import add_votes
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import Span, table

MOST_FILES: Final = 24
"""More files of a day come about only where merging the newest does not: then all of it is merged."""
FEWEST_MERGED: Final = 4
"""Files of a day are merged when together they are so many times as large as each: a row is moved a few times in a day."""
MERGED_ROWS: Final = 1_500_000
"""Files with so many rows stay as they are: what arrives minute by minute never rewrites a day of a large fleet."""
MOST_UNSETTLED: Final = 3
"""Files of a day among whose samples others lie: the hours around each are put together anew whenever they are read."""
AFTER_LOGGED = 1 << 40
"""More than any number of a row in its import."""
UNSETTLED_SHARE: Final = 1 / 16
"""Of the rows of a day: more than that, and merging the day once is less work than reading around it."""


def compact_store(writer: Writer, everything: bool) -> None:
    """Merge what waits for it: days with unsettled or many files; with `everything`, every day of several files and all logs."""
    for day in list_days(writer.manifest.of("samples"), everything):
        compact_day(writer, day)
    if not everything:
        for day in sorted({f.day for f in writer.manifest.of("samples") if f.day is not None}):
            merge_newest(writer, day)
    for name in sorted({f.table for f in writer.manifest.files if f.is_log} - {"samples", CHARGES.name}):
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


def merge_newest(writer: Writer, day: int, closed: bool = False) -> None:
    """Merge the newest files of a day into one as far as they are of a size; of a `closed` day, all that are not large.

    A file that others lie among waits for `compact_day`, and so does a day with samples that several imports speak of.
    """
    files = sorted((f for f in writer.manifest.of("samples") if f.day == day), key=_newness, reverse=True)
    if len(files) < (2 if closed else FEWEST_MERGED) or any(f.day == day for f in writer.manifest.logs_of("samples")):
        return
    group: list[StoredFile] = []
    rows = most = 0
    for place, file in enumerate(files):
        if file.rows >= MERGED_ROWS or rows + file.rows > ROWS_AT_ONCE or not _is_settled(file):
            break
        rows, most = rows + file.rows, max(most, file.rows)
        if rows >= FEWEST_MERGED * most or (closed and place):
            group = files[: place + 1]
    if not group:
        return
    first, last = (
        min(f.samples.first_device for f in group if f.samples),
        max(f.samples.last_device for f in group if f.samples),
    )
    taken_rows = _take(writer, group, (), None, first, last)
    chosen = {f.name for f in group}
    others = [f for f in writer.manifest.of("samples") if f.name not in chosen and (f.day or 0) <= day]
    around = look_around(writer, taken_rows, others)
    if not around.mixed:
        normalized = normalize(taken_rows, around.before, refuse=False)
        writer.swap(group, _write_merged(writer, normalized, day, group, _add_votes(group)))


def close_day(writer: Writer, day: int) -> None:
    """Merge what a day of many small files holds, once nothing more is expected of it."""
    merge_newest(writer, day, closed=True)


def _newness(file: StoredFile) -> tuple[int, int, int]:
    facts = file.samples
    return (facts.last_taken_ms, facts.first_taken_ms, -file.rows) if facts is not None else (0, 0, 0)


def compact_day(writer: Writer, day: int, without: int | None = None) -> None:
    """Merge the files of a day; `without` leaves the rows of an import out."""
    old = [f for f in writer.manifest.of("samples") if f.day == day]
    logs = [f for f in writer.manifest.logs_of("samples") if f.day == day]
    votes = _add_votes(old) if without is None else ()
    new: list[StoredFile] = []
    for first, last in _divide(writer, old):
        rows = _take(writer, old, logs, without, first, last)
        if not rows.num_rows:
            continue
        normalized = normalize(rows, _find_before(writer, day, first, last, without), refuse=False)
        writer.mark_stale(list_hours(normalized.rows) if without is not None else ())
        new += _write_merged(
            writer, normalized, day, [*old, *logs], votes if without is None else normalized.facts.votes
        )
        votes = ()  # the first of the ranges carries what the day has voted for
    writer.swap([*old, *logs], new)


def _write_merged(
    writer: Writer, normalized: Normalized, day: int, old: Sequence[StoredFile], votes: tuple[StepVote, ...]
) -> list[StoredFile]:
    """The files of samples that were merged: what they are now, and what each import reported of those that several speak of."""
    numbers = [n for f in old for n in (f.imports or ())]
    imports: Span | None = (min(numbers), max(numbers)) if numbers else None
    normalized = replace(normalized, facts=replace(normalized.facts, votes=votes))
    new = [write_cell(writer, normalized, day, imports, settled_alone=True, replaces=old)]
    if normalized.met is not None:
        writer.register("met", normalized.met)
        log = StoredFile(name_file("samples", day), "samples", 0, 0, 0, day=day, is_log=True, imports=imports)
        new.append(writer.copy("SELECT * FROM met", log, old))
    return new


def _add_votes(files: Sequence[StoredFile]) -> tuple[StepVote, ...]:
    return add_votes(vote for f in files if f.samples is not None for vote in f.samples.votes)


def _is_settled(file: StoredFile) -> bool:
    return file.samples is not None and file.samples.settled


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
    for name in sorted({f.table for f in writer.manifest.files if f.is_log} - {"samples", CHARGES.name, IMPORTS}):
        logs = [f for f in writer.manifest.logs_of(name) if f.holds_import(number)]
        if logs:
            left = merge_files(writer, logs, f"import_no IS DISTINCT FROM {number}")
            writer.swap(logs, [left] if left.rows else [])
            refold_table(writer, table(name))
    forget_charges(writer, number)
    writer.mark_stale(find_moved_ends(span, writer.span()))
    change_records(writer, f"SELECT * FROM records WHERE import_no <> {number}")


def refold_table(writer: Writer, kept: Table) -> None:
    """Make a table anew from its logs."""
    logs = writer.manifest.logs_of(kept.name)
    if logs:
        fold_table(writer, kept, read_rows(kept.name, writer.paths(logs)))
    else:
        old = writer.manifest.of(kept.name)
        if old and kept.name in BOOKED:
            writer.mark_stale(find_changed(writer, kept, read_rows(kept.name, writer.paths(old)), None))
        writer.swap(old, [])


def _divide(writer: Writer, files: Sequence[StoredFile]) -> Iterator[tuple[str, str]]:
    """Ranges of devices, the first and the last of each, with about as many rows as are normalized at once."""
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
    """The samples of a range of devices as they were taken; of what several imports speak of, what each reported."""
    columns = ", ".join(AS_TAKEN.names)
    devices = f"device_id BETWEEN {quote(first)} AND {quote(last)}"
    stored = taken(writer.parts(files), devices, numbered=True)
    sql = f"SELECT *, {AFTER_LOGGED} + part AS seq FROM {stored}"  # what logs hold was merged before these files were written
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


def retag_rows(writer: Writer, tag: ChangeRows, names: Sequence[str] = TAGGED) -> dict[str, int]:
    """Tag every row of some tables anew, and mark the hours that this changes stale; the changed rows by table."""
    changed: dict[str, int] = {}
    for name in names:
        if name == CHARGES.name:
            if rows := retag_charges(writer, tag):
                changed[name] = rows
            continue
        for log in writer.manifest.logs_of(name):
            path = writer.work / f"tagged-{log.name}"
            rows = write_tagged(writer, name, read_rows(name, writer.paths([log])), tag, path)
            if rows:
                made = StoredFile(name_file(name), name, 0, 0, 0, is_log=True, imports=log.imports)
                writer.swap([log], [writer.copy(f"SELECT * FROM {read([path])}", made, [log])])
                changed[name] = changed.get(name, 0) + rows
            path.unlink()
        if name in changed:
            refold_table(writer, table(name))
    return changed
