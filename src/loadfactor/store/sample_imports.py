"""Adding samples to a store: a file for each day and range of devices, and which hours of the ledger they touch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.store.manifest import StoredFile, find_restepped, merge
from loadfactor.store.sample_files import SamplePart, quote, taken
from loadfactor.store.sample_layout import LONGEST_REACH_MS, SampleStart
from loadfactor.store.sample_writer import write_samples
from loadfactor.store.session import Session, learnt_steps
from loadfactor.store.settle import Settled, settle
from loadfactor.store.vote_counts import count_day_votes, find_near_day, votes_whole
from loadfactor.store.writer import FOOTER, Writer
from loadfactor.tables.schema import Span

Series = tuple[str, str]
Cell = tuple[int, pa.Table]
"""A UTC day, and samples of it as they were taken, of one range of devices."""


@dataclass(frozen=True)
class Around:
    """What a store holds around new samples: the last instant before them of each series, and whether some lie among them."""

    before: Mapping[Series, int]
    mixed: bool


def add_samples(writer: Writer, cells: Iterator[Cell], number: int, refuse: bool) -> tuple[int, int]:
    """Write the samples of an import, day by day; how many rows went into others, and how many of these said something else."""
    steps = learnt_steps(writer.manifest)
    earlier = writer.manifest.of("samples")
    last: dict[Series, int] = {}
    merged = replaced = 0
    recounted: set[int] = set()
    for day, rows in cells:
        around = look_around(writer, rows, earlier)
        settled = settle(rows, {**last, **around.before}, refuse)
        last |= settled.last
        merged += settled.merged
        replaced += settled.replaced
        file = write_cell(writer, settled, day, (number, number), settled_alone=not around.mixed)
        writer.swap((), [file])
        writer.mark_stale(list_hours(settled.rows))
        if around.mixed and file.samples is not None:  # what follows may reach less far back now
            writer.mark_stale([(file.samples.last_taken_ms, file.samples.last_taken_ms + LONGEST_REACH_MS)])
            recounted |= {day, *([day + 1] if reaches_next_day(file) else [])}
        elif votes_whole(earlier, day, file.rows):
            recounted.add(day)
        del rows, settled  # or they are in memory beside the next ones
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
    settled: Settled,
    day: int,
    imports: Span | None,
    settled_alone: bool,
    replaces: Sequence[StoredFile] = (),
) -> StoredFile:
    """Write settled samples as a file of the store, not named by the manifest yet."""
    facts = replace(settled.facts, starts=find_starts(settled.rows), settled=settled_alone)
    path = writer.name_new("samples", day)
    rows, start, end = settled.rows.num_rows, settled.from_ms, settled.to_ms
    file = StoredFile(path.name, "samples", rows, 0, 0, start, end, day, imports=imports, samples=facts)
    write_samples(settled.rows, path, {FOOTER: writer.footer(file, replaces)})
    return writer.finish(file)


def look_around(session: Session, rows: pa.Table, files: Iterable[StoredFile]) -> Around:
    """What files hold of the same series near these samples, which are as they were taken."""
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
    told = pa.table(
        {
            **{key: rows[key] for key in keys},
            "taken_ms": pc.if_else(pc.is_null(reach), at, pa.scalar(None, pa.int64())),
            "given_ms": pc.subtract(at, reach),
        }
    ).unify_dictionaries()
    if all(len(pc.unique(told[key])) == 1 for key in keys):  # quicker than grouping
        first = {key: told[key][0].as_py() for key in keys}
        groups = [first | {name: pc.min(told[name]).as_py() for name in ("taken_ms", "given_ms")}]
    else:
        found = told.group_by(keys).aggregate([("taken_ms", "min"), ("given_ms", "min")])
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
