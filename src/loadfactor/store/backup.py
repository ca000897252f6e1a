"""A copy of a store that is whole, taken while others read and write it."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from loadfactor.base.errors import InputError, StoreError, say_why
from loadfactor.store import disk
from loadfactor.store.disk import NAME as AUDIT
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.live_copy import has_live, open_copy
from loadfactor.store.live_database import QUARANTINE, list_quarantined
from loadfactor.store.manifest import NAME, Generation, Manifest, checksum_file, has_books, write_down
from loadfactor.store.source_status import NAME as STATUSES
from loadfactor.store.tokens import NAME as TOKENS

BESIDE = (TOKENS, AUDIT, STATUSES)
"""Small files of a store that are no books."""


def back_up(folder: Path, target: Path) -> Manifest:
    """Copy one generation of a store, its live batches and its tokens into a new folder; what was copied.

    Everything acknowledged before it began is in the copy. Raises InputError where the target is taken or there are no books,
    DamageError and StoreError where the store cannot be read or the target not be written. A copy that was not finished has no
    manifest.
    """
    if not folder.is_dir() or not has_books(folder):
        raise InputError(f"there are no books in {folder}; name them with --store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already; name a new folder")
    try:
        disk.make_folder(target)
        while True:
            generation = Generation(folder)  # its files stay until it is closed
            with closing(generation):
                if has_live(folder):
                    # The database of live batches as of now, its log within it.
                    with open_copy(folder) as live, closing(sqlite3.connect(target / LIVE)) as copy:
                        live.backup(copy)
                    disk.sync_file(target / LIVE)
                    newest = Generation(folder)
                    newest.close()
                    through = newest.manifest.live_through
                    if through != generation.manifest.live_through:
                        continue  # a flush has made files of batches meanwhile, and may have discarded them
                for file in generation.manifest.files:
                    _copy(folder / file.name, target / file.name, file.crc32)
                for name in BESIDE:
                    with suppress(FileNotFoundError):
                        _copy(folder / name, target / name)
                # The bodies that were acknowledged and that no decoder took.
                for path in list_quarantined(folder):
                    disk.make_folder(target / QUARANTINE)
                    _copy(path, target / QUARANTINE / path.name)
                if generation.manifest.generation:
                    disk.write_file(
                        target / NAME, write_down(generation.manifest)
                    )  # last: without it there are no books
                disk.sync_folder(target)
                return generation.manifest
    except OSError as error:
        raise StoreError(f"{target} cannot be written ({say_why(error)}); it is no backup") from error


def _copy(source: Path, target: Path, crc32: int | None = None) -> None:
    shutil.copy(source, target)  # with its mode: tokens are for their owner alone
    disk.sync_file(target)
    if crc32 is not None and checksum_file(target) != crc32:
        raise StoreError(f"{source} is damaged; `loadfactor repair` puts it into quarantine, then back up again")
