"""A store in a folder: one generation is read under a shared lock, and its files live until nobody reads it any more.

Publishing keeps the manifest before under a second name, `manifest-<generation>.json`. A reader holds a shared lock on the manifest
it read, under whichever name; a generation that nobody holds goes, with the files that no other generation names. Locking writes
nothing, so a folder that cannot be written can be read all the same.

The newest manifest lies there twice: as `manifest.json`, and as a copy under the name of its generation. If an older one is put in
its place, the copy, and what files say of themselves (`generations`), tell that there is a newer one; until `repair` has taken one
of them, nothing is written and nothing removed.

Cleanup of what killed writers left: staging folders, what had left them unpublished, and manifests half written. Only names
that the store gives are touched, and only beside a manifest that can be read.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final
from uuid import uuid4

from loadfactor.base.errors import DamageError, StoreError, say_why
from loadfactor.base.paths import name_store
from loadfactor.base.small_json import MAX_JSON_BYTES, parse_json
from loadfactor.store import disk
from loadfactor.store.disk import take_lock
from loadfactor.store.live_copy import LOG_SUFFIX
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.manifest import (
    NAME,
    OWN_NAME,
    Manifest,
    StoredFile,
    checksum_file,
    damaged,
    understand,
    write_down,
)
from loadfactor.store.place import MOVED, Generation, Place

LONGEST_WAIT_S = 10.0
"""So long a writer waits for another one: a flush of live rows takes moments, an import may take minutes."""
NUMBERED = re.compile(r"manifest-([0-9]{1,18})\.json")
"""A manifest under the number of its generation: an earlier one that may be read, or the copy of the newest."""
STAGING = re.compile(r"staging-[0-9a-f]{32}")
_HALF_WRITTEN = re.compile(re.escape(NAME) + r"\.[0-9a-f]{32}\.tmp")
_checksums: dict[tuple[Path, int, int], int] = {}  # of files read in this process, by path, inode and time of change
_CHECKSUMS_KEPT: Final = 100_000


class Folder(Place):
    """The files of a store in a folder of this machine, or one that it mounts."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.files = folder
        self.name = name_store(folder)

    def open_newest(self) -> Generation:
        return FolderGeneration(self.folder)

    def read_mark(self) -> object:
        try:
            there = (self.folder / NAME).stat()
        except OSError:
            return None
        return there.st_ino, there.st_mtime_ns, there.st_size

    def has_books(self) -> bool:
        return has_books(self.folder)

    def locate(self, files: Iterable[StoredFile], again: bool = False) -> list[Path]:
        return [check_file(self.folder, file, again) for file in files]

    @contextmanager
    def writing(self) -> Iterator[None]:
        created = not self.folder.exists()
        held = f"another import is writing to {self.folder} ({{holder}}); wait for it to end"
        with take_lock(self.folder / "lock", held, LONGEST_WAIT_S, guarded=self.folder):
            new = not (self.folder / NAME).exists()
            try:
                yield
            finally:
                with suppress(OSError, StoreError):  # no trace is left where nothing was imported
                    if new and not self.read_newest().files and not any(self.folder.glob("*.parquet")):
                        disk.remove(self.folder / NAME)
                        (self.folder / "lock").unlink()
                        if created:
                            self.folder.rmdir()

    def refuse_older(self, manifest: Manifest) -> None:
        from loadfactor.store.generations import find_newer  # it reads footers, which no question does

        newer = find_newer(self.folder, manifest)
        if newer and self.read_newest().generation <= manifest.generation:  # else a writer published meanwhile
            raise DamageError(
                f"{self.folder / NAME} is older than {newer[0]} beside it, and what came since would be lost; see what there is"
                f" with `loadfactor repair --plan --store {self.folder}`, then run it without --plan"
            )

    def remove_leftovers(self, manifest: Manifest) -> None:
        named = {f.name for f in manifest.files}
        for path in list(self.folder.iterdir()):
            if _HALF_WRITTEN.fullmatch(path.name):
                disk.remove(path)
            elif STAGING.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                for name in read_moved(path):
                    if OWN_NAME.fullmatch(name) and name not in named:
                        disk.remove(self.folder / name)
                # Without the list, a file that a power loss brought back would look like one of a newer generation.
                disk.sync_folder(self.folder)
                shutil.rmtree(path, ignore_errors=True)

    def announce(self, work: Path) -> None:
        # what is moved before a power loss takes the manifest away is found again by this list
        disk.sync_folder(work)
        disk.sync_folder(self.folder)

    def put(self, work: Path, names: Sequence[str]) -> None:
        for name in names:
            disk.rename(work / name, self.folder / name)
        disk.sync_folder(self.folder)

    def swap(self, old: Manifest, new: Manifest) -> Manifest:
        return publish(self.folder, old, new)

    def take_back(self, work: Path, newest: Manifest) -> None:  # noqa: ARG002 (under the lock, whatever is there is its own)
        self.remove_leftovers(newest)

    def end(self, work: Path) -> None:
        shutil.rmtree(work, ignore_errors=True)

    def remove_unread(self, current: Manifest) -> None:
        remove_unread(self.folder, current)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def put_new(self, path: Path, name: str) -> None:
        target = self.folder / name
        disk.make_folder(target.parent)
        with suppress(FileExistsError):  # another process was quicker
            disk.link(path, target)
        disk.sync_folder(target.parent)

    def list_within(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{path.name}" for path in (self.folder / folder).glob("*"))

    def fetch(self, name: str) -> Path:
        return self.folder / name

    def remove(self, name: str) -> None:
        disk.remove(self.folder / name)
        with suppress(OSError):
            (self.folder / name).parent.rmdir()


def has_books(folder: Path) -> bool:
    """True where an import has left a manifest, or files of the store's own that have lost theirs, or rows were taken live."""
    known = (NAME, LIVE, LIVE + LOG_SUFFIX)
    return any(p.name in known or OWN_NAME.fullmatch(p.name) for p in _listed(folder))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


class FolderGeneration(Generation):
    """A manifest that is read under a shared lock."""

    def __init__(self, folder: Path) -> None:
        """The newest one of a folder; an empty one where there are no books. Raises DamageError and StoreError."""
        super().__init__(Manifest())
        self._handle: int | None = None
        path = folder / NAME
        try:
            while True:
                handle = os.open(path, os.O_RDONLY)
                disk.lock_file(handle, fcntl.LOCK_SH, path)
                found = os.fstat(handle)
                if found.st_nlink:
                    break
                os.close(handle)  # removed between opening and locking it: there is a newer one
        except FileNotFoundError:
            _refuse_lost_manifest(folder)
            return
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({say_why(error)}); check its permissions") from error
        self._handle = handle
        try:
            with os.fdopen(os.dup(handle), "rb") as file:
                file.seek(0)
                self.manifest = _understand(file.read(MAX_JSON_BYTES + 1), path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def publish(folder: Path, old: Manifest, new: Manifest) -> Manifest:
    """Swap the manifest by rename, durably; the one before goes on under a second name while somebody reads it.

    So does one that was rebuilt from the files and never published: its files that the new one does not name go with it.
    """
    new = replace(new, generation=old.generation + 1)
    content = write_down(new)
    earlier = folder / name_numbered(old.generation)
    beside = folder / f"{NAME}.{uuid4().hex}.tmp"
    try:
        disk.write_file(beside, content)
        disk.remove(earlier)  # of a writer that died here, or the copy: who reads holds a lock on the manifest itself
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
    _keep_copy(folder, new, content)
    return new


def _keep_copy(folder: Path, manifest: Manifest, content: bytes) -> None:
    """Keep the newest manifest a second time, to be found where an older one is put in its place.

    A file of its own, not a link: what writes over `manifest.json` would write over a link as well. Not synced, as books without
    it are whole; one that a power loss has spoilt does not have the checksum that it says.
    """
    if not manifest.files:
        return
    copy = folder / name_numbered(manifest.generation)
    beside = folder / f"{NAME}.{uuid4().hex}.tmp"
    with suppress(OSError):  # the books are published: a full disk takes nothing of that back
        beside.write_bytes(content)
        beside.rename(copy)


def name_numbered(generation: int) -> str:
    """The name of the manifest of a generation beside the newest one.

    >>> name_numbered(7)
    'manifest-7.json'
    """
    return f"manifest-{generation}.json"


def list_numbered(folder: Path) -> dict[int, Path]:
    """The manifests that lie there under the number of their generation."""
    matches = [(NUMBERED.fullmatch(path.name), path) for path in folder.iterdir()]
    return {int(match[1]): path for match, path in sorted(matches, key=lambda of: of[1].name) if match}


def remove_unread(folder: Path, current: Manifest) -> None:
    """Remove the earlier generations that nobody reads, with the files only they name. For who holds the store's lock."""
    kept = {f.name for f in current.files}
    gone: list[tuple[Path, set[str]]] = []
    with ExitStack() as locks:
        for generation, path in list_numbered(folder).items():
            if generation == current.generation:
                continue  # the copy
            file = locks.enter_context(path.open("rb"))
            names = list_names(file.read(MAX_JSON_BYTES))
            if generation > current.generation:
                kept |= names  # not this writer's to judge
                continue
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


def list_names(content: bytes) -> set[str]:
    """The files that a manifest of any format names; none where it cannot be read, and what it named stays."""
    try:
        names = {file["name"] for file in parse_json(content)["files"]}
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


def list_unfinished(folder: Path) -> set[str]:
    """The files of writers that died while they moved them into the store, before they could publish any."""
    moves = [read_moved(p) for p in folder.iterdir() if STAGING.fullmatch(p.name) and p.is_dir()]
    return {name for names in moves if any(not (folder / n).exists() for n in names) for name in names}


def read_moved(staging: Path) -> list[str]:
    """The names of what is about to leave a staging folder, or has left it; none where it says nothing."""
    try:
        return (staging / MOVED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def check_file(folder: Path, file: StoredFile, again: bool = False) -> Path:
    """Where a file lies. DamageError when it is not what was written; unless `again`, that is looked at once a process."""
    path = folder / file.name
    try:
        found = path.stat()
    except OSError as error:
        raise damaged(path, say_why(error)) from error
    if found.st_size != file.bytes:
        raise damaged(path, f"it has {found.st_size:,} bytes, {file.bytes:,} were written")
    key = (path, found.st_ino, found.st_mtime_ns)
    checksum = None if again else _checksums.get(key)
    if checksum is None:
        if len(_checksums) >= _CHECKSUMS_KEPT:
            _checksums.clear()
        checksum = _checksums[key] = checksum_file(path)
    if checksum != file.crc32:
        raise damaged(path, "its bytes are not those that were written")
    return path
