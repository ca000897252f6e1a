"""Generations of the manifest: one is read under a shared lock, and its files live until nobody reads it any more.

Publishing keeps the manifest before under a second name, `manifest-<generation>.json`. A reader holds a shared lock on the manifest
it read, under whichever name; a generation that nobody holds goes, with the files that no other generation names. Locking writes
nothing, so a folder that cannot be written can be read all the same.
"""

import fcntl
import json
import os
import re
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from loadfactor.base.errors import StoreError
from loadfactor.store import disk
from loadfactor.store.manifest import NAME, OWN_NAME, Manifest, damaged, understand, write_down

_EARLIER = re.compile(r"manifest-[0-9]+\.json")


class Generation:
    """A manifest that is read. Its files stay where they are until `close`, or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """The newest one of a folder; an empty one where there are no books. Raises DamageError and StoreError."""
        self.folder = folder
        self._handle: int | None = None
        self.manifest = Manifest()
        path = folder / NAME
        try:
            while True:
                handle = os.open(path, os.O_RDONLY)
                fcntl.flock(handle, fcntl.LOCK_SH)
                found = os.fstat(handle)
                if found.st_nlink:
                    break
                os.close(handle)  # removed between opening and locking it: there is a newer one
        except FileNotFoundError:
            _refuse_lost_manifest(folder)
            return
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
        self._handle = handle
        try:
            with os.fdopen(os.dup(handle), "rb") as file:
                file.seek(0)
                self.manifest = _understand(file.read(), path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it: a writer may remove what only it names."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def has_manifest(folder: Path) -> bool:
    """True where something was published."""
    return (folder / NAME).exists()


def publish(folder: Path, old: Manifest, new: Manifest) -> Manifest:
    """Swap the manifest by rename, durably; the one before goes on under a second name while somebody reads it.

    So does one that was rebuilt from the files and never published: its files that the new one does not name go with it.
    """
    new = replace(new, generation=old.generation + 1)
    earlier = folder / f"manifest-{old.generation}.json"
    beside = folder / f"{NAME}.{uuid4().hex}.tmp"
    try:
        disk.write_file(beside, write_down(new))
        disk.remove(earlier)  # of a writer that died here
        if (folder / NAME).exists():
            disk.link(folder / NAME, earlier)
        elif old.files:
            disk.write_file(earlier, write_down(old))
        if earlier.exists():
            disk.sync_folder(
                folder
            )  # else a power loss could keep the new one without the list of what is to be removed
        disk.rename(beside, folder / NAME)
    except BaseException:
        with suppress(OSError):
            disk.remove(beside)
        raise
    disk.sync_folder(folder)
    return new


def remove_unread(folder: Path, current: Manifest) -> None:
    """Remove the earlier generations that nobody reads, with the files only they name. For who holds the store's lock."""
    kept = {f.name for f in current.files}
    gone: list[tuple[Path, set[str]]] = []
    with ExitStack() as locks:
        for path in (p for p in folder.iterdir() if _EARLIER.fullmatch(p.name)):
            file = locks.enter_context(path.open("rb"))
            names = _list_names(file.read())
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is gone: who opens it now sees that
                gone.append((path, names))
            except BlockingIOError:
                kept |= names
        for path, names in gone:
            for name in names - kept:
                disk.remove(folder / name)
            disk.sync_folder(folder)
            disk.remove(path)  # last: a process that dies before leaves the list of what is to be removed


def _list_names(content: bytes) -> set[str]:
    """The files that a manifest of any format names; none where it cannot be read, and what it named stays."""
    try:
        names = {file["name"] for file in json.loads(content)["files"]}
    except (ValueError, KeyError, TypeError):
        return set()
    return {name for name in names if isinstance(name, str) and OWN_NAME.fullmatch(name)}


def _refuse_lost_manifest(folder: Path) -> None:
    """Raise DamageError where files of the store have lost their manifest."""
    with suppress(OSError):
        if any(OWN_NAME.fullmatch(p.name) for p in folder.iterdir()):
            raise damaged(folder / NAME, "it is gone, and files of the books are there")


@lru_cache(maxsize=16)
def _understand(content: bytes, path: Path) -> Manifest:
    return understand(content, path)
