"""Outages of nodes: not ready, or cordoned; each from when it began until it was over, told when either is known."""

from collections.abc import Iterator
from typing import Any, Final

from loadfactor.sources.kubernetes.nodes import NodeFacts

Row = dict[str, Any]

NOT_READY: Final = "not ready"
CORDONED: Final = "cordoned"


class NodeOutages:
    """What is out of use by now, and the rows of what began or ended."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, str]] = {}
        """Since when, and why, by the node's name and what is wrong with it."""
        self._rows: list[Row] = []

    def see(self, node: NodeFacts, at_ms: int | None) -> None:
        """A node as it is now."""
        if not node.has_gpus:
            return
        for what, found in ((NOT_READY, node.not_ready), (CORDONED, node.cordoned)):
            key = f"{node.name}\n{what}"
            if found is None:
                self._close(key, (node.ready_ms if what == NOT_READY else None) or at_ms)
            elif key not in self.open and (from_ms := found[0] or at_ms) is not None:
                self.open[key] = from_ms, found[1]
                self._tell(key, None)

    def end(self, name: str, at_ms: int | None) -> None:
        """A node is no longer there, and nothing of it is out of use."""
        for what in (NOT_READY, CORDONED):
            self._close(f"{name}\n{what}", at_ms)

    def take(self) -> Iterator[Row]:
        """The rows since they were taken last."""
        rows, self._rows = self._rows, []
        yield from rows

    def _close(self, key: str, at_ms: int | None) -> None:
        if key in self.open and at_ms is not None:
            self._tell(key, at_ms)
            del self.open[key]

    def _tell(self, key: str, to_ms: int | None) -> None:
        from_ms, reason = self.open[key]
        to_ms = None if to_ms is None else max(to_ms, from_ms)
        self._rows.append({"node": key.partition("\n")[0], "from_utc": from_ms, "to_utc": to_ms, "reason": reason})
