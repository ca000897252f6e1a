"""The writer of a store: a session that changes the books. New files wait in a folder of its own until all are whole and synced."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import duckdb

from loadfactor.base.small_json import parse_json
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.store import disk
from loadfactor.store.manifest import Manifest, StoredFile, checksum_file, merge, name_file
from loadfactor.store.place import Place
from loadfactor.store.sample_files import quote, read
from loadfactor.store.session import Session
from loadfactor.store.trusted_time import advance_trusted_ms
from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

FOOTER: Final = "loadfactor"
"""The key under which a file says what it is, so that a lost manifest can be rebuilt from the files."""
COPY_OPTIONS: Final = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880"
# the ledger is small and often read: quick to write, a third larger than with zstd; sums rarely repeat, so no long dictionaries
LEDGER_OPTIONS: Final = "FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 40960, DICTIONARY_SIZE_LIMIT 2000"


class Writer(Session):
    """A session that writes: `manifest` is exchanged for a new one with every change, and published at the end, or not at all."""

    def __init__(self, place: Place, manifest: Manifest, raw: duckdb.DuckDBPyConnection, currency: str) -> None:
        super().__init__(place, manifest, raw, currency)
        self.work = place.files / f"staging-{uuid4().hex}"
        self._before = manifest
        self._made: set[str] = set()
        self.has_source_times = False
        """Whether the new rows carry times of their source, which this machine's clock did not write."""
        self.witnessed_ms = 0
        """The newest time of senders that have a clock of their own."""

    @property
    def has_changes(self) -> bool:
        """True where there is something to publish."""
        return self.manifest is not self._before

    def paths(self, files: Iterable[StoredFile]) -> list[Path]:
        """Where files lie: in the store, or, made just now, in the staging folder."""
        files = tuple(files)
        stored = iter(self.place.locate(f for f in files if f.name not in self._made))
        return [self.work / f.name if f.name in self._made else next(stored) for f in files]

    def swap(self, old: Iterable[StoredFile], new: Iterable[StoredFile]) -> None:
        """Put files in place of others."""
        self.manifest = self.manifest.swap(tuple(old), tuple(new))

    def mark_stale(self, spans: Iterable[Span]) -> None:
        """Have the ledger of these spans booked again."""
        self.manifest = replace(self.manifest, stale=merge([*self.manifest.stale, *spans]))

    # -- new files ---------------------------------------------------------------------------------------------------

    def name_new(self, table: str, day: int | None = None) -> Path:
        """Where to write a new file of a table."""
        self.work.mkdir(parents=True, exist_ok=True)
        return self.work / name_file(table, day)

    def copy(
        self, sql: str, file: StoredFile, replaces: Iterable[StoredFile] = (), extent: tuple[str, str] | None = None
    ) -> StoredFile:
        """Write the rows of a query as the file described; it with what only the rows say. `extent`: SQL of from and to."""
        path = self.work / file.name
        self.work.mkdir(parents=True, exist_ok=True)
        footer = quote(self.footer(file, replaces))
        options = f"{COPY_OPTIONS}, KV_METADATA {{{FOOTER}: {footer}}}"
        (rows,) = self.fetch_one(f"COPY ({sql}) TO {quote(str(path))} ({options})")
        from_ms = to_ms = None
        if extent is not None and rows:
            from_ms, to_ms = self.fetch_one(f"SELECT min({extent[0]}), max({extent[1]}) FROM {read([path])}")
        return self.finish(replace(file, rows=rows, from_ms=from_ms, to_ms=to_ms))

    def finish(self, file: StoredFile) -> StoredFile:
        """A file that was written to the staging folder, synced, with its size and checksum."""
        path = self.work / file.name
        disk.sync_file(path)
        self._made.add(file.name)
        return replace(file, bytes=path.stat().st_size, crc32=checksum_file(path))

    def footer(self, file: StoredFile, replaces: Iterable[StoredFile] = ()) -> str:
        """JSON in a file about itself and the books: description, what it replaces, currency, which live batches are in files.

        `generation`: the first one that it can be part of, so that files newer than a manifest are known as such.
        """
        of_books = {
            "currency": self.currency,
            "live_through": self.manifest.live_through,
            "generation": self._before.generation + 1,
        }
        return json.dumps(asdict(file) | {"replaces": [f.name for f in replaces]} | of_books)

    def copy_ledger(self, sql: str) -> list[StoredFile]:
        """Write rows of the ledger, a file a day."""
        there = self.work / f"ledger-{uuid4().hex}"
        there.parent.mkdir(parents=True, exist_ok=True)
        days = f"SELECT *, hour_utc // {MS_PER_DAY} AS day FROM ({sql})"
        self.raw.execute(f"COPY ({days}) TO {quote(str(there))} ({LEDGER_OPTIONS}, PARTITION_BY (day))")
        made = []
        for part in sorted(there.glob("day=*/*.parquet")):
            day = int(part.parent.name.removeprefix("day="))
            path = part.rename(self.work / name_file("ledger", day))
            rows, start, end = self.fetch_one(
                f"SELECT count(*), min(hour_utc), max(hour_utc) + {MS_PER_HOUR} FROM {read([path])}"
            )
            made.append(self.finish(StoredFile(path.name, "ledger", rows, 0, 0, start, end, day)))
        shutil.rmtree(there, ignore_errors=True)
        return made

    def copy_sum(self, table: str, sql: str, hours: tuple[Span, ...]) -> StoredFile:
        """Write rows of a kept sum of the ledger, which tell all there is of these hours."""
        day = hours[0][0] // MS_PER_DAY
        path = self.name_new(table, day)
        (rows,) = self.fetch_one(f"COPY ({sql}) TO {quote(str(path))} ({LEDGER_OPTIONS})")
        return self.finish(StoredFile(path.name, table, int(rows), 0, 0, hours[0][0], hours[-1][1], day, hours=hours))

    def copy_whole(self, table: str, sql: str) -> StoredFile:
        """Write rows of a table that is kept beside the ledger and is of no period: the whole of it."""
        path = self.name_new(table)
        (rows,) = self.fetch_one(f"COPY ({sql}) TO {quote(str(path))} ({LEDGER_OPTIONS})")
        return self.finish(StoredFile(path.name, table, int(rows), 0, 0))

    # -- the end -----------------------------------------------------------------------------------------------------

    def publish(self) -> Manifest:
        """Move the new files into the store and swap the manifest."""
        made = sorted(self._made & {f.name for f in self.manifest.files})
        trusted_ms = advance_trusted_ms(self._before, self.manifest, self.has_source_times, self.witnessed_ms)
        new = replace(self.manifest, currency=self.currency, trusted_ms=trusted_ms)
        self.manifest = self.place.commit(self.work, made, self._before, new)
        return self.manifest


def read_footer(path: Path) -> dict[str, Any] | None:
    """Description in a file's footer; None where it is no whole file of a store, or one of the ledger."""
    from pyarrow import ArrowException

    try:
        written = (_read_metadata(path).metadata or {}).get(FOOTER.encode())
        found = parse_json(written) if written else None
    except (OSError, ValueError, ArrowException):
        return None
    return found if isinstance(found, dict) else None


def count_rows(path: Path) -> int:
    """The rows of a file, as its footer says."""
    return int(_read_metadata(path).num_rows)


def _read_metadata(path: Path) -> "FileMetaData":
    from pyarrow.parquet import read_metadata  # takes as long to import as the query engine, and tasks need none of it

    return read_metadata(path)
