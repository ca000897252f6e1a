"""The folder of one store: its files as tables to ask, its lock, the files of the ledger, and damage in quarantine."""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from loadfactor.errors import DamageError, InputError, StoreError
from loadfactor.store import manifest, sample_files
from loadfactor.store.cleanup import remove_leftovers
from loadfactor.store.manifest import StoredFile
from loadfactor.store.migration import migrate
from loadfactor.store.session import Session, quote_path
from loadfactor.tables import ALWAYS, DEFAULT_CURRENCY, DIAGNOSTIC, Span, columns_of
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

COPY_OPTIONS = "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
# the ledger is small and often read: quick to write, a third larger than with zstd
LEDGER_OPTIONS = "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 40960, PARTITION_BY (day))"


class Store(Session):
    """A folder of Parquet files under a manifest. Open it as often as you like; one import writes at a time."""

    def __init__(self, folder: Path, currency: str | None = None) -> None:
        """Raises InputError when the books are kept in another currency than the one asked for."""
        self.folder = folder
        migrate(folder)
        self.manifest = manifest.load(folder)
        self.currency = self.manifest.currency or currency or DEFAULT_CURRENCY
        if currency not in (None, self.currency):
            raise InputError(
                f"the books in {folder} are kept in {self.currency}, not in {currency}; leave `currency` in loadfactor.toml"
                " (LOADFACTOR_CURRENCY) out, or use another store"
            )
        self._writing = False
        self._checked: set[str] = set()  # files that this process wrote or has checked
        self._spill = folder / f"spill-{os.getpid()}"
        super().__init__(self._spill)
        self._views: dict[tuple[str, ...], str] = {}
        if any(not self._whole(f) for f in self.manifest.files):
            self.reload()  # perhaps an import has replaced them just now
            if any(not self._whole(f) for f in self.manifest.files):
                self.quarantine_damage(thorough=False)

    def reload(self) -> bool:
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
            self.view_table(self._views[key], name, files)
        return self.connection.table(self._views[key])

    def view_table(
        self, name: str, table: str, files: tuple[StoredFile, ...] | None = None, within: tuple[Span, ...] = ()
    ) -> None:
        """Give the files of a table (all of them, or those given) a name that SQL of this process can use.

        `within`: of samples, only those in hours that these spans touch.
        """
        files = self.manifest.of(table) if files is None else files
        if files:
            paths = self.paths(files)
            sql = f"SELECT * FROM {sample_files.samples(paths, within) if table == 'samples' else sample_files.read(paths)}"
        else:
            types = {
                "string": "VARCHAR",
                "float64": "DOUBLE",
                "int64": "BIGINT",
                "int32": "INTEGER",
                "boolean": "BOOLEAN",
            }
            sql = f"SELECT {', '.join(f'NULL::{types[t]} AS {c}' for c, t in columns_of(table).items())} WHERE false"
        self.create_view(name, sql)

    def covering(self, name: str, *spans: Span) -> tuple[StoredFile, ...]:
        """The files of a table whose rows may speak of any of these spans."""
        return tuple(
            f
            for f in self.manifest.of(name)
            if any((f.from_ms or 0) < end and (f.to_ms or ALWAYS[1]) > start for start, end in spans)
        )

    def span(self) -> Span:
        """From the first to the last instant the books know of; (0, 0) when they are empty."""
        beside = ("prices", "exchange_rates", "ledger", *(t.name for t in DIAGNOSTIC))
        known = [f for f in self.manifest.files if f.table not in beside]
        starts = [f.from_ms for f in known if f.from_ms is not None]
        ends = [f.to_ms for f in known if f.to_ms is not None]
        return (min(starts), max(ends)) if starts and ends else (0, 0)

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
        stored = self.paths(f for f in self.manifest.of("ledger") if f.day in days)
        if stored and self.manifest.ledger_key == key:
            sql += f" UNION ALL SELECT * FROM {sample_files.read(stored)} WHERE NOT ({inside})"
        sql = f"SELECT *, hour_utc // {MS_PER_DAY} AS day FROM ({sql})"
        self.raw.execute(f"COPY ({sql}) TO '{quote_path(work)}' {LEDGER_OPTIONS}")
        made: dict[int, list[StoredFile]] = {day: [] for day in days}
        for part in sorted(work.glob("day=*/*.parquet")):
            day = int(part.parent.name.removeprefix("day="))
            path = part.rename(self.folder / f"ledger-{day}-{uuid4().hex}.parquet")
            made[day].append(self.describe(path, "ledger", "hour_utc", f"hour_utc + {MS_PER_HOUR}", day))
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

    def quarantine_damage(self, thorough: bool = True) -> tuple[str, ...]:
        """Move files that are missing or not what was written out of the books; their hours become unobserved. Their names."""
        with self.writing():
            damaged = [f for f in self.manifest.files if not self._whole(f, thorough)]
            if not damaged:
                return ()
            quarantine = self.folder / "quarantine"
            quarantine.mkdir(exist_ok=True)
            stale = list(self.manifest.stale)
            for file in damaged:
                if (self.folder / file.name).exists():
                    (self.folder / file.name).rename(quarantine / file.name)
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
                quarantined=self.manifest.quarantined + notes,
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
            self._clean_up()
            self._writing = True
            try:
                yield
                if self.manifest is not before:
                    self.manifest = manifest.publish(self.folder, before, self.manifest)
            except BaseException as error:
                self.manifest = before
                with suppress(OSError):
                    self._clean_up()
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

    def _clean_up(self) -> None:
        """Remove what killed imports left: staging folders and Parquet files no manifest names."""
        named = {f.name for f in self.manifest.files} | set(self.manifest.retired)
        remove_leftovers(self.folder, named)

    def copy(self, sql: str, path: Path) -> None:
        self.raw.execute(f"COPY ({sql}) TO '{quote_path(path)}' {COPY_OPTIONS}")

    def describe(self, path: Path, name: str, start: str, end: str, day: int | None = None) -> StoredFile:
        row = self.raw.execute(f"SELECT count(*), min({start}), max({end}) FROM {sample_files.read([path])}").fetchone()
        rows, from_ms, to_ms = row or (0, None, None)
        self._checked.add(path.name)
        return StoredFile(path.name, name, rows, path.stat().st_size, manifest.crc32(path), from_ms, to_ms, day)

    def paths(self, files: Iterable[StoredFile]) -> list[Path]:
        """Where files of the books lie. DamageError when one is not what was written; each is checked once a process."""
        files = tuple(files)
        for file in files:
            if file.name not in self._checked:
                if not self._whole(file, thorough=True):
                    raise DamageError(f"{self.folder / file.name} is damaged; `loadfactor doctor` moves it aside")
                self._checked.add(file.name)
        return [self.folder / f.name for f in files]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
