"""Reading a metric stream from S3: each object once, in the order in which they were written, and on from where it stopped.

An object is known by its key and its content's tag, so one that is written again is read again. New is what was written since: S3
says when, so an object counts whose key is older than those of others. What cannot be read is set aside and said.
"""

import asyncio
import json
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import LoadfactorError, SourceError
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.listed_body import pack_listed
from loadfactor.collect.part_status import PartStatus
from loadfactor.collect.s3_objects import S3Object, S3Objects
from loadfactor.sources.base import Input
from loadfactor.sources.clouds.cloudwatch import ASIDE, LARGEST_FILE_BYTES, SERIES, read_cloudwatch
from loadfactor.sources.files import FileChunks
from loadfactor.store.source_status import SourceStatus

KNOWN_S: Final = S_PER_HOUR
"""Objects are known for so long after they were written; those that are older than that and than the newest were read."""
LATE_KEYS_S: Final = S_PER_DAY
"""So long Firehose may go on trying to deliver: keys up to so much older than the newest are listed again."""
ASIDE_S: Final = S_PER_DAY
"""For so long it is said that objects were set aside."""
SILENT_S: Final = 30 * S_PER_MIN
"""Where nothing was written for so long, the stream is called silent: Firehose writes every 15 minutes at least."""
OBJECTS_AT_ONCE: Final = 20
"""In a body."""
LONGEST_KEEP_S: Final = float(S_PER_MIN)
BEGIN, NEWEST, KNOWN, FLOOR, ASIDES = "begin", "newest", "known", "floor", "aside"
"""Marks: since when objects count (s), when the newest that was read was written (s), which of the last hour were read, after
which key new ones are, and what was set aside when."""
_DIGEST_BYTES: Final = 6
_WRITTEN: Final = re.compile(r"-(\d{4}(?:-\d\d){5})-[0-9a-f]{8}-")
"""In the name of every object that Firehose writes: an instant, and the beginning of a UUID."""

Take = Callable[[bytes], Coroutine[Any, Any, None]]
"""Given a body; done when it is durable."""


class MetricStreamWatch:
    """One metric stream, on a thread of its own."""

    def __init__(
        self,
        origin: str,
        objects: S3Objects,
        every_s: float,
        begin_s: int,
        marks: Mapping[str, str],
        take: Take,
        said: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        """`begin_s`: where it begins the first time. `marks`: where it goes on. `said`: how it fared in an earlier process."""
        self.origin = origin
        self._job = origin.partition(" ")[2]
        self._objects = objects
        self._every_s = every_s
        self._take = take
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        before = (said or {}).get(origin)
        self._said = PartStatus(over=before.failures if before else ())
        self._begin_s = int(marks.get(BEGIN) or begin_s)
        self._newest_s = int(marks.get(NEWEST) or 0)
        self._known: dict[str, int] = json.loads(marks.get(KNOWN) or "{}")
        self._floor = marks.get(FLOOR, "")
        self._aside: list[tuple[int, str]] = [(at_s, why) for at_s, why in json.loads(marks.get(ASIDES) or "[]")]

    async def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read until cancelled, on a thread that ends with the process at the latest."""
        self._loop = loop
        try:
            threading.Thread(target=self._repeat, name=self.origin, daemon=True).start()
            await asyncio.Event().wait()
        finally:
            self._stopped.set()

    def statuses(self) -> list[SourceStatus]:
        """How it fares: silent where S3 answers and nothing new is there."""
        said = self._said.describe(self.origin)
        if said.status == "ok" and self._newest_s and time.time() - self._newest_s > SILENT_S:
            since = datetime.fromtimestamp(self._newest_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            why = f"no object was written since {since}; see whether the metric stream and its Firehose run"
            said = replace(said, status="silent", error=why, since_ms=self._newest_s * MS_PER_S)
        return [said]

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._read_new()
                self._said = self._said.succeed(self._say_aside())
            except LoadfactorError as error:
                self._said = self._said.fail(str(error))
            except Exception as error:  # a defect of ours must not end the watch
                self._said = self._said.fail(f"{type(error).__name__}: {error}")
            pause_s = self._every_s * random.uniform(0.95, 1.05)
            self._stopped.wait(max(0.05, began + pause_s - time.monotonic()))

    def _say_aside(self) -> str:
        now_s = int(time.time())
        last = [why for at_s, why in self._aside if now_s - at_s < ASIDE_S]
        return (
            f"objects of the last day that cannot be read: {len(last):,}, of them the last: {last[-1]}" if last else ""
        )

    def _read_new(self) -> None:
        """Everything that is new. What was kept of it is kept, also where a later one fails."""
        listed = [one for one in self._objects.list_after(self._floor) if one.size or not one.key.endswith("/")]
        new = sorted(filter(self._is_new, listed), key=lambda one: (one.modified_ms, one.key))
        for first in range(0, len(new), OBJECTS_AT_ONCE):
            if self._stopped.is_set():
                return
            self._read_some(new[first : first + OBJECTS_AT_ONCE])
        self._floor = self._find_floor(listed)

    def _is_new(self, one: S3Object) -> bool:
        written_s = one.modified_ms // MS_PER_S
        return written_s >= max(self._begin_s, self._newest_s - KNOWN_S) and _digest(one) not in self._known

    def _read_some(self, some: Sequence[S3Object]) -> None:
        """Read these objects and have them kept together, with the marks that they were. Raises LoadfactorError."""
        series: list[Any] = []
        aside: list[str] = []
        for one in some:
            try:
                series += self._read(one)
            except SourceError as error:
                aside.append(str(error))
        now_s = int(time.time())
        newest_s = max(self._newest_s, *(one.modified_ms // MS_PER_S for one in some))
        known = self._known | {_digest(one): one.modified_ms // MS_PER_S for one in some}
        known = {digest: at_s for digest, at_s in known.items() if at_s >= newest_s - KNOWN_S}
        asides = [
            *((at_s, why) for at_s, why in self._aside if now_s - at_s < ASIDE_S),
            *((now_s, why) for why in aside),
        ]
        marks = {
            BEGIN: str(self._begin_s),
            NEWEST: str(newest_s),
            KNOWN: json.dumps(known, separators=(",", ":")),
            FLOOR: self._floor,
            ASIDES: json.dumps(asides),
        }
        events = [[now_s * MS_PER_S, kind, said] for kind, said in ((SERIES, series), (ASIDE, aside)) if said]
        self._keep(pack_listed(events, marks))
        self._newest_s, self._known, self._aside = newest_s, known, asides

    def _read(self, one: S3Object) -> list[Any]:
        """The series of an object. Raises SourceError where it is none of a metric stream, FetchError where it cannot be had."""
        name = self._objects.name(one.key)
        if one.size > LARGEST_FILE_BYTES:
            raise SourceError(f"{name}: {one.size:,} bytes; let Firehose write smaller files")
        with tempfile.TemporaryDirectory(prefix="loadfactor-stream-") as folder:
            path = Path(folder) / "object"
            if not self._objects.download(one.key, path):
                return []
            try:
                found = read_cloudwatch(Input(name, FileChunks(path)), lambda _what: None, self._job)
                return [[dict(labels), list(points)] for labels, points in found]
            except SourceError as error:
                raise SourceError(str(error).replace(str(path), name)) from None

    def _keep(self, body: bytes) -> None:
        """Returns when it is durable. Raises LoadfactorError where it cannot be kept: then it is read again."""
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(self._take(body), self._loop).result(LONGEST_KEEP_S)
        except TimeoutError as error:
            raise FetchError("what was read cannot be kept just now") from error

    def _find_floor(self, listed: Sequence[S3Object]) -> str:
        """The key after which new ones are, where keys say when they were written and are in that order; else all are listed."""
        written = [found[1] for one in listed if (found := _WRITTEN.search(one.key))]
        if len(written) < len(listed) or written != sorted(written):
            return self._floor if not listed else ""
        old = self._newest_s - LATE_KEYS_S
        first = next((i for i, one in enumerate(listed) if one.modified_ms // MS_PER_S >= old), len(listed))
        return listed[first - 1].key if first else self._floor


def _digest(one: S3Object) -> str:
    return blake2b(f"{one.key}\0{one.etag}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
