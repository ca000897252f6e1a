"""A copy of a store that is whole, taken while others read and write it, and the comparison of a copy with its books."""

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from loadfactor.base.errors import DamageError, InputError, StoreError, say_why
from loadfactor.store import disk
from loadfactor.store.disk import NAME as AUDIT
from loadfactor.store.folder import Folder, has_books
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.live_copy import has_live, open_copy
from loadfactor.store.live_database import QUARANTINE, LogSpan, check_live, read_span
from loadfactor.store.manifest import NAME, Manifest, StoredFile, checksum_file, write_down
from loadfactor.store.place import Place
from loadfactor.store.source_status import NAME as STATUSES
from loadfactor.store.tokens import NAME as TOKENS
from loadfactor.store.tokens import read_tokens

BESIDE = (TOKENS, AUDIT, STATUSES)
"""Small files of a store that are no books."""


def back_up(
    place: Place, target: Path, also: Iterable[Path] = (), put: Callable[[Path, StoredFile], None] | None = None
) -> Manifest:
    """Copy one generation of a store, its live batches and all that lies beside them into a new folder; what was copied.

    That is tokens, the audit log, states of sources, quarantine, databases of others (silences, what receivers were sent), and
    `also`: files of the settings, as far as they lie in the store. Everything acknowledged before it began is in the copy.
    `put` is given each file of the books and where it can be read, in place of being copied into the folder.
    Raises InputError where the target is taken or there are no books, DamageError and StoreError where the store cannot be read or
    the target not be written. A copy that was not finished has no manifest.
    """
    folder = place.folder
    if not place.has_books():
        raise InputError(f"there are no books in {place.name}; name them with --store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already; name a new folder")
    try:
        disk.make_folder(target)
        if folder.is_dir():
            shutil.copymode(folder, target)
        while True:
            generation = place.open_newest()  # its files stay until it is closed
            with closing(generation):
                if has_live(folder):
                    _copy_database(folder, target, LIVE)
                    if place.read_newest().live_through != generation.manifest.live_through:
                        continue  # a flush has made files of batches meanwhile, and may have discarded them
                for file in generation.manifest.files:
                    (path,) = place.locate([file])
                    if put is None:
                        copy_file(path, target / file.name, file.crc32)
                    else:
                        put(path, file)
                # After the books: what is judged and sent of them is not judged and sent again.
                for name in list_databases(folder):
                    _copy_database(folder, target, name)
                for path in list_beside(folder, also):
                    disk.make_folder((target / path).parent)
                    copy_file(folder / path, target / path)
                if generation.manifest.generation:
                    disk.write_file(
                        target / NAME, write_down(generation.manifest)
                    )  # last: without it there are no books
                disk.sync_folder(target)
                return generation.manifest
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{target} cannot be written ({say_why(error)}); it is no backup") from error


def list_databases(folder: Path) -> list[str]:
    """Names of the databases that lie beside the live batches: alerts, with silences and what receivers were sent."""
    return sorted(path.name for path in folder.glob("*.sqlite") if path.name != LIVE)


def list_beside(folder: Path, also: Iterable[Path] = ()) -> list[Path]:
    """The small files of a store that are no books, and of `also` those that lie in it, as paths within."""
    kept = [path for path in (folder / QUARANTINE).rglob("*") if path.is_file() and path.suffix != ".new"]
    files = [*(folder / name for name in BESIDE), *kept, *(path.absolute() for path in also)]
    roots = (folder, folder.absolute(), folder.resolve())
    inside = {
        path.relative_to(root) for path in files for root in roots if path.is_relative_to(root) and path.is_file()
    }
    return sorted(inside)


def _copy_database(folder: Path, target: Path, name: str) -> None:
    """A database as of now, its log within it, with the mode of its file."""
    (target / name).touch(0o600)
    with open_copy(folder, name) as found, closing(sqlite3.connect(target / name)) as copy:
        found.backup(copy)
    shutil.copymode(folder / name, target / name)
    disk.sync_file(target / name)


def copy_file(source: Path, target: Path, crc32: int | None = None) -> None:
    """Copy a file durably, with its mode. Raises StoreError where its checksum is not that one."""
    target.touch(0o600)  # tokens and keys are for their owner alone from the beginning
    shutil.copy(source, target)
    disk.sync_file(target)
    if crc32 is not None and checksum_file(target) != crc32:
        raise StoreError(f"{source} is damaged; `loadfactor repair` puts it into quarantine, then back up again")


@dataclass(frozen=True)
class Comparison:
    """A copy beside its books: what differs, what it holds by kind, and whether the books have gone on since."""

    differences: tuple[str, ...]
    counts: Mapping[str, int]
    generation: int
    has_gone_on: bool


def compare(place: Place, copy: Path, also: Iterable[Path] = ()) -> Comparison:
    """Compare a copy with the books it was taken of. Where they have gone on since, the copy is held against itself.

    Then of what they hold beside the books each kind has to be there. Raises InputError where there is no copy of these books,
    StoreError and DamageError where the books cannot be read.
    """
    if not copy.is_dir() or not has_books(copy):
        raise InputError(f"{copy} holds no backup; leave --verify out to make one, or name its folder")
    folder, books, kept = place.folder, place.read_newest(), Folder(copy).read_newest()
    if kept.generation > books.generation:
        raise InputError(
            f"{copy} is no backup of {place.name}: its generation {kept.generation:,} is later than their {books.generation:,}"
        )
    differences = find_damage(copy, kept)
    has_gone_on = books.generation != kept.generation or _read_numbers(folder) != _read_numbers(copy)
    if not has_gone_on and books != kept:
        differences.append("the manifest differs from that of the books")
    there, found = _count(folder), _count(copy)
    for what in {**there, **found}:
        before, now = there.get(what, 0), found.get(what, 0)
        if (before and not now) if has_gone_on else before != now:
            differences.append(f"{what}: {before:,} in the books, {now:,} in the copy")
    lacking = [path for path in list_beside(folder, also) if not (copy / path).is_file()]
    differences += [f"{path} is not in the copy" for path in lacking]
    if not has_gone_on:
        same = [
            path for path in list_beside(folder, also) if path.name not in (AUDIT, STATUSES) and path not in lacking
        ]
        differences += [
            f"{path} differs" for path in same if (folder / path).read_bytes() != (copy / path).read_bytes()
        ]
    return Comparison(tuple(differences), found, kept.generation, has_gone_on)


def find_damage(copy: Path, manifest: Manifest, are_files_read: bool = False) -> list[str]:
    """What of a copy is not what its own manifest and database name. `are_files_read`: their checksums were looked at just now."""
    found = []
    for file in manifest.files:
        path = copy / file.name
        if not path.is_file() or (not are_files_read and checksum_file(path) != file.crc32):
            found.append(f"{file.name} is not what was copied")
        elif pq.read_metadata(path).num_rows != file.rows:
            found.append(f"{file.name} has other rows than were copied")
    try:
        check_live(copy, manifest.live_through)
    except DamageError as error:
        found.append(str(error))
    return found


def _read_numbers(folder: Path) -> LogSpan:
    if not has_live(folder):
        return LogSpan()
    with open_copy(folder) as live:
        return read_span(live)


def _count(folder: Path) -> dict[str, int]:
    """Rows of what lies beside the books, by kind."""
    counts = {"tokens": len(read_tokens(folder))}
    for name in list_databases(folder):
        with open_copy(folder, name) as database:
            tables = [table for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            kinds = sorted(table for table in tables if not table.startswith("sqlite_"))
            counts |= {kind: database.execute(f"SELECT count(*) FROM {kind}").fetchone()[0] for kind in kinds}
    return counts
