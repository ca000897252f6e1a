"""Reading a metric stream from S3: each object once, in the order in which they were written, and on from where it stopped.

An object is known by its key and its content's tag, so one that is written again is read again. New is what was written since: S3
says when, so an object counts whose key is older than those of others. What cannot be read is left out and reported.
"""

import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.amazon import S3Object, S3Objects
from loadfactor.collect.polling import Keep, PolledSource
from loadfactor.sources.base import Input
from loadfactor.sources.clouds.cloudwatch import ASIDE, LARGEST_FILE_BYTES, SERIES, read_cloudwatch
from loadfactor.sources.files import FileChunks
from loadfactor.store.source_status import SourceStatus

KNOWN_S: Final = S_PER_HOUR
"""Objects are known for so long after they were written; those that are older than that and than the newest were read."""
LATE_KEYS_S: Final = S_PER_DAY
"""So long Firehose may go on trying to deliver: keys up to so much older than the newest are listed again."""
ASIDE_S: Final = S_PER_DAY
"""For so long objects that cannot be read are reported."""
SILENT_S: Final = 30 * S_PER_MIN
"""Where nothing was written for so long, the stream is called silent: Firehose writes every 15 minutes at least."""
OBJECTS_AT_ONCE: Final = 20
"""In a payload."""
BEGIN, NEWEST, KNOWN, FLOOR, ASIDES = "begin", "newest", "known", "floor", "aside"
"""Of the cursor: since when objects count (s), when the newest that was read was written (s), which of the last hour were read,
after which key new ones are, and which could not be read, when."""
_DIGEST_BYTES: Final = 6
_WRITTEN: Final = re.compile(r"-(\d{4}(?:-\d\d){5})-[0-9a-f]{8}-")
"""In the name of every object that Firehose writes: an instant, and the beginning of a UUID."""


class MetricStreamWatch(PolledSource):
    """One metric stream."""

    def __init__(
        self,
        stream_id: str,
        objects: S3Objects,
        every_s: float,
        begin_s: int,
        cursor: Mapping[str, str],
        keep: Keep,
        before: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        super().__init__(stream_id, ("",), every_s, keep, before)
        self._job = stream_id.partition(" ")[2]
        self._objects = objects
        self._begin_s = min(int(cursor.get(BEGIN) or begin_s), int(time.time()))  # our clock may have been ahead
        self._newest_s = int(cursor.get(NEWEST) or 0)
        self._known: dict[str, int] = json.loads(cursor.get(KNOWN) or "{}")
        self._floor = cursor.get(FLOOR, "")
        self._unreadable: list[tuple[int, str]] = [(at_s, why) for at_s, why in json.loads(cursor.get(ASIDES) or "[]")]

    def statuses(self) -> list[SourceStatus]:
        """Its status: silent where S3 answers and nothing new is there."""
        (status,) = super().statuses()
        if status.status == "ok" and self._newest_s and time.time() - self._newest_s > SILENT_S:
            since = datetime.fromtimestamp(self._newest_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            why = f"no object was written since {since}; see whether the metric stream and its Firehose run"
            status = replace(status, status="silent", error=why, since_ms=self._newest_s * MS_PER_S)
        return [status]

    def poll(self) -> None:
        """Read everything that is new."""
        self._attempt("", self._read_new)

    def _read_new(self) -> str:
        """Everything that is new; what could not be read lately. What was kept is kept, also where a later object fails."""
        listed = [item for item in self._objects.list_after(self._floor) if item.size or not item.key.endswith("/")]
        new = sorted(filter(self._is_new, listed), key=lambda item: (item.modified_ms, item.key))
        for first in range(0, len(new), OBJECTS_AT_ONCE):
            if self._stopped.is_set():
                return ""
            self._read_objects(new[first : first + OBJECTS_AT_ONCE])
        self._floor = self._find_floor(listed)
        now_s = int(time.time())
        last = [why for at_s, why in self._unreadable if now_s - at_s < ASIDE_S]
        return (
            f"objects of the last day that cannot be read: {len(last):,}, of them the last: {last[-1]}" if last else ""
        )

    def _is_new(self, item: S3Object) -> bool:
        written_s = item.modified_ms // MS_PER_S
        return written_s >= max(self._begin_s, self._newest_s - KNOWN_S) and _digest(item) not in self._known

    def _read_objects(self, objects: Sequence[S3Object]) -> None:
        """Read these objects and have them kept together, with a cursor behind them. Raises LoadfactorError."""
        series: list[Any] = []
        unreadable: list[str] = []
        for item in objects:
            try:
                series += self._read(item)
            except SourceError as error:
                unreadable.append(str(error))
        now_s = int(time.time())
        newest_s = max(self._newest_s, *(item.modified_ms // MS_PER_S for item in objects))
        known = self._known | {_digest(item): item.modified_ms // MS_PER_S for item in objects}
        known = {digest: at_s for digest, at_s in known.items() if at_s >= newest_s - KNOWN_S}
        recent = [(at_s, why) for at_s, why in self._unreadable if now_s - at_s < ASIDE_S]
        recent += ((now_s, why) for why in unreadable)
        cursor = {
            BEGIN: str(self._begin_s),
            NEWEST: str(newest_s),
            KNOWN: json.dumps(known, separators=(",", ":")),
            FLOOR: self._floor,
            ASIDES: json.dumps(recent),
        }
        events = [[now_s * MS_PER_S, kind, found] for kind, found in ((SERIES, series), (ASIDE, unreadable)) if found]
        self._keep_events(events, cursor)
        self._newest_s, self._known, self._unreadable = newest_s, known, recent

    def _read(self, item: S3Object) -> list[Any]:
        """The series of an object. Raises SourceError where it is none of a metric stream, FetchError where it cannot be had."""
        name = self._objects.name(item.key)
        if item.size > LARGEST_FILE_BYTES:
            raise SourceError(f"{name}: {item.size:,} bytes; let Firehose write smaller files")
        with tempfile.TemporaryDirectory(prefix="loadfactor-stream-") as folder:
            path = Path(folder) / "object"
            if not self._objects.download(item.key, path):
                return []
            try:
                found = read_cloudwatch(Input(name, FileChunks(path)), lambda _what: None, self._job)
                return [[dict(labels), list(points)] for labels, points in found]
            except SourceError as error:
                raise SourceError(str(error).replace(str(path), name)) from None

    def _find_floor(self, listed: Sequence[S3Object]) -> str:
        """The key after which new ones are, where keys say when they were written and are in that order; else all are listed."""
        written = [found[1] for item in listed if (found := _WRITTEN.search(item.key))]
        if len(written) < len(listed) or written != sorted(written):
            return self._floor if not listed else ""
        old = self._newest_s - LATE_KEYS_S
        first = next((i for i, item in enumerate(listed) if item.modified_ms // MS_PER_S >= old), len(listed))
        return listed[first - 1].key if first else self._floor


def _digest(item: S3Object) -> str:
    return blake2b(f"{item.key}\0{item.etag}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
