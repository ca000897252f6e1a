"""Failures of work that goes on in the background: expected ones in one line, defects of ours in the log with a traceback.

A collector that fails does so again at its next turn. So the log has the traceback of each cause once, and then how often.
A cause is the type of the error and the innermost line of this package that it passed.
"""

import logging
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadfactor.base.errors import LoadfactorError, is_disk_fault
from loadfactor.base.units import S_PER_HOUR

PACKAGE: Final = str(Path(__file__).parents[1])
LOGGED_COUNTS: Final = (10, 100, 1_000, 10_000, 100_000)
"""After the first time a cause is logged again at these counts, and once an hour."""
AGAIN_S: Final = float(S_PER_HOUR)
_LOG: Final = logging.getLogger("loadfactor")

Cause = tuple[str, str, int]
"""The type of an error, and the file and line of ours that it came from."""


@dataclass
class _Seen:
    count: int = 0
    logged_s: float = 0.0


class DefectLog:
    """The defects that this process met, by cause. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Cause, _Seen] = {}

    def explain(self, source: str, error: BaseException) -> str:
        """Explain a failure in one line, and log it if it is a defect of ours. `source`: the name of what failed."""
        if isinstance(error, LoadfactorError):
            return str(error)
        line = f"{type(error).__name__}: {error}"
        if is_disk_fault(error):
            return line
        cause = find_cause(error)
        with self._lock:
            seen = self._seen.setdefault(cause, _Seen())
            seen.count += 1
            now_s, count = time.monotonic(), seen.count
            is_first = count == 1
            if not (is_first or count in LOGGED_COUNTS or now_s - seen.logged_s >= AGAIN_S):
                return line
            seen.logged_s = now_s
        _, file, number = cause
        facts = {"source": source, "cause": f"{type(error).__name__} at {file}:{number}", "count": count}
        _LOG.error(
            "a defect of loadfactor", exc_info=error if is_first else None, extra={"facts": facts | {"error": line}}
        )
        return line


def find_cause(error: BaseException) -> Cause:
    """Find the cause of an error; without a frame of ours, its innermost frame."""
    frames = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    own_frames = [(file, number) for file, number in frames if file.startswith(PACKAGE)]
    file, number = (own_frames or frames or [("", 0)])[-1]
    return type(error).__name__, file.removeprefix(PACKAGE).lstrip("/"), number


DEFECTS: Final = DefectLog()
"""That of this process."""
