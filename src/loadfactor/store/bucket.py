"""A store in a bucket of an object store: s3://, gs:// and az://, through obstore.

Manifest and files have the names that they have in a folder, so that a copy of either is the other. Files are put if absent and
read from a cache of this user, by checksum. The manifest is put if absent, or in place of the one that was read; whoever was slower
begins again. An object store has no locks: an earlier generation stays for `KEPT_S`, and so do files of writers that died.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from socket import gethostname
from typing import Final, NamedTuple
from uuid import uuid4

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.base.paths import cache_folder, folder_beside
from loadfactor.base.small_json import parse_json
from loadfactor.base.units import BYTES_PER_GB, S_PER_MIN
from loadfactor.store import disk
from loadfactor.store.folder import STAGING, check_file, list_names, read_moved
from loadfactor.store.live_copy import has_live
from loadfactor.store.manifest import NAME, OWN_NAME, Manifest, StoredFile, understand, write_down
from loadfactor.store.objects import AlreadyExistsError, Found, Objects, PreconditionError
from loadfactor.store.place import CACHE_GB, MOVED, ConflictError, Generation, Place, UnsureError

KEPT_S: Final = 3600
"""So long an earlier generation and its files stay for readers that began with it, and files of a writer that died."""
LONGEST_UPLOAD_S: Final = KEPT_S / 2
"""A writer that takes longer from its first file to its manifest gives up: its files might go."""
AT_ONCE: Final = 8
"""Files that are fetched, or put, at a time."""
USED_S: Final = 600
"""What was read within so long stays in the cache, however large it is."""
LONGEST_PAUSE_S: Final = 2.0
"""Between attempts after a conflict, at random."""
LONGEST_WRITE_S: Final = 86_400
"""What lies in the cache half written for longer is of a process that died."""
EARLIER: Final = "earlier"
ARRIVING: Final = "arriving"
TURN: Final = "turn.json"
OWNER: Final = "live-rows.json"


class _Read(NamedTuple):
    """The manifest as it was read, and what its text says."""

    found: Found
    manifest: Manifest


class Bucket(Place):
    """The files of a store under a prefix of a bucket. Any thread may call its methods."""

    def __init__(self, url: str, local: Path | None = None, cache_gb: float = CACHE_GB) -> None:
        """`local`: the folder beside it; where there is none, one of the user's that goes with the URL.

        `cache_gb`: the size of the cache in units of 10⁹ bytes.
        """
        self.name = url
        self.has_own_folder = local is not None
        self.folder = local or folder_beside(url)
        self.files = cache_folder() / "files"
        self._cache_bytes = cache_gb * BYTES_PER_GB
        self._objects = Objects(url)
        self._newest: _Read | None = None
        self._is_probed = self._has_turn = False

    # -- reading -----------------------------------------------------------------------------------------------------

    def open_newest(self) -> Generation:
        found = self._read()
        if found is not None:
            return Generation(found.manifest)
        if any(OWN_NAME.fullmatch(name) for name, _ in self._objects.list()):
            raise DamageError(
                f"{self.name}/{NAME} is gone, and files of the books are there; restore its last version from the bucket's"
                f" history, or copy the newest of {self.name}/{EARLIER}/ to it"
            )
        return Generation(Manifest())

    def read_mark(self) -> object:
        found = self._read()
        return found and tuple(found.found.version.values())

    def has_books(self) -> bool:
        return self._read() is not None or has_live(self.folder)

    def locate(self, files: Iterable[StoredFile], again: bool = False) -> list[Path]:
        files = tuple(files)
        lacking = [file.name for file in files if not (self.files / file.name).exists()]
        if lacking:
            self._evict()
            _at_once(self._download, lacking)
        return [self._check(file, again) for file in files]

    def _check(self, file: StoredFile, again: bool) -> Path:
        try:
            path = check_file(self.files, file, again)
        except DamageError:  # of the copy here, as likely
            self._download(file.name)
            try:
                path = check_file(self.files, file, again=True)
            except DamageError as error:
                disk.remove(self.files / file.name)
                raise DamageError(
                    f"{self.name}/{file.name} is not what was written; restore its first version from the bucket's history"
                ) from error
        _touch(path)
        return path

    def _read(self) -> _Read | None:
        known = self._newest
        found = self._objects.read(NAME, None if known is None else known.found)
        if known is not None and found is known.found:
            return known
        if found is None:
            return None
        self._newest = _Read(found, understand(found.content, Path(f"{self.name}/{NAME}")))
        return self._newest

    def _download(self, name: str) -> None:
        """Put a copy of a file into the cache."""
        try:
            self._objects.download(name, self.files / name)
        except FileNotFoundError as error:
            raise DamageError(
                f"{self.name}/{name} is gone; the books have gone on since this began, ask again, or restore it from the bucket's"
                " history"
            ) from error

    def _evict(self) -> None:
        """Remove what was not used for longest where the cache is larger than it may be."""
        now, total = time.time(), 0
        found = []
        for path in self.files.glob("*.parquet"):
            with suppress(OSError):
                there = path.stat()
                found.append((there.st_atime, there.st_size, path))
        for used, size, path in sorted(found, reverse=True):
            total += size
            if total > self._cache_bytes and used < now - USED_S:
                disk.remove(path)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._probe()
        disk.make_folder(self.folder)
        disk.make_folder(self.files)
        self._await_turn()
        try:
            yield
        finally:
            if self._has_turn:
                self._has_turn = False
                with suppress(StoreError):
                    self.remove(TURN)

    def remove_leftovers(self, manifest: Manifest) -> None:  # noqa: ARG002 (what is in the bucket goes by its age)
        for left in (*self.files.glob("staging-*"), *self.files.glob("**/*.tmp")):
            with suppress(OSError):
                if left.stat().st_mtime > time.time() - LONGEST_WRITE_S:
                    continue
                if STAGING.fullmatch(left.name):
                    shutil.rmtree(left, ignore_errors=True)
                elif left.suffix == ".tmp":
                    disk.remove(left)

    def announce(self, work: Path) -> None:
        self._objects.put(f"{ARRIVING}/{work.name}", (work / MOVED).read_bytes())

    def put(self, work: Path, names: Sequence[str]) -> None:
        def put(name: str) -> None:
            try:
                self._objects.put(name, work / name, mode="create")
            except AlreadyExistsError:  # nobody else gives this name: an answer was lost, and it was tried again
                if self._objects.find_size(name) != (work / name).stat().st_size:
                    raise
            (work / name).rename(self.files / name)

        _at_once(put, names)
        if time.time() - (work / MOVED).stat().st_mtime > LONGEST_UPLOAD_S:
            raise StoreError(
                f"new files took longer to {self.name} than {LONGEST_UPLOAD_S / S_PER_MIN:.0f} minutes; import less at a time"
            )

    def swap(self, old: Manifest, new: Manifest) -> Manifest:
        new = replace(new, generation=old.generation + 1)
        content, now = write_down(new), self._read()
        if (now.manifest if now else Manifest()).generation != old.generation:
            raise self._refuse()
        if now is not None:
            self._objects.put(f"{EARLIER}/{old.generation}.json", now.found.content)
        try:
            version = self._objects.put(NAME, content, mode=now.found.version if now else "create")
            self._newest = _Read(Found(version, content), new)
        except (AlreadyExistsError, PreconditionError) as error:
            if not self._is_published(new.generation, content):
                raise self._refuse() from error
        except StoreError as error:
            with suppress(StoreError):
                if self._is_published(new.generation, content):
                    return new
            raise UnsureError(
                f"{error}; whether it was published is not known: run it again, what is there adds nothing"
            ) from error
        return new

    def _is_published(self, generation: int, content: bytes) -> bool:
        """True where a manifest is the newest, or was before others followed."""
        now = self._read()
        if now is not None and now.found.content == content:
            return True
        return self._objects.get(f"{EARLIER}/{generation}.json") == content

    def _refuse(self) -> ConflictError:
        return ConflictError(
            f"others published to {self.name} meanwhile, again and again; begin fewer at once, or run it again"
        )

    def take_back(self, work: Path, newest: Manifest) -> None:
        named = {file.name for file in newest.files}
        for name in read_moved(work):
            if name not in named:
                self.remove(name)

    def end(self, work: Path) -> None:
        if (work / MOVED).exists():
            with suppress(StoreError):  # it goes by its age
                self.remove(f"{ARRIVING}/{work.name}")
        shutil.rmtree(work, ignore_errors=True)

    def remove_unread(self, current: Manifest) -> None:
        """By age. What a generation that stays names, and an earlier one too, the oldest that stays names as well."""
        with suppress(StoreError):  # the next writer does it
            newest = self._objects.find_time(NAME)
            earlier = sorted((int(Path(name).stem), name, at) for name, at in self._objects.list(EARLIER))
            gone = list(takewhile(lambda of: of[2] < newest - timedelta(seconds=KEPT_S), earlier))
            died = [name for name, at in self._objects.list(ARRIVING) if at < newest - timedelta(seconds=2 * KEPT_S)]
            if not gone and not died:
                return
            kept = {file.name for file in current.files}
            if len(gone) < len(earlier):
                kept |= list_names(self._objects.get(earlier[len(gone)][1]) or b"")
            for _, name, _ in gone:
                self._remove_all(list_names(self._objects.get(name) or b"") - kept)
                self.remove(name)  # last: a process that dies before leaves the list of what is to be removed
            for name in died:
                names = (self._objects.get(name) or b"").decode(errors="replace").splitlines()
                self._remove_all({name for name in names if OWN_NAME.fullmatch(name)} - kept)
                self.remove(name)

    def take_turn(self, took_s: float) -> None:
        """Ask others to wait for so long as this change took, and begin again: else a long import loses to short ones for ever."""
        time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, took_s)))
        turn = {"by": uuid4().hex, "for_s": 2 * took_s + LONGEST_PAUSE_S}
        try:
            self._objects.put(TURN, json.dumps(turn).encode(), mode="create")
            self._has_turn = True
        except AlreadyExistsError:
            pass  # of another one, which is waited for

    def _await_turn(self) -> None:
        """Wait while another writer has a turn, no longer than that stated."""
        seen, end_s = None, 0.0
        while not self._has_turn and (turn := self._objects.get(TURN)) is not None:
            if turn != seen:
                seen = turn
                end_s = time.monotonic() + _read_turn_s(turn)
            elif time.monotonic() > end_s:
                self.remove(TURN)  # it died
            time.sleep(random.uniform(0.1, 0.3))

    def _probe(self) -> None:
        """Raise StoreError where the object store ignores conditions: two writers would lose each other's imports."""
        if self._is_probed:
            return
        name, kept = f"probe-{uuid4().hex}", 0
        first = self._objects.put(name, b"1", mode="create")
        try:
            for mode in ("create", None, first):
                try:
                    self._objects.put(name, b"2", mode)
                except (AlreadyExistsError, PreconditionError):
                    kept += mode is not None
        finally:
            self.remove(name)
        if kept < len(("create", "update")):
            raise StoreError(
                f"{self.name} lies in an object store that ignores conditions (If-None-Match, If-Match), so writers would lose each"
                " other's imports; take one that keeps them, as Amazon S3, Google Cloud Storage and Azure do, or a folder"
            )
        self._is_probed = True

    # -- outputs of tasks ---------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        try:
            self._objects.find_size(name)
        except FileNotFoundError:
            return False
        return True

    def put_new(self, path: Path, name: str) -> None:
        with suppress(AlreadyExistsError):  # another process was quicker
            self._objects.put(name, path, mode="create")

    def list_within(self, folder: str) -> list[str]:
        return sorted(name for name, _ in self._objects.list(folder))

    def fetch(self, name: str) -> Path:
        path = self.files / name
        if not path.exists():
            self._download(name)
        return path

    def remove(self, name: str) -> None:
        self._objects.remove(name)
        disk.remove(self.files / name)

    def claim_live(self) -> None:
        """The batches of live rows are numbered by one log: a second one would give the same numbers to others."""
        if not self.has_own_folder:
            raise InputError(
                f"{self.name} is no write-ahead log: live rows wait on a local disk until they are files; name a folder there as"
                " local_folder in loadfactor.toml (LOADFACTOR_LOCAL_FOLDER)"
            )
        disk.make_folder(self.folder)
        here = self.folder / OWNER
        mine = here.read_bytes() if here.exists() else b""
        if not mine:
            mine = json.dumps({"log": uuid4().hex, "host": gethostname(), "folder": str(self.folder)}).encode()
            beside = here.with_name(f"{OWNER}.tmp")
            disk.write_file(beside, mine)
            disk.rename(beside, here)
            disk.sync_folder(self.folder)
        with suppress(AlreadyExistsError):
            self._objects.put(OWNER, mine, mode="create")
        kept = self._objects.get(OWNER) or b""
        if kept != mine:
            raise StoreError(
                f"the live rows of {self.name} are kept in {_describe_owner(kept)}; begin there, take another prefix"
                f" here, or, where that disk is lost, remove {self.name}/{OWNER}"
            )

    def _remove_all(self, names: Iterable[str]) -> None:
        _at_once(self.remove, sorted(names))


def _read_turn_s(content: bytes) -> float:
    """How long another writer has its turn; the shortest if it wrote nothing that can be read."""
    try:
        return float(parse_json(content)["for_s"])
    except (ValueError, TypeError, KeyError):
        return LONGEST_PAUSE_S


def _describe_owner(content: bytes) -> str:
    try:
        owner = parse_json(content)
        return f"{owner['folder']} on {owner['host']}"
    except (ValueError, TypeError, KeyError):
        return "a folder that its note does not name"


def _touch(path: Path) -> None:
    """Note that a file of the cache is used; its time of change stays, which says whether it was checked."""
    there = path.stat()
    if there.st_atime < time.time() - USED_S / 10:
        os.utime(path, ns=(time.time_ns(), there.st_mtime_ns))


def _at_once(do: Callable[[str], object], names: Sequence[str]) -> None:
    """Do the same of several names; raises what the first of them raised."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(do, names))
