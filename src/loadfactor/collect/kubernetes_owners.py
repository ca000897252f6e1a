"""Asking for the owners of pods, each once, up to the topmost one."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.collect.kubernetes_api import KubernetesApi, KubernetesError
from loadfactor.sources.kubernetes.fields import part, parts, prune, text

LONGEST_CHAIN: Final = 6
ASK_AGAIN_S: Final = 10.0 * S_PER_MIN
"""A kind that may not be asked for is left alone for so long."""
MOST_KNOWN: Final = 100_000


class OwnerSearch:
    """Owners that were asked for. What cannot be asked is left out: labels of pods say some of it."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._known: set[str] = set()
        self._refused_s: dict[str, float] = {}
        """Kinds that could not be asked for, and when."""

    def find(self, pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The owners of a pod that are not known yet, pruned, nearest first."""
        found: Mapping[str, Any] = pod
        namespace = text(part(pod, "metadata"), "namespace")
        for _ in range(LONGEST_CHAIN):
            owners = [o for o in parts(part(found, "metadata"), "ownerReferences") if text(o, "uid")]
            owner = next((o for o in owners if o.get("controller") is True), owners[0] if owners else None)
            if owner is None or text(owner, "uid") in self._known:
                return
            asked = self._ask(owner, namespace)
            if asked is None:
                return
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            self._known.add(text(owner, "uid"))
            yield prune(text(owner, "kind"), asked)
            found = asked

    def _ask(self, owner: Mapping[str, Any], namespace: str) -> dict[str, Any] | None:
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
