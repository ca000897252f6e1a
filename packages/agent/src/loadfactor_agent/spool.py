"""Bodies that wait to be sent: segment files of a folder, bounded in bytes, in order, and whole after a kill or a power loss.

A segment is a row of records: how long the body is and how many samples it has, a CRC-32 (little-endian, 32 bits each), the body.
A process begins a segment of its own; what an earlier one left is sent first. `sent` says how far the server took them.
"""

import os
import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from .notices import AgentError

_HEAD: Final = struct.Struct("<III")
_SENT: Final = "sent"
_SUFFIX: Final = ".spool"
SYNC_EVERY_S: Final = 5.0
_SEGMENTS: Final = 16
"""Into so many segments the room is cut: what is dropped is dropped by segments."""
_LONGEST_BODY: Final = 64 * 1024**2


class Waiting(NamedTuple):
    """The body to send next, and where it ends."""

    body: bytes
    samples: int
    segment: int
    end: int


@dataclass
class _Segment:
    number: int
    size: int
    samples: int = 0


@dataclass
class SpoolCounts:
    """Counts of what could not be kept since the process began."""

    dropped_bodies: int = 0
    dropped_samples: int = 0
    damaged_segments: int = 0


class Spool:
    """Any thread may add; one thread takes."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Raises AgentError where the folder cannot be used."""
        self._folder, self._most_bytes = folder, most_bytes
        self._lock = threading.Condition()
        self.counts = SpoolCounts()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            numbers = sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
            self._read_from = self._read_sent()
            self._segments = deque(_Segment(number, self._path(number).stat().st_size) for number in numbers)
        except (OSError, ValueError) as error:
            raise AgentError(f"the spool {folder} cannot be used: {error}; choose another with --spool") from error
        while self._segments and self._segments[0].number < self._read_from[0]:
            self._remove(self._segments.popleft())
        self._next = max([self._read_from[0], *numbers], default=0) + 1
        self._file: int | None = None
        self._synced_s = time.monotonic()

    @property
    def size_bytes(self) -> int:
        """How much is kept, what was sent of a segment that is not done included."""
        return sum(segment.size for segment in list(self._segments))

    def add(self, body: bytes, samples: int) -> bool:
        """Keep a body: on the disk, where a kill does not reach it. False where even the newest found no room: it is counted."""
        record = _HEAD.pack(len(body), samples, _checksum(body, samples)) + body
        with self._lock:
            while self.size_bytes + len(record) > self._most_bytes and len(self._segments) > 1:
                self._drop_oldest()
            while not self._append(record, samples):
                if len(self._segments) <= 1:
                    self._count_dropped(1, samples)
                    return False
                self._drop_oldest()
            self._lock.notify()
        return True

    def take(self, within_s: float) -> Waiting | None:
        """The oldest body that was not sent; None where there is none for so long."""
        with self._lock:
            found = self._find()
            if found is None:
                self._lock.wait(within_s)
                found = self._find()
            return found

    def confirm(self, waiting: Waiting) -> None:
        """It arrived, or will never: it is not taken again."""
        with self._lock:
            self._read_from = max(self._read_from, (waiting.segment, waiting.end))
            self._leave_done()
            self._write_sent()

    def sync(self) -> None:
        """Have it outlast a power loss, too, if that was not done in the last seconds."""
        now = time.monotonic()
        if now - self._synced_s < SYNC_EVERY_S:
            return
        self._synced_s = now
        with self._lock:
            if self._file is not None:
                os.fdatasync(self._file)

    def close(self) -> None:
        """Have everything on the disk."""
        with self._lock:
            if self._file is not None:
                os.fdatasync(self._file)
                os.close(self._file)
                self._file = None

    def _append(self, record: bytes, samples: int) -> bool:
        """Write to the newest segment; nothing half stays where the disk is full."""
        try:
            if self._file is None or self._segments[-1].size + len(record) > self._most_bytes // _SEGMENTS:
                self._begin_segment()
            assert self._file is not None
            newest = self._segments[-1]
            written = os.pwrite(self._file, record, newest.size)
            if written < len(record):
                os.ftruncate(self._file, newest.size)
                return False
        except OSError:
            if self._file is not None and self._segments:
                os.ftruncate(self._file, self._segments[-1].size)
            return False
        newest.size += len(record)
        newest.samples += samples
        return True

    def _begin_segment(self) -> None:
        number, self._next = self._next, self._next + 1  # a number that failed once is not tried again
        opened = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if self._file is not None:
            os.fdatasync(self._file)
            os.close(self._file)
        self._file = opened
        self._segments.append(_Segment(number, 0))

    def _find(self) -> Waiting | None:
        while self._segments:
            segment = self._segments[0]
            if segment.number > self._read_from[0]:
                self._read_from = (segment.number, 0)
            at = self._read_from[1]
            if at < segment.size:
                found = self._read_record(segment, at)
                if found is not None:
                    return found
                self.counts.damaged_segments += 1  # torn by a power loss: where the next record begins is unknown
                self._read_from = (segment.number, segment.size)
            if segment is self._segments[-1] and self._file is not None:
                return None
            self._leave_done()
        return None

    def _read_record(self, segment: _Segment, at: int) -> Waiting | None:
        with self._path(segment.number).open("rb") as file:
            file.seek(at)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return None
            size, samples, checksum = _HEAD.unpack(head)
            body = file.read(size) if size <= _LONGEST_BODY else b""
        if len(body) != size or _checksum(body, samples) != checksum:
            return None
        return Waiting(body, samples, segment.number, at + _HEAD.size + size)

    def _leave_done(self) -> None:
        """Removes segments that were sent whole, but for the one that is written."""
        while self._segments:
            segment = self._segments[0]
            is_written = self._file is not None and segment is self._segments[-1]
            if is_written or (segment.number, segment.size) > self._read_from:
                return
            self._remove(self._segments.popleft())

    def _drop_oldest(self) -> None:
        """Counts what was not sent of the oldest segment and removes it."""
        segment = self._segments[0]
        at = self._read_from[1] if self._read_from[0] == segment.number else 0
        while at < segment.size and (record := self._read_record(segment, at)) is not None:
            self._count_dropped(1, record.samples)
            at = record.end
        self._read_from = max(self._read_from, (segment.number, segment.size))
        self._remove(self._segments.popleft())

    def _count_dropped(self, bodies: int, samples: int) -> None:
        self.counts.dropped_bodies += bodies
        self.counts.dropped_samples += samples

    def _remove(self, segment: _Segment) -> None:
        self._path(segment.number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{_SUFFIX}"

    def _read_sent(self) -> tuple[int, int]:
        try:
            segment, at = map(int, (self._folder / _SENT).read_text().split())
        except (FileNotFoundError, ValueError):  # everything is sent again, which the server knows to be the same
            return 0, 0
        return segment, at

    def _write_sent(self) -> None:
        """Not synced: after a power loss some bodies are sent again."""
        path = self._folder / _SENT
        try:
            path.with_suffix(".new").write_text(f"{self._read_from[0]} {self._read_from[1]}\n")
            path.with_suffix(".new").replace(path)
        except OSError:  # full: sent again after a restart
            return


def _checksum(body: bytes, samples: int) -> int:
    return zlib.crc32(body, samples)
