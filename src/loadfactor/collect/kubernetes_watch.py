"""Watching a cluster: each kind is listed, then watched from where the list ended, and listed again where that is too long ago."""

import asyncio
import random
import threading
import time
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.collect.kubernetes_api import (
    FORBIDDEN,
    GONE,
    NOT_FOUND,
    PODS,
    RESOURCES,
    ClusterAccess,
    KubernetesApi,
    KubernetesError,
    Resource,
)
from loadfactor.collect.kubernetes_owners import OwnerSearch
from loadfactor.collect.listed_body import pack_listed
from loadfactor.sources.kubernetes.claims import read_listed
from loadfactor.sources.kubernetes.decoder import NODE, POD, SLICE, WORKLOAD
from loadfactor.sources.kubernetes.fields import part, prune, text
from loadfactor.sources.kubernetes.live_decoder import ALIVE, DELETED, LISTED, LISTING
from loadfactor.sources.kubernetes.nodes import read_node
from loadfactor.sources.kubernetes.pods import read_pod, read_workload
from loadfactor.store.source_status import MOST_FAILURES, Failure, SourceStatus

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = float(S_PER_MIN)
ABSENT_PAUSE_S: Final = 10.0 * S_PER_MIN
"""What the API does not have is looked for again so seldom: it may be installed."""
EXPLAINED_S: Final = 30.0
"""Pods wait so long for what explains them to be listed first."""
ALIVE_EVERY_S: Final = 10.0
"""Where nothing new is said, that is kept so often: what vanishes meanwhile ends then."""

LONGEST_KEEP_S: Final = float(S_PER_MIN)

Take = Callable[[bytes], Coroutine[Any, Any, None]]
"""Given a body; done when it is durable."""
Keep = Callable[[list[Any], Mapping[str, str]], None]
"""Given events and marks; returns when they are durable. Raises LoadfactorError where they cannot be kept now."""


@dataclass(frozen=True)
class KindStatus:
    """How the watch of one kind fares: waiting, ok, failing or absent (the API does not have it)."""

    status: str = "waiting"
    error: str = ""
    since_ms: int | None = None  # of the error
    last_ms: int | None = None  # when it was heard of last
    over: tuple[Failure, ...] = ()


class KindWatch:
    """One kind of object of one cluster, on a thread of its own."""

    def __init__(
        self, name: str, resource: Resource, marks: Mapping[str, str], keep: Keep, stopped: threading.Event
    ) -> None:
        """`name`: what its status is called. `marks`: where it goes on; what `keep` was given is behind them."""
        self.name = name
        self.resource = resource
        self.was_listed = threading.Event()
        """It was listed, or could not be."""
        self.said = KindStatus()
        self._marks = marks
        self._keep_events = keep
        self._stopped = stopped
        self._seen: dict[str, int] = {}
        self._owners: OwnerSearch | None = None
        self._answer: Any = None
        self._kept_s = 0.0

    def run(self, open_api: Callable[[], KubernetesApi]) -> None:
        """Watch until it is stopped. An API that fails is asked again later, and later still while it goes on failing."""
        pause_s = FIRST_PAUSE_S
        while not self._stopped.is_set():
            try:
                api = open_api()
                if self.resource == PODS and self._owners is None:
                    self._owners = OwnerSearch(api)
                self._follow(api)
                pause_s = FIRST_PAUSE_S
            except KubernetesError as error:
                pause_s = self._fail(error, pause_s)
            except Exception as error:  # a defect of ours must not end the watch
                pause_s = self._fail(KubernetesError(f"{type(error).__name__}: {error}"), pause_s)
            if self.said.error:
                self.was_listed.set()
                self._stopped.wait(pause_s * random.uniform(0.8, 1.2))

    def stop(self) -> None:
        """Cut the watch that is under way."""
        with suppress(Exception):
            self._answer.shutdown()

    def status(self) -> SourceStatus:
        """For /health and doctor."""
        said = self.said
        return SourceStatus(self.name, said.status, said.last_ms, said.error or None, said.since_ms, said.over)

    def _follow(self, api: KubernetesApi) -> None:
        """List where there is no mark to go on from, then watch until the server ends it. Raises KubernetesError."""
        if not self._marks.get(self.resource.plural):
            self._list(api)
        version = self._marks[self.resource.plural]
        try:
            for events in api.watch(self.resource, version, self._know_answer):
                self._take(events)
            self._keep([[_now_ms(), self.resource.kind, ALIVE, None]], {})
            self._succeed()
        except KubernetesError as error:
            if error.status != GONE:
                raise
            self._keep([], {self.resource.plural: ""})  # what happened since is known from a list alone

    def _list(self, api: KubernetesApi) -> None:
        """All objects, page by page; a list that became too old on the way is begun again."""
        kind, plural = self.resource.kind, self.resource.plural
        self._seen.clear()
        self._keep([[_now_ms(), kind, LISTING, None]], {plural: ""})
        go_on, retried = "", False
        while not self._stopped.is_set():
            try:
                page = api.list_page(self.resource, go_on)
            except KubernetesError as error:
                if error.status != GONE or retried or not go_on:
                    raise
                go_on, retried = "", True
                self._seen.clear()
                self._keep([[_now_ms(), kind, LISTING, None]], {})
                continue
            items = page.get("items")
            found = [("ADDED", one) for one in (items if isinstance(items, list) else ()) if isinstance(one, dict)]
            self._keep(list(self._make_events(found)), {})
            go_on = text(part(page, "metadata"), "continue")
            if not go_on:
                version = text(part(page, "metadata"), "resourceVersion") or "0"
                self._keep([[_now_ms(), kind, LISTED, None]], {plural: version})
                self.was_listed.set()
                self._succeed()
                return

    def _take(self, events: Iterable[dict[str, Any]]) -> None:
        """Events of a watch. Raises KubernetesError where one is an error."""
        found, version = [], ""
        for event in events:
            one, what = event.get("object"), event.get("type")
            if what == "ERROR":
                status = part(one).get("code")
                raise KubernetesError(
                    f"a watch ended: {text(one, 'message')[:200]}", status if isinstance(status, int) else 0
                )
            if not isinstance(one, dict):
                continue
            version = text(part(one, "metadata"), "resourceVersion") or version
            if what in ("ADDED", "MODIFIED", DELETED):
                found.append((str(what), one))
        kept = list(self._make_events(found))
        if kept or time.monotonic() - self._kept_s > ALIVE_EVERY_S:
            alive = [_now_ms(), self.resource.kind, ALIVE, None]
            self._keep(kept or [alive], {self.resource.plural: version} if version else {})
        self._succeed()

    def _make_events(self, found: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[list[Any]]:
        """Events as the decoder takes them: pruned, without what has nothing to do with GPUs, or says nothing new."""
        kind = self.resource.kind
        for what, one in found:
            pruned = prune(kind, one)
            if not _concerns_gpus(kind, pruned):
                continue
            name = text(one["metadata"], "uid") or text(one["metadata"], "name")
            check = zlib.crc32(repr(pruned).encode(errors="replace"))
            if what == DELETED:
                self._seen.pop(name, None)
            elif self._seen.get(name) == check:
                continue
            else:
                self._seen[name] = check
            if self._owners is not None and what != DELETED:
                yield from ([_now_ms(), of["kind"], "ADDED", of] for of in self._owners.find(one))
            yield [_now_ms(), kind, what, pruned]

    def _keep(self, events: list[Any], marks: Mapping[str, str]) -> None:
        """Returns when they are kept: what comes next may not overtake them."""
        while not self._stopped.is_set():
            try:
                self._keep_events(events, marks)
                self._kept_s = time.monotonic()
                return
            except LoadfactorError as error:
                self.said = replace(
                    self.said, status="failing", error=str(error), since_ms=self.said.since_ms or _now_ms()
                )
                self._stopped.wait(FIRST_PAUSE_S)
        raise KubernetesError("stopped")

    def _know_answer(self, answer: Any) -> None:
        self._answer = answer
        self.was_listed.set()
        self._succeed()

    def _succeed(self) -> None:
        was = self.said
        over = was.over
        if was.error and was.since_ms is not None and was.status == "failing":
            over = (*over, Failure(was.since_ms, _now_ms(), was.error))[-MOST_FAILURES:]
        self.said = KindStatus("ok", last_ms=_now_ms(), over=over)

    def _fail(self, error: KubernetesError, pause_s: float) -> float:
        """Say what went wrong; for how long it is left alone the next time."""
        needs, status, said = self.resource.needs, "failing", str(error)
        if error.status == NOT_FOUND and needs:
            status, said = "absent", f"the cluster has no {self.resource.plural}: {needs} is not installed"
        elif error.status == FORBIDDEN:
            said = f"may not list and watch {self.resource.plural} ({error}); docs/connect-kubernetes.md has the role"
        since_ms = self.said.since_ms if self.said.error else None
        self.said = replace(self.said, status=status, error=said, since_ms=since_ms or _now_ms())
        return ABSENT_PAUSE_S if status == "absent" else min(LONGEST_PAUSE_S, 2 * pause_s)


class ClusterWatch:
    """All kinds of one cluster."""

    def __init__(self, access: ClusterAccess, marks: Mapping[str, str], take: Take) -> None:
        """`marks`: where it goes on; what `take` was given is behind them."""
        self.access = access
        self._take = take
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._opening = threading.Lock()
        self._api: KubernetesApi | None = None
        self.kinds = [
            KindWatch(f"{access.origin}: {one.plural}", one, marks, self._keep, self._stopped) for one in RESOURCES
        ]

    async def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch until cancelled, on threads that end with the process at the latest: the client waits in them."""
        self._loop = loop
        try:
            for kind in self.kinds:
                threading.Thread(target=self._run, args=(kind,), name=kind.name, daemon=True).start()
            await asyncio.Event().wait()
        finally:
            self._stopped.set()
            for kind in self.kinds:
                kind.stop()

    def _keep(self, events: list[Any], marks: Mapping[str, str]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._take(pack_listed(events, marks)), self._loop).result(LONGEST_KEEP_S)

    def statuses(self) -> list[SourceStatus]:
        """How each kind fares."""
        return [kind.status() for kind in self.kinds]

    def _run(self, kind: KindWatch) -> None:
        if kind.resource == PODS:
            for other in self.kinds:
                if other is not kind:
                    other.was_listed.wait(EXPLAINED_S)
        kind.run(self._open)

    def _open(self) -> KubernetesApi:
        with self._opening:
            if self._api is None:
                self._api = KubernetesApi(self.access)
            return self._api


def _concerns_gpus(kind: str, pruned: dict[str, Any]) -> bool:
    """Whether an object can make a row, or explain one."""
    if kind == POD:
        return read_pod(pruned) is not None
    if kind == WORKLOAD:
        return read_workload(pruned) is not None
    if kind == SLICE:
        return read_listed(pruned) is not None  # of a driver of GPUs, even where none is left
    if kind == NODE:
        node = read_node(pruned)
        return node is not None and node.has_gpus
    return True


def _now_ms() -> int:
    return int(time.time() * MS_PER_S)
