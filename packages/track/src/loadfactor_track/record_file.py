"""The file of one process: whole lines, written at its end by one call. So a kill tears nothing, and nobody writes in between."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .notices import say_once
from .units import BYTES_PER_MIB

try:
    import fcntl
except ImportError:  # no Unix: what a killed process left is sent by nobody
    fcntl = None  # type: ignore[assignment]

ENDING: Final = ".jsonl"
MOST_BYTES: Final = 256 * BYTES_PER_MIB
MOST_WAITING: Final = 10_000
"""Lines that a full disk may keep waiting; the oldest are dropped."""
MOST_AT_ONCE: Final = 1_024
AGAIN_S: Final = 2.0
_WRITES: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class RecordFile:
    """One thread writes, another may read what is there and cut off what arrived elsewhere."""

    def __init__(self, folder: Path, begin: dict[str, Any], most_bytes: int = MOST_BYTES) -> None:
        """`begin` is the first line; the file is made when there is something to write."""
        self.path = folder / f"{_plain(begin['job'])}-{begin['id']}{ENDING}"
        self.begin = _encode({**begin, "n": 0})
        self.dropped = 0
        """Records that were lost, since the process began."""
        self._noted_dropped = 0
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._number = 0
        self._file: int | None = None
        self._size = 0
        self._is_torn = False
        self._lock = threading.Lock()
        self._not_before_s = 0.0

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """Put records at the end; what cannot be written waits, or is counted as dropped. Raises nothing that a disk can say."""
        for record in records:
            self._put(record)
        if self._lines and time.monotonic() >= self._not_before_s:
            self._flush()

    def _put(self, record: dict[str, Any]) -> None:
        self._number += 1
        self._lines.append(_encode({**record, "n": self._number}))
        if len(self._lines) > MOST_WAITING:
            self._lines.popleft()
            self.dropped += 1

    def _flush(self) -> None:
        if self.dropped > self._noted_dropped:
            self._noted_dropped = self.dropped
            self._put({"kind": "dropped", "records": self.dropped})
        try:
            with self._lock:
                if self._file is None:
                    self._open()
                while self._lines and self._write_some():
                    pass
            self._not_before_s = 0.0
        except OSError as error:
            self._not_before_s = time.monotonic() + AGAIN_S
            say_once(
                "disk",
                f"progress cannot be written to {self.path} ({error.strerror or repr(error)}); the run goes on, records wait or"
                " are dropped",
            )

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, _WRITES, 0o644)
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file = file
        self._lines.appendleft(self.begin)

    def _write_some(self) -> bool:
        """Write lines with one call; nothing half of one stays. Raises OSError."""
        assert self._file is not None
        if self._size > self._most_bytes:
            self.dropped += len(self._lines)
            self._lines.clear()
            say_once(
                "large", f"{self.path} is as large as it may be; the run goes on, its progress is not kept any more"
            )
            return False
        taken = list(self._lines)[:MOST_AT_ONCE]
        content = (b"\n" if self._is_torn else b"") + b"".join(taken)
        written = os.write(self._file, content)
        self._is_torn = written < len(content)
        self._size += written
        if self._is_torn:
            whole = content[:written].rfind(b"\n") + 1
            self._cut(written - whole)
            for _ in range(content[:whole].count(b"\n") - content.startswith(b"\n")):
                self._lines.popleft()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for _ in taken:
            self._lines.popleft()
        return True

    def _cut(self, torn: int) -> None:
        """Take away the half of a line at the end; where that fails the next line begins anew."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._size - torn)
        except OSError:
            return
        self._size -= torn
        self._is_torn = False

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return self._size

    def read(self, start: int, most: int) -> bytes:
        """Whole lines from a place on; empty where there are none."""
        with self._lock:
            if self._file is None or start >= self._size:
                return b""
            content = os.pread(self._file, min(most, self._size - start), start)
        return content[: content.rfind(b"\n") + 1]

    def forget(self, through: int) -> bool:
        """Cut off everything but the first line, where nothing came after `through`."""
        with self._lock:
            if self._file is None or self._size > through:
                return False
            try:
                os.ftruncate(self._file, len(self.begin))
            except OSError:
                return False
            self._size = len(self.begin)
            return True

    def close(self, remove: bool = False) -> None:
        """Write what waits, if that can be done now. `remove`: all of it arrived elsewhere."""
        self._not_before_s = 0.0
        self.write(())
        self.dropped += len(self._lines)
        with self._lock:
            if self._file is not None:
                if remove:
                    with suppress(OSError):
                        self.path.unlink()
                os.close(self._file)
                self._file = None

    def leave(self) -> None:
        """In a process that was forked: the file is not its own. Takes no lock, which another thread may have held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _encode(record: dict[str, Any]) -> bytes:
    try:
        line = json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN or infinity, which JSON has not: unknown
        line = json.dumps({name: _known(value) for name, value in record.items()}, separators=(",", ":"))
    return line.encode() + b"\n"


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(name: str) -> str:
    """A name as part of that of a file.

    >>> _plain("team-a/trainer 7")
    'team-a_trainer_7'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:80] or "run"
