"""The durable steps of the store: everything that must survive a power loss passes through here, step by step.

A file is synced before anything names it, and a folder after names in it changed. Tests record these steps, kill the process at
each of them, and replay them with what was not synced lost.
"""

import fcntl
import getpass
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from loadfactor.base.errors import StoreError
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


def take_lock(path: Path, held: str, longest_s: float = 0.0) -> IO[str]:
    """Hold a lock until the file is closed or the process ends; while another one holds it, wait so long.

    Raises StoreError: `held`, with the process in place of `{holder}`, or that nothing can be written there.
    """
    end = time.monotonic() + longest_s
    while True:
        try:
            make_folder(path.parent)
            lock = path.open("a+")  # not emptied: it says who holds it
        except FileNotFoundError:
            continue  # who leaves no trace of an import took the folder along
        except OSError as error:
            raise StoreError(
                f"{path.parent} cannot be written ({error.strerror}); choose another folder with --store"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(path, lock):  # or it was taken along like that
                # Who holds it, for whoever does not get it. A full disk keeps nobody from holding it.
                with suppress(OSError):
                    os.ftruncate(lock.fileno(), 0)
                    os.write(lock.fileno(), f"{os.getpid()}\n".encode())
                return lock
            lock.close()
        except BlockingIOError as error:
            lock.seek(0)
            reported = lock.read(32).strip()
            holder = f"process {reported}" if reported.isdigit() else "another process"
            lock.close()
            if time.monotonic() >= end:
                raise StoreError(held.format(holder=holder)) from error
            time.sleep(PAUSE_S)


def _is_still_there(path: Path, lock: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(lock.fileno()).st_ino
    except FileNotFoundError:
        return False


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
            f"{path} cannot be written ({error.strerror}); what it should say was done: {action}"
        ) from error


def _name_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, in a container
        return str(os.getuid())
