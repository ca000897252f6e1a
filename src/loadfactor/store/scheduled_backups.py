"""Backups on a schedule: one a period, of files that an earlier one has not copied again, each whole; old ones are removed.

In a folder each is a folder of books, whose files are hard links to those of the one before. In a bucket the files of all lie in
`files/`, what is small in `backups/<time>/`, and `whole` there, put last, says that a backup is one.
"""

import re
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from loadfactor.base.errors import InputError, StoreError, say_why
from loadfactor.base.paths import name_store, read_url
from loadfactor.base.units import MS_PER_S
from loadfactor.store import disk
from loadfactor.store.backup import back_up, copy_file, find_damage
from loadfactor.store.folder import Folder, has_books, list_names
from loadfactor.store.manifest import NAME, Manifest, StoredFile, checksum_file
from loadfactor.store.place import Place
from loadfactor.store.trusted_time import read_clock

Schedule = Literal["hourly", "daily", "weekly"]
_PERIODS: Final = {"hourly": "%Y-%m-%dT%H", "daily": "%Y-%m-%d", "weekly": "%G-W%V"}
_STAMP: Final = "%Y-%m-%dT%H%M%SZ"
_NAMES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
PART: Final = ".part"
"""Ends the name of a backup that is not whole yet, or not any more, and of a store that is being restored."""
LATE: Final = timedelta(days=1)
"""A file in a bucket that no backup names stays for so long: it may be of one that is being made."""
ELSEWHERE: Final = "name another folder in [backup] to"
"""What to do where backups cannot be written."""


@dataclass(frozen=True)
class KeptBackups:
    """Backups as they lie there: the newest, when it was begun (UTC), and how many there are.

    `made`: whether it was made now; `files` and `new_files` are of that, `removed` the names of those that it follows.
    """

    newest: str
    newest_at: datetime
    kept: int
    made: bool = False
    files: int = 0
    new_files: int = 0
    removed: tuple[str, ...] = ()


def back_up_when_due(
    place: Place, to: str | Path, schedule: Schedule, keep: int, now: datetime, also: Iterable[Path] = ()
) -> KeptBackups:
    """Back up into a folder or a bucket unless there is a backup of this hour, day or week (UTC); keep so many.

    A backup that is dated ahead of now was made by a wrong clock: it is not the one of this period, does not count among those
    that are kept, and stays. While the clock is not trusted (`trusted_time`), none is removed.

    `also`: as of `back_up`. Raises StoreError and DamageError where it is not whole; then those of before are as they were.
    """
    shelf = _find_shelf(to)
    try:
        with shelf.hold():
            whole = shelf.list_whole()
            past = _list_past(whole, now)
            period, made = _PERIODS[schedule], ""
            files = new_files = 0
            if not past or _read(past[-1]).strftime(period) < now.astimezone(UTC).strftime(period):
                made = now.astimezone(UTC).strftime(_STAMP)
                # The newest by name may be dated ahead; files of either are linked if they are the same.
                before = list(dict.fromkeys((*past[-1:], *whole[-1:])))
                manifest, new_files = shelf.add(place, made, before, tuple(also))
                files = len(manifest.files)
                past = [*past, made]
            clock = read_clock(place, round(now.timestamp() * MS_PER_S))
            removed = past[:-keep] if clock.deletions == "allowed" else []
            for name in removed:
                shelf.remove(name)
    except OSError as error:
        raise StoreError(f"{name_store(to)} cannot be written ({say_why(error)}); {ELSEWHERE}") from error
    newest = past[-1]
    kept = len(past) - len(removed)
    return KeptBackups(shelf.name(newest), _read(newest), kept, bool(made), files, new_files, tuple(removed))


def restore(source: str | Path, target: Path) -> Manifest:
    """Make a folder of books of a backup: of one that `backup` or a schedule made, or of the newest of a schedule.

    It is whole, or not there: a process that dies leaves a folder with another name, which the next one removes. Raises InputError
    where the target is taken or there is no backup, StoreError and DamageError where it cannot be read or is not what was copied.
    """
    if read_url(target) is not None:
        raise InputError(
            f"{name_store(target)} is a bucket; restore into a folder, and copy that into a new prefix of it"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already; move it aside, or name a new folder with --store")
    shelf, name = _find_backup(source)
    arriving = target.with_name(f"{target.name}{PART}")
    try:
        shutil.rmtree(arriving, ignore_errors=True)
        disk.make_folder(arriving.parent)
        shelf.fetch(name, arriving)
        manifest = Folder(arriving).read_newest()
        if differences := find_damage(arriving, manifest):
            raise StoreError(f"{shelf.name(name)} is damaged ({'; '.join(differences)}); take an earlier backup")
        for path in (arriving, *arriving.rglob("*")):
            disk.sync_folder(path) if path.is_dir() else disk.sync_file(path)
        if target.exists():
            target.rmdir()
        disk.rename(arriving, target)
        disk.sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"{target} cannot be written ({say_why(error)}); nothing is restored") from error
    return manifest


def _read(name: str) -> datetime:
    return datetime.strptime(name, _STAMP).replace(tzinfo=UTC)


def _list_past(names: list[str], now: datetime) -> list[str]:
    """List the backups that are not dated ahead of now, the oldest first."""
    return [name for name in names if _read(name) <= now]


def _find_shelf(to: str | Path) -> "_Shelf":
    url = read_url(to)
    return _FolderShelf(Path(to)) if url is None else _BucketShelf(url)


def _find_backup(source: str | Path) -> "tuple[_Shelf, str]":
    """Where a backup lies, and its name there. Raises InputError where there is none."""
    path = Path(source)
    is_one = read_url(source) is None and has_books(path)
    if is_one or _NAMES.fullmatch(path.name):
        shelf = _find_shelf(path.parent)
        if is_one or path.name in shelf.list_whole():
            return shelf, path.name
    elif names := _find_shelf(source).list_whole():
        return _find_shelf(source), (_list_past(names, datetime.now(UTC)) or names)[-1]
    raise InputError(f"there is no backup in {name_store(path)}; name one, or the folder or bucket of [backup]")


class _Shelf(ABC):
    """What the backups of a store lie in."""

    @abstractmethod
    def name(self, backup: str) -> str:
        """A backup as it is written behind `restore`."""

    @abstractmethod
    def hold(self) -> AbstractContextManager[object]:
        """What keeps others from making backups here meanwhile."""

    @abstractmethod
    def list_whole(self) -> list[str]:
        """The backups that are whole, the oldest first."""

    @abstractmethod
    def add(self, place: Place, name: str, before: list[str], also: tuple[Path, ...]) -> tuple[Manifest, int]:
        """Make a backup that has what those `before` have not; what was copied, and how many files were not there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a backup, and the files that no other has."""

    @abstractmethod
    def fetch(self, name: str, into: Path) -> None:
        """Copy a backup into a new folder."""


class _FolderShelf(_Shelf):
    def __init__(self, root: Path) -> None:
        self._root = root

    def name(self, backup: str) -> str:
        return str(self._root / backup)

    def hold(self) -> AbstractContextManager[object]:
        held = f"another backup is being made in {self._root} ({{holder}})"
        return disk.take_lock(self._root / "lock", held, instead=ELSEWHERE)

    def list_whole(self) -> list[str]:
        return sorted(path.name for path in self._root.glob("*") if _NAMES.fullmatch(path.name) and path.is_dir())

    def add(self, place: Place, name: str, before: list[str], also: tuple[Path, ...]) -> tuple[Manifest, int]:
        for left in self._root.glob(f"*{PART}"):
            shutil.rmtree(left)
        arriving, new = self._root / f"{name}{PART}", 0

        def put(source: Path, file: StoredFile) -> None:
            nonlocal new
            for earlier in (self._root / of / file.name for of in before):
                with suppress(OSError):  # no such file, or a file system without links
                    if checksum_file(earlier) == file.crc32:
                        disk.link(earlier, arriving / file.name)
                        return
            copy_file(source, arriving / file.name, file.crc32)
            new += 1

        manifest = back_up(place, arriving, also, put)
        if differences := find_damage(arriving, manifest, are_files_read=True):
            raise StoreError(f"{arriving} is not what was copied ({'; '.join(differences)}); those of before are kept")
        disk.rename(arriving, self._root / name)
        disk.sync_folder(self._root)
        return manifest, new

    def remove(self, name: str) -> None:
        leaving = self._root / f"{name}{PART}"
        disk.rename(self._root / name, leaving)  # half a backup is none
        shutil.rmtree(leaving)

    def fetch(self, name: str, into: Path) -> None:
        shutil.copytree(self._root / name, into)


class _BucketShelf(_Shelf):
    def __init__(self, url: str) -> None:
        from loadfactor.store.objects import Objects

        self._objects = Objects(url)

    def name(self, backup: str) -> str:
        return f"{self._objects.url}/{backup}"

    def hold(self) -> AbstractContextManager[object]:
        return nullcontext()  # each has a name of its own, and files of others stay for a while

    def list_whole(self) -> list[str]:
        names = (name.split("/") for name, _ in self._objects.list("backups"))
        return sorted(of[1] for of in names if of[2:] == ["whole"] and _NAMES.fullmatch(of[1]))

    def add(self, place: Place, name: str, before: list[str], also: tuple[Path, ...]) -> tuple[Manifest, int]:  # noqa: ARG002
        there, new = self._objects.list_sizes("files"), 0

        def put(source: Path, file: StoredFile) -> None:
            nonlocal new
            if there.get(f"files/{file.name}") != file.bytes:
                self._objects.put(f"files/{file.name}", source)
                if zlib.crc32(self._objects.get(f"files/{file.name}") or b"") != file.crc32:
                    raise StoreError(f"{self._objects.url}/files/{file.name} is not what was put; it is no backup")
                new += 1

        with TemporaryDirectory(prefix="loadfactor-backup-") as beside:
            staged = Path(beside) / name
            manifest = back_up(place, staged, also, put)
            if differences := find_damage(staged, Manifest(live_through=manifest.live_through)):
                raise StoreError(f"{self.name(name)} is not what was copied ({'; '.join(differences)})")
            for path in sorted(path for path in staged.rglob("*") if path.is_file()):
                self._objects.put(f"backups/{name}/{path.relative_to(staged)}", path)
        self._objects.put(f"backups/{name}/whole", b"")
        return manifest, new

    def remove(self, name: str) -> None:
        self._objects.remove(f"backups/{name}/whole")  # first: half a backup is none
        for left in [left for left, _ in self._objects.list(f"backups/{name}")]:
            self._objects.remove(left)
        manifests = (self._objects.get(f"backups/{of}/{NAME}") for of in self.list_whole())
        named = {f"files/{of}" for manifest in manifests for of in list_names(manifest or b"")}
        files = list(self._objects.list("files"))
        # By the clock of the object store, which dated them: ours may be ahead, and another backup is being made.
        newest_at = max((at for _, at in (*files, *self._objects.list("backups"))), default=None)
        for left, at in files:
            if left not in named and newest_at is not None and at < newest_at - LATE:
                self._objects.remove(left)

    def fetch(self, name: str, into: Path) -> None:
        folder = f"backups/{name}/"
        for path in [path for path, _ in self._objects.list(folder.rstrip("/")) if path != f"{folder}whole"]:
            target = into / path.removeprefix(folder)
            self._objects.download(path, target)
            target.chmod(0o600)
        manifest = Folder(into).read_newest() if (into / NAME).exists() else Manifest()
        for file in manifest.files:
            self._objects.download(f"files/{file.name}", into / file.name)
