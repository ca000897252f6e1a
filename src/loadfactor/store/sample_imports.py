"""Adding samples to a store: a file for each day and range of devices, and which hours of the ledger they touch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.store import disk
from loadfactor.store.manifest import (
    LONGEST_REACH_MS,
    LONGEST_STEP_MS,
    SampleStart,
    StepVote,
    StoredFile,
    find_restepped,
    merge,
)
from loadfactor.store.normalize import ON_DISK, Normalized, normalize
from loadfactor.store.sample_files import SamplePart, quote, taken
from loadfactor.store.session import Session, learnt_steps
from loadfactor.store.step_votes import count_votes
from loadfactor.store.writer import FOOTER, Writer
from loadfactor.tables.schema import REACH_STEPS, Span

ROW_GROUP_ROWS: Final = 122_880
"""Rows that DuckDB decodes at a time on one thread."""

_BY_DIFFERENCE: Final = {"to_utc": "DELTA_BINARY_PACKED"}
"""Instants differ from row to row by the step: a dictionary of them overflows, differences take a byte."""
_SEARCHED: Final = ["device_id", "hour_utc", "to_utc"]
"""Columns whose least and greatest value let a reader pass over a row group."""


def write_samples(rows: pa.Table, path: Path, footer: Mapping[str, str]) -> None:
    """Write rows (ON_DISK) as Parquet with these texts in its footer, and make them survive a power loss."""
    with pq.ParquetWriter(
        path,
        ON_DISK,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in ON_DISK.names if name not in _BY_DIFFERENCE],
        column_encoding=dict(_BY_DIFFERENCE),
        write_statistics=_SEARCHED,
        max_rows_per_page=ROW_GROUP_ROWS,  # a page for each of a few thousand rows costs DuckDB a tenth of its time
    ) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata(dict(footer))
    disk.sync_file(path)


Series = tuple[str, str]
Cell = tuple[int, pa.Table]
"""A UTC day, and samples of it as they were taken, of one range of devices."""


@dataclass(frozen=True)
class Around:
    """Stored samples near new ones: the last instant before them of each series, and whether some lie among them."""

    before: Mapping[Series, int]
    mixed: bool


def add_samples(writer: Writer, cells: Iterator[Cell], number: int, refuse: bool) -> tuple[int, int]:
    """Write the samples of an import, day by day; how many rows went into others, and how many of these reported something else."""
    steps = learnt_steps(writer.manifest)
    earlier = writer.manifest.of("samples")
    last: dict[Series, int] = {}
    merged = replaced = 0
    recounted: set[int] = set()
    for day, rows in cells:
        around = look_around(writer, rows, earlier)
        normalized = normalize(rows, {**last, **around.before}, refuse)
        last |= normalized.last
        merged += normalized.merged
        replaced += normalized.replaced
        file = write_cell(writer, normalized, day, (number, number), settled_alone=not around.mixed)
        writer.swap((), [file])
        writer.mark_stale(list_hours(normalized.rows))
        if around.mixed and file.samples is not None:  # what follows may reach less far back now
            writer.mark_stale([(file.samples.last_taken_ms, file.samples.last_taken_ms + LONGEST_REACH_MS)])
            recounted |= {day, *([day + 1] if reaches_next_day(file) else [])}
        elif votes_whole(earlier, day, file.rows):
            recounted.add(day)
        del rows, normalized  # or they are in memory beside the next ones
    pa.default_memory_pool().release_unused()  # booking comes next, and has a limit of its own
    for day in sorted(recounted):
        recount_votes(writer, day)
    mark_changed_steps(writer, steps)
    return merged, replaced


def recount_votes(writer: Writer, day: int) -> None:
    """Let the files of a day vote as all their samples together do."""
    files = [f for f in writer.manifest.of("samples") if f.day == day]
    if not files:
        return
    votes = count_day_votes(writer, day, find_near_day(writer, day))
    voting = []
    for file in files:
        if file.samples is not None:
            voting.append(replace(file, samples=replace(file.samples, votes=votes)))
            votes = ()
    writer.swap(files, voting)


def write_cell(
    writer: Writer,
    normalized: Normalized,
    day: int,
    imports: Span | None,
    settled_alone: bool,
    replaces: Sequence[StoredFile] = (),
) -> StoredFile:
    """Write normalized samples as a file of the store, not named by the manifest yet."""
    facts = replace(normalized.facts, starts=find_starts(normalized.rows), settled=settled_alone)
    path = writer.name_new("samples", day)
    rows, start, end = normalized.rows.num_rows, normalized.from_ms, normalized.to_ms
    file = StoredFile(path.name, "samples", rows, 0, 0, start, end, day, imports=imports, samples=facts)
    write_samples(normalized.rows, path, {FOOTER: writer.footer(file, replaces)})
    return writer.finish(file)


def look_around(session: Session, rows: pa.Table, files: Iterable[StoredFile]) -> Around:
    """Find what files hold of the same series near these samples, which are as they were taken."""
    limits = pc.min_max(rows["sampled_utc"]).as_py()
    devices = pc.min_max(pc.unique(rows["device_id"]).cast(pa.string())).as_py()
    sources = set(pc.unique(rows["source"]).cast(pa.string()).to_pylist())
    near = session.parts(f for f in files if _is_near(f, limits, devices, sources))
    if not near:
        return Around({}, mixed=False)
    reach = max(part.reach_ms for part in near)
    low, high = limits["min"] - reach, limits["max"] + reach
    where = (
        f"to_utc > {low} AND to_utc <= {high} AND device_id BETWEEN {quote(devices['min'])} AND {quote(devices['max'])}"
    )
    session.raw.register("cell", rows.select(["device_id", "source", "sampled_utc"]))
    found = session.raw.execute(
        f"""WITH new AS (
              SELECT device_id, source, min(sampled_utc) AS first, max(sampled_utc) AS last FROM cell GROUP BY ALL
            )
            SELECT device_id, source, max(if(sampled_utc < first, sampled_utc, NULL)),
              bool_or(sampled_utc >= first AND sampled_utc <= last + {reach})
            FROM {taken(near, where)} JOIN new USING (device_id, source) WHERE sampled_utc > first - {reach} GROUP BY ALL"""
    ).fetchall()
    session.raw.unregister("cell")
    before = {(device, source): at for device, source, at, _ in found if at is not None}
    return Around(before, any(mixed for *_, mixed in found))


def find_starts(rows: pa.Table) -> tuple[SampleStart, ...]:
    """Where the earliest samples of each source begin; `rows` are those of a file.

    Only the first of a series can begin a step before it was taken: the others reach back to a sample, or begin after it.
    """
    keys = ["source", "step_ms", "lone_step_ms"]
    at, reach = pc.add(rows["to_utc"], rows["late_ms"]), rows["reach_ms"]
    stated = pa.table(
        {
            **{key: rows[key] for key in keys},
            "taken_ms": pc.if_else(pc.is_null(reach), at, pa.scalar(None, pa.int64())),
            "given_ms": pc.subtract(at, reach),
        }
    ).unify_dictionaries()
    if all(len(pc.unique(stated[key])) == 1 for key in keys):  # quicker than grouping
        first = {key: stated[key][0].as_py() for key in keys}
        groups = [first | {name: pc.min(stated[name]).as_py() for name in ("taken_ms", "given_ms")}]
    else:
        found = stated.group_by(keys).aggregate([("taken_ms", "min"), ("given_ms", "min")])
        groups = found.rename_columns([*keys, "taken_ms", "given_ms"]).to_pylist()
    return tuple(SampleStart(**group) for group in sorted(groups, key=str))


def list_hours(rows: pa.Table) -> tuple[Span, ...]:
    """The hours that rows of a file lie in."""
    hours = np.concatenate([chunk.to_numpy() for chunk in rows["hour_utc"].chunks])
    hours = np.unique(hours[np.append(True, hours[1:] != hours[:-1])])  # a device has many rows of an hour
    return merge([(hour, hour + MS_PER_HOUR) for hour in hours.tolist()])


def mark_changed_steps(writer: Writer, before: Mapping[str, int]) -> None:
    """Have everything of a source booked again whose step has changed with what was added or taken out."""
    writer.mark_stale(find_restepped(writer.manifest, before, learnt_steps(writer.manifest)))


def reaches_next_day(file: StoredFile) -> bool:
    """True where samples of the next day may lie near the last ones of a file."""
    return (
        file.samples is not None and file.samples.last_taken_ms + LONGEST_REACH_MS > ((file.day or 0) + 1) * MS_PER_DAY
    )


def _is_near(file: StoredFile, limits: dict[str, int], devices: dict[str, str], sources: set[str]) -> bool:
    facts = file.samples
    if facts is None or not sources.intersection(facts.sources):
        return False
    reach = SamplePart("", 0, 0, facts).reach_ms
    return (
        facts.first_taken_ms <= limits["max"] + reach
        and facts.last_taken_ms > limits["min"] - reach
        and facts.first_device <= devices["max"]
        and facts.last_device >= devices["min"]
    )


MOST_COUNTED_WHOLE = 200_000
"""A day with fewer samples votes as a whole: of more, each file has enough gaps to speak for itself."""


def votes_whole(files: Iterable[StoredFile], day: int, rows: int) -> bool:
    """True where so many more samples of a day vote together with those of its files, few as they are."""
    there = sum(f.rows for f in files if f.day == day)
    return 0 < there <= MOST_COUNTED_WHOLE - rows


def count_day_votes(session: Session, day: int, parts: list[SamplePart]) -> tuple[StepVote, ...]:
    """The votes of a day; `parts` hold its samples, and the ones near before them."""
    start = day * MS_PER_DAY
    reach = max(part.reach_ms for part in parts)
    stated = taken(parts, f"to_utc > {start - reach} AND to_utc <= {start + MS_PER_DAY}")
    session.materialize(
        "voters",
        f"""SELECT device_id, source, (row_number() OVER (ORDER BY device_id, source) - 1)::INTEGER AS series
            FROM (SELECT DISTINCT device_id, source FROM {stated})""",
    )
    rows = session.fetch(
        f"""SELECT series, sampled_utc, began_utc IS NOT NULL AS given,
              greatest(coalesce(step_ms, 0), coalesce(lone_step_ms, 0), {LONGEST_STEP_MS}) AS longest_ms
            FROM {stated} JOIN voters USING (device_id, source)"""
    )
    if rows.num_rows < 2:
        return ()
    series, at, given, longest = (rows[name].to_numpy() for name in rows.column_names)
    order = np.lexsort((at, series))
    series, at, given, longest = series[order], at[order], given[order], longest[order]
    begins = np.flatnonzero(np.append(True, (series[1:] != series[:-1]) | (at[1:] != at[:-1])))
    if len(begins) < len(at):  # several imports speak of one sample
        given, longest = np.logical_or.reduceat(given, begins), np.maximum.reduceat(longest, begins)
        series, at = series[begins], at[begins]
    gap = at[1:] - at[:-1]
    counted = (series[1:] == series[:-1]) & (at[1:] > start) & ~given[1:]
    counted &= (at[:-1] > start) | (gap <= REACH_STEPS * longest[1:])
    names = session.raw.execute("SELECT device_id, source FROM voters ORDER BY series").fetchall()
    return count_votes(series[1:][counted], gap[counted], names)


def find_near_day(session: Session, day: int) -> list[SamplePart]:
    """The parts that hold samples of a day or near before it."""
    start, end = day * MS_PER_DAY, (day + 1) * MS_PER_DAY
    files = [
        f
        for f in session.manifest.of("samples")
        if f.samples is not None
        and f.samples.first_taken_ms <= end
        and f.samples.last_taken_ms > start - SamplePart("", 0, 0, f.samples).reach_ms
    ]
    return [*session.parts(files), *session.live_samples]
