"""Importing files into a store: every row of them or, on any error, none; and which spans of the ledger they touch."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from loadfactor.errors import InputError, SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store import manifest, sample_files, small_tables
from loadfactor.store.manifest import ImportRecord, StoredFile
from loadfactor.store.staging import Part, Staging
from loadfactor.store.store import Store
from loadfactor.tables import ALWAYS, Span, Table, table
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is behind us."""


@dataclass(frozen=True)
class Receipt:
    """What one import brought. `already` is true when exactly these files were in the books before: then nothing was added."""

    source: str
    rows: dict[str, int]
    gaps: tuple[Gap, ...]
    already: bool = False


def import_files(
    store: Store, source: Source, paths: tuple[Path, ...], options: ReadOptions, progress: Progress
) -> Receipt:
    """Import files through a source: every row, or, on any error, none. Files already imported add nothing."""
    files = source.files(paths)
    digest = _digest(source, files, options)
    with store.writing():
        for record in store.manifest.imports:
            if record.digest == digest:
                return Receipt(source.name, record.rows, tuple(Gap(*g) for g in record.gaps), already=True)
        with Staging(store.folder, source.name, options.step_s, source.default_step_s) as staging:
            for item in chain(_give_holder(source.read(files, options), options), _flat_price(options)):
                staging.take(item)
                progress(f"reading {sum(staging.rows.values()):,} rows", 0.0)
            gaps = tuple(Gap(where, what, count) for (where, what), count in staging.gaps.items())
            if not staging.rows:
                raise SourceError(f"{paths[0]}: nothing to import in it" + (f" ({gaps[0].what})" if gaps else ""))
            record = ImportRecord(
                digest,
                source.name,
                tuple(str(f) for f in files),
                dict(staging.rows),
                tuple((g.where, g.what, g.count) for g in gaps),
                options.held_by,
            )
            staged = staging.finish()
            _check_holder(store, staged, options.held_by)
            watched = {*small_tables.WATCHED} if source.watches else staging.inferred
            _merge(store, staged, staging.folder, record, watched, progress)
    return Receipt(source.name, record.rows, gaps)


def _check_holder(store: Store, staged: dict[Part, Path], held_by: str | None) -> None:
    """Refuse a job said to hold the GPUs of a log that another job was said to hold, in the same way, at the same time."""
    stored = store.paths(store.manifest.of("allocations"))
    before = sorted({i.held_by for i in store.manifest.imports if i.held_by and i.held_by != held_by})
    path = staged.get(("allocations", None))
    if held_by is None or not before or not stored or path is None:
        return
    found = store.raw.execute(small_tables.held_otherwise(path, stored), [before]).fetchone()
    if found:
        raise InputError(
            f"{found[0]} was imported as held by {found[1]!r} at a time for which --held-by says {held_by!r};"
            " a second holder would halve the first one's cost: name the same job, or use another store"
        )


def _merge(
    store: Store, staged: dict[Part, Path], work: Path, record: ImportRecord, watched: set[str], progress: Progress
) -> None:
    """Merge what was staged into new files, find out which spans it touches."""
    before = store.span()
    new: list[StoredFile] = []
    old: list[StoredFile] = []
    stale: list[Span] = []
    for done, ((name, day), path) in enumerate(sorted(staged.items(), key=lambda item: (item[0][0], item[0][1] or 0))):
        progress(f"merging {name}", done / len(staged))
        if day is None:
            merged, touched = _merge_small(store, table(name), path, work, name in watched)
            old += store.manifest.of(name)
        else:
            merged, touched = _merge_day(store, day, path, work, new)
            old += [f for f in store.manifest.of("samples") if f.day == day]
        new += merged
        stale += touched
        # a late sample is the one before the first of the day after, whose interval it may shorten
        following = [] if day is None else [f for f in store.manifest.of("samples") if f.day == day + 1]
        if day is not None and following and ("samples", day + 1) not in staged:
            merged, touched = _merge_day(store, day + 1, None, work, new)
            new += merged
            old += following
            stale += touched
    kept = tuple(f for f in store.manifest.files if f not in old)
    for file in new:
        (work / file.name).rename(store.folder / file.name)
    manifest.fsync_folder(store.folder)
    store.manifest = replace(
        store.manifest,
        files=kept + tuple(new),
        imports=(*store.manifest.imports, record),
        currency=store.currency,
    )
    start, end = store.span()
    if before != (0, 0):
        stale += [(start, before[0]), (before[1], end), (end, before[1]), (before[0], start)]
    store.manifest = replace(store.manifest, stale=manifest.merge([*store.manifest.stale, *stale]))


def _merge_small(
    store: Store, kept: Table, staged: Path, work: Path, watched: bool
) -> tuple[list[StoredFile], list[Span]]:
    stored = store.paths(store.manifest.of(kept.name))
    if kept.name == "devices":
        twice = store.raw.execute(small_tables.listed_twice(staged)).fetchone()
        if twice:
            raise SourceError(f"device {twice[0]} is listed twice for the same time; keep one row of it")
    path = work / f"{kept.name}-{uuid4().hex}.parquet"
    merged = small_tables.upserted(kept, staged, stored, watched)
    if kept.name == "devices":
        store.raw.execute(f"CREATE OR REPLACE TEMP TABLE merged AS {merged}")
        merged = small_tables.completed("merged")
    store.copy(merged, path)
    after = sample_files.read([path])
    if kept.name == "devices":
        clash = store.raw.execute(small_tables.contradicted(after)).fetchone()
        if clash:
            raise SourceError(f"device {clash[0]} would be in two places at once: {clash[1]} and {clash[2]}")
    touched: list[Span] = []
    if kept.name in ("devices", "allocations", "outages", "prices", "exchange_rates"):
        changed = small_tables.changed(after, sample_files.read(stored) if stored else None)
        spans = store.raw.execute(
            f"SELECT DISTINCT coalesce(from_utc, {ALWAYS[0]}), coalesce(to_utc, {ALWAYS[1]}) FROM ({changed})"
        ).fetchall()
        touched = list(manifest.merge([(s[0], s[1]) for s in spans]))
    start, end = small_tables.extent(kept) or ("NULL", "NULL")
    return [store.describe(path, kept.name, start, f"greatest({start}, {end})")], touched


def _merge_day(
    store: Store, day: int, staged: Path | None, work: Path, new: list[StoredFile]
) -> tuple[list[StoredFile], list[Span]]:
    stored = store.paths(f for f in store.manifest.of("samples") if f.day == day)
    before = [work / f.name for f in new if f.table == "samples" and f.day == day - 1] or [
        *store.paths(f for f in store.manifest.of("samples") if f.day == day - 1)
    ]
    path = work / f"samples-{day}-{uuid4().hex}.parquet"
    store.raw.execute(f"CREATE OR REPLACE TEMP TABLE raw_day AS {sample_files.raw_day(staged, stored)}")
    store.copy(sample_files.settled_day("raw_day", before, day), path)
    store.raw.execute("DROP TABLE raw_day")
    after = sample_files.samples([path])
    changed = small_tables.changed(after, sample_files.samples(stored)) if stored else f"SELECT * FROM {after}"
    found = store.raw.execute(f"SELECT DISTINCT hour_utc FROM ({changed}) WHERE hour_utc IS NOT NULL").fetchall()
    spans = list(manifest.merge([(h, h + MS_PER_HOUR) for (h,) in found]))
    file = store.describe(path, "samples", "from_utc", "from_utc + length_ms", day)
    watched = sample_files.watched(after, before, file.from_ms)
    sources, given = store.raw.execute(
        f"SELECT max(n), max(g) FROM (SELECT count(DISTINCT source) n, count(began_utc) g FROM {watched} GROUP BY device_id)"
    ).fetchone() or (1, 0)
    may_overlap = (sources or 0) > 1 or (given or 0) > 0
    far = file.from_ms is not None and file.from_ms < (day - 1) * MS_PER_DAY  # further back than is looked
    overlaps = may_overlap and (far or store.raw.execute(sample_files.overlapping(watched)).fetchone() == (True,))
    (measured,) = store.raw.execute(f"SELECT coalesce(bit_or(measured_mask), 0) FROM {after}").fetchone() or (0,)
    return [replace(file, overlaps=overlaps, measured=measured)], spans


def _digest(source: Source, files: tuple[Path, ...], options: ReadOptions) -> str:
    """What identifies an import: the source, how it was told to read, and the bytes of the files, whatever they are called."""
    total = hashlib.sha256(f"{source.name} {options}".encode())
    for content in sorted(manifest.sha256(f) for f in files):
        total.update(content.encode())
    return total.hexdigest()


def _give_holder(items: Iterator[Rows | Gap], options: ReadOptions) -> Iterator[Rows | Gap]:
    """What a source reads, and, where the caller says who held the GPUs, an allocation for each while it was seen."""
    for item in items:
        yield item
        if options.held_by is not None and isinstance(item, Rows) and item.table == "devices":
            held = item.data.select(["device_id", "from_utc", "to_utc"])
            job = pa.array([options.held_by] * held.num_rows, pa.string())
            yield Rows("allocations", held.append_column("job_id", job), item.where)


def _flat_price(options: ReadOptions) -> Iterator[Rows]:
    """The one price the caller pays for every GPU, as a row of the price list."""
    if options.price_per_gpu_hour is not None:
        row = {
            "basis": "contracted",
            "price_per_gpu_hour": options.price_per_gpu_hour,
            "source": "a flat price given on import",
        }
        yield Rows("prices", pa.Table.from_pylist([row]))
