"""The durable steps of the store: everything that must survive a power loss passes through here, step by step.

A file is synced before anything names it, and a folder after names in it changed. Tests record these steps, kill the process at
each of them, and replay them with what was not synced lost.
"""

import os
from pathlib import Path


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
