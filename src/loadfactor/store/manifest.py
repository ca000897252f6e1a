"""The manifest, which names all files of the books: swapping it by rename publishes an import, or nothing of it.

A reader never looks into the folder, only into the manifest, so it always sees whole imports. Files are immutable: a change
writes new ones. Files that fell out of the manifest are removed one generation later, when no reader can still want them.
"""

import hashlib
import json
import os
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from loadfactor.errors import StoreError
from loadfactor.tables import Span

FORMAT = 2
NAME = "manifest.json"


@dataclass(frozen=True)
class StoredFile:
    """One Parquet file of the books: `[from_ms, to_ms)` covers what its rows speak of; `measured` is the union of masks."""

    name: str
    table: str
    rows: int
    bytes: int
    crc32: int
    from_ms: int | None = None
    to_ms: int | None = None
    day: int | None = None
    measured: int = 0
    overlaps: bool = False


@dataclass(frozen=True)
class ImportRecord:
    """What one import brought: `digest` identifies the input, so that the same file twice adds nothing."""

    digest: str
    source: str
    paths: tuple[str, ...]
    rows: dict[str, int]
    gaps: tuple[tuple[str, str, int], ...] = ()
    held_by: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The state of the books at one generation. `stale` lists the spans whose hours the ledger has yet to book."""

    generation: int = 0
    files: tuple[StoredFile, ...] = ()
    imports: tuple[ImportRecord, ...] = ()
    stale: tuple[Span, ...] = ()
    ledger_key: str = ""
    sources_key: str = ""
    currency: str = ""
    quarantined: tuple[tuple[str, str], ...] = ()
    retired: tuple[str, ...] = field(default=())

    def of(self, table: str) -> tuple[StoredFile, ...]:
        """The files of one table."""
        return tuple(f for f in self.files if f.table == table)


def has_books(folder: Path) -> bool:
    """True where an import has left a manifest."""
    return (folder / NAME).exists()


def load(folder: Path) -> Manifest:
    """The manifest of a store; an empty one where there is none yet. Raises StoreError when it cannot be understood."""
    path = folder / NAME
    if not path.exists():
        return Manifest()
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise StoreError(
                f"{path} has format {raw['format']}, this version reads {FORMAT}; install the newest version"
            )
        return _understood(raw)
    except (ValueError, OSError, KeyError, TypeError, IndexError) as error:
        why = " ".join(str(error).split())
        raise StoreError(
            f"{path} cannot be read ({why}); restore it from a backup or import into a new store"
        ) from error


def _understood(raw: dict[str, Any]) -> Manifest:
    return Manifest(
        generation=raw["generation"],
        files=tuple(StoredFile(**f) for f in raw["files"]),
        imports=tuple(
            ImportRecord(
                i["digest"],
                i["source"],
                tuple(i["paths"]),
                i["rows"],
                tuple((g[0], g[1], g[2]) for g in i["gaps"]),
                i["held_by"],
            )
            for i in raw["imports"]
        ),
        stale=tuple((s[0], s[1]) for s in raw["stale"]),
        ledger_key=raw["ledger_key"],
        sources_key=raw["sources_key"],
        currency=raw["currency"],
        quarantined=tuple((s[0], s[1]) for s in raw["quarantined"]),
        retired=tuple(raw["retired"]),
    )


def publish(folder: Path, old: Manifest, new: Manifest) -> Manifest:
    """Swap the manifest by rename, durably, and remove what fell out of use a generation ago."""
    kept = {f.name for f in new.files}
    retired = tuple(f.name for f in old.files if f.name not in kept)
    new = replace(new, generation=old.generation + 1, retired=retired)
    temporary = folder / f"{NAME}.{os.getpid()}.tmp"
    with temporary.open("w", encoding="utf-8") as out:
        json.dump({"format": FORMAT, **asdict(new)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(folder / NAME)
    fsync_folder(folder)
    for name in old.retired:
        if name not in kept:
            (folder / name).unlink(missing_ok=True)
    return new


def fsync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def crc32(path: Path) -> int:
    """Checksum of a file's bytes, read in pieces: several times faster than a digest, and sure to see a damaged sector."""
    total = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            total = zlib.crc32(piece, total)
    return total


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def merge(spans: list[Span]) -> tuple[Span, ...]:
    """The union of spans as disjoint, ordered spans.

    >>> merge([(5, 9), (0, 3), (2, 4), (9, 10)])
    ((0, 4), (5, 10))
    """
    out: list[Span] = []
    for start, end in sorted(s for s in spans if s[0] < s[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return tuple(out)
