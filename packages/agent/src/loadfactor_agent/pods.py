"""Names of pods, from what a node has without asking anybody: the folders of their logs, and what their processes know."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOGS: Final = Path("/var/log/pods")
"""The kubelet makes a folder NAMESPACE_NAME_UID for each pod."""
_NAMESPACE: Final = Path("root/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMES, _NAMESPACES = ("POD_NAME", "MY_POD_NAME", "HOSTNAME"), ("POD_NAMESPACE", "MY_POD_NAMESPACE")


class PodNames:
    """Name and namespace of pods by their uid."""

    def __init__(self, logs: Path = LOGS) -> None:
        self._logs = logs
        self._known: dict[str, tuple[str, str]] = {}

    def find(self, uid: str, process: Path, environment: Mapping[str, str]) -> tuple[str, str]:
        """Name and namespace; the uid and nothing where nobody says them. `process` is its folder in /proc."""
        if uid not in self._known:
            self._list_logs()
        if uid in self._known:
            return self._known[uid]
        name = next((environment[n] for n in _NAMES if environment.get(n)), uid)
        namespace = next((environment[n] for n in _NAMESPACES if environment.get(n)), "")
        if not namespace:
            try:
                namespace = (process / _NAMESPACE).read_text().strip()
            except OSError:
                namespace = ""
        return name, namespace

    def _list_logs(self) -> None:
        try:
            folders = [entry.name for entry in self._logs.iterdir()]
        except OSError:
            return
        self._known = {
            uid: (pod, namespace) for namespace, pod, uid in (f.split("_") for f in folders if f.count("_") == 2)
        }
