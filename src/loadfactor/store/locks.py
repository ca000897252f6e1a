"""Locks of a store's folder: a file that one process at a time holds, and that says which process it is."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from loadfactor.base.errors import StoreError
from loadfactor.base.units import MS_PER_S
from loadfactor.store import disk

PAUSE_S = 20 / MS_PER_S


def take_lock(path: Path, held: str, longest_s: float = 0.0) -> IO[str]:
    """Hold a lock until the file is closed or the process ends; while another one holds it, wait so long.

    Raises StoreError: `held`, with the process in place of `{holder}`, or that nothing can be written there.
    """
    end = time.monotonic() + longest_s
    while True:
        try:
            disk.make_folder(path.parent)
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
                _write_holder(lock)
                return lock
            lock.close()
        except BlockingIOError as error:
            holder = _read_holder(lock)
            lock.close()
            if time.monotonic() >= end:
                raise StoreError(held.format(holder=holder)) from error
            time.sleep(PAUSE_S)


def _is_still_there(path: Path, lock: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(lock.fileno()).st_ino
    except FileNotFoundError:
        return False


def _write_holder(lock: IO[str]) -> None:
    """Who holds it, for whoever does not get it. A full disk keeps nobody from holding it."""
    with suppress(OSError):
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), f"{os.getpid()}\n".encode())


def _read_holder(lock: IO[str]) -> str:
    lock.seek(0)
    said = lock.read(32).strip()
    return f"process {said}" if said.isdigit() else "another process"
