"""Sources that are polled on threads of their own: what is new is kept, and the status of each question noted.

A question that is not permitted is noted with what would allow it, tried again seldom, and hinders no other.
"""

import asyncio
import json
import random
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.units import S_PER_MIN
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.payloads import pack_events
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES, SEEN
from loadfactor.store.source_status import MOST_FAILURES, Failure, SourceStatus

REFUSED_EVERY_S: Final = 10.0 * S_PER_MIN
"""A question that is not permitted is tried again so seldom: somebody may allow it."""
LONGEST_KEEP_S: Final = float(S_PER_MIN)
LONGEST_END_S: Final = 10.0
"""So long a poll that is under way is waited for when its source ends."""

Keep = Callable[[bytes], Coroutine[Any, Any, None]]
"""Given a payload; done when it is durable."""
Item = dict[str, Any]


class NotPermittedError(FetchError):
    """The question is not permitted; the message says what would allow it."""


@dataclass(frozen=True)
class PartStatus:
    """How one question goes: ok, waiting, degraded (a part of the answer is not understood), failing, or absent (not permitted)."""

    status: str = "waiting"
    error: str = ""
    since_ms: int | None = None  # of the error
    last_ms: int | None = None  # when it was answered last
    failures: tuple[Failure, ...] = ()  # that are over

    def succeed(self, unread: str = "", last_ms: int | None = None) -> "PartStatus":
        """It was answered; `unread`: what of the answer is not understood, or lacks. `last_ms`: in place of now."""
        at_ms = now_ms()
        failures = self.failures
        if self.status == "failing" and self.since_ms is not None:
            over = Failure(min(self.since_ms, at_ms), at_ms, self.error)  # the clock may have been set back
            failures = (*failures, over)[-MOST_FAILURES:]
        since_ms = (self.since_ms if self.status == "degraded" else at_ms) if unread else None
        return PartStatus("degraded" if unread else "ok", unread, since_ms, last_ms or at_ms, failures)

    def fail(self, error: str, status: str = "failing", at_ms: int | None = None) -> "PartStatus":
        """The status after a question failed. `at_ms`: when it was sent."""
        since_ms = self.since_ms if self.status == status else None
        return replace(self, status=status, error=error, since_ms=since_ms or at_ms or now_ms())

    def describe(self, name: str) -> SourceStatus:
        """For /health and doctor; `name`: what the question is called."""
        return SourceStatus(name, self.status, self.last_ms, self.error or None, self.since_ms, self.failures)


class PolledSource(ABC):
    """A source with one or more questions, its parts. Its clients wait, so they run on threads, not on the event loop."""

    def __init__(
        self,
        stream_id: str,
        parts: Sequence[str],
        every_s: float,
        keep: Keep | None,
        before: Mapping[str, SourceStatus] | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        """`before`: statuses of an earlier process. `stopped`: set when the source ends; clients may look at it."""
        self.stream_id = stream_id
        self._every_s = every_s
        self._keep = keep
        self._stopped = stopped or threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._names = {part: f"{stream_id}: {part}" if part else stream_id for part in parts}
        known = {part: (before or {}).get(name) for part, name in self._names.items()}
        self._status = {part: PartStatus(failures=was.failures if was else ()) for part, was in known.items()}

    @abstractmethod
    def poll(self) -> None:
        """Ask every question once. What it raises is a defect, noted for the first part."""

    async def run(self) -> None:
        """Poll until cancelled, on threads that end with the process at the latest."""
        self._loop = asyncio.get_running_loop()
        try:
            self._start()
            await asyncio.Event().wait()
        finally:
            self._stopped.set()
            self._cut()
            if self._thread is not None:  # Python's end would unwind what a thread calls, and abort the process
                await asyncio.to_thread(self._thread.join, LONGEST_END_S)

    def statuses(self) -> list[SourceStatus]:
        """How each question goes."""
        return [status.describe(self._names[part]) for part, status in self._status.items()]

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._repeat, name=self.stream_id, daemon=True)
        self._thread.start()

    def _cut(self) -> None:  # noqa: B027 (most clients look at the event instead)
        """End what a thread waits for."""

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.poll()
            except Exception as error:  # a defect of ours must not end the source
                self._fail(next(iter(self._names)), error)
            pause_s = self._every_s * random.uniform(0.95, 1.05)
            self._stopped.wait(max(0.05, began + pause_s - time.monotonic()))

    def _attempt(self, part: str, ask: Callable[[], str]) -> bool:
        """Ask, and note how it went; `ask` gives what of the answer is not understood. One question hinders no other."""
        try:
            unread = ask()
        except Exception as error:  # also a defect of ours
            self._fail(part, error)
            return False
        self._status[part] = self._status[part].succeed(unread)
        return True

    def _fail(self, part: str, error: Exception) -> None:
        status = "absent" if isinstance(error, NotPermittedError) else "failing"
        self._status[part] = self._status[part].fail(DEFECTS.explain(self._names[part], error), status)

    def _keep_events(self, events: Sequence[Any], cursor: Mapping[str, str] | None = None) -> None:
        """Return when they are durable. Raises LoadfactorError where they cannot be kept: then they are requested again."""
        assert self._loop is not None
        assert self._keep is not None
        kept = asyncio.run_coroutine_threadsafe(self._keep(pack_events(events, cursor)), self._loop)
        try:
            kept.result(LONGEST_KEEP_S)
        except TimeoutError as error:
            raise FetchError("what it said cannot be kept just now") from error


class CloudInstances(Protocol):
    """An account or a project, and the questions about its instances."""

    @property
    def parts(self) -> Sequence[str]:
        """The questions, that for instances first."""

    def ask(self, part: str) -> Mapping[str, Sequence[Item]]:
        """Everything there is now, by kind of event. It waits. Raises FetchError in the cloud's words, NotPermittedError."""

    def name(self, instance: Item) -> str:
        """Key of an instance."""


class InstanceWatch(PolledSource):
    """The instances of one account or project. Only what is new is kept; an instance ends where a whole answer lacks it."""

    def __init__(
        self,
        stream_id: str,
        cloud: CloudInstances,
        every_s: float,
        keep: Keep,
        before: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        super().__init__(stream_id, cloud.parts, every_s, keep, before)
        self._cloud = cloud
        self._refused_s: dict[str, float] = {}
        self._present: set[str] = set()
        self._known: dict[str, set[int]] = {}
        """By kind: checksums of the last answer."""

    def poll(self) -> None:
        """Ask every question that is permitted, and now and then the others."""
        began = time.monotonic()
        for part in self._cloud.parts:
            if self._stopped.is_set() or began - self._refused_s.get(part, -REFUSED_EVERY_S) < REFUSED_EVERY_S:
                continue
            if self._attempt(part, lambda part=part: self._keep_new(self._cloud.ask(part))):  # type: ignore[misc]
                self._refused_s.pop(part, None)
            elif self._status[part].status == "absent":
                self._refused_s[part] = time.monotonic()

    def _keep_new(self, answer: Mapping[str, Sequence[Item]]) -> str:
        at_ms = now_ms()
        checks = {
            kind: [zlib.crc32(json.dumps(item, sort_keys=True).encode()) for item in items]
            for kind, items in answer.items()
        }
        events: list[list[Any]] = []
        for kind, items in answer.items():
            known = self._known.get(kind, ())
            if new := [item for item, check in zip(items, checks[kind], strict=True) if check not in known]:
                events.append([at_ms, kind, new])
        present = self._present
        if INSTANCES in answer:
            present = {self._cloud.name(item) for item in answer[INSTANCES]}
            is_same = present == self._present and INSTANCES in self._known
            events.append([at_ms, SEEN, None] if is_same else [at_ms, ALL, sorted(present)])
        if events:
            self._keep_events(events)
        self._present = present
        self._known |= {kind: set(found) for kind, found in checks.items()}
        return ""
