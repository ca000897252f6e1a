"""Files that commands write: beside the old one, synced, and renamed when all is there."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loadfactor.base.errors import InputError, LoadfactorError
from loadfactor.store.disk import rename, sync_file, sync_folder

FAILING_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def replacing(path: Path, option: str = "--output") -> Iterator[Path]:
    """A file beside `path` to write to; renamed to `path` when all is written, so that a full disk leaves the old one.

    What a symbolic link points to is replaced, not the link. Raises InputError naming the option where it cannot be written,
    LoadfactorError where the disk is full or fails.
    """
    is_device = path.exists() and not path.is_file()  # /dev/stdout is written to, not replaced
    target = path if is_device else Path(os.path.realpath(path))
    beside = target if is_device else target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        yield beside
        if not is_device:
            _put(beside, target)
    except OSError as error:
        said = f"{option} {path}: cannot be written ({error.strerror or error})"
        if error.errno in FAILING_DISK:
            kept = "; the file of that name is as it was" if path.is_file() else ""
            raise LoadfactorError(f"{said}{kept}") from error
        raise InputError(said) from error
    finally:
        if not is_device:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _put(beside: Path, target: Path) -> None:
    """Make what is written durable and give it the name, with the rights that the old file had."""
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        shutil.copymode(target, beside)
    sync_file(beside)
    rename(beside, target)
    sync_folder(target.parent)
