"""The writer of a store: a session that changes the books. New files wait in a folder of its own until all are whole and synced.

Cleanup of what killed writers left: staging folders, what had left them unpublished, and manifests half written.

Only names that the store gives are touched, and only beside a manifest that can be read.
"""

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import duckdb
import pyarrow.parquet as pq

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.store import disk
from loadfactor.store.manifest import (
    NAME,
    OWN_NAME,
    Manifest,
    StoredFile,
    checksum_file,
    has_manifest,
    merge,
    name_file,
    publish,
)
from loadfactor.store.sample_files import quote, read
from loadfactor.store.session import Session, check_file
from loadfactor.tables.schema import Span

FOOTER: Final = "loadfactor"
"""The key under which a file says what it is, so that a lost manifest can be rebuilt from the files."""
MOVED: Final = "moved"
"""The file that names what is about to leave a staging folder."""
COPY_OPTIONS: Final = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880"
# the ledger is small and often read: quick to write, a third larger than with zstd; sums rarely repeat, so no long dictionaries
LEDGER_OPTIONS: Final = "FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 40960, DICTIONARY_SIZE_LIMIT 2000"


class Writer(Session):
    """A session that writes: `manifest` is exchanged for a new one with every change, and published at the end, or not at all."""

    def __init__(self, folder: Path, manifest: Manifest, raw: duckdb.DuckDBPyConnection, currency: str) -> None:
        super().__init__(folder, manifest, raw, currency)
        self.work = folder / f"staging-{uuid4().hex}"
        self._before = manifest
        self._made: set[str] = set()

    @property
    def has_changes(self) -> bool:
        """True where there is something to publish."""
        return self.manifest is not self._before

    def paths(self, files: Iterable[StoredFile]) -> list[Path]:
        """Where files lie: in the store, or, made just now, in the staging folder."""
        return [self.work / f.name if f.name in self._made else check_file(self.folder, f) for f in files]

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
        """JSON in a file about itself and the books: description, what it replaces, currency, which live batches are in files."""
        of_books = {"currency": self.currency, "live_through": self.manifest.live_through}
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

    # -- the end -----------------------------------------------------------------------------------------------------

    def publish(self) -> Manifest:
        """Move the new files into the store and swap the manifest."""
        named = {f.name for f in self.manifest.files}
        moved = sorted(self._made & named)
        if moved:
            if not has_manifest(self.folder) and not self._before.files:
                # files without a manifest would be damaged books: the first import begins with empty ones
                self._before = publish(self.folder, self._before, Manifest(currency=self.currency))
            # what is moved before a power loss takes the manifest away is found again by this list
            disk.write_file(self.work / MOVED, "\n".join(moved).encode())
            disk.sync_folder(self.work)
            disk.sync_folder(self.folder)
            for name in moved:
                disk.rename(self.work / name, self.folder / name)
            disk.sync_folder(self.folder)
        self.manifest = publish(self.folder, self._before, replace(self.manifest, currency=self.currency))
        return self.manifest


def read_footer(path: Path) -> dict[str, Any] | None:
    """Description in a file's footer; None where it is no whole file of a store, or one of the ledger."""
    try:
        written = (pq.read_metadata(path).metadata or {}).get(FOOTER.encode())
        found = json.loads(written) if written else None
    except (OSError, ValueError, pq.lib.ArrowException):
        return None
    return found if isinstance(found, dict) else None


def count_rows(path: Path) -> int:
    """The rows of a file, as its footer says."""
    return int(pq.read_metadata(path).num_rows)


_STAGING = re.compile(r"staging-[0-9a-f]{32}")
_HALF_WRITTEN = re.compile(re.escape(NAME) + r"\.[0-9a-f]{32}\.tmp")


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove all of it. For who holds the store's lock; `manifest` is the newest one."""
    named = {f.name for f in manifest.files}
    for path in list(folder.iterdir()):
        if _HALF_WRITTEN.fullmatch(path.name):
            disk.remove(path)
        elif _STAGING.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            for name in _read_moved(path):
                if OWN_NAME.fullmatch(name) and name not in named:
                    disk.remove(folder / name)
            shutil.rmtree(path, ignore_errors=True)


def list_unfinished(folder: Path) -> set[str]:
    """The files of writers that died while they moved them into the store, before they could publish any."""
    moves = [_read_moved(p) for p in folder.iterdir() if _STAGING.fullmatch(p.name) and p.is_dir()]
    return {name for names in moves if any(not (folder / n).exists() for n in names) for name in names}


def _read_moved(staging: Path) -> list[str]:
    try:
        return (staging / MOVED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
