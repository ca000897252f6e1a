"""Everything this package raises on purpose.

    LoadfactorError
    ├── InputError          what the user gave is wrong: the command line exits with 2
    │   ├── SourceError     a file that was to be imported cannot be understood
    │   └── PlanError       a what-if that cannot be: names the constraint and the nearest thing that works
    ├── StoreError          the books on disk cannot be read or written
    │   ├── DamageError     a file of the books is not what was written
    │   └── BusyError       so much waits that no more is taken for now
    └── CatalogError        a fact in the catalog is missing or malformed

Every message is one line: what is wrong, where, and what to do next.
"""

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class LoadfactorError(Exception):
    """Base of everything this package raises on purpose."""


class InputError(LoadfactorError):
    """An input of the user is wrong; the message says what to do next."""


class SourceError(InputError):
    """A file that was to be imported cannot be understood; nothing of it was kept."""


class PlanError(InputError):
    """A what-if that cannot be; the message names the constraint and the nearest thing that works."""


class StoreError(LoadfactorError):
    """The books on disk cannot be read or written."""


class DamageError(StoreError):
    """A file of the books is missing or not what was written; with it in quarantine, the rest still answers."""


class BusyError(StoreError):
    """So much waits that no more is taken for now: the same again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CatalogError(LoadfactorError):
    """A fact in the catalog is missing or malformed."""


def no_such(what: str, name: str, known: Iterable[str], hint: str = "") -> InputError:
    """The error for a name nobody knows: it suggests the nearest known one, else `hint`, else lists them all.

    >>> str(no_such("metric", "utilisation", ["utilization", "cost"]))
    "no metric called 'utilisation'; did you mean 'utilization'?"
    >>> str(no_such("scaling", "odd", ["strong", "weak"]))
    "no scaling called 'odd'; choose from strong, weak"
    >>> str(no_such("metric", "util", ["cost", "utilization"]))
    "no metric called 'util'; did you mean 'utilization'?"
    """
    names = list(known)
    by_lower = {candidate.lower(): candidate for candidate in names}
    begun = [known for known in by_lower if len(name) > 2 and known.startswith(name.lower())]
    near = get_close_matches(name.lower(), by_lower, 1) or begun
    if near:
        advice = f"did you mean {by_lower[near[0]]!r}?"
    else:
        advice = hint or f"choose from {', '.join(names)}"
    return InputError(f"no {what} called {name!r}; {advice}")


_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_SQLITE_FAULTS = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")


def is_disk_fault(error: BaseException | None) -> bool:
    """Return True if an error comes of a disk that takes nothing: it is full, over a quota, read-only or ill.

    >>> is_disk_fault(OSError(28, "No space left on device")), is_disk_fault(OSError(13, "Permission denied"))
    (True, False)
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FAULTS:
            return True
        if str(getattr(error, "sqlite_errorname", "")).startswith(_SQLITE_FAULTS):
            return True
        error = error.__cause__
    return False


def say_why(error: BaseException) -> str:
    """The reason that an error gives, in one line: of an error of the system its text alone. Never empty.

    >>> say_why(OSError(28, "No space left on device", "a/b")), say_why(OSError("no  more\\nlines")), say_why(OSError())
    ('No space left on device', 'no more', 'OSError')
    """
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return " ".join(lines[0].split()) if lines else type(error).__name__
