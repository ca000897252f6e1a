"""How do files become books, whole or not at all? The folder of one store: imports, tables to question, damage set aside."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import ibis
import pyarrow as pa

from loadfactor.errors import DamageError, InputError, SourceError, StoreError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store import layout, manifest, small
from loadfactor.store.leftovers import sweep
from loadfactor.store.manifest import ImportRecord, StoredFile
from loadfactor.store.staging import Part, Staging
from loadfactor.tables import ALWAYS, USD, Span, Table, columns_of, table
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

MEMORY_LIMIT = "1000MB"
COPY_OPTIONS = "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
# the ledger is small and often read: quick to write, a third larger than with zstd
LEDGER_OPTIONS = "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 40960, PARTITION_BY (day))"

Progress = Callable[[str, float], None]
"""Told what is being done and which share of it is behind us."""


@dataclass(frozen=True)
class Receipt:
    """What one import brought. `already` is true when exactly these files were in the books before: then nothing was added."""

    source: str
    rows: dict[str, int]
    gaps: tuple[Gap, ...]
    already: bool = False


class Store:
    """A folder of Parquet files under a manifest. Open it as often as you like; one import writes at a time."""

    def __init__(self, folder: Path, currency: str | None = None) -> None:
        """Raises InputError when the books are kept in another currency than the one asked for."""
        self.folder = folder
        self.manifest = manifest.load(folder)
        self.currency = self.manifest.currency or currency or USD
        if currency not in (None, self.currency):
            raise InputError(
                f"the books in {folder} are kept in {self.currency}, not in {currency}; leave `currency` in loadfactor.toml"
                " (LOADFACTOR_CURRENCY) out, or use another store"
            )
        self._writing = False
        self._checked: set[str] = set()  # files that this process wrote or has checked
        self.connection: Any = ibis.duckdb.connect()
        self.raw: duckdb.DuckDBPyConnection = self.connection.con
        self.raw.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        self.raw.execute("SET preserve_insertion_order = false")
        self.raw.execute("SET enable_progress_bar = false")  # faces show progress, and only where it is wanted
        self._spill = folder / f"spill-{os.getpid()}"
        self.raw.execute(f"SET temp_directory = '{_quoted(self._spill)}'")
        self._views: dict[tuple[str, ...], str] = {}
        if any(not self._whole(f) for f in self.manifest.files):
            self.look()  # perhaps an import has replaced them just now
            if any(not self._whole(f) for f in self.manifest.files):
                self.set_damage_aside(thorough=False)

    def look(self) -> bool:
        """See the newest imports; True when there are any. What was seen before may be gone from the disk by now."""
        seen = self.manifest.generation
        if not self._writing:
            self.manifest = manifest.load(self.folder)
        return self.manifest.generation != seen

    # -- questions ---------------------------------------------------------------------------------------------------

    def relation(self, name: str, files: tuple[StoredFile, ...] | None = None) -> Any:
        """An Ibis table over the files of one table (all of them, or those given); empty with its schema where there are none."""
        files = self.manifest.of(name) if files is None else files
        names = tuple(f.name for f in files)
        key = (name, *names)
        if key not in self._views:
            self._views[key] = f"v{len(self._views)}_{name}"
            self.name_view(self._views[key], name, files)
        return self.connection.table(self._views[key])

    def name_view(
        self, name: str, table: str, files: tuple[StoredFile, ...] | None = None, within: tuple[Span, ...] = ()
    ) -> None:
        """Give the files of a table (all of them, or those given) a name that SQL of this process can use.

        `within`: of samples, only those in hours that these spans touch.
        """
        files = self.manifest.of(table) if files is None else files
        if files:
            paths = self._paths(files)
            sql = f"SELECT * FROM {layout.samples(paths, within) if table == 'samples' else layout.read(paths)}"
        else:
            types = {
                "string": "VARCHAR",
                "float64": "DOUBLE",
                "int64": "BIGINT",
                "int32": "INTEGER",
                "boolean": "BOOLEAN",
            }
            sql = f"SELECT {', '.join(f'NULL::{types[t]} AS {c}' for c, t in columns_of(table).items())} WHERE false"
        self.raw.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {sql}')

    def keep(self, name: str, sql: str) -> None:
        """Work a query out into a temporary table."""
        self.raw.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {sql}')

    def view(self, name: str, sql: str) -> None:
        """Give a query a name, to be worked out whenever it is read."""
        self.raw.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {sql}')

    def lend(self, name: str, rows: pa.Table) -> None:
        """Lend a small Arrow table to the questions of this process."""
        self.raw.register("lent", rows)
        self.raw.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM lent")
        self.raw.unregister("lent")

    def kept(self, expr: Any, name: str) -> Any:
        """An Ibis expression worked out once, as a table to ask several times."""
        self.keep(name, self.connection.compile(expr))
        return self.connection.table(name)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Work queries out in one thread: floating-point sums are added up in the same order every time."""
        threads = self.raw.execute("SELECT current_setting('threads')").fetchone()
        self.raw.execute("SET threads = 1")
        try:
            yield
        finally:
            self.raw.execute(f"SET threads = {(threads or (1,))[0]}")

    def covering(self, name: str, *spans: Span) -> tuple[StoredFile, ...]:
        """The files of a table whose rows may speak of any of these spans."""
        return tuple(
            f
            for f in self.manifest.of(name)
            if any((f.from_ms or 0) < end and (f.to_ms or ALWAYS[1]) > start for start, end in spans)
        )

    def span(self) -> Span:
        """From the first to the last instant the books know of; (0, 0) when they are empty."""
        known = [f for f in self.manifest.files if f.table not in ("prices", "exchange_rates", "ledger")]
        starts = [f.from_ms for f in known if f.from_ms is not None]
        ends = [f.to_ms for f in known if f.to_ms is not None]
        return (min(starts), max(ends)) if starts and ends else (0, 0)

    # -- imports -----------------------------------------------------------------------------------------------------

    def add(self, source: Source, paths: tuple[Path, ...], options: ReadOptions, progress: Progress) -> Receipt:
        """Import files through a source: every row, or, on any error, none. Files already imported add nothing."""
        files = source.files(paths)
        digest = _digest(source, files, options)
        with self.writing():
            for record in self.manifest.imports:
                if record.digest == digest:
                    return Receipt(source.name, record.rows, tuple(Gap(*g) for g in record.gaps), already=True)
            with Staging(self.folder, source.name, options.step_s, source.default_step_s) as staging:
                for item in chain(_held(source.read(files, options), options), _flat_price(options)):
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
                self._check_holder(staged, options.held_by)
                self._merge(staged, staging.folder, record, source.watches, progress)
        return Receipt(source.name, record.rows, gaps)

    def _check_holder(self, staged: dict[Part, Path], held_by: str | None) -> None:
        """Refuse a job said to hold the GPUs of a log that another job was said to hold, in the same way, at the same time."""
        stored = self._paths(self.manifest.of("allocations"))
        before = sorted({i.held_by for i in self.manifest.imports if i.held_by and i.held_by != held_by})
        path = staged.get(("allocations", None))
        if held_by is None or not before or not stored or path is None:
            return
        found = self.raw.execute(small.held_otherwise(path, stored), [before]).fetchone()
        if found:
            raise InputError(
                f"{found[0]} was imported as held by {found[1]!r} at a time for which --held-by says {held_by!r};"
                " a second holder would halve the first one's cost: name the same job, or use another store"
            )

    def _merge(
        self, staged: dict[Part, Path], work: Path, record: ImportRecord, watched: bool, progress: Progress
    ) -> None:
        """Merge what was staged into new files, find out which spans it touches."""
        before = self.span()
        new: list[StoredFile] = []
        old: list[StoredFile] = []
        stale: list[Span] = []
        for done, ((name, day), path) in enumerate(
            sorted(staged.items(), key=lambda item: (item[0][0], item[0][1] or 0))
        ):
            progress(f"merging {name}", done / len(staged))
            if day is None:
                made, touched = self._merge_small(table(name), path, work, watched)
                old += self.manifest.of(name)
            else:
                made, touched = self._merge_day(day, path, work, new)
                old += [f for f in self.manifest.of("samples") if f.day == day]
            new += made
            stale += touched
            # a late sample is the one before the first of the day after, whose interval it may shorten
            following = [] if day is None else [f for f in self.manifest.of("samples") if f.day == day + 1]
            if day is not None and following and ("samples", day + 1) not in staged:
                made, touched = self._merge_day(day + 1, None, work, new)
                new += made
                old += following
                stale += touched
        kept = tuple(f for f in self.manifest.files if f not in old)
        for made_file in new:
            (work / made_file.name).rename(self.folder / made_file.name)
        manifest.fsync_folder(self.folder)
        self.manifest = replace(
            self.manifest,
            files=kept + tuple(new),
            imports=(*self.manifest.imports, record),
            currency=self.currency,
        )
        start, end = self.span()
        if before != (0, 0):
            stale += [(start, before[0]), (before[1], end), (end, before[1]), (before[0], start)]
        self.manifest = replace(self.manifest, stale=manifest.merge([*self.manifest.stale, *stale]))

    def _merge_small(self, kept: Table, staged: Path, work: Path, watched: bool) -> tuple[list[StoredFile], list[Span]]:
        stored = self._paths(self.manifest.of(kept.name))
        if kept.name == "devices":
            twice = self.raw.execute(small.listed_twice(staged)).fetchone()
            if twice:
                raise SourceError(f"device {twice[0]} is listed twice for the same time; keep one row of it")
        path = work / f"{kept.name}-{uuid4().hex}.parquet"
        merged = small.upserted(kept, staged, stored, watched)
        if kept.name == "devices":
            self.raw.execute(f"CREATE OR REPLACE TEMP TABLE merged AS {merged}")
            merged = small.completed("merged")
        self._copy(merged, path)
        after = layout.read([path])
        if kept.name == "devices":
            clash = self.raw.execute(small.contradicted(after)).fetchone()
            if clash:
                raise SourceError(f"device {clash[0]} would be in two places at once: {clash[1]} and {clash[2]}")
        touched: list[Span] = []
        if kept.name in ("devices", "allocations", "outages", "prices", "exchange_rates"):
            changed = small.changed(after, layout.read(stored) if stored else None)
            spans = self.raw.execute(
                f"SELECT DISTINCT coalesce(from_utc, {ALWAYS[0]}), coalesce(to_utc, {ALWAYS[1]}) FROM ({changed})"
            ).fetchall()
            touched = list(manifest.merge([(s[0], s[1]) for s in spans]))
        start, end = small.extent(kept) or ("NULL", "NULL")
        return [self._describe(path, kept.name, start, f"greatest({start}, {end})")], touched

    def _merge_day(
        self, day: int, staged: Path | None, work: Path, made: list[StoredFile]
    ) -> tuple[list[StoredFile], list[Span]]:
        stored = self._paths(f for f in self.manifest.of("samples") if f.day == day)
        before = [work / f.name for f in made if f.table == "samples" and f.day == day - 1] or [
            *self._paths(f for f in self.manifest.of("samples") if f.day == day - 1)
        ]
        path = work / f"samples-{day}-{uuid4().hex}.parquet"
        self.raw.execute(f"CREATE OR REPLACE TEMP TABLE raw_day AS {layout.raw_day(staged, stored)}")
        self._copy(layout.settled_day("raw_day", before, day), path)
        self.raw.execute("DROP TABLE raw_day")
        after = layout.samples([path])
        changed = small.changed(after, layout.samples(stored)) if stored else f"SELECT * FROM {after}"
        found = self.raw.execute(f"SELECT DISTINCT hour_utc FROM ({changed}) WHERE hour_utc IS NOT NULL").fetchall()
        spans = list(manifest.merge([(h, h + MS_PER_HOUR) for (h,) in found]))
        file = self._describe(path, "samples", "from_utc", "from_utc + length_ms", day)
        watched = layout.watched(after, before, file.from_ms)
        sources, given = self.raw.execute(
            f"SELECT max(n), max(g) FROM (SELECT count(DISTINCT source) n, count(began_utc) g FROM {watched} GROUP BY device_id)"
        ).fetchone() or (1, 0)
        may_overlap = (sources or 0) > 1 or (given or 0) > 0
        far = file.from_ms is not None and file.from_ms < (day - 1) * MS_PER_DAY  # further back than is looked
        overlaps = may_overlap and (far or self.raw.execute(layout.overlapping(watched)).fetchone() == (True,))
        (measured,) = self.raw.execute(f"SELECT coalesce(bit_or(measured_mask), 0) FROM {after}").fetchone() or (0,)
        return [replace(file, overlaps=overlaps, measured=measured)], spans

    # -- the ledger --------------------------------------------------------------------------------------------------

    def replace_ledger(
        self, days: list[int], hours: tuple[Span, ...], rows: str, key: str
    ) -> dict[int, list[StoredFile]]:
        """Write days of the ledger: the hours in `hours` from the relation `rows`, the others as they were. Files by day.

        All days in one query: planning it costs more than writing a day.
        """
        work = self.folder / f"staging-ledger-{uuid4().hex}"
        inside = " OR ".join(f"(hour_utc >= {s} AND hour_utc < {e})" for s, e in hours)
        sql = f"SELECT * FROM {rows} WHERE {inside}"
        stored = self._paths(f for f in self.manifest.of("ledger") if f.day in days)
        if stored and self.manifest.ledger_key == key:
            sql += f" UNION ALL SELECT * FROM {layout.read(stored)} WHERE NOT ({inside})"
        sql = f"SELECT *, hour_utc // {MS_PER_DAY} AS day FROM ({sql})"
        self.raw.execute(f"COPY ({sql}) TO '{_quoted(work)}' {LEDGER_OPTIONS}")
        made: dict[int, list[StoredFile]] = {day: [] for day in days}
        for part in sorted(work.glob("day=*/*.parquet")):
            day = int(part.parent.name.removeprefix("day="))
            path = part.rename(self.folder / f"ledger-{day}-{uuid4().hex}.parquet")
            made[day].append(self._describe(path, "ledger", "hour_utc", f"hour_utc + {MS_PER_HOUR}", day))
        shutil.rmtree(work, ignore_errors=True)
        return made

    def publish_ledger(
        self, days: dict[int, list[StoredFile]], stale: tuple[Span, ...], key: str, sources_key: str = ""
    ) -> None:
        """Swap in rebuilt days of the ledger, with the end of `writing`; `stale` is what remains to be booked."""
        kept = tuple(f for f in self.manifest.files if f.table != "ledger" or f.day not in days)
        new = tuple(f for files in days.values() for f in files)
        manifest.fsync_folder(self.folder)
        self.manifest = replace(self.manifest, files=kept + new, stale=stale, ledger_key=key, sources_key=sources_key)

    # -- damage ------------------------------------------------------------------------------------------------------

    def set_damage_aside(self, thorough: bool = True) -> tuple[str, ...]:
        """Move files that are missing or not what was written out of the books; their hours become unobserved. Their names."""
        with self.writing():
            damaged = [f for f in self.manifest.files if not self._whole(f, thorough)]
            if not damaged:
                return ()
            aside = self.folder / "set-aside"
            aside.mkdir(exist_ok=True)
            stale = list(self.manifest.stale)
            for file in damaged:
                if (self.folder / file.name).exists():
                    (self.folder / file.name).rename(aside / file.name)
                stale.append(
                    (file.from_ms or ALWAYS[0], file.to_ms or ALWAYS[1]) if file.table == "samples" else ALWAYS
                )
            notes = tuple((f.name, f"{f.table}, {f.rows:,} rows") for f in damaged)
            kept = tuple(f for f in self.manifest.files if f not in damaged)
            gone = {f.table for f in damaged if f.table != "ledger"}
            self.manifest = replace(
                self.manifest,
                files=kept,
                stale=manifest.merge(stale),
                set_aside=self.manifest.set_aside + notes,
                # what they brought may be imported again
                imports=tuple(i for i in self.manifest.imports if not gone & set(i.rows)),
            )
        return tuple(f.name for f in damaged)

    def _whole(self, file: StoredFile, thorough: bool = False) -> bool:
        path = self.folder / file.name
        if not path.exists() or path.stat().st_size != file.bytes:
            return False
        return not thorough or manifest.crc32(path) == file.crc32

    # -- files -------------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's lock, with the newest manifest; what changed in it is published at the end, or nothing of it.

        One inside another is part of the outer one. Leftovers of killed imports are removed.
        """
        if self._writing:
            yield
            return
        created = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise StoreError(
                f"{self.folder} cannot be written ({error.strerror}); choose another folder with --store"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(f"another import is writing to {self.folder}; wait for it to end") from error
            before = self.manifest = manifest.load(self.folder)
            self._sweep()
            self._writing = True
            try:
                yield
                if self.manifest is not before:
                    self.manifest = manifest.publish(self.folder, before, self.manifest)
            except BaseException as error:
                self.manifest = before
                with suppress(OSError):
                    self._sweep()
                if isinstance(error, OSError | duckdb.IOException):
                    why = getattr(error, "strerror", None) or _first_line(error)
                    raise StoreError(f"writing to {self.folder} failed ({why}); the books are as before") from error
                raise
            finally:
                self._writing = False
                if not manifest.has_books(self.folder):  # nothing was imported: no trace of the attempt stays
                    (self.folder / "lock").unlink(missing_ok=True)
                    shutil.rmtree(self._spill, ignore_errors=True)
                    with suppress(OSError):
                        if created:
                            self.folder.rmdir()

    def _sweep(self) -> None:
        """Remove what killed imports left: staging folders and Parquet files no manifest names."""
        named = {f.name for f in self.manifest.files} | set(self.manifest.retired)
        sweep(self.folder, named)

    def _copy(self, sql: str, path: Path) -> None:
        self.raw.execute(f"COPY ({sql}) TO '{_quoted(path)}' {COPY_OPTIONS}")

    def _describe(self, path: Path, name: str, start: str, end: str, day: int | None = None) -> StoredFile:
        row = self.raw.execute(f"SELECT count(*), min({start}), max({end}) FROM {layout.read([path])}").fetchone()
        rows, from_ms, to_ms = row or (0, None, None)
        self._checked.add(path.name)
        return StoredFile(path.name, name, rows, path.stat().st_size, manifest.crc32(path), from_ms, to_ms, day)

    def _paths(self, files: Iterable[StoredFile]) -> list[Path]:
        """Where files of the books lie. DamageError when one is not what was written; each is checked once a process."""
        files = tuple(files)
        for file in files:
            if file.name not in self._checked:
                if not self._whole(file, thorough=True):
                    raise DamageError(f"{self.folder / file.name} is damaged; `loadfactor doctor` sets it aside")
                self._checked.add(file.name)
        return [self.folder / f.name for f in files]


def _quoted(path: Path) -> str:
    """A path inside single quotes of SQL."""
    return str(path).replace("'", "''")


def _digest(source: Source, files: tuple[Path, ...], options: ReadOptions) -> str:
    """What identifies an import: the source, how it was told to read, and the bytes of the files, whatever they are called."""
    total = hashlib.sha256(f"{source.name} {options}".encode())
    for content in sorted(manifest.sha256(f) for f in files):
        total.update(content.encode())
    return total.hexdigest()


def _held(items: Iterator[Rows | Gap], options: ReadOptions) -> Iterator[Rows | Gap]:
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


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
