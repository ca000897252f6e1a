"""The durable steps of the store: everything that must survive a power loss passes through here, step by step.

A file is synced before anything names it, and a folder after names in it changed. Tests record these steps, kill the process at
each of them, and replay them with what was not synced lost.
"""

import errno
import fcntl
import getpass
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import StoreError, say_why
from loadfactor.base.units import MS_PER_S


def sync_file(path: Path) -> None:
    """Make the bytes of a file survive a power loss."""
    _sync(path)


def sync_folder(path: Path) -> None:
    """Make new, renamed and removed names inside a folder survive a power loss."""
    _sync(path)


def make_folder(path: Path) -> None:
    """Make a folder, with those it lies in, that survives a power loss; nothing happens where there is one."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole and sync it. It may be half there until this returns: write beside, then `rename`."""
    path.write_bytes(content)
    sync_file(path)


def rename(old: Path, new: Path) -> None:
    """Give a file another name in the same file system; what had that name is replaced in one step."""
    old.rename(new)


def move_aside(path: Path, folder: Path) -> None:
    """Move a file into a folder of the same file system, never over one that lies there.

    Raises FileNotFoundError.
    """
    target = folder / path.name
    number = 2
    while target.exists():
        target = folder / f"{path.name}.{number}"
        number += 1
    rename(path, target)


def link(old: Path, new: Path) -> None:
    """Give a file a second name."""
    os.link(old, new)


def remove(path: Path) -> None:
    """Remove a file; nothing happens where there is none."""
    path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


PAUSE_S = 20 / MS_PER_S
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Lock:
    """A lock file that is held, with what it guards, until it is closed or the process ends."""

    def __init__(self, path: Path, guarded: Path | None = None) -> None:
        """Raises BlockingIOError where another one holds either of them, OSError, and StoreError as `lock_file`."""
        self._path = path
        self._handles: list[int] = []
        try:
            self._handles.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))  # not emptied: it says who holds it
            lock_file(self._handles[0], fcntl.LOCK_EX | fcntl.LOCK_NB, path)
            if guarded is not None:
                self._handles.append(os.open(guarded, os.O_RDONLY))
                lock_file(self._handles[1], fcntl.LOCK_EX | fcntl.LOCK_NB, path)
            with suppress(
                OSError
            ):  # who holds it, for whoever does not get it; a full disk keeps nobody from holding it
                os.ftruncate(self._handles[0], 0)
                os.pwrite(self._handles[0], f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            self.close()
            raise

    def is_named(self) -> bool:
        """False where its file was deleted: then another one may hold a new one."""
        try:
            return self._path.stat().st_ino == os.fstat(self._handles[0]).st_ino
        except FileNotFoundError:
            return False

    def renew(self) -> None:
        """Hold a new file where it was deleted. Raises as the constructor."""
        if not self.is_named():
            new = Lock(self._path)
            self.close()
            self._handles = new._handles

    def close(self) -> None:
        """Let go of all of it."""
        while self._handles:
            os.close(self._handles.pop())

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def take_lock(
    path: Path,
    held: str,
    longest_s: float = 0.0,
    guarded: Path | None = None,
    instead: str = "choose another folder with --store",
) -> Lock:
    """Hold a lock; while another one holds it, wait so long.

    `guarded`: what is written under the lock, held as well: deleting the lock file admits nobody while that is there.
    `instead`: what to do where its folder cannot be written.
    Raises StoreError: `held`, with the process in place of `{holder}`, or that nothing can be written or locked there.
    """
    end = time.monotonic() + longest_s
    while True:
        try:
            make_folder(path.parent)
            lock = Lock(path, guarded)
            if lock.is_named():
                return lock
            lock.close()  # who leaves no trace of an import took it along
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise StoreError(held.format(holder=_name_holder(path))) from error
            time.sleep(PAUSE_S)
        except FileNotFoundError:
            continue  # or its folder
        except OSError as error:
            raise StoreError(f"{path.parent} cannot be written ({say_why(error)}); {instead}") from error


def _name_holder(path: Path) -> str:
    reported = ""
    with suppress(OSError):
        reported = path.read_text(encoding="ascii", errors="replace")[:32].strip()
    return f"process {reported}" if reported.isdigit() else "another process"


def lock_file(handle: int, how: int, path: Path) -> None:
    """Lock an open file, `how` as flock has it. Raises BlockingIOError, and StoreError where the file system has no locks."""
    try:
        fcntl.flock(handle, how)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise StoreError(
                f"{path.parent} lies on a file system without locks ({say_why(error)}), so nothing keeps two writers apart; mount"
                " it with locks (NFS 4, or NFS 3 with lockd), or choose a folder of a local disk"
            ) from error
        raise


NAME: Final = "audit.log"


def append_audit(folder: Path, action: str, by: str = "", **facts: Any) -> None:
    """Add a line that outlasts a power loss. `by` is who did it: the user of this process where nobody is named.

    Raises StoreError where it cannot be written.
    """
    line = {"at_ms": int(time.time() * MS_PER_S), "action": action, "by": by or f"user {_name_user()}", **facts}
    path = folder / NAME
    try:
        is_new = not path.exists()
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            os.write(handle, json.dumps(line, ensure_ascii=True).encode() + b"\n")
        finally:
            os.close(handle)
        sync_file(path)
        if is_new:
            sync_folder(folder)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({say_why(error)}); what it should say was done: {action}"
        ) from error


def _name_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, in a container
        return str(os.getuid())
