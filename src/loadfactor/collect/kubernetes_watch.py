"""Watching a cluster: each kind is listed, then watched from where the list ended, and listed again where that is too long ago."""

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import S_PER_MIN
from loadfactor.collect.kubernetes_api import (
    FORBIDDEN,
    GONE,
    NOT_FOUND,
    PODS,
    RESOURCES,
    KubernetesApi,
    KubernetesError,
    Resource,
)
from loadfactor.collect.polling import Keep, PartStatus, PolledSource
from loadfactor.settings.sources import KubernetesCluster
from loadfactor.sources.kubernetes.claims import read_listed
from loadfactor.sources.kubernetes.decoder import NODE, POD, SLICE, WORKLOAD
from loadfactor.sources.kubernetes.fields import part, parts, prune, text
from loadfactor.sources.kubernetes.live_decoder import ALIVE, DELETED, LISTED, LISTING
from loadfactor.sources.kubernetes.nodes import read_node
from loadfactor.sources.kubernetes.pods import read_pod, read_workload
from loadfactor.store.source_status import SourceStatus

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = float(S_PER_MIN)
ABSENT_PAUSE_S: Final = 10.0 * S_PER_MIN
"""Kinds that the API does not have are looked for again so seldom: they may be installed."""
EXPLAINED_S: Final = 30.0
"""Pods wait so long for what explains them to be listed first."""
ALIVE_EVERY_S: Final = 10.0
"""Where nothing changes, that is kept so often: what vanishes meanwhile ends then."""
KeepEvents = Callable[[list[Any], Mapping[str, str]], None]
"""Given events and a cursor; returns when they are durable. Raises LoadfactorError where they cannot be kept now."""
LONGEST_CHAIN: Final = 6
ASK_AGAIN_S: Final = 10.0 * S_PER_MIN
"""A kind whose owners could not be fetched is left alone for so long."""
MOST_KNOWN: Final = 100_000


class KindWatch:
    """One kind of object of one cluster, on a thread of its own."""

    def __init__(
        self,
        name: str,
        resource: Resource,
        cursor: Mapping[str, str],
        keep: KeepEvents,
        stopped: threading.Event,
        status: PartStatus | None = None,
    ) -> None:
        """`name`: of its status. `cursor`: where it goes on; what `keep` was given is behind it."""
        self.name = name
        self.resource = resource
        self.was_listed = threading.Event()
        """It was listed, or could not be."""
        self._status = status or PartStatus()
        self._cursor = cursor
        self._keep_events = keep
        self._stopped = stopped
        self._seen: dict[str, int] = {}
        self._owners: OwnerSearch | None = None
        self._answer: Any = None
        self._kept_s = 0.0

    def run(self, open_api: Callable[[], KubernetesApi]) -> None:
        """Watch until it is stopped. An API that fails is tried again later, and later still while it goes on failing."""
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
                pause_s = self._fail(KubernetesError(DEFECTS.explain(self.name, error)), pause_s)
            if self._status.error:
                self.was_listed.set()
                self._stopped.wait(pause_s * random.uniform(0.8, 1.2))

    def stop(self) -> None:
        """Cut the watch that is under way."""
        with suppress(Exception):
            self._answer.shutdown()

    def status(self) -> SourceStatus:
        """For /health and doctor."""
        return self._status.describe(self.name)

    def _follow(self, api: KubernetesApi) -> None:
        """List where there is nothing to go on from, then watch until the server ends it. Raises KubernetesError."""
        if not self._cursor.get(self.resource.plural):
            self._list(api)
        version = self._cursor[self.resource.plural]
        try:
            for events in api.watch(self.resource, version, self._know_answer):
                self._feed(events)
            self._keep([[now_ms(), self.resource.kind, ALIVE, None]], {})
            self._status = self._status.succeed()
        except KubernetesError as error:
            if error.status != GONE:
                raise
            self._keep([], {self.resource.plural: ""})  # what happened since is known from a list alone

    def _list(self, api: KubernetesApi) -> None:
        """All objects, page by page; a list that became too old on the way is begun again."""
        kind, plural = self.resource.kind, self.resource.plural
        self._seen.clear()
        self._keep([[now_ms(), kind, LISTING, None]], {plural: ""})
        go_on, retried = "", False
        while not self._stopped.is_set():
            try:
                page = api.list_page(self.resource, go_on)
            except KubernetesError as error:
                if error.status != GONE or retried or not go_on:
                    raise
                go_on, retried = "", True
                self._seen.clear()
                self._keep([[now_ms(), kind, LISTING, None]], {})
                continue
            items = page.get("items")
            found = [("ADDED", item) for item in (items if isinstance(items, list) else ()) if isinstance(item, dict)]
            self._keep(list(self._make_events(found)), {})
            go_on = text(part(page, "metadata"), "continue")
            if not go_on:
                version = text(part(page, "metadata"), "resourceVersion") or "0"
                self._keep([[now_ms(), kind, LISTED, None]], {plural: version})
                self.was_listed.set()
                self._status = self._status.succeed()
                return

    def _feed(self, events: Iterable[dict[str, Any]]) -> None:
        found, version = [], ""
        for event in events:
            item, what = event.get("object"), event.get("type")
            if what == "ERROR":
                status = part(item).get("code")
                raise KubernetesError(
                    f"a watch ended: {text(item, 'message')[:200]}", status if isinstance(status, int) else 0
                )
            if not isinstance(item, dict):
                continue
            version = text(part(item, "metadata"), "resourceVersion") or version
            if what in ("ADDED", "MODIFIED", DELETED):
                found.append((str(what), item))
        kept = list(self._make_events(found))
        if kept or time.monotonic() - self._kept_s > ALIVE_EVERY_S:
            alive = [now_ms(), self.resource.kind, ALIVE, None]
            self._keep(kept or [alive], {self.resource.plural: version} if version else {})
        self._status = self._status.succeed()

    def _make_events(self, found: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[list[Any]]:
        """Events as the decoder takes them: pruned, without what has nothing to do with GPUs, or says nothing new."""
        kind = self.resource.kind
        for what, item in found:
            pruned = prune(kind, item)
            if not _concerns_gpus(kind, pruned):
                continue
            name = text(item["metadata"], "uid") or text(item["metadata"], "name")
            check = zlib.crc32(repr(pruned).encode(errors="replace"))
            if what == DELETED:
                self._seen.pop(name, None)
            elif self._seen.get(name) == check:
                continue
            else:
                self._seen[name] = check
            if self._owners is not None and what != DELETED:
                yield from ([now_ms(), of["kind"], "ADDED", of] for of in self._owners.find(item))
            yield [now_ms(), kind, what, pruned]

    def _keep(self, events: list[Any], cursor: Mapping[str, str]) -> None:
        """Returns when they are kept: what comes next may not overtake them."""
        while not self._stopped.is_set():
            try:
                self._keep_events(events, cursor)
                self._kept_s = time.monotonic()
                return
            except LoadfactorError as error:
                self._status = self._status.fail(str(error))
                self._stopped.wait(FIRST_PAUSE_S)
        raise KubernetesError("stopped")

    def _know_answer(self, answer: Any) -> None:
        self._answer = answer
        self.was_listed.set()
        self._status = self._status.succeed()

    def _fail(self, error: KubernetesError, pause_s: float) -> float:
        """Note what went wrong; for how long it is left alone the next time."""
        needs, status, message = self.resource.needs, "failing", str(error)
        if error.status == NOT_FOUND and needs:
            status, message = "absent", f"the cluster has no {self.resource.plural}: {needs} is not installed"
        elif error.status == FORBIDDEN:
            message = (
                f"may not list and watch {self.resource.plural} ({error}); docs/connect-kubernetes.md has the role"
            )
        self._status = self._status.fail(message, status)
        return ABSENT_PAUSE_S if status == "absent" else min(LONGEST_PAUSE_S, 2 * pause_s)


class ClusterWatch(PolledSource):
    """All kinds of one cluster, each on a thread of its own; a kind is watched rather than polled on a schedule."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        cursor: Mapping[str, str],
        keep: Keep,
        before: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        super().__init__(cluster.stream_id, [resource.plural for resource in RESOURCES], 0.0, keep, before)
        self._cluster = cluster
        self._opening = threading.Lock()
        self._api: KubernetesApi | None = None
        self._kinds = [
            KindWatch(name, resource, cursor, self._keep_events, self._stopped, self._status[resource.plural])
            for name, resource in zip(self._names.values(), RESOURCES, strict=True)
        ]

    def poll(self) -> None:
        """Nothing: every kind is watched by a thread that `_start` begins."""

    def statuses(self) -> list[SourceStatus]:
        """How each kind goes."""
        return [kind.status() for kind in self._kinds]

    def _start(self) -> None:
        for kind in self._kinds:
            threading.Thread(target=self._run, args=(kind,), name=kind.name, daemon=True).start()

    def _cut(self) -> None:
        for kind in self._kinds:
            kind.stop()

    def _run(self, kind: KindWatch) -> None:
        if kind.resource == PODS:
            for other in self._kinds:
                if other is not kind:
                    other.was_listed.wait(EXPLAINED_S)
        kind.run(self._open)

    def _open(self) -> KubernetesApi:
        with self._opening:
            if self._api is None:
                self._api = KubernetesApi(self._cluster)
            return self._api


class OwnerSearch:
    """Owners of pods, each fetched once. What cannot be fetched is left out: labels of pods say some of it."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._known: set[str] = set()
        self._refused_s: dict[str, float] = {}
        """Kinds that could not be fetched, and when."""

    def find(self, pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The owners of a pod that are not known yet, pruned, nearest first."""
        found: Mapping[str, Any] = pod
        namespace = text(part(pod, "metadata"), "namespace")
        for _ in range(LONGEST_CHAIN):
            owners = [o for o in parts(part(found, "metadata"), "ownerReferences") if text(o, "uid")]
            owner = next((o for o in owners if o.get("controller") is True), owners[0] if owners else None)
            if owner is None or text(owner, "uid") in self._known:
                return
            fetched = self._fetch(owner, namespace)
            if fetched is None:
                return
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            self._known.add(text(owner, "uid"))
            yield prune(text(owner, "kind"), fetched)
            found = fetched

    def _fetch(self, owner: Mapping[str, Any], namespace: str) -> dict[str, Any] | None:
        api_version, kind = text(owner, "apiVersion"), text(owner, "kind")
        key = f"{api_version} {kind}"
        if "/" not in api_version or time.monotonic() - self._refused_s.get(key, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return None  # of the core group only nodes and old controllers own pods
        try:
            return self._api.get_owner(api_version, kind, namespace, text(owner, "name"))
        except KubernetesError as error:
            if error.status:
                self._refused_s[key] = time.monotonic()
            return None


def _concerns_gpus(kind: str, pruned: dict[str, Any]) -> bool:
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
