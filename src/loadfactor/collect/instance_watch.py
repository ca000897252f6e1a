"""Asking a cloud for its instances again and again: each question on its own, and only what is new is kept.

A question that may not be asked is said with what would allow it, asked again seldom, and hinders no other. Whoever says nothing
ends no instance.
"""

import asyncio
import json
import random
import threading
import time
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.listed_body import pack_listed
from loadfactor.collect.part_status import PartStatus
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES, SEEN
from loadfactor.store.source_status import SourceStatus

REFUSED_EVERY_S: Final = 10.0 * S_PER_MIN
"""A question that may not be asked is asked again so seldom: somebody may allow it."""
LONGEST_KEEP_S: Final = float(S_PER_MIN)

Take = Callable[[bytes], Coroutine[Any, Any, None]]
"""Given a body; done when it is durable."""
Said = dict[str, Any]
Asked = Mapping[str, Sequence[Said]]
"""What was answered, by kind of event."""


class NotPermittedError(FetchError):
    """Who asks may not; the message says what would allow it."""


class CloudInstances(Protocol):
    """An account or a project, and what it is asked of instances."""

    @property
    def parts(self) -> Sequence[str]:
        """The questions, that for instances first."""

    def ask(self, part: str) -> Asked:
        """Everything that there is to say now. It waits. Raises FetchError in the cloud's words, NotPermittedError."""

    def name(self, instance: Said) -> str:
        """What tells an instance from others."""


class InstanceWatch:
    """One account or project, on a thread of its own."""

    def __init__(
        self,
        origin: str,
        cloud: CloudInstances,
        every_s: float,
        take: Take,
        said: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        """`said`: how it fared in an earlier process."""
        self.origin = origin
        self._cloud = cloud
        self._every_s = every_s
        self._take = take
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._names = {part: f"{origin}: {part}" for part in cloud.parts}
        before = {part: (said or {}).get(name) for part, name in self._names.items()}
        self._said = {part: PartStatus(over=was.failures if was else ()) for part, was in before.items()}
        self._refused_s: dict[str, float] = {}
        self._there: set[str] = set()
        self._known: dict[str, set[int]] = {}
        """By kind: checksums of what was said last."""

    async def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask until cancelled, on a thread that ends with the process at the latest: clients wait in it."""
        self._loop = loop
        try:
            threading.Thread(target=self._repeat, name=self.origin, daemon=True).start()
            await asyncio.Event().wait()
        finally:
            self._stopped.set()

    def statuses(self) -> list[SourceStatus]:
        """How each question fares."""
        return [said.describe(self._names[part]) for part, said in self._said.items()]

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            for part in self._cloud.parts:
                if (
                    not self._stopped.is_set()
                    and began - self._refused_s.get(part, -REFUSED_EVERY_S) >= REFUSED_EVERY_S
                ):
                    self._ask(part)
            pause_s = self._every_s * random.uniform(0.95, 1.05)
            self._stopped.wait(max(0.05, began + pause_s - time.monotonic()))

    def _ask(self, part: str) -> None:
        """Ask, and keep what is new; say how it went."""
        try:
            self._keep(self._cloud.ask(part))
        except NotPermittedError as error:
            self._refused_s[part] = time.monotonic()
            self._said[part] = self._said[part].fail(str(error), "absent")
        except LoadfactorError as error:
            self._said[part] = self._said[part].fail(str(error))
        except Exception as error:  # a defect of ours must not hinder the others
            self._said[part] = self._said[part].fail(f"{type(error).__name__}: {error}")
        else:
            self._refused_s.pop(part, None)
            self._said[part] = self._said[part].succeed()

    def _keep(self, asked: Asked) -> None:
        """Keep what is new. Raises FetchError where it cannot be kept: then it is new the next time, too."""
        assert self._loop is not None
        now_ms = int(time.time() * MS_PER_S)
        checks = {kind: [_check(one) for one in some] for kind, some in asked.items()}
        events: list[list[Any]] = []
        for kind, some in asked.items():
            known = self._known.get(kind, ())
            if new := [one for one, check in zip(some, checks[kind], strict=True) if check not in known]:
                events.append([now_ms, kind, new])
        there = self._there
        if INSTANCES in asked:
            there = {self._cloud.name(one) for one in asked[INSTANCES]}
            is_same = there == self._there and INSTANCES in self._known
            events.append([now_ms, SEEN, None] if is_same else [now_ms, ALL, sorted(there)])
        if events:
            kept = asyncio.run_coroutine_threadsafe(self._take(pack_listed(events, {})), self._loop)
            try:
                kept.result(LONGEST_KEEP_S)
            except TimeoutError as error:
                raise FetchError("what it said cannot be kept just now") from error
        self._there = there
        self._known |= {kind: set(found) for kind, found in checks.items()}


def _check(said: Said) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())
